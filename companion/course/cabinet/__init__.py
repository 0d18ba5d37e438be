"""The cabinet: a right machine, and twenty-seven with a silent fault. Chapter 16."""

from .faults import FAULTS
from .machine import Machine, SmallGPT

__all__ = ["FAULTS", "Machine", "SmallGPT"]

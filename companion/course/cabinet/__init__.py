"""The cabinet: a right machine, and twenty-two with a silent fault. Chapter 16."""

from .faults import FAULTS
from .machine import Machine, MyGPT

__all__ = ["FAULTS", "Machine", "MyGPT"]

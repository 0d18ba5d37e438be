"""`python -m companion describe`: what a config.json's model is made of. Chapter 12."""

import argparse
import sys
from pathlib import Path

from ..pretrained.anatomy import describe
from ..pretrained.config_json import read_anatomy, read_config


def main(arguments: list[str] | None = None) -> None:
    """Say in the course's words what a published model is made of."""
    parser = argparse.ArgumentParser("companion describe", description=main.__doc__)
    parser.add_argument("path", type=Path, help="a config.json, or its folder")
    options = parser.parse_args(arguments)
    try:
        print(describe(read_anatomy(read_config(options.path))))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")

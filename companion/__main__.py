"""`python -m companion` fetches what data is missing; `... train` trains a model."""

import sys

from . import artifacts, runs

if sys.argv[1:2] == ["train"]:
    runs.main(sys.argv[2:])
elif sys.argv[1:]:
    sys.exit(f"error: {sys.argv[1]!r} is not a command: it is `train`, or nothing")
else:
    artifacts.fetch_all()

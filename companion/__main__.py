"""Commands: `python -m companion` alone fetches the data that the chapters need."""

import argparse
import os
import signal
import sys
from types import FrameType

from . import artifacts
from .commands import describe, explore, train


def prepare_streams() -> None:
    """Lets any text be printed, whatever the terminal's encoding, and without one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before the start
            nowhere = open(os.devnull, "w", errors="backslashreplace")
            setattr(sys, name, nowhere)
        else:
            stream.reconfigure(errors="backslashreplace")


def flush_output() -> bool:
    """Writes what is left to print. Returns whether somebody still reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end: into nothing.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        return False
    return True


def stop(signal_number: int, frame: FrameType | None) -> None:
    """Ends the command so that half a file is removed on the way."""
    sys.exit(143)  # as a shell says it: 128 + SIGTERM's 15


def run_command() -> None:
    """Reads the command line, and does what it asks for."""
    parser = argparse.ArgumentParser("python -m companion", description=__doc__)
    commands = parser.add_subparsers(title="commands", dest="command")
    commands.add_parser("gpt2", help="fetch GPT-2's weights for chapter 12, 548 MB")
    # These five read their own options, `--help` among them.
    commands.add_parser("train", help="train a model, or go on", add_help=False)
    commands.add_parser("chat", help="talk with SmolLM2", add_help=False)
    commands.add_parser("tune", help="teach SmolLM2 your own answers", add_help=False)
    commands.add_parser("explore", help="see into your own model", add_help=False)
    commands.add_parser("describe", help="read a config.json", add_help=False)
    arguments, options = parser.parse_known_args()
    command = arguments.command

    # Trainings and talks have their own way to end.
    if command in (None, "gpt2", "explore", "describe"):
        signal.signal(signal.SIGTERM, stop)

    if command == "train":
        train.main(options)
    elif command == "chat":
        from .commands import chat  # half a second more, for `gguf`

        chat.main(options)
    elif command == "tune":
        from .commands import tune  # for the same reason

        tune.main(options)
    elif command == "explore":
        explore.main(options)
    elif command == "describe":
        describe.main(options)
    elif options:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    elif command == "gpt2":
        artifacts.fetch_all([artifacts.GPT2])
    else:
        artifacts.fetch_all()


prepare_streams()
try:
    run_command()
except BrokenPipeError:  # whoever read along has gone
    sys.exit(141)
except KeyboardInterrupt:
    sys.exit(130)
finally:
    if not flush_output():
        sys.exit(141)

"""Commands: `python -m companion` alone fetches the data that the chapters need."""

import argparse
import os
import sys

from . import artifacts


def main() -> None:
    """Run the command that the words after `python -m companion` name."""
    parser = argparse.ArgumentParser("python -m companion", description=__doc__)
    commands = parser.add_subparsers(title="commands", dest="command")
    commands.add_parser("gpt2", help="fetch GPT-2's weights for chapter 12, 548 MB")
    # These three read their own options, `--help` among them.
    commands.add_parser("train", help="train a model, or go on", add_help=False)
    commands.add_parser("chat", help="talk with SmolLM2", add_help=False)
    commands.add_parser("explore", help="see into your own model", add_help=False)
    given, options = parser.parse_known_args()

    if given.command == "train":
        from . import runs

        runs.main(options)
    elif given.command == "chat":
        from . import chat  # half a second more, for `gguf`

        chat.main(options)
    elif given.command == "explore":
        from .explore import main as explore

        explore(options)
    elif options:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    elif given.command == "gpt2":
        artifacts.fetch_all((artifacts.GPT2,))
    else:
        artifacts.fetch_all()


def stop_writing() -> None:
    """Let what is still to be written go nowhere: whoever read it, as `head`, is gone.

    Python writes the rest when it ends, and would complain.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


try:
    try:
        main()
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()
except BrokenPipeError:
    stop_writing()
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)

"""Commands: `python -m companion` alone fetches the data that the chapters need."""

import argparse

from . import artifacts

parser = argparse.ArgumentParser("python -m companion", description=__doc__)
commands = parser.add_subparsers(title="commands", dest="command")
commands.add_parser("gpt2", help="fetch GPT-2's weights for chapter 12, 548 MB")
# These three read their own options, `--help` among them.
commands.add_parser("train", help="train a model, or go on", add_help=False)
commands.add_parser("chat", help="talk with SmolLM2", add_help=False)
commands.add_parser("explore", help="see into your own model", add_help=False)
given, options = parser.parse_known_args()

if given.command == "train":
    from .runs import main

    main(options)
elif given.command == "chat":
    from .chat import main  # half a second more, for `gguf`

    main(options)
elif given.command == "explore":
    from .explore import main

    main(options)
elif options:
    parser.error(f"unrecognized arguments: {' '.join(options)}")
elif given.command == "gpt2":
    artifacts.fetch_all((artifacts.GPT2,))
else:
    artifacts.fetch_all()

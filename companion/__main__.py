"""`python -m companion` fetches what is missing; `train` trains, `chat` talks."""

import sys

from . import artifacts, runs

if sys.argv[1:2] == ["train"]:
    runs.main(sys.argv[2:])
elif sys.argv[1:2] == ["chat"]:
    from . import chat  # half a second more, for `gguf`

    chat.main(sys.argv[2:])
elif sys.argv[1:] == ["gpt2"]:
    artifacts.fetch_all((artifacts.GPT2,))
elif sys.argv[1:]:
    known = "`train`, `chat`, `gpt2`, or nothing"
    sys.exit(f"error: {sys.argv[1]!r} is not a command: it is {known}")
else:
    artifacts.fetch_all()

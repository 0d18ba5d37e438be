"""Put the clone's own remote into docs/install.md's addresses: `make links`."""

import re
import subprocess
import sys
from pathlib import Path

INSTALL = Path(__file__).parents[2] / "docs" / "install.md"
REMOTE = re.compile(r"github\.com[:/]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$")


def filled(text: str, remote: str) -> str:
    """The text with a remote's owner and name; ValueError where it has none."""
    found = REMOTE.search(remote.strip())
    if not found:
        raise ValueError(f"{remote.strip()!r} is no repository on GitHub")
    return text.replace("OWNER", found[1]).replace("REPOSITORY", found[2])


def main() -> None:
    git = ["git", "remote", "get-url", "origin"]
    done = subprocess.run(git, capture_output=True, text=True, cwd=INSTALL.parent)
    try:
        text = filled(INSTALL.read_text("utf-8"), done.stdout)
    except ValueError as error:
        sys.exit(f"error: {error}: {done.stderr.strip() or 'see `git remote -v`'}")
    INSTALL.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

"""A look into one's own model in a browser: `make explore`. Chapter 05."""

import argparse
import os
import sys
import webbrowser
from pathlib import Path

from ..artifacts import CACHE
from ..course.explore import OUT, explore
from ..course.explore.building import TEXT
from ..course.explore.fits import check_text
from ..course.runs import trained
from ..course.stored_models import load_model
from ..files import check_writable
from ..text.shakespeare import tiny_shakespeare
from ..text.tokenizers import CharTokenizer


def main(arguments: list[str] | None = None) -> None:
    """Write a model's page, by default your own of chapter 05, and open it."""
    parser = argparse.ArgumentParser("companion explore", description=main.__doc__)
    parser.add_argument("--checkpoint", type=Path, help="of a run of `train`")
    parser.add_argument("--text", default=TEXT, help="to begin with")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)

    checkpoint = CACHE / "fast.safetensors"
    try:
        # What can't be had is found before a training, not after it.
        tokenizer = CharTokenizer(tiny_shakespeare())
        check_text(tokenizer, options.text)
        check_writable(options.out)
        if options.checkpoint:
            model = load_model(options.checkpoint)
        else:  # the reader's own, or trained now where there is none
            model = trained()
        try:
            explore(model, tokenizer, options.text, options.out)
        except OSError as error:
            raise OSError(
                f"{options.out} can't be written ({error.strerror or error}): make"
                " room, or give another path (--out); what was there stays"
            ) from error
        size = options.out.stat().st_size
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        if not options.checkpoint and checkpoint.exists():
            print(f"run it again to go on from {checkpoint}", file=sys.stderr)
        sys.exit(130)

    print(f"{options.out}: {size / 1e6:.1f} MB, for any browser")
    if os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32"):
        webbrowser.open(options.out.resolve().as_uri())

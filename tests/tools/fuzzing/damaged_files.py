"""Checkpoints: a file that is not as it was written changes nothing."""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import companion as c

from .draws import config, everything, trained


def whatever_file_is_refused_everything_stays(draw: random.Random) -> None:
    """A checkpoint with any byte changed, cut, longer, or of another model."""
    o = config(draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        saved = trained(draw, o)
        here = trained(draw, o)
        recipe = None
        c.save_checkpoint(path, *saved, step=3)
        content = bytearray(path.read_bytes())
        place = draw.randrange(len(content))
        match draw.choice(["flip", "cut", "longer", "other", "facts"]):
            case "flip":
                content[place] ^= 1 << draw.randrange(8)
            case "cut":
                content = content[:place]
            case "longer":
                content += bytes(draw.randint(1, 9))
            case "other":
                here = trained(draw, replace(o, d_vocab=o.d_vocab + 1))
            case "facts":
                recipe = {"seed": 1}
        path.write_bytes(content)
        before = [torch.as_tensor(x).clone() for x in everything(*here)]
        try:
            if recipe:
                c.load_checkpoint(path, *here, recipe=recipe)
            else:
                c.load_checkpoint(path, *here)
        except ValueError:
            after = [torch.as_tensor(x) for x in everything(*here)]
            assert all(map(torch.equal, before, after))
        else:
            raise AssertionError("a file that is not as it was written was loaded")

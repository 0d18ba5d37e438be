"""Measure what chapter 17 has no time for: `python tests/tools/since.py 0 100 200`.

For each number, by which the chapter's seeds grow, it tells where the plain machine's
late queries look, what four experts lose to it, how many choices their bonus overrules,
and the busiest expert's share in the last block. Then what windows of 16 and of 8 gain.
Last, what windows gain in 150 and in 600 steps. It takes the chapter's own cells, some
six minutes for three numbers with one thread.
"""

import sys
import tempfile

import torch
from cells import NOTEBOOKS, code_cells
from course_gpt import set_apart
from seeds import shifted

from companion.course import ladder

CHAPTER = NOTEBOOKS / "17_since_then.ipynb"
CELLS = "setup", "budget-code", "experts-code", "windows-code"
MORE = """
class WatchedAttention(MyAttention):
    def attend(self, queries, keys, values, now):
        scores = queries @ keys.mT / self.d_head**0.5
        weights = scores.masked_fill(~now.mask, -torch.inf).softmax(-1)
        self.first = weights[:, :, 32:, 0].mean()
        return weights @ values


def with_windows(window=16):
    gpt = new_gpt()
    for block in gpt.blocks[:3]:
        block.attention = WindowAttention(config)
        block.attention.window = window
    return gpt
"""


def chapter(shift: int, n_steps: int = 150) -> dict:
    """The names of the chapter's cells, with larger seeds and some number of steps."""
    cells = {cell.id: cell.source for cell in code_cells(shifted(CHAPTER, shift))}
    program = "\n\n".join([*(cells[name] for name in CELLS), MORE])
    names = {}
    exec(program.replace("n_steps=150", f"n_steps={n_steps}"), names)
    return names


def windows() -> torch.Tensor:
    """Texts (b t) that no machine was trained on."""
    _, validation = ladder.parts_of(None)
    return validation[: 200 * 64].view(200, 64)


@torch.no_grad()
def choices(gpt: torch.nn.Module) -> tuple[float, float]:
    """The share of tokens whose likeliest expert isn't asked, over all blocks.

    And the share of them that ask the busiest expert of the last block.
    """
    gpt(windows())
    layers = [block.feed_forward for block in gpt.blocks]
    overruled = [(x.chosen != x.likeliest).float().mean() for x in layers]
    chosen = layers[-1].chosen.flatten()
    share = chosen.bincount(minlength=4).max() / chosen.numel()
    return torch.stack(overruled).mean().item(), share.item()


@torch.no_grad()
def look_at_first(names: dict, plain: torch.nn.Module) -> float:
    """The share that queries 33 to 64 of all heads give to the first token."""
    watched = names["new_gpt"](names["WatchedAttention"])
    watched.load_state_dict(plain.state_dict())
    watched.eval()(windows())
    firsts = [block.attention.first for block in watched.blocks]
    return torch.stack(firsts).mean().item()


def main() -> None:
    """Measures with each shift, and prints."""
    for shift in map(int, sys.argv[1:]):
        names = chapter(shift)
        plain = names["new_gpt"]()
        loss = names["my_rung"](plain)
        first = look_at_first(names, plain)
        print(f"shift {shift}: plain {loss:.4f}, first token {first:.3f}", flush=True)
        gpt = names["new_gpt"](feed_forward=names["Experts"])
        lost = names["my_rung"](gpt) - loss
        overruled, share = choices(gpt)
        print(f"  experts lose {lost:.4f} nats", end=", ")
        print(f"overruled {overruled:.2f}, busiest {share:.2f}", flush=True)
        for window in (16, 8):
            gain = loss - names["my_rung"](names["with_windows"](window))
            print(f"  windows of {window}: gain {gain:.4f} nats", flush=True)
    for n_steps in (150, 600):
        names = chapter(0, n_steps)
        loss = names["my_rung"](names["new_gpt"]())
        gain = loss - names["my_rung"](names["with_windows"]())
        print(f"{n_steps} steps: windows gain {gain:.3f} nats", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        set_apart(folder)
        main()

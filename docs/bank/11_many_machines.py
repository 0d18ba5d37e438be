"""Homework of chapter 11: two questions and their checks, the teacher's alone."""

import torch
from torch.nn.functional import cross_entropy

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. Deal the rows.** In FSDP each of `p` ranks stores a part of a matrix, some of its
# rows. Nobody promises that `p` divides their number; there may even be fewer rows than
# ranks. Write `my_range(n_rows, p, rank)`. It returns a pair of whole numbers: the
# first row of this rank, and the first behind its last. Ranks take their rows in order,
# each row belongs to one rank, and no rank has more than one row more than another. (In
# a step all wait for whoever has most.)


# %%
def my_range(n_rows, p, rank):
    raise NotImplementedError


# %%
def check_range(answer):
    for n_rows, p in ((12, 4), (10, 4), (13, 8), (7, 5), (3, 8), (1, 1), (0, 2)):
        ranges = [answer(n_rows, p, rank) for rank in range(p)]
        case = f"{n_rows} rows, {p} ranks"
        whole = all(isinstance(row, int) for pair in ranges for row in pair)
        assert whole, f"{case}: rows are whole numbers: divide by `//`"

        rows = [row for start, end in ranges for row in range(start, end)]
        assert len(rows) >= n_rows, (
            f"{case}: {n_rows - len(rows)} rows belong to nobody"
        )
        words = f"{case}: each row once, ranks in order: {ranges}"
        assert rows == list(range(n_rows)), words

        sizes = [end - start for start, end in ranges]
        assert min(sizes) >= 0, f"{case}: a part ends before it begins"
        words = f"{case}: the parts have {sizes} rows, which is uneven"
        assert max(sizes) - min(sizes) <= 1, words


# %% [markdown]
# **2. A vocabulary in parts.** In tensor parallel training the output matrix is cut,
# too. A rank has the logits of the tokens `first`, `first` + 1, and so on, and the loss
# needs all. Write `my_vocabulary_part(logits, first, targets)`: a rank's logits (t v)
# and the targets (t), numbered in the whole vocabulary, go in. Out come three tensors
# (t): the largest logit; the sum of the exponentials after it was subtracted; the
# target's logit, or 0 where another rank has it. (Logits 1, 1 for tokens 4 and 5,
# target 5: 1, 2, 1.)


# %%
def my_vocabulary_part(logits, first, targets):
    raise NotImplementedError


# %%
def check_vocabulary_part(answer):
    targets = torch.tensor([0, 4, 8, 11, 3, 7])
    for p in (1, 2, 3, 4):
        for loudness in (1, 1000):
            logits = loudness * draw(6, 12, seed=p)
            parts = logits.chunk(p, 1)
            width = 12 // p
            told = [answer(parts[r], r * width, targets) for r in range(p)]
            assert all(len(three) == 3 for three in told), "three tensors are wanted"
            shapes = [tuple(x.shape) for three in told for x in three]
            words = "each of the three is (t), a number for each token"
            assert shapes == [(6,)] * 3 * p, words
            largest, totals, of_targets = map(torch.stack, zip(*told, strict=True))

            words = "the first is the largest of a rank's logits, token by token"
            agree(largest, torch.stack([part.amax(1) for part in parts]), words)
            words = f"the largest logit adds 1 to a sum, which is {totals[0, 0]:g}"
            assert ((totals >= 1) & (totals <= width)).all(), words
            words = "only the rank with the target has its logit: `first` + place"
            agree(of_targets.sum(0), logits[torch.arange(6), targets], words)
            assert ((of_targets != 0).sum(0) == 1).all(), words

            # Put together, they are the loss over the whole vocabulary.
            top = largest.amax(0)
            total = (totals * (largest - top).exp()).sum(0)
            losses = top + total.log() - of_targets.sum(0)
            words = "put together, the sums don't give the loss"
            agree(losses, cross_entropy(logits, targets, reduction="none"), words)

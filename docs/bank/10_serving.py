"""Homework of chapter 10: two questions and their checks, the teacher's alone."""

# %% [markdown]
# **1. Any common beginning.** A server may share more than its instructions. A full
# page is kept once for all texts that agree from their first token to the page's
# last, since a key depends on all that stands before it. A page that isn't full
# belongs to one text. Write `my_pages(texts, size)`: lists of token ids go in, and the
# number of pages of `size` slots comes out. For [1, 2, 3, 4, 5], [1, 2, 3, 4] and [3,
# 4, 1, 2] in pages of 2 it is 5.


# %%
def my_pages(texts, size):
    raise NotImplementedError


# %%
def check_pages(answer):
    n = answer([[1, 2, 3, 4, 5], [1, 2, 3, 4], [3, 4, 1, 2]], 2)
    assert n != 7, "nothing is shared"
    assert n != 3, "equal tokens after another beginning have other keys"
    assert n == 5, f"the prompt's example has 5 pages, not {n}"

    n = answer([[1, 2, 3], [1, 2, 3]], 2)
    assert n != 2, "a page that isn't full belongs to one text, even of two equal ones"
    assert n == 3, f"[1, 2, 3] twice, in pages of 2: one full page, two others, not {n}"

    # By hand: one text, pages of one token, no tokens, and two groups of beginnings.
    for texts, size, wanted in (
        ([[7, 7, 7, 7, 7]], 2, 3),
        ([[5, 6, 7], [5, 6, 8], [5]], 1, 4),
        ([[], [1]], 4, 1),
        ([[1, 1, 2, 2], [1, 1, 3, 3], [4, 4, 2, 2], [4, 4, 2, 2, 5]], 2, 6),
    ):
        n = answer(texts, size)
        assert n == wanted, f"{texts} in pages of {size}: {n}, wanted {wanted}"

    # A text that another one goes on with, from a full page on, costs nothing.
    texts = [[i % 3 for i in range(n)] for n in (4, 8, 16)]
    words = "a text whose pages another has, too, costs nothing"
    assert answer(texts, 4) == answer(texts[2:], 4) == 4, words


# %% [markdown]
# **2. Who is in which slot?** A cache of `width` slots keeps the first `n_sinks` tokens
# for good. The slots fill up in order. When all are taken, a new token takes the place
# of the oldest that is no sink, and all others stay where they are. Write `my_slots(n,
# width, n_sinks)`. It returns a list of positions: after `n` tokens, the one in each
# slot, for as many slots as are taken. With 4 slots and 1 sink, 7 tokens leave [0, 4,
# 5, 6]. And one token more?


# %%
def my_slots(n, width, n_sinks):
    raise NotImplementedError


# %%
def check_slots(answer):
    for width, n_sinks in ((4, 1), (5, 2), (6, 0), (3, 2)):
        before = []
        for n in range(25):
            slots = list(answer(n, width, n_sinks))
            case = f"{n} tokens, {width} slots, {n_sinks} sinks"
            words = f"{case}: {len(slots)} slots are taken, wanted {min(n, width)}"
            assert len(slots) == min(n, width), words

            # Who is there, in any order; then, that only one slot has changed.
            sinks = set(range(min(n, n_sinks)))
            assert sinks <= set(slots), f"{case}: a sink is gone"
            newest = set(range(max(n_sinks, n - width + n_sinks), n))
            assert set(slots) == sinks | newest, (
                f"{case}: not the newest tokens: {slots}"
            )
            moved = [a for a, b in zip(before, slots, strict=False) if a != b]
            words = (
                f"{case}: {before} became {slots}, so more than one slot has changed"
            )
            assert len(moved) + len(slots) - len(before) == min(n, 1), words
            before = slots

"""Homework of chapter 00: two questions and their checks, the teacher's alone."""

import random

# %% [markdown]
# **1. What a merge saves.** Each merge makes a text shorter. Write `my_saved(ids,
# pair)`: `ids` is a list of numbers and `pair` a tuple of two. Return how many tokens
# fewer there are once this pair has been merged everywhere, from left to right. A token
# takes part in one merge at most: of 5, 5, 5 the pair (5, 5) takes the first two, and
# saves 1 token. `ids` must not change.


# %%
def my_saved(ids, pair):
    raise NotImplementedError


# %%
def check_saved(answer):
    ids = [1, 2, 1, 2, 3]
    assert answer(ids, (1, 2)) == 2, "1, 2, 1, 2, 3 has two pairs 1, 2: each saves 1"
    assert ids == [1, 2, 1, 2, 3], "the list that went in was changed"
    assert answer([1, 2], (2, 1)) == 0, "1, 2 is not the pair 2, 1"
    assert answer([5, 5, 5], (5, 5)) == 1, "of 5, 5, 5 only two can be merged"
    assert answer([5] * 8, (5, 5)) == 4, "eight times 5 are four pairs"
    assert answer([], (1, 1)) == 0, "an empty list has no pair"
    assert answer([256, 256], (256, 256)) == 1, "the whole list may be the pair"

    # Pairs of letters, which Python counts without overlaps, too.
    letters = random.Random(0)
    for n in range(2, 60):
        text = "".join(letters.choices("ab", k=n))
        for pair in ("ab", "aa"):
            count = answer(list(text.encode()), tuple(pair.encode()))
            assert count == text.count(pair), f"of {pair} in {text}: {count}"


# %% [markdown]
# **2. Longest first.** BERT's tokenizer, WordPiece, knows no order of merges. It takes
# the longest token that the text begins with, then the longest that the rest begins
# with, and so on. Write `my_longest_first(text, vocabulary)`: `vocabulary` is a set of
# texts, every character of `text` among them. Return a list of tokens. With the tokens
# a, b, c, d, e, ab, abc, cd and cde, `abcde` becomes abc, d, e.


# %%
def my_longest_first(text, vocabulary):
    raise NotImplementedError


# %%
def check_longest_first(answer):
    def hold(text, vocabulary):
        tokens = answer(text, set(vocabulary))
        assert isinstance(tokens, list), "a list should come out"
        assert "".join(tokens) == text, f"put together, they are not the text: {tokens}"
        assert set(tokens) <= vocabulary, f"not in the vocabulary: {tokens}"
        rest = text
        for token in tokens:
            longer = [
                x for x in vocabulary if rest.startswith(x) and len(x) > len(token)
            ]
            assert not longer, f"{rest!r} begins with {longer[0]!r}, not only {token!r}"
            rest = rest[len(token) :]

    hold("abcde", {*"abcde", "ab", "abc", "cd", "cde"})
    hold("abcd", {*"abcd", "abcd"})  # neither ab nor abc is a token
    hold("xabab", {*"xab", "abab", "xa"})  # the longest token of all comes too late
    hold("", {"a"})
    letters = random.Random(0)
    for n in range(1, 40):
        text = "".join(letters.choices("ab", k=n))
        longer = {"".join(letters.choices("ab", k=letters.randint(2, 6))) for _ in text}
        hold(text, {"a", "b", *longer})

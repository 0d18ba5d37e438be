"""Checks of chapter 17: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable

from .compare import Exercise, check, ways_of


@check
def cache_bytes() -> Exercise:
    """`answer(n, windows, n_kv_heads, d_head, n_bytes)`: the bytes of a text's cache.

    `windows` has for each layer its window, or None where it keeps all n tokens.
    """

    def kept_of(n: int, window: int | None) -> int:
        return n if window is None else min(n, window)

    def right(
        n: int,
        windows: list[int | None],
        n_kv_heads: int,
        d_head: int,
        n_bytes: int,
        kept: Callable = kept_of,
    ) -> int:
        n_kept = sum(kept(n, window) for window in windows)
        return 2 * n_kv_heads * d_head * n_bytes * n_kept

    way = ways_of(right)

    cases = [
        (100, [16, 16, 16, None], 4, 8, 2),
        (10, [16, None, 4], 3, 5, 4),
        (1000, [None, 128] * 6, 8, 64, 2),
        (6, [None], 1, 7, 1),
    ]
    mistakes = {
        "keys alone: the values are kept, too": lambda *case: right(*case) // 2,
        "all tokens in every layer: one with a window keeps no more than its window": (
            way(kept=lambda n, window: n)
        ),
        "a text shorter than the window doesn't fill it": way(
            kept=lambda n, window: n if window is None else window
        ),
        "the layers without a window are missing: they keep every token": way(
            kept=lambda n, window: 0 if window is None else min(n, window)
        ),
        "a window of w keeps w tokens, the newest among them": way(
            kept=lambda n, window: n if window is None else min(n, window - 1)
        ),
        "numbers, not bytes: each has n_bytes": (
            lambda n, windows, h, d, n_bytes: right(n, windows, h, d, 1)
        ),
        "of one head: there are n_kv_heads": (
            lambda n, windows, h, d, n_bytes: right(n, windows, 1, d, n_bytes)
        ),
        "for each token, not for the whole text": lambda n, *case: right(n, *case) / n,
        "the mean of the layers: each has keys and values of its own": (
            lambda n, windows, *case: right(n, windows, *case) / len(windows)
        ),
    }
    praise = "full layers keep all, the others their window"
    return Exercise(right, cases, mistakes, praise)

"""Right and wrong answers to the exercises of chapter 17."""

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def by_a_loop(n, windows, n_kv_heads, d_head, n_bytes):
    n_numbers = 0
    for window in windows:
        for place in range(n):
            if window is None or place >= n - window:
                n_numbers += 2 * n_kv_heads * d_head
    return n_numbers * n_bytes


def by_kinds(n, windows, n_kv_heads, d_head, n_bytes):
    full = windows.count(None)
    short = sum(min(n, w) for w in windows if w is not None)
    return (n * full + short) * n_kv_heads * d_head * 2 * n_bytes


@wrong(checks.cache_bytes, "the values are kept, too")
def keys_alone(n, windows, n_kv_heads, d_head, n_bytes):
    return by_kinds(n, windows, n_kv_heads, d_head, n_bytes) / 2


@wrong(checks.cache_bytes, "no more than its window")
def all_of_them(n, windows, n_kv_heads, d_head, n_bytes):
    return 2 * n * len(windows) * n_kv_heads * d_head * n_bytes


@wrong(checks.cache_bytes, "doesn't fill it")
def windows_full(n, windows, n_kv_heads, d_head, n_bytes):
    return sum(w or n for w in windows) * 2 * n_kv_heads * d_head * n_bytes


@wrong(checks.cache_bytes, "they keep every token")
def none_is_none(n, windows, n_kv_heads, d_head, n_bytes):
    n_kept = sum(min(n, w) for w in windows if w)
    return n_kept * 2 * n_kv_heads * d_head * n_bytes


RIGHT = [(checks.cache_bytes, by_a_loop), (checks.cache_bytes, by_kinds)]
WRONG = wrong

"""Wrong answers to the homework of chapter 02."""

from einops import einsum, rearrange


def matrices(w_queries, w_keys, n_heads, scale):
    q = rearrange(w_queries, "(h d) c -> h d c", h=n_heads)
    k = rearrange(w_keys, "(h d) c -> h d c", h=n_heads)
    return einsum(q, k, "h d a, h d b -> h a b") / scale


def no_scale(w_queries, w_keys, n_heads):
    return matrices(w_queries, w_keys, n_heads, 1)


def root_of_the_width(w_queries, w_keys, n_heads):
    return matrices(w_queries, w_keys, n_heads, len(w_keys) ** 0.5)


def turned_over(w_queries, w_keys, n_heads):
    return matrices(w_keys, w_queries, n_heads, (len(w_keys) / n_heads) ** 0.5)


def columns(w_queries, w_keys, n_heads):
    scale = (len(w_keys) / n_heads) ** 0.5
    return matrices(w_queries.mT, w_keys.mT, n_heads, scale)


def interleaved(w_queries, w_keys, n_heads):
    q = rearrange(w_queries, "(d h) c -> h d c", h=n_heads)
    k = rearrange(w_keys, "(d h) c -> h d c", h=n_heads)
    return q.mT @ k / q.shape[1] ** 0.5


def all_heads_at_once(w_queries, w_keys, n_heads):
    return w_queries.mT @ w_keys


def moved(weight, order):
    rows = rearrange(weight, "(h d) c -> h d c", h=len(order))
    return rows[order].flatten(0, 1)


def rows_of_the_output(w_queries, w_keys, w_values, w_output, order):
    return [moved(weight, order) for weight in (w_queries, w_keys, w_values, w_output)]


def output_left(w_queries, w_keys, w_values, w_output, order):
    return [*(moved(w, order) for w in (w_queries, w_keys, w_values)), w_output]


def the_other_way(w_queries, w_keys, w_values, w_output, order):
    order = sorted(range(len(order)), key=order.__getitem__)
    rows = [moved(w, order) for w in (w_queries, w_keys, w_values)]
    return [*rows, moved(w_output.mT, order).mT]


def nothing_moved(w_queries, w_keys, w_values, w_output, order):
    return w_queries, w_keys, w_values, w_output


def features_moved(w_queries, w_keys, w_values, w_output, order):
    rows = [moved(w.mT, order).mT for w in (w_queries, w_keys, w_values)]
    return [*rows, moved(w_output, order)]


WRONG = (
    ("score_matrices", "which root?", no_scale),
    ("score_matrices", "which root?", root_of_the_width),
    ("score_matrices", "changed places", turned_over),
    ("score_matrices", "which rows", columns),
    ("score_matrices", "which rows", interleaved),
    ("score_matrices", "the shape is (12, 12)", all_heads_at_once),
    ("reordered", "the output is another", rows_of_the_output),
    ("reordered", "the output is another", output_left),
    ("reordered", "the heads are where they were", nothing_moved),
    ("reordered", "the new head order[i] is the old i", the_other_way),
    ("reordered", "does not look where", features_moved),
)

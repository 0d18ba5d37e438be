"""Wrong answers to the homework of chapter 10."""


def cut(text, size):
    return [tuple(text[i : i + size]) for i in range(0, len(text), size)]


def nothing_shared(texts, size):
    return sum(len(cut(text, size)) for text in texts)


def by_their_own_tokens(texts, size):
    full = {x for text in texts for x in cut(text, size) if len(x) == size}
    rest = [x for text in texts for x in cut(text, size) if len(x) < size]
    return len(full) + len(rest)


def open_blocks_shared(texts, size):
    return len({tuple(x[: i + size]) for x in texts for i in range(0, len(x), size)})


def by_slots(texts, size):
    return len({tuple(x[:n]) for x in texts for n in range(1, len(x) + 1)}) // size


def in_order(n, width, n_sinks):
    if n <= width:
        return [*range(n)]
    return [*range(n_sinks), *range(n - width + n_sinks, n)]


def plain_ring(n, width, n_sinks):
    slots = [*range(min(n, width))]
    for position in range(width, n):
        slots[position % width] = position
    return slots


def sinks_on_top(n, width, n_sinks):
    return plain_ring(n, width + n_sinks, 0)


def ring_from_another_slot(n, width, n_sinks):
    slots = [*range(min(n, width))]
    for position in range(width, n):
        slots[n_sinks + position % (width - n_sinks)] = position
    return slots


WRONG = (
    ("pages", "nothing is shared", nothing_shared),
    ("pages", "after another beginning", by_their_own_tokens),
    ("pages", "belongs to one text", open_blocks_shared),
    ("pages", "the prompt's example", by_slots),
    ("slots", "more than one slot", in_order),
    ("slots", "a sink is gone", plain_ring),
    ("slots", "slots are taken, wanted 4", sinks_on_top),
    ("slots", "not the newest tokens", ring_from_another_slot),
)

"""Wrong answers to the homework of chapter 00."""


def with_overlaps(ids, pair):
    return sum(both == pair for both in zip(ids, ids[1:], strict=False))


def two_a_merge(ids, pair):
    n = len(ids)
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            n -= 2
            i += 1
        i += 1
    return len(ids) - n


def in_place(ids, pair):
    n = len(ids)
    for i in range(n):
        if tuple(ids[i : i + 2]) == pair:
            ids[i : i + 2] = [-1]
    return n - len(ids)


def in_any_order(ids, pair):
    return min(ids.count(pair[0]), ids.count(pair[1]))


def shortest_first(text, vocabulary):
    return list(text)


def grown(text, vocabulary):
    """Makes a token longer as long as it is one: `abcd` is not found by way of `ab`."""
    tokens = []
    for character in text:
        if tokens and tokens[-1] + character in vocabulary:
            tokens[-1] += character
        else:
            tokens.append(character)
    return tokens


def longest_anywhere(text, vocabulary):
    for token in sorted(vocabulary, key=len, reverse=True):
        if token and token in text:
            left, right = text.split(token, 1)
            ends = (longest_anywhere(part, vocabulary) for part in (left, right))
            before, after = ends
            return [*before, token, *after]
    return []


def fewest(text, vocabulary):
    """As few tokens as can be, another rule."""
    if not text:
        return []
    tokens = [x for x in sorted(vocabulary) if text.startswith(x)]
    rests = [[x, *fewest(text[len(x) :], vocabulary)] for x in tokens]
    return min(rests, key=len)


WRONG = (
    ("saved", "only two can be merged", with_overlaps),
    ("saved", "each saves 1", two_a_merge),
    ("saved", "was changed", in_place),
    ("saved", "is not the pair 2, 1", in_any_order),
    ("longest_first", "begins with", shortest_first),
    ("longest_first", "begins with 'abcd'", grown),
    ("longest_first", "begins with", longest_anywhere),
    ("longest_first", "begins with 'abc'", fewest),
)

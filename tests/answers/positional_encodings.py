"""Right and wrong answers to the exercises of chapter 03."""

import itertools
import math

import torch

import companion
from companion import deinterleave, interleave, relative_buckets, rotate
from companion.course import checks
from companion.model.positions import alibi_slopes

from .wrong import Wrong

wrong = Wrong()


@wrong(checks.slopes, "powers of two only")
def even(h):
    return 2 ** (-8 * torch.arange(1, h + 1) / h)


def one_after_another(h):
    """ALiBi's slopes by recursion, as its authors write it."""
    power = 2 ** math.floor(math.log2(h))
    if power == h:
        return torch.tensor([2 ** (-8 * i / h) for i in range(1, h + 1)])
    return torch.cat([even(power), one_after_another(2 * power)[0::2][: h - power]])


@wrong(checks.slopes, "for h = 5: .* 6 things, wanted 5")
def half_of_them(h):
    """Always half of the longer list's every second one."""
    power = 2 ** int(math.log2(h))
    more = even(2 * power)[:power:2]
    return even(h) if power == h else torch.cat([even(power), more])


@wrong(checks.slopes, "for h = 5: at")
def two_thirds(h):
    """8 is two thirds of 12."""
    if h & (h - 1) == 0:
        return even(h)
    return torch.cat([even(2 * h // 3), even(4 * h // 3)[::2]])[:h]


@wrong(checks.slopes, "for h = 40: .* 32 things, wanted 40")
def up_to_sixteen(h):
    """The powers of two that the exercise names."""
    power = max(p for p in (1, 2, 4, 8, 16) if p <= h)
    return torch.cat([even(power), even(2 * power)[::2]])[:h]


def fixed(distance, n, most, factor=None, upper=None):
    """The exercise's own numbers kept."""
    exact = n // 4
    away = distance.abs()
    begins = [exact * (factor or most / exact) ** (i / exact) for i in range(exact)]
    far = exact - 1 + sum((away >= begin).long() for begin in begins)
    return torch.where(away < exact, away, far) + (upper or n // 2) * (distance < 0)


def paper(x, positions):
    return interleave(rotate(deinterleave(x), positions))


def first(turn):
    """The first n features go through `turn`, the others stay."""

    def partly(x, positions, n):
        return torch.cat([turn(x[..., :n], positions), x[..., n:]], -1)

    return partly


def both(distance, n, most):
    return relative_buckets(distance, n, most, causal=False)


def logarithmic(whole=torch.floor, span=lambda exact, most: most / exact, limit=True):
    """T5's rule by logarithms, with its usual slips."""

    def buckets(distance, n, most):
        exact = n // 4
        away = distance.abs()
        part = (away.clamp(min=exact) / exact).log() / math.log(span(exact, most))
        far = exact + whole(exact * part).long()
        far = far.clamp(max=n // 2 - 1) if limit else far
        return torch.where(away < exact, away, far) + (distance < 0) * (n // 2)

    return buckets


def counted(distance, n, most, begun=torch.ge, last=False):
    exact = n // 4
    away = distance.abs()
    begins = [*range(exact)]
    begins += [exact * (most / exact) ** (i / (exact - last)) for i in range(exact)]
    first = 1 if begun is torch.ge else 0
    bucket = sum(begun(away, begin).long() for begin in begins[first:])
    return bucket + n // 2 * (distance < 0)


def one_by_one(distance, n, most):
    def bucket(d):
        exact = n // 4
        away = abs(d)
        far = exact + int(exact * math.log(max(away, exact) / exact, most / exact))
        return n // 2 * (d < 0) + (away if away < exact else min(far, n // 2 - 1))

    flat = [bucket(d) for d in distance.flatten().tolist()]
    return torch.tensor(flat).view(distance.shape)


@wrong(checks.buckets, "equally wide")
def equally_wide(distance, n, most):
    exact = n // 4
    away = distance.abs()
    far = exact + (away - exact) * exact // (most - exact)
    bucket = torch.where(away < exact, away, far).clamp(max=n // 2 - 1)
    return bucket + (distance < 0) * (n // 2)


def complex_product(x, positions):
    d = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten(-2)


@wrong(checks.neighbours, "changes its input")
def in_place(x, positions, n):
    x[..., :n] = paper(x[..., :n], positions)
    return x


def repeated(x, positions):
    """The paper's rotation in the form of its equation 34."""
    d = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
    angles = angles.repeat_interleave(2, -1)
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * angles.cos() + swapped * angles.sin()


def at_speeds(rule):
    def turn(x, positions):
        d = x.shape[-1]
        return written_out(x, positions, rule(torch.arange(d // 2), d))

    return turn


def turned(pair):
    def turn(x, positions):
        d = x.shape[-1]
        angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack(pair(a, b, angles.cos(), angles.sin()), -1).flatten(-2)

    return turn


def overwriting(a, b, cos, sin):
    a = a * cos - b * sin
    b = a * sin + b * cos
    return a, b


def written_out(x, positions, speeds):
    angles = positions[:, None] * speeds
    a, b = x[..., 0::2], x[..., 1::2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(pair, -1).flatten(-2)


def halves_of(part, cut=True):
    """8 slopes, and of the next list a part."""

    def rule(h):
        power = 2 ** int(math.log2(h))
        slopes = torch.cat([even(power), part(even(2 * power), h - power)])
        return slopes[:h] if cut else slopes

    return rule


@wrong(checks.slopes, "not the nearest")
def nearest(h):
    """The power of two by rounding."""
    power = 2 ** round(math.log2(h))
    return torch.cat([even(power), even(2 * power)[::2]])[:h]


@wrong(checks.slopes, r"at \[0\] it gives")
def additional_first(h):
    power = 2 ** int(math.log2(h))
    return torch.cat([even(2 * power)[::2][: h - power], even(power)])


def appended(h):
    """One slope after another."""
    power = 1
    while 2 * power <= h:
        power *= 2
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-8 * (2 * i + 1) / (2 * power)) for i in range(h - power)]
    return torch.tensor(slopes)


@wrong(checks.neighbours, "from n on stay")
def from_nothing(x, positions, n):
    """A new tensor, of which the rest was forgotten."""
    new = torch.zeros_like(x)
    new[:, :n] = paper(x[:, :n], positions)
    return new


def on_a_copy(x, positions, n):
    x = x.clone()
    x[:, :n] = paper(x[:, :n], positions)
    return x


@wrong(checks.neighbours, "keep the old one")
def by_views(x, positions, n):
    """Slices of the copy are written while they are read."""
    new = x.clone()
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
    a, b = new[:, 0:n:2], new[:, 1:n:2]
    new[:, 0:n:2] = a * angles.cos() - b * angles.sin()
    new[:, 1:n:2] = a * angles.sin() + b * angles.cos()
    return new


def by_matrices(x, positions, n):
    """Each pair times its own 2 x 2 matrix."""
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
    cos, sin = angles.cos(), angles.sin()
    turns = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))
    pairs = x[:, :n].unflatten(-1, (-1, 2))
    turned = torch.einsum("tiab,tib->tia", turns, pairs)
    return torch.cat([turned.flatten(1), x[:, n:]], 1)


def pair_by_pair(x, positions, n):
    rows = x.tolist()
    for row, position in zip(rows, positions.tolist(), strict=True):
        for i in range(0, n, 2):
            angle = position * 10_000 ** (-i / n)
            a, b = row[i : i + 2]
            row[i] = a * math.cos(angle) - b * math.sin(angle)
            row[i + 1] = a * math.sin(angle) + b * math.cos(angle)
    return torch.tensor(rows)


@wrong(checks.slopes, "for h = 15: .* 12 things, wanted 15")
def first_half(h):
    """Every second of the first half of the longer list."""
    power = 2 ** int(math.log2(h))
    return torch.cat([even(power), even(2 * power)[:power:2]])[:h]


@wrong(checks.slopes, "rest from the longer list")
def own_rest(h):
    """The additional slopes by the rule for their own number."""
    power = 2 ** int(math.log2(h))
    return torch.cat([even(power), even(h - power)])


@wrong(checks.neighbours, "stops with IndexError")
def ten_rows(x, positions, n):
    """A table of angles for ten positions."""
    angles = torch.arange(10)[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
    angles, a, b = angles[positions], x[:, 0:n:2], x[:, 1:n:2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.cat([torch.stack(pair, -1).flatten(1), x[:, n:]], 1)


def rounded_factor(exact, most, i):
    return exact * round((most / exact) ** (1 / exact), 3) ** i


def begun(begins, exact=4, away=torch.abs, below=torch.lt):
    """How many buckets have begun, `begins` saying where the wide ones do."""

    def buckets(distance, n, most):
        few = n // exact
        starts = [*range(few), *(begins(few, most, i) for i in range(few))]
        bucket = sum((away(distance) >= start).long() for start in starts) - 1
        return bucket + n // 2 * below(distance, 0)

    return buckets


def growing(exact, most, i):
    return exact * (most / exact) ** (i / exact)


def searched(distance, n, most):
    ends = [*range(1, n // 4), *(growing(n // 4, most, i) for i in range(n // 4))]
    bucket = torch.bucketize(distance.abs(), torch.tensor(ends), right=True)
    return bucket.where(distance >= 0, bucket + n // 2)


def factor_by_factor(distance, n, most):
    factor = (most / (n // 4)) ** (4 / n)
    begins = [*range(n // 4 + 1)]
    while len(begins) < n // 2:
        begins.append(begins[-1] * factor)
    bucket = (distance.abs()[..., None] >= torch.tensor(begins)).sum(-1) - 1
    bucket[distance < 0] += n // 2
    return bucket


@wrong(checks.buckets, r"it gives -8, wanted 24")
def negative(distance, n, most):
    return both(distance.abs(), n, most) * distance.sign()


def my_induction_scores(weights, tokens):
    right = tokens.roll(1) == tokens[:, None]
    right[:, 0] = False
    right = right & companion.causal_mask(len(tokens))
    on_right = (weights * right).sum(-1)
    return on_right[:, right.any(-1)].mean(-1)


def looped_induction_scores(weights, tokens):
    scores = []
    for head in weights.tolist():
        sums = []
        for t, row in enumerate(head):
            places = [s for s in range(1, t + 1) if tokens[s - 1] == tokens[t]]
            if places:
                sums.append(sum(row[s] for s in places))
        scores.append(sum(sums) / len(sums))
    return torch.tensor(scores)


def shifted_induction_scores(weights, tokens):
    copies = (tokens[:, None] == tokens).tril(-1)  # key s is an earlier copy of t
    right = torch.nn.functional.pad(copies[:, :-1], (1, 0))
    has_a_copy = copies.any(-1)
    return torch.einsum("hts,ts->h", weights, right.float()) / has_a_copy.sum()


def induction(choose, reduce=None):
    """Scores on the keys that `choose(copies)` chooses, copies (t s) of each token."""

    def scores(weights, tokens):
        right = choose(tokens[:, None] == tokens)
        if reduce:
            return reduce(weights, right)
        return (weights * right).sum(-1)[:, right.any(-1)].mean(-1)

    return scores


def followers(copies):
    return torch.nn.functional.pad(copies.tril(-1)[:, :-1], (1, 0))


def last_follower(copies):
    right = followers(copies)
    return right & (right.flip(-1).cumsum(-1).flip(-1) == 1)


def unmasked(copies):
    return torch.nn.functional.pad(copies[:, :-1], (1, 0))


@wrong(checks.induction_scores, r"w \(3, 6, 6\)|weights \(3, 6, 6\)")
def first_round(weights, tokens):
    n = len(tokens) // 2
    queries = torch.arange(n, len(tokens))
    return weights[:, queries, queries - n + 1].mean(-1)


def asked(weights, tokens):
    """The sums (h q) of those queries that have a follower, and their number."""
    right = followers(tokens[:, None] == tokens)
    return (weights * right).sum(-1), right.any(-1)


@wrong(checks.induction_scores, "queries whose followers get no weight")
def counted_induction_scores(weights, tokens):
    scores = []
    for sums in asked(weights, tokens)[0]:
        nonzero = [x for x in sums.tolist() if x]
        scores.append(sum(nonzero) / max(len(nonzero), 1))
    return torch.tensor(scores)


def largest(weights, at):
    return (weights * at).amax(-1)


RIGHT = [
    (checks.slopes, lambda h: map(float, alibi_slopes(h))),
    (checks.slopes, lambda h: alibi_slopes(h).numpy()),
    (checks.slopes, lambda h: {x: None for x in alibi_slopes(h).tolist()}.keys()),
    (
        checks.induction_scores,
        lambda w, x: (score for score in my_induction_scores(w, x)),
    ),
    (checks.slopes, appended),
    (checks.slopes, halves_of(lambda longer, rest: longer[::2])),
    (checks.neighbours, on_a_copy),
    (checks.neighbours, by_matrices),
    (checks.neighbours, pair_by_pair),
    (checks.buckets, searched),
    (checks.buckets, factor_by_factor),
    (checks.buckets, begun(growing)),
    (checks.slopes, alibi_slopes),
    (checks.slopes, one_after_another),
    (checks.slopes, lambda h: one_after_another(h).double()),
    (checks.slopes, lambda h: alibi_slopes(h).tolist()),
    (checks.neighbours, first(paper)),
    (checks.neighbours, first(complex_product)),
    (checks.neighbours, first(repeated)),
    (
        checks.neighbours,
        first(
            lambda x, p: written_out(
                x, p, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
            )
        ),
    ),
    (checks.buckets, both),
    (checks.buckets, fixed),
    (checks.buckets, logarithmic()),
    (checks.buckets, counted),
    (checks.buckets, one_by_one),
    (checks.buckets, lambda *case: both(*case).int()),
    (checks.induction_scores, my_induction_scores),
    (checks.induction_scores, looped_induction_scores),
    (checks.induction_scores, shifted_induction_scores),
    (checks.induction_scores, lambda w, x: my_induction_scores(w, x).tolist()),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w.clone().mul_(w >= 0), x),
    ),
]


WRONG = [
    *wrong,
    (checks.slopes, lambda h: range(10**9), "more than 10,000 things"),
    (checks.slopes, lambda h: itertools.count(), "more than 10,000 things"),
    (checks.slopes, lambda h: {*alibi_slopes(h).tolist()}, "it gives {.*}, wanted"),
    (checks.neighbours, lambda x, p, n: first(paper)(x, p, n).numpy(), "or an array:"),
    (
        checks.neighbours,
        lambda x, p, n: first(paper)(x, p.clamp(max=10), n),
        r"at \[2, 0\]",
    ),
    (
        checks.neighbours,
        lambda x, p, n: F.pad(x, (0, n)),  # noqa: F821
        "^neighbours: it stops with NameError: name 'F' is not defined$",
    ),
    (checks.buckets, lambda *case: both(*case).numpy(), "wanted tensor"),
    (
        checks.buckets,
        lambda d, n, most: both(d, n, most).where(d.abs() < most, n // 2 - 1),
        "it gives 63, wanted 127",
    ),
    (checks.buckets, lambda d, n, most: both(d.flatten(), n, most), "the shape is"),
    (
        checks.buckets,
        lambda d, n, most: torch.tensor([both(x, n, most) for x in d]),
        "for d .*: it stops with [^:]*Error: [^:]*$",
    ),
    (checks.slopes, lambda h: alibi_slopes(h)[:1].expand(h), "one slope for all"),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 1000 ** (-2 * i / d))),
        "10,000, not 1,000",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 10_000 ** (-2 * i / (d - 2)))),
        "not by n - 2",
    ),
    (checks.buckets, begun(rounded_factor), r"n = 128, .*: at"),
    (
        checks.slopes,
        halves_of(lambda longer, rest: longer[:rest:2]),
        "things, wanted 12",
    ),
    (checks.slopes, halves_of(lambda longer, rest: longer[::2], False), "too many"),
    (checks.slopes, halves_of(lambda x, rest: x[1::2][::2]), r"at \[8\]"),
    (checks.slopes, lambda h: 1 / alibi_slopes(h), "below 1"),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 10_000 ** (-2 * (2 * i) / d))),
        "2i is doubled",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 10_000 ** (-2 * i / (d / 2)))),
        "2i is doubled",
    ),
    (checks.neighbours, lambda *case: paper(case[0][:, : case[2]], case[1]), "missing"),
    (
        checks.neighbours,
        first(lambda x, p: deinterleave(rotate(interleave(x), p))),
        "first `deinterleave`|`deinterleave` comes before",
    ),
    (
        checks.buckets,
        begun(lambda exact, most, i: growing(exact, most, i * exact / (exact - 1))),
        "a fence post",
    ),
    (checks.buckets, lambda d, n, most: counted(d, n, most, last=True), "a fence post"),
    (checks.buckets, begun(lambda *case: int(growing(*case))), "round it down"),
    (checks.buckets, begun(lambda *case: round(growing(*case))), "don't round it"),
    (checks.buckets, begun(lambda e, m, i: growing(e, m, i + 1)), "steps from 0"),
    (
        checks.buckets,
        begun(lambda e, m, i: growing(e, m, i * e)),
        r"it gives 8, wanted 9",
    ),
    (checks.slopes, lambda h: even(2 ** math.ceil(math.log2(h)))[:h], "not for 16"),
    (
        checks.slopes,
        lambda h: torch.cat(
            [alibi_slopes(2 ** int(math.log2(h))), even(2 ** (1 + int(math.log2(h))))]
        )[:h],
        "take every second of",
    ),
    (
        checks.slopes,
        lambda h: torch.cat(
            [even(2 ** int(math.log2(h))), even(2 ** (1 + int(math.log2(h))))[1::2]]
        )[:h],
        "longer list with its first",
    ),
    (
        checks.slopes,
        lambda h: torch.cat(
            [
                2.0 ** (-8 * torch.arange(p) / p)[:: p // 2 ** int(math.log2(h))]
                for p in (2 ** int(math.log2(h)), 2 ** (1 + int(math.log2(h))))
            ]
        )[:h],
        "count the heads from 1",
    ),
    (checks.slopes, lambda h: -alibi_slopes(h), "slopes are positive"),
    (checks.slopes, lambda h: None, "is there a `return`"),
    (
        checks.slopes,
        lambda h: 3 ** (-8 * torch.arange(1, h + 1) / h),
        r"for h = 12: at \[0\] it gives",
    ),
    (checks.slopes, lambda h: alibi_slopes(8), "for h = 12: .* 8 things, wanted 12"),
    (checks.neighbours, lambda x, p, n: paper(x, p), "all features are turned"),
    (
        checks.neighbours,
        first(lambda x, p: written_out(x, p, 0 * p[:1])),
        r"for x \(3, 10\), positions = .*, n = 4: at \[0, 0\] it gives",
    ),
    (
        checks.neighbours,
        lambda x, p, n: torch.cat(
            [
                written_out(
                    x[:, :n], p, 10_000 ** (-torch.arange(0, n, 2) / x.shape[-1])
                ),
                x[:, n:],
            ],
            1,
        ),
        "those of d features",
    ),
    (checks.neighbours, first(rotate), "here neighbours are"),
    (
        checks.neighbours,
        first(lambda x, p: rotate(deinterleave(x), p)),
        "stack on the last axis",
    ),
    (checks.neighbours, first(lambda x, p: paper(x, -p)), "has the minus"),
    (
        checks.neighbours,
        first(lambda x, p: paper(x, torch.arange(x.shape[0]))),
        "use `positions`",
    ),
    (
        checks.neighbours,
        first(
            lambda x, p: written_out(
                x, p, 10_000 ** (-torch.arange(x.shape[-1] // 2) / x.shape[-1])
            )
        ),
        "not -i/n",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 10_000 ** (2 * i / d))),
        "has a minus",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 500 ** (-2 * i / d))),
        r"for x \(3, 10\), positions = .* at \[0, 2\] it gives",
    ),
    (
        checks.neighbours,
        first(turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))),
        "both sines have a plus",
    ),
    (checks.neighbours, first(turned(overwriting)), "made of the new a"),
    (
        checks.buckets,
        lambda z, n, most: relative_buckets(z, n, most),
        "keys after the query",
    ),
    (checks.buckets, lambda z, n, most: both(z.abs(), n, most), "here it is empty"),
    (checks.buckets, logarithmic(torch.round), "not to the nearest"),
    (checks.buckets, logarithmic(torch.ceil), "round down, not up"),
    (checks.buckets, logarithmic(span=lambda exact, most: most), "widen too fast"),
    (checks.buckets, logarithmic(limit=False), "has no end"),
    (
        checks.buckets,
        lambda *case: both(*case).float(),
        "dtype is torch.float32, wanted torch.int64",
    ),
    (checks.buckets, lambda *case: fixed(*case, factor=16), "factor of 16 is not"),
    (checks.buckets, lambda z, n, most: both(-z, n, most), "for negative distances"),
    (
        checks.buckets,
        lambda z, n, most: relative_buckets(z, n // 2, most),
        r"for z = tensor\(\[0, .*\), .*: at \[2\] it gives 0, wanted 24",
    ),
    (checks.buckets, lambda z, n, most: both(z, 32, 128), "32 buckets and 128 only"),
    (
        checks.buckets,
        lambda z, n, most: counted(z, n, most, torch.gt) - 1,
        "first distance: >=",
    ),
    (checks.induction_scores, induction(lambda same: same.tril(-1)), "copy itself"),
    (
        checks.induction_scores,
        induction(lambda same: torch.nn.functional.pad(same[:, 1:], (0, 1)).tril()),
        "before the copy",
    ),
    (
        checks.induction_scores,
        induction(lambda same: same.roll(1, -1).tril()),
        "`roll` brings the last one",
    ),
    (checks.induction_scores, induction(unmasked), "copies that come later"),
    (
        checks.induction_scores,
        induction(lambda same: followers(same).tril(-1)),
        "s may be t",
    ),
    (checks.induction_scores, induction(last_follower), "only the last"),
    (
        checks.induction_scores,
        induction(lambda same: same.roll(-1, -1).tril(-1)),
        r"`roll\(-1\)` finds",
    ),
    (
        checks.induction_scores,
        induction(lambda same: torch.nn.functional.pad(same[:, :-2], (2, 0)).tril()),
        "one too far",
    ),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w.mul_(w > 0.2), x),
        "changes its input",
    ),
    (
        checks.induction_scores,
        induction(lambda same: unmasked(same).tril(1)),
        "no copy of itself",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum(-1).mean(-1)),
        "over all queries: leave out",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum((1, 2))),
        "sum over the queries",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: w[:, right].mean(-1)),
        "the mean over all pairs: add up",
    ),
    (checks.induction_scores, lambda w, x: my_induction_scores(w.mT, x), "swapped"),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w, x).mean(),
        "it gives",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum(-1)),
        "it gives",
    ),
    (
        checks.slopes,
        lambda h: alibi_slopes(h).sort(descending=True)[0],
        "don't sort them",
    ),
    (checks.slopes, lambda h: 0.5 ** torch.arange(1, h + 1), "for 8 heads only"),
    (checks.slopes, lambda h: alibi_slopes(h)[:, None, None], r"gives \[\[0.5\]\]"),
    (
        checks.neighbours,
        lambda *case: first(paper)(*case).tolist(),
        "a list or an array: make",
    ),
    (checks.neighbours, lambda x, p, n: first(paper)(x, p.deg2rad(), n), "radians"),
    (checks.neighbours, lambda x, p, n: first(paper)(x, p + 1, n), r"at \[0, 0\]"),
    (checks.buckets, lambda *case: both(*case).tolist(), r"wanted tensor"),
    (checks.buckets, lambda d, n, m: both(-d.abs(), n, m), r"at \[1\] it gives 23"),
    (checks.buckets, lambda *case: both(*case) - (case[0] < 0).long(), "23, wanted 24"),
    (
        checks.induction_scores,
        induction(followers, lambda w, at: largest(w, at)[:, at.any(-1)].mean(-1)),
        "the largest weight on a follower",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, at: (w * at).mean((1, 2))),
        "it gives 0.0188, wanted 0.2256",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, at: (w.mean(0) * at).sum(-1)[at.any(-1)].mean()),
        r"wanted \[0.2256",
    ),
]

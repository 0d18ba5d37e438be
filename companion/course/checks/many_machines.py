"""Checks of chapter 11: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable
from functools import partial
from itertools import product
from numbers import Real

from torch import Tensor

from .compare import Exercise, check, draw, identity, ways_of
from .mistakes import Mistake
from .words import describe, listed

WAYS = [*product(range(4), (False, True))]  # stages, and whether there are checkpoints


@check
def ring_seconds() -> Exercise:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""

    def right(
        n_bytes: int,
        bandwidths: list,
        cable: Callable = min,
        n_messages: Callable = lambda p: 2 * (p - 1),
        size: Callable = lambda n_bytes, p: n_bytes / p,
    ) -> float:
        p = len(bandwidths)
        return n_messages(p) * size(n_bytes, p) / cable(bandwidths)

    way = ways_of(right)

    cases = [
        (1200, [10, 2, 5]),
        (7000, [3.5, 7, 7, 7, 14, 7, 7]),
        (90, [9, 3]),
        (1000, [4, 4, 4]),
    ]
    mistakes = {
        "the fastest cable: all wait for the slowest": way(cable=max),
        "the cables' times are added up: all send at once, and wait for the slowest": (
            way(cable=lambda bandwidths: 1 / sum(1 / x for x in bandwidths))
        ),
        "rank 0's cable alone: all wait for the slowest": way(
            cable=lambda bandwidths: bandwidths[0]
        ),
        "the last rank's cable counts too: it leads to rank 0": way(
            cable=lambda bandwidths: min(bandwidths[:-1])
        ),
        "half of it: the sums go round as well": way(n_messages=lambda p: p - 1),
        "2 p turns of n_bytes / p, or 2 (p - 1) of n_bytes / (p - 1): there are p"
        " parts, and each passes p - 1 neighbours, twice": way(
            n_messages=lambda p: 2 * p
        ),
        "n_bytes once through the slowest cable: it carries 2 (p - 1) of p parts": (
            way(n_messages=identity)
        ),
        "a mean cable: all wait for the slowest": way(
            cable=lambda bandwidths: sum(bandwidths) / len(bandwidths)
        ),
        "bandwidths are in bytes: no factor 8": lambda *case: 8 * right(*case),
        "one turn: there are 2 (p - 1)": way(n_messages=lambda p: 1),
        "a message is a part, n_bytes / p": way(size=lambda n_bytes, p: n_bytes),
    }
    praise = "2 (p - 1) messages of a part, by the slowest cable"
    return Exercise(right, cases, mistakes, praise)


@check
def plan() -> Exercise:
    """`answer(n, n_layers, d, p, n_tokens, bandwidth, room)`: stage and checkpoints."""

    def known(n: float, p: int, stage: int) -> float:
        """Bytes of a machine's optimizer, gradients and weights."""
        optimizer = 12 * n / (p if stage >= 1 else 1)
        gradients = 2 * n / (p if stage >= 2 else 1)
        weights = 2 * n / (p if stage >= 3 else 1)
        return optimizer + gradients + weights

    def kept(
        n_layers: int,
        d: int,
        n_tokens: int,
        checkpoints: bool,
        loss: int = 4 * 32_000,
        n_again: int = 1,
    ) -> float:
        """Bytes of a machine's activations; `n_again` blocks are computed again."""
        inputs = 2 * d * n_tokens
        blocks = 18.75 * inputs * (n_again if checkpoints else n_layers)
        if checkpoints:
            blocks += n_layers * inputs
        return blocks + loss * n_tokens

    def right(
        n: float,
        n_layers: int,
        d: int,
        p: int,
        n_tokens: int,
        bandwidth: float,
        room: float,
        ways: list[tuple[int, bool]] = WAYS,
        around: Callable = lambda p: (p - 1) / p,
        stored: Callable = lambda known, kept, p, stage: known + kept,
        n_computed: Callable = lambda n_tokens, p: n_tokens,
        kept: Callable = kept,
        often: Callable = lambda stage, checkpoints: 3 / 2 if stage == 3 else 1,
        again: Callable = lambda checkpoints: 4 / 3 if checkpoints else 1,
        step: Callable = max,
        rank: Callable = lambda seconds, network, size: (seconds, network, size),
    ) -> tuple[int, bool]:
        fitting = []
        for stage, checkpoints in ways:
            activations = kept(n_layers, d, n_tokens, checkpoints)
            size = stored(known(n, p, stage), activations, p, stage)
            compute = 6 * n * n_computed(n_tokens, p) / (0.4 * 989e12)
            compute *= again(checkpoints)
            network = around(p) * 4 * n / bandwidth * often(stage, checkpoints)
            if size <= room:
                ranked = rank(step(compute, network), network, size)
                fitting.append((ranked, stage, checkpoints))
        _, stage, checkpoints = min(fitting)
        return stage, checkpoints

    way = ways_of(right)

    small = (1e8, 12, 768)
    llama = (7e9, 32, 4096)
    larger = (13e9, 40, 5120)
    cases = [
        (*llama, 8, 8192, 50e9, 80e9),
        (*larger, 32, 8192, 50e9, 80e9),
        (*larger, 32, 8192, 1.25e9, 80e9),
        (34e9, 48, 8192, 64, 4096, 50e9, 80e9),
        (34e9, 48, 8192, 4, 2048, 100e9, 192e9),
        (1e9, 16, 2048, 16, 16384, 18e9, 24e9),
        (*larger, 16, 16384, 40e9, 92e9),
        (*small, 16, 16384, 10e9, 90e9),
        (*llama, 32, 16384, 50e9, 24e9),
        (*small, 32, 2048, 50e9, 80e9),
        (*small, 2, 4096, 40e9, 67e9),
        (*small, 8, 4096, 40e9, 100e9),
        (3e9, 28, 3072, 16, 4096, 50e9, 80e9),
        (*larger, 16, 8192, 50e9, 100e9),
        (70e9, 80, 8192, 64, 4096, 50e9, 80e9),
        (34e9, 48, 8192, 8, 16384, 1.25e9, 141e9),
        (*larger, 8, 4096, 50e9, 70e9),
        (*llama, 2, 2048, 1.25e9, 141e9),
        (*larger, 32, 8192, 450e9, 80e9),
    ]
    mistakes = {
        # What is stored.
        "the activations are missing: they must fit, too": way(
            stored=lambda known, kept, p, stage: known
        ),
        "the activations alone: weights, gradients and the optimizer must fit, too": (
            way(stored=lambda known, kept, p, stage: kept)
        ),
        "n_tokens are one machine's: nobody else keeps a part of their activations": (
            way(stored=lambda known, kept, p, stage: known + kept / p)
        ),
        "stage 3 cuts what is known of the parameters, and no activations": way(
            stored=lambda known, kept, p, stage: known + kept / (p if stage == 3 else 1)
        ),
        "the loss keeps 128,000 bytes for each token: they must fit, too": way(
            kept=partial(kept, loss=0)
        ),
        "with checkpoints the one block that is computed again must fit, too, of"
        " n_layers blocks of width d": way(kept=partial(kept, n_again=0)),
        # How long it takes.
        "sending takes time, too, half as much again in stage 3: a step takes the"
        " longer of both times": way(
            step=lambda compute, network: compute,
            rank=lambda seconds, network, size: (seconds, size),
        ),
        "where sending takes longer than computing, it decides: a step takes the"
        " longer of both times": way(step=lambda compute, network: compute),
        # Its plans are those of who forgets the third that checkpoints compute more.
        "computing takes time, too, a third more with checkpoints: a step takes the"
        " longer of both times": way(step=lambda compute, network: network),
        "both times added up: what is sent hides, so a step takes the longer one": way(
            step=lambda compute, network: compute + network
        ),
        "the shorter of both times: a step takes the longer one": way(step=min),
        "each machine sends (p - 1) / p of it": way(around=lambda p: 1),
        "stage 2 sends no more than stage 0: half as much again is stage 3's alone": (
            way(often=lambda stage, checkpoints: 3 / 2 if stage >= 2 else 1)
        ),
        "stages 1 and 2 send no more than stage 0: half as much again is stage 3's"
        " alone": way(often=lambda stage, checkpoints: 3 / 2 if stage >= 1 else 1),
        "stage 3 sends half as much again as the others, not as much": way(
            often=lambda stage, checkpoints: 1
        ),
        "stage 3 sends half as much again as the others, not three times as much": way(
            often=lambda stage, checkpoints: 3 if stage == 3 else 1
        ),
        "checkpoints compute 4/3, and stage 3 sends 3/2: not the other way round": way(
            again=lambda checkpoints: 3 / 2 if checkpoints else 1
        ),
        "checkpoints compute a third more, not two thirds": way(
            again=lambda checkpoints: 5 / 3 if checkpoints else 1
        ),
        "checkpoints compute a third more, not twice as much": way(
            again=lambda checkpoints: 2 if checkpoints else 1
        ),
        "2n numbers are sent, of 2 bytes each": way(around=lambda p: (p - 1) / p / 2),
        "checkpoints send no more than without": way(
            often=lambda stage, checkpoints: (
                (3 / 2 if stage == 3 else 1) * (4 / 3 if checkpoints else 1)
            )
        ),
        "a step computes n_tokens of this job, not the 8,192 of the chapter": way(
            n_computed=lambda n_tokens, p: 8192
        ),
        "n_tokens are one machine's: it computes these alone, and no global batch": way(
            n_computed=lambda n_tokens, p: p * n_tokens
        ),
        "n_tokens are one machine's: it keeps these activations alone, and not those of"
        " the global batch": way(stored=lambda known, kept, p, stage: known + p * kept),
        "n_tokens are one machine's, in computing and in what is kept: the global batch"
        " is p times as many": lambda n, n_layers, d, p, n_tokens, *rest: right(
            n, n_layers, d, p, p * n_tokens, *rest
        ),
        "n_tokens are this job's, in computing and in what is kept: 8,192 are the"
        " chapter's": lambda n, n_layers, d, p, n_tokens, *rest: right(
            n, n_layers, d, p, 8192, *rest
        ),
        # Which is taken.
        "first the shortest step, and only of equally short ones what is sent": way(
            rank=lambda seconds, network, size: (network, seconds, size)
        ),
        "of equally short steps the one that sends least": way(
            rank=lambda seconds, network, size: (seconds, size)
        ),
        "of equally short steps the one that sends least, and of those the one that"
        " stores least": way(rank=lambda seconds, network, size: seconds),
        "this is the first that fits: of all that fit, take the shortest step": way(
            rank=lambda seconds, network, size: ()
        ),
        "this stores least: of all that fit, take the shortest step": way(
            rank=lambda seconds, network, size: (size,)
        ),
        "this is the longest step: take the shortest": way(
            rank=lambda seconds, network, size: (-seconds, network, size)
        ),
        "with checkpoints more would fit: try each stage with and without": way(
            ways=[(stage, False) for stage in range(4)]
        ),
        "first the stage, then whether it takes checkpoints": (
            lambda *case: right(*case)[::-1]
        ),
    }
    praise = "of all that fits, the shortest step"
    return Exercise(right, cases, mistakes, praise)


@check
def parts() -> Exercise:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def right(
        xs: list,
        weights: list,
        bias: Tensor,
        share: Callable = lambda rank, p: rank == 0,  # of the bias
    ) -> list[Tensor]:
        products = [x @ weight for x, weight in zip(xs, weights, strict=True)]
        p = len(products)
        return [x + share(rank, p) * bias for rank, x in enumerate(products)]

    way = ways_of(right)

    def rank_1_adds(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = right(xs, weights, 0 * bias)
        parts[1] += bias
        return parts

    def as_list(parts: list | tuple | Tensor, n_ranks: int) -> list[Tensor]:
        """The parts as a list; a Mistake where there isn't one for each rank."""
        if not isinstance(parts, list | tuple | Tensor):
            raise Mistake(f"give a list of parts, not {describe(parts)}")
        if len(parts) != n_ranks and isinstance(parts, Tensor):
            raise Mistake(f"give a list of {n_ranks} parts, not {describe(parts)}")
        if len(parts) != n_ranks:
            raise Mistake(f"{len(parts)} parts for {n_ranks} ranks: one for each")
        return [*parts]

    def added(answer: Callable, xs: list, weights: list, bias: Tensor) -> Tensor:
        """The sum, after a look at each rank's part by itself."""
        parts = as_list(answer([*xs], [*weights], bias), len(xs))
        for rank, part in enumerate(parts):
            product = xs[rank] @ weights[rank]
            if not isinstance(part, Tensor) or part.shape != product.shape:
                raise Mistake(
                    f"rank {rank} gives {describe(part)}, wanted {describe(product)}"
                )
            rest = part - product
            # To 1e-4, as all checks.
            if not rest.allclose(rest[:1].expand_as(rest), atol=1e-4):
                raise Mistake(f"rank {rank} gives more than its product and the bias")

            # The same with other numbers on the other ranks, which it can't know.
            others = [0 * x for x in xs]
            others[rank] = xs[rank]
            again = as_list(answer(others, [*weights], bias), len(xs))[rank]
            if not part.allclose(again, rtol=1e-4, atol=1e-4):
                raise Mistake(f"what rank {rank} gives depends on the x of other ranks")
        return sum(parts)

    def case(t: int, d: int, c: int, p: int) -> tuple[list, list, Tensor]:
        """Inputs (t d) and weights (d c) for each of p ranks, and a bias (c)."""
        x = draw(t, d * p, seed=p)
        weight = draw(d * p, c, seed=p + 1)
        bias = 5 + draw(c, seed=p + 2)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], bias

    cases = [
        case(2, 3, 2, 3),
        case(2, 2, 3, 2),
        case(3, 4, 2, 5),
        case(2, 3, 2, 1),
        ([draw(1, 2)] * 3, [draw(2, 4)] * 3, 10 + draw(4)),  # all ranks alike
    ]
    mistakes = {
        "every rank adds the bias: the sum has it as often as there are ranks": way(
            share=lambda rank, p: 1
        ),
        "the bias is missing: one rank adds it": way(share=lambda rank, p: 0),
        "all ranks but one add the bias: one alone should": way(
            share=lambda rank, p: rank > 0
        ),
        "rank 1 adds the bias, but there may be only rank 0": way(
            share=lambda rank, p: rank == 1
        ),
        "a p-th of the bias: every rank adds that, or one adds it all": way(
            share=lambda rank, p: (rank == 0) / p
        ),
        "there may be one rank alone, so let rank 0 add the bias": rank_1_adds,
    }
    praise = "the bias once, however many ranks"
    return Exercise(right, cases, mistakes, praise, added)


@check
def equal_work() -> Exercise:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p: int) -> list[tuple[int, int]]:
        return [(rank, 2 * p - 1 - rank) for rank in range(p)]

    def in_order(answer: Callable, p: int) -> list[list[float]]:
        """The pairs, sorted; a Mistake where a piece is missing, or work is uneven."""
        result = answer(p)
        no_pairs = f"give a list of pairs, one for each rank, not {describe(result)}"
        if not isinstance(result, list | tuple | Tensor):
            raise Mistake(no_pairs)

        # Any two numbers in any order are a pair.
        pairs = []
        for pair in result:
            pair = pair.tolist() if isinstance(pair, Tensor) else listed(pair)
            if not isinstance(pair, list | tuple | set):
                raise Mistake(no_pairs)
            if not all(isinstance(piece, Real | Tensor) for piece in pair):
                raise Mistake(no_pairs)
            pairs.append(sorted(float(piece) for piece in pair))
        pairs.sort()

        # Each piece is there, and each rank has as much to do.
        if [len(pair) for pair in pairs] != [2] * p:
            raise Mistake("give p pairs, two pieces for each rank", pairs)
        missing = set(range(2 * p)) - {piece for pair in pairs for piece in pair}
        if missing:
            raise Mistake(f"nobody has piece {min(missing)}", pairs)
        blocks = [round(sum(pair)) + 2 for pair in pairs]
        if len(set(blocks)) > 1:
            raise Mistake(f"the ranks compute {blocks} blocks", pairs)
        return pairs

    cases = [(1,), (2,), (5,), (8,), (3,), (6,)]
    mistakes = {
        "neighbours: the last rank's queries see the most": (
            lambda p: [(2 * rank, 2 * rank + 1) for rank in range(p)]
        ),
        "every p-th piece: both of the last rank's see more than the first one's": (
            lambda p: [(rank, rank + p) for rank in range(p)]
        ),
        "pieces are counted from 0": (
            lambda p: [(rank + 1, 2 * p - rank) for rank in range(p)]
        ),
        "there are 2 p pieces": (lambda p: [(rank, p - 1 - rank) for rank in range(p)]),
    }
    praise = "an early piece and a late one, 2 p + 1 blocks for each rank"
    return Exercise(right, cases, mistakes, praise, in_order)

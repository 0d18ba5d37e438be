"""Checks of chapter 13: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable

import torch
from torch import Tensor

from .compare import Exercise, check, draw, ways_of


@check
def credit() -> Exercise:
    """`answer(a, b, both)`: two heads' shares of what both together bring."""

    def right(a: float, b: float, both: float) -> tuple[float, float]:
        return (a + both - b) / 2, (b + both - a) / 2

    cases = [
        (0.9, 0.9, 0.9),
        (0.0, 0.0, 1.0),
        (0.7, 0.4, 0.9),
        (0.6, -0.1, 0.45),
        (-0.2, 0.3, 0.8),
    ]
    mistakes = {
        "the shares come in the order of the heads: first a's": (
            lambda *case: right(*case)[::-1]
        ),
        "what each adds as the first: as the second it adds both less the other": (
            lambda a, b, both: (a, b)
        ),
        "what each adds as the second: take the mean with what it adds as the first": (
            lambda a, b, both: (both - b, both - a)
        ),
        "a comes first here: take the mean with the order in which b does": (
            lambda a, b, both: (a, both - a)
        ),
        "b comes first here: take the mean with the order in which a does": (
            lambda a, b, both: (both - b, b)
        ),
        "as the second a head adds both less the other, not both": (
            lambda a, b, both: ((a + both) / 2, (b + both) / 2)
        ),
        "these are sums: a mean of two is half of it": (
            lambda a, b, both: (a + both - b, b + both - a)
        ),
        "half for each: second, a head adds both less the other, not less itself": (
            lambda a, b, both: (both / 2, both / 2)
        ),
        "shared as they do alone, a : b; what if both are 0?": (
            lambda a, b, both: (both * a / (a + b), both * b / (a + b))
        ),
        "both shares, not one": lambda *case: right(*case)[0],
    }
    praise = "together the shares are what both bring"
    return Exercise(right, cases, mistakes, praise)


@check
def lens() -> Exercise:
    """`answer(outputs, gain, matrix, token)`: a token's rank after each block."""

    def ranks(logits: Tensor, token: int) -> list[int]:
        higher = logits > logits[:, [token]]
        return (1 + higher.sum(-1)).tolist()

    def right(
        outputs: Tensor,
        gain: Tensor,
        matrix: Tensor,
        token: int,
        normed: Callable = lambda x, gain: x * gain,  # the length changes no rank
        read: Callable = ranks,
    ) -> list[int]:
        return read(normed(outputs, gain) @ matrix.T, token)

    way = ways_of(right)

    def by_sorting(logits: Tensor, token: int, descending: bool = True) -> list[int]:
        order = logits.argsort(dim=-1, descending=descending, stable=True)
        return (1 + (order == token).int().argmax(-1)).tolist()

    def root_mean_square(x: Tensor) -> Tensor:
        return (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    # The gain makes some features loud, and turns one round.
    gain = torch.tensor([0.2, 3.0, 1.0, -2.0, 0.5])
    cases = [
        (3 + draw(4, 5, seed=1), gain, draw(9, 5, seed=2), 3),
        (draw(6, 3, seed=3), 2 * draw(3, seed=4), draw(20, 3, seed=5), 0),
        (10 * draw(2, 7, seed=6), 1 + draw(7, seed=7), draw(13, 7, seed=8), 12),
        # Tokens 1, 3 and 4 have the same row of the matrix, so equal logits. A sort
        # puts one before token 3 and one behind it, whichever way it turns.
        (draw(4, 3, seed=9), gain[:3], torch.eye(3)[[0, 1, 2, 1, 1]], 3),
    ]
    mistakes = {
        "the norm's gain is missing: it makes some features count more": way(
            normed=lambda x, gain: x
        ),
        "the gain is added: RMSNorm multiplies by it": way(
            normed=lambda x, gain: x / root_mean_square(x) + gain
        ),
        "the gain divides here: RMSNorm multiplies by it": way(
            normed=lambda x, gain: x / gain
        ),
        "the mean is taken off, as in LayerNorm: RMSNorm takes nothing off": way(
            normed=lambda x, gain: (x - x.mean(-1, keepdim=True)) * gain
        ),
        "softmax rounds unlikely tokens to 0, and they tie: compare logits": way(
            read=lambda logits, token: ranks(logits.softmax(-1), token)
        ),
        "the likeliest token has rank 1, not 0": (
            lambda *case: [rank - 1 for rank in right(*case)]
        ),
        "an equal logit counts as higher here: only higher ones come before": way(
            read=lambda logits, token: (logits >= logits[:, [token]]).sum(-1).tolist()
        ),
        "the token's own logit counts here, and adds 1 more: count higher ones": way(
            read=lambda logits, token: (
                1 + (logits >= logits[:, [token]]).sum(-1)
            ).tolist()
        ),
        "sorted, equal logits get different ranks: count the higher ones": way(
            read=by_sorting
        ),
        "sorted like this, ranks count from the least likely: count the higher ones": (
            way(read=lambda logits, token: by_sorting(logits, token, descending=False))
        ),
        "these ranks count from the least likely token": way(
            read=lambda logits, token: ranks(-logits, token)
        ),
        "these are the likeliest tokens, not the rank of this one": way(
            read=lambda logits, token: logits.argmax(-1).tolist()
        ),
        "these are the tokens at a rank, not the rank of a token": way(
            read=lambda logits, token: logits.argsort(-1, descending=True)[
                :, token
            ].tolist()
        ),
        "this is the last block's rank: give one for each block": (
            lambda *case: right(*case)[-1]
        ),
        "all blocks are held against the last one's logit: each has its own": way(
            read=lambda logits, token: (
                1 + (logits > logits[-1, token]).sum(-1)
            ).tolist()
        ),
        "these are logits: count how many tokens have a higher one": way(
            normed=lambda x, gain: x / root_mean_square(x) * gain,
            read=lambda logits, token: logits[:, token].tolist(),
        ),
    }
    praise = "each block's output, read as if it were the last"
    return Exercise(right, cases, mistakes, praise)


@check
def carry() -> Exercise:
    """`answer(x, kept, place, head, d_head)`: one head's result at one place, moved."""

    def own(head: int, d_head: int) -> slice:
        return slice(head * d_head, (head + 1) * d_head)

    def right(
        x: Tensor,
        kept: Tensor,
        place: int,
        head: int,
        d_head: int,
        places: Callable = lambda place: slice(place, place + 1),
        features: Callable = own,
    ) -> Tensor:
        """x, in which these places and features are the kept ones."""
        x = x.clone()
        carried = (places(place), features(head, d_head))
        x[:, *carried] = kept[carried]
        return x

    way = ways_of(right)

    def every_nth_feature(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        n_heads = x.shape[-1] // d_head
        every_nth = slice(head, None, n_heads)
        return right(x, kept, place, head, d_head, features=lambda *_: every_nth)

    def first_stream_alone(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        changed = right(x, kept, place, head, d_head)
        return torch.cat([changed[:1], x[1:]])

    def from_feature_head(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        features = slice(head, head + d_head)
        return right(x, kept, place, head, d_head, features=lambda *_: features)

    def head_before_place(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        heads = x.clone().unflatten(-1, (-1, d_head))
        heads[:, head, place] = kept[place, own(head, d_head)]
        return heads.flatten(-2)

    cases = [
        (draw(1, 5, 12, seed=1), draw(5, 12, seed=2), 1, 2, 3),
        (draw(2, 4, 8, seed=3), draw(4, 8, seed=4), 3, 0, 2),
        (draw(3, 6, 20, seed=5), draw(6, 20, seed=6), 2, 1, 4),
    ]
    mistakes = {
        # Leaks: more is carried than one head at one place.
        "it leaks: the head is carried at every place, not at one": way(
            places=lambda place: slice(None)
        ),
        "it leaks: the places after this one are carried, too": way(
            places=lambda place: slice(place, None)
        ),
        "it leaks: the places before this one are carried, too": way(
            places=lambda place: slice(place + 1)
        ),
        "it leaks: all heads of the place are carried, not one": way(
            features=lambda head, d_head: slice(None)
        ),
        "it leaks: the heads after this one are carried, too": way(
            features=lambda head, d_head: slice(head * d_head, None)
        ),
        "it leaks: this is the first run, whole": (
            lambda x, kept, *place: kept.expand_as(x).clone()
        ),
        # Too little, or something else.
        "one feature is carried: a head has d_head of them": way(
            features=lambda head, d_head: slice(head, head + 1)
        ),
        "a head's features stand side by side": every_nth_feature,
        "a head begins at head * d_head, not at head": from_feature_head,
        "it is carried at the last place: carry it at `place`": way(
            places=lambda place: slice(-1, None)
        ),
        "head and place are exchanged": (
            lambda x, kept, place, head, d_head: right(x, kept, head, place, d_head)
        ),
        "put where head and place are exchanged: places come before heads": (
            head_before_place
        ),
        "only the first text of the batch is patched": first_stream_alone,
        "carried from the last place: take the same place of `kept`": (
            lambda x, kept, *place: right(x, kept[-1:].expand_as(kept), *place)
        ),
        "added to what was there: put it in its place": (
            lambda x, kept, *place: right(x, x[0] + kept, *place)
        ),
        "the head is silenced: carry what `kept` has": (
            lambda x, kept, *place: right(x, 0 * kept, *place)
        ),
        "nothing is carried": lambda x, *place: x.clone(),
        "this is what is carried: give all of x, with it in its place": (
            lambda x, kept, place, head, d_head: kept[place, own(head, d_head)]
        ),
    }
    praise = "one head at one place, and nothing else"
    return Exercise(right, cases, mistakes, praise)

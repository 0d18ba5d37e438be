"""Checks of chapter 13."""

import torch
from torch import Tensor

from .compare import Exercise, check, draw


@check
def way() -> Exercise:
    """`answer(carried, first, second)`: how much of the way a patch has gone."""

    def right(carried: Tensor, first: float, second: float) -> Tensor:
        return (carried - second) / (first - second)

    def from_the_first(carried: Tensor, first: float, second: float) -> Tensor:
        return (carried - first) / (second - first)

    def turned_round(carried: Tensor, first: float, second: float) -> Tensor:
        return (carried - second) / (second - first)

    def steps(carried: Tensor, first: float, second: float) -> Tensor:
        return carried - second

    def share_of_the_first(carried: Tensor, first: float, second: float) -> Tensor:
        return carried / first

    def step_by_the_first(carried: Tensor, first: float, second: float) -> Tensor:
        return (carried - second) / first

    def step_by_the_second(carried: Tensor, first: float, second: float) -> Tensor:
        return (carried - second) / second

    def without_sign(carried: Tensor, first: float, second: float) -> Tensor:
        return right(carried, first, second).abs()

    def cut_off(carried: Tensor, first: float, second: float) -> Tensor:
        return right(carried, first, second).clamp(0, 1)

    def in_percent(carried: Tensor, first: float, second: float) -> Tensor:
        return 100 * right(carried, first, second)

    def largest(carried: Tensor, first: float, second: float) -> Tensor:
        return right(carried, first, second).max()

    cases = [
        (torch.tensor([-5.0, -1.4, 2.2, 2.92, -5.72]), 2.2, -5.0),
        (draw(3, 4, seed=1), -1.5, 0.75),
        (torch.tensor([[6.0, 1.0]]), 5.0, 3.0),
    ]
    mistakes = {
        "the way begins at the second run: take `second` off, above and below": (
            from_the_first
        ),
        "the way's direction is turned round: it leads from second to first": (
            turned_round
        ),
        "this is how far it went: divide by the whole way": steps,
        "this is a share of first's value: measure from second": share_of_the_first,
        "the whole way is first - second, not first": step_by_the_first,
        "the whole way is first - second, not second": step_by_the_second,
        "a patch may lead the wrong way: keep the sign": without_sign,
        "a patch may lead too far or the wrong way: cut nothing off": cut_off,
        "these are percent: the whole way is 1": in_percent,
        "one number for each patch: don't take the largest": largest,
    }
    praise = "0 where nothing changes, 1 where all of it comes along"
    return Exercise(right, cases, mistakes, praise)


@check
def lens() -> Exercise:
    """`answer(outputs, gain, matrix, token)`: a token's rank after each block."""

    def right(outputs: Tensor, gain: Tensor, matrix: Tensor, token: int) -> list[int]:
        return ranks(outputs * gain @ matrix.T, token)

    def ranks(logits: Tensor, token: int) -> list[int]:
        higher = logits > logits[:, [token]]
        return (1 + higher.sum(-1)).tolist()

    def root_mean_square(x: Tensor) -> Tensor:
        return (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def no_gain(outputs: Tensor, gain: Tensor, matrix: Tensor, token: int) -> list[int]:
        return ranks(outputs @ matrix.T, token)

    def gain_added(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        return ranks((outputs / root_mean_square(outputs) + gain) @ matrix.T, token)

    def divided_by_gain(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        return ranks(outputs / gain @ matrix.T, token)

    def layer_norm(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        centred = outputs - outputs.mean(-1, keepdim=True)
        return ranks(centred * gain @ matrix.T, token)

    def from_0(outputs: Tensor, gain: Tensor, matrix: Tensor, token: int) -> list[int]:
        return [rank - 1 for rank in right(outputs, gain, matrix, token)]

    def from_the_other_end(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        d_vocab = len(matrix)
        return [d_vocab + 1 - rank for rank in right(outputs, gain, matrix, token)]

    def likeliest(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        return (outputs * gain @ matrix.T).argmax(-1).tolist()

    def who_has_the_rank(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        order = (outputs * gain @ matrix.T).argsort(-1, descending=True)
        return order[:, token].tolist()

    def last_block_alone(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> int:
        return right(outputs, gain, matrix, token)[-1]

    def of_one_block(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[int]:
        logits = outputs * gain @ matrix.T
        return (1 + (logits > logits[-1, token]).sum(-1)).tolist()

    def logits_of_token(
        outputs: Tensor, gain: Tensor, matrix: Tensor, token: int
    ) -> list[float]:
        normed = outputs / root_mean_square(outputs)
        return (normed * gain @ matrix.T)[:, token].tolist()

    # The gain makes some features loud, and turns one round.
    gain = torch.tensor([0.2, 3.0, 1.0, -2.0, 0.5])
    cases = [
        (3 + draw(4, 5, seed=1), gain, draw(9, 5, seed=2), 3),
        (draw(6, 3, seed=3), 2 * draw(3, seed=4), draw(20, 3, seed=5), 0),
        (10 * draw(2, 7, seed=6), 1 + draw(7, seed=7), draw(13, 7, seed=8), 12),
    ]
    mistakes = {
        "the norm's gain is missing: it makes some features count more": no_gain,
        "the gain is added: RMSNorm multiplies by it": gain_added,
        "the gain divides here: RMSNorm multiplies by it": divided_by_gain,
        "the mean is taken off, as in LayerNorm: RMSNorm takes nothing off": layer_norm,
        "the likeliest token has rank 1, not 0": from_0,
        "these ranks count from the least likely token": from_the_other_end,
        "these are the likeliest tokens, not the rank of this one": likeliest,
        "these are the tokens at a rank, not the rank of a token": who_has_the_rank,
        "this is the last block's rank: give one for each block": last_block_alone,
        "all blocks are held against the last one's logit: each has its own": (
            of_one_block
        ),
        "these are logits: count how many tokens have a higher one": logits_of_token,
    }
    praise = "each block's output, read as if it were the last"
    return Exercise(right, cases, mistakes, praise)


@check
def carry() -> Exercise:
    """`answer(x, kept, place, head, d_head)`: one head's result at one place, moved."""

    def right(x: Tensor, kept: Tensor, place: int, head: int, d_head: int) -> Tensor:
        return replaced(x, kept, slice(place, place + 1), own(head, d_head))

    def replaced(x: Tensor, kept: Tensor, places: slice, features: slice) -> Tensor:
        """x, in which these places and features are the kept ones."""
        x = x.clone()
        x[:, places, features] = kept[places, features]
        return x

    def own(head: int, d_head: int) -> slice:
        return slice(head * d_head, (head + 1) * d_head)

    # Leaks: more is carried than one head at one place.

    def at_all_places(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return replaced(x, kept, slice(None), own(head, d_head))

    def from_the_place_on(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return replaced(x, kept, slice(place, None), own(head, d_head))

    def up_to_the_place(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return replaced(x, kept, slice(place + 1), own(head, d_head))

    def all_heads(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return replaced(x, kept, slice(place, place + 1), slice(None))

    def from_the_head_on(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        features = slice(head * d_head, None)
        return replaced(x, kept, slice(place, place + 1), features)

    def everything(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return kept.expand_as(x).clone()

    # Too little, or something else.

    def one_feature(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        feature = slice(head, head + 1)
        return replaced(x, kept, slice(place, place + 1), feature)

    def every_nth_feature(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        n_heads = x.shape[-1] // d_head
        features = slice(head, None, n_heads)
        return replaced(x, kept, slice(place, place + 1), features)

    def first_stream_alone(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        changed = right(x, kept, place, head, d_head)
        return torch.cat([changed[:1], x[1:]])

    def from_the_last_place(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return right(x, kept[-1:].expand_as(kept), place, head, d_head)

    def added(x: Tensor, kept: Tensor, place: int, head: int, d_head: int) -> Tensor:
        return right(x, x[0] + kept, place, head, d_head)

    def silenced(x: Tensor, kept: Tensor, place: int, head: int, d_head: int) -> Tensor:
        return right(x, torch.zeros_like(kept), place, head, d_head)

    def not_carried(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return x.clone()

    def only_the_head(
        x: Tensor, kept: Tensor, place: int, head: int, d_head: int
    ) -> Tensor:
        return kept[place, own(head, d_head)]

    cases = [
        (draw(1, 5, 12, seed=1), draw(5, 12, seed=2), 1, 2, 3),
        (draw(2, 4, 6, seed=3), draw(4, 6, seed=4), 3, 0, 2),
        (draw(3, 6, 20, seed=5), draw(6, 20, seed=6), 2, 1, 4),
    ]
    mistakes = {
        "it leaks: the head is carried at every place, not at one": at_all_places,
        "it leaks: the places after this one are carried, too": from_the_place_on,
        "it leaks: the places before this one are carried, too": up_to_the_place,
        "it leaks: all heads of the place are carried, not one": all_heads,
        "it leaks: the heads after this one are carried, too": from_the_head_on,
        "it leaks: this is the first run, whole": everything,
        "one feature is carried: a head has d_head of them": one_feature,
        "a head's features stand side by side": every_nth_feature,
        "only the first text of the batch is patched": first_stream_alone,
        "carried from the last place: take the same place of `kept`": (
            from_the_last_place
        ),
        "added to what was there: put it in its place": added,
        "the head is silenced: carry what `kept` has": silenced,
        "nothing is carried": not_carried,
        "this is what is carried: give all of x, with it in its place": only_the_head,
    }
    praise = "one head at one place, and nothing else"
    return Exercise(right, cases, mistakes, praise)

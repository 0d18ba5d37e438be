"""Right and wrong answers to the exercises of chapter 13."""

import torch
from einops import rearrange

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_credit(a, b, both):
    """Each alone, and half of what is over, or missing."""
    over = (both - a - b) / 2
    return a + over, b + over


def credit_of_orders(a, b, both):
    orders = torch.tensor([[a, both - a], [both - b, b]], dtype=torch.float64)
    return orders.mean(0)


def right_lens(outputs, gain, matrix, token):
    ranks = []
    for x in outputs:
        x = x / (x.square().mean() + 1e-5).sqrt() * gain
        probabilities = (matrix @ x).softmax(0)
        ranks.append(1 + int((probabilities > probabilities[token]).sum()))
    return ranks


def lens_by_logits(outputs, gain, matrix, token):
    normed = torch.nn.functional.rms_norm(outputs, gain.shape, gain, 1e-5)
    logits = normed @ matrix.T
    return 1 + (logits > logits[:, token, None]).sum(dim=1)


@wrong(checks.lens, "sorted, equal logits get different ranks")
def lens_by_sorting(outputs, gain, matrix, token):
    normed = torch.nn.functional.rms_norm(outputs, gain.shape, gain, 1e-5)
    order = (normed @ matrix.T).argsort(-1, descending=True)
    return (order == token).int().argmax(-1) + 1


@wrong(checks.lens, "sorted, equal logits get different ranks")
def lens_sorted_twice(outputs, gain, matrix, token):
    order = (outputs * gain @ matrix.T).argsort(-1, descending=True)
    return order.argsort(-1)[:, token].add(1).tolist()


@wrong(checks.lens, "gain is missing")
def lens_without(outputs, gain, matrix, token):
    return right_lens(outputs, torch.ones_like(gain), matrix, token)


@wrong(checks.lens, "they tie: compare logits")
def lens_of_rounded_shares(outputs, gain, matrix, token):
    shares = (outputs * gain @ matrix.T).softmax(-1)
    return (1 + (shares > shares[:, [token]]).sum(-1)).tolist()


@wrong(checks.lens, "equal logit counts as higher")
def lens_of_equals(outputs, gain, matrix, token):
    logits = outputs * gain @ matrix.T
    return (logits >= logits[:, [token]]).sum(-1).tolist()


@wrong(checks.lens, "sorted, equal logits get different ranks")
def lens_sorted_and_turned(outputs, gain, matrix, token):
    order = (outputs * gain @ matrix.T).argsort(dim=-1, stable=True).flip(-1)
    return (order == token).int().argmax(-1) + 1


@wrong(checks.lens, "own logit counts here")
def lens_of_its_own(outputs, gain, matrix, token):
    logits = outputs * gain @ matrix.T
    return (1 + (logits >= logits[:, [token]]).sum(-1)).tolist()


@wrong(checks.lens, "the likeliest tokens")
def lens_of_the_largest(outputs, gain, matrix, token):
    return [int((matrix @ (x * gain)).argmax()) for x in outputs]


@wrong(checks.lens, "count from the least likely token")
def lens_of_lower_ones(outputs, gain, matrix, token):
    logits = outputs * gain @ matrix.T
    return 1 + (logits < logits[:, [token]]).sum(-1)


@wrong(checks.lens, "sorted like this, ranks count from the least likely")
def lens_sorted_once(outputs, gain, matrix, token):
    order = (outputs * gain @ matrix.T).argsort(-1)
    return (order == token).int().argmax(-1) + 1


@wrong(checks.lens, "not the rank of a token")
def lens_at_place_token(outputs, gain, matrix, token):
    order = (outputs * gain @ matrix.T).argsort(-1, descending=True)
    return order[:, token]


def right_carry(x, kept, place, head, d_head):
    begin = head * d_head
    patched = x.clone()
    patched[:, place, begin : begin + d_head] = kept[place, begin : begin + d_head]
    return patched


def carry_by_where(x, kept, place, head, d_head):
    n_places, n_features = kept.shape
    at_place = torch.arange(n_places)[:, None] == place
    of_head = torch.arange(n_features) // d_head == head
    return torch.where(at_place & of_head, kept, x)


def carry_in_heads(x, kept, place, head, d_head):
    heads = rearrange(x.clone(), "b t (h d) -> b t h d", d=d_head)
    heads[:, place, head] = rearrange(kept, "t (h d) -> t h d", d=d_head)[place, head]
    return rearrange(heads, "b t h d -> b t (h d)")


def carry_of(places=False, heads=False):
    def answer(x, kept, place, head, d_head):
        t = slice(None) if places else place
        c = slice(None) if heads else slice(head * d_head, head * d_head + d_head)
        x = x.clone()
        x[:, t, c] = kept[t, c]
        return x

    return answer


@wrong(checks.carry, "changes its input")
def carry_in_place(x, kept, place, head, d_head):
    begin = head * d_head
    x[:, place, begin : begin + d_head] = kept[place, begin : begin + d_head]
    return x


@wrong(checks.carry, "leaks: the places after this one")
def carry_from_the_place(x, kept, place, head, d_head):
    begin = head * d_head
    x = x.clone()
    x[:, place:, begin : begin + d_head] = kept[place:, begin : begin + d_head]
    return x


@wrong(checks.carry, "leaks: the heads after this one")
def carry_to_the_end(x, kept, place, head, d_head):
    x = x.clone()
    x[:, place, head * d_head :] = kept[place, head * d_head :]
    return x


@wrong(checks.carry, "d_head of them")
def carry_of_one_feature(x, kept, place, head, d_head):
    x = x.clone()
    x[:, place, head] = kept[place, head]
    return x


@wrong(checks.carry, "a head begins at head ")
def carry_from_feature_head(x, kept, place, head, d_head):
    x = x.clone()
    x[:, place, head : head + d_head] = kept[place, head : head + d_head]
    return x


@wrong(checks.carry, "head and place are exchanged")
def carry_exchanged(x, kept, place, head, d_head):
    return right_carry(x, kept, head, place, d_head)


@wrong(checks.carry, "put where head and place are exchanged")
def carry_put_exchanged(x, kept, place, head, d_head):
    heads = rearrange(x.clone(), "b t (h d) -> b t h d", d=d_head)
    of_first = rearrange(kept, "t (h d) -> t h d", d=d_head)
    heads[:, head, place] = of_first[place, head]
    return rearrange(heads, "b t h d -> b t (h d)")


@wrong(checks.carry, "head and place are exchanged")
def carry_exchanged_in_heads(x, kept, place, head, d_head):
    heads = rearrange(x.clone(), "b t (h d) -> b t h d", d=d_head)
    of_first = rearrange(kept, "t (h d) -> t h d", d=d_head)
    heads[:, head, place] = of_first[head, place]
    return rearrange(heads, "b t h d -> b t (h d)")


@wrong(checks.carry, "carried at the last place")
def carry_at_the_last_place(x, kept, place, head, d_head):
    return right_carry(x, kept, -1, head, d_head)


@wrong(checks.carry, "first text of the batch")
def carry_into_one_text(x, kept, place, head, d_head):
    begin = head * d_head
    x = x.clone()
    x[0, place, begin : begin + d_head] = kept[place, begin : begin + d_head]
    return x


RIGHT = [
    (checks.credit, right_credit),
    (checks.credit, credit_of_orders),
    (checks.lens, right_lens),
    (checks.lens, lens_by_logits),
    (checks.carry, right_carry),
    (checks.carry, carry_by_where),
    (checks.carry, carry_in_heads),
]

WRONG = [
    *wrong,
    (checks.credit, lambda a, b, both: (a, b), "as the first"),
    (checks.credit, lambda a, b, both: (both - b, both - a), "as the second"),
    (checks.credit, lambda a, b, both: (a, both - a), "a comes first"),
    (checks.credit, lambda a, b, both: (both - b, b), "b comes first"),
    (checks.credit, lambda a, b, both: (both / 2, both / 2), "half for each"),
    (checks.credit, lambda a, b, both: (a + both - b, b + both - a), "these are sums"),
    (
        checks.credit,
        lambda a, b, both: ((a + both) / 2, (b + both) / 2),
        "less the other, not both",
    ),
    (
        checks.credit,
        lambda a, b, both: (both * a / (a + b), both * b / (a + b)),
        "shared as they do alone",
    ),
    (checks.credit, lambda a, b, both: right_credit(b, a, both), "first a's"),
    (checks.credit, lambda a, b, both: right_credit(a, b, both)[0], "both shares"),
    (
        checks.lens,
        lambda x, gain, matrix, token: lens_by_logits(x, gain, matrix, token) - 1,
        "has rank 1, not 0",
    ),
    (
        checks.lens,
        lambda x, gain, matrix, token: right_lens(
            x - x.mean(-1, keepdim=True), gain, matrix, token
        ),
        "RMSNorm takes nothing off",
    ),
    (
        checks.lens,
        lambda x, gain, matrix, token: right_lens(x, gain, matrix, token)[-1],
        "one for each block",
    ),
    (checks.carry, carry_of(places=True), "leaks: the head is carried at every place"),
    (checks.carry, carry_of(heads=True), "leaks: all heads"),
    (checks.carry, carry_of(places=True, heads=True), "leaks: this is the first run"),
    (checks.carry, lambda x, kept, place, head, d_head: x.clone(), "nothing is"),
]

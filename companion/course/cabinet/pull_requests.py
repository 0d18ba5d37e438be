"""Four pull requests, each reduced to two versions that the chapter shows. Chapter 16.

Each is told in words and code of our own: what was wrong, or was said to be, in a few
lines without its surroundings.
"""

import math

import torch
from torch import Tensor

from ...model.attention import causal_mask
from ...model.positions import rotate

# Attention with a sink: pytorch/torchtitan, pull request 4796.


def sink_in_softmax(
    queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor
) -> Tensor:
    """Attention in which each row has one more score, `sink`, and no value for it.

    Queries (t d), keys and values (s d), sink (). Returns (t d).
    """
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    column = sink.expand(len(scores), 1)
    weights = torch.cat([scores, column], -1).softmax(-1)
    return weights[:, :-1] @ values


def fused(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Stands for a fused kernel. Returns attention, and each row's log-sum-exp.

    Like some kernels it has no gradient for the second.
    """
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    log_sum = scores.detach().logsumexp(-1, keepdim=True)
    return scores.softmax(-1) @ values, log_sum


def sink_after_fused(
    queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor
) -> Tensor:
    """The same attention, made of what the kernel returns."""
    result, log_sum = fused(queries, keys, values)
    return result * (log_sum - sink).sigmoid()


# The same share, written twice: pytorch/torchtitan, pull request 2211.


def by_sigmoid(log_sums: Tensor, sinks: Tensor) -> Tensor:
    """Says which share of its weight a row keeps for the keys, beside a sink.

    The rows' log-sum-exps (h t), a sink for each head (h). Returns (h t).
    """
    return (log_sums - sinks[:, None]).sigmoid()


def by_renormalizing(log_sums: Tensor, sinks: Tensor) -> Tensor:
    """Says the same by the log-sum-exp of all scores, the sink among them."""
    totals = torch.logaddexp(log_sums, sinks[:, None])
    return (log_sums - totals).exp()


# One expert for each token: jingyaogong/minimind, issue 858 and pull request 859.


def of_chosen(x: Tensor, experts: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """Adds up the outputs of the chosen experts, weighted. All (t k), x (t c)."""
    outputs = torch.einsum("tc,tkcd->tkd", x, experts[chosen])
    return (weights[..., None] * outputs).sum(1)


def always_divided(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    """Sends each token to the k experts with the largest shares.

    Tokens x (t c), router (e c), experts (e c d). Returns (t d).
    """
    shares = (x @ router.mT).softmax(-1)
    weights, chosen = shares.topk(k, -1)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return of_chosen(x, experts, weights, chosen)


def divided_from_two_on(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    """The same, but the share of a single expert stays as it is."""
    shares = (x @ router.mT).softmax(-1)
    weights, chosen = shares.topk(k, -1)
    if k > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return of_chosen(x, experts, weights, chosen)


# Several texts in one row: huggingface/nanoVLM, issue 201 and pull request 204.


def attended(
    queries: Tensor, keys: Tensor, values: Tensor, positions: Tensor, mask: Tensor
) -> Tensor:
    """Attention with rotary positions (t) and a mask (t t). All else (t d)."""
    positions = positions.to(queries.dtype)
    queries = rotate(queries, positions)
    keys = rotate(keys, positions)
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ values


def positions_reset(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """Reads texts of these lengths, one behind the other. Each begins at position 0.

    Queries, keys and values (t d), t the sum of the lengths. Returns (t d).
    """
    positions = torch.cat([torch.arange(n) for n in lengths])
    mask = causal_mask(len(queries))
    return attended(queries, keys, values, positions, mask)


def texts_apart(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """Reads them so. The positions go on, and no text sees another."""
    positions = torch.arange(len(queries))
    text = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    return attended(queries, keys, values, positions, mask)

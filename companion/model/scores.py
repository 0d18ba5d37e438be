"""Scores: how well each key fits each query, before softmax. Chapters 01 and 09."""

import math

import torch
from torch import Tensor

from ..inputs import check_tensor, shown

Heads = Tensor  # queries (b h t d), or keys and values (b h s d)


def check_mask(mask: object) -> None:
    """Raises ValueError unless it is a tensor of bool, or of floats to be added."""
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool or mask.is_floating_point():
            return
    raise ValueError(f"mask is {shown(mask)}; it must be bool, True = may attend")


def check_mask_axes(mask: Tensor) -> None:
    """Raises ValueError for a mask whose first of three axes may be streams or heads.

    It would be read as heads, without a word where there are as many streams.
    """
    if mask.dim() == 3:
        raise ValueError(
            f"mask {tuple(mask.shape)} has three axes, the first of streams or of"
            " heads: say (b 1 t s) or (1 h t s)"
        )


def check_bias_axes(bias: Tensor, queries: Heads) -> None:
    """Raises ValueError for floats of three axes, unless the first can only be heads.

    ALiBi's are such, (h t s). Where there are as many streams as heads, or no other
    number of heads fits, they may be meant (b t s).
    """
    if bias.dim() != 3 or queries.dim() != 4:
        return
    b, h, *_ = queries.shape
    n = len(bias)
    if n not in (1, h) or n == b > 1:
        check_mask_axes(bias)


def broadcasts_to(x: Tensor, queries: Heads) -> bool:
    """Whether x has 1 or as many of the queries' streams and heads, axis by axis."""
    pairs = zip(reversed(x.shape[:-2]), reversed(queries.shape[:-2]), strict=False)
    return x.dim() <= queries.dim() and all(n in (1, wanted) for n, wanted in pairs)


def check_mask_beside(queries: Heads, mask: Tensor, is_causal: bool = False) -> None:
    """Raises ValueError unless a mask is one for these queries (b h t d).

    It says who may see whom alone, so `is_causal` can't stand beside it.
    """
    check_mask(mask)
    if is_causal:
        raise ValueError("a mask and is_causal: join `causal_mask` to the mask")
    if mask.is_floating_point():
        check_bias_axes(mask, queries)
    elif queries.dim() == 4:
        check_mask_axes(mask)
    if not broadcasts_to(mask, queries):
        raise ValueError(
            f"mask {tuple(mask.shape)} is of other streams or heads than queries"
            f" {tuple(queries.shape)}"
        )


def check_attention(
    queries: Heads, keys: Heads, values: Heads, mask: Tensor | None
) -> None:
    """Raises ValueError unless (b h t d), (b h s d), (b h s d) and (b h t s) fit."""
    check_tensor("floats", "... t d", queries=queries, keys=keys, values=values)
    *_, t, d = queries.shape
    *_, s, d_keys = keys.shape
    if d != d_keys:
        raise ValueError(f"queries have {d} features and keys {d_keys}")
    if s != values.shape[-2]:
        raise ValueError(f"{s} keys have {values.shape[-2]} values")
    for name, x in (("keys", keys), ("values", values)):
        if not broadcasts_to(x, queries):
            raise ValueError(
                f"{name} {tuple(x.shape)} are of other streams or heads than queries"
                f" {tuple(queries.shape)}"
            )
    if queries.dtype != keys.dtype:
        raise ValueError(f"queries are {queries.dtype} and keys {keys.dtype}")
    if mask is None:
        return
    check_mask_beside(queries, mask)
    if mask.dim() < 2 or mask.shape[-2] not in (1, t) or mask.shape[-1] not in (1, s):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {t} queries and {s} keys"
        )


def attention_scores(queries: Heads, keys: Heads, mask: Tensor | None = None) -> Tensor:
    """Compares each query with each key: Q Kᵀ / √d. Returns (b h t s).

    Queries (b h t d), keys (b h s d). The score is -inf where the mask forbids to look;
    a mask of floats is added. The queries are divided before the product, which could
    overflow in float16. Nothing is checked. Vaswani et al. 2017, eq. 1.
    """
    scores = queries / math.sqrt(queries.shape[-1]) @ keys.mT
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -math.inf)
    return scores + mask.to(scores.dtype)

"""Attention: softmax, masks, one attention, many heads. Chapters 01 and 02."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ..device import at_least_float32
from ..inputs import check_name, check_tensor, check_whole, fits, shown
from .flash_attention import flash_attention
from .positions import Rope, apply_rotary
from .scores import Heads, attention_scores, check_attention, check_mask_beside

ENGINES = ("fused", "explicit", "flash")
# Takes a layer's new keys and values (b h t d), returns those to attend to (b h s d).
CacheUpdate = Callable[[Heads, Heads], tuple[Heads, Heads]]
# A context's keys and values (b s c), as an attention's `to_keys` and `to_values` have
# made them. The mask is not in there; a block's pair, `BlockContext`, has one.
KeysAndValues = tuple[Tensor, Tensor]


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Turns scores into weights that sum to 1 along `dim`. Returns their shape.

    All weights are zero where every score is -inf. Raises ValueError for what is not
    floats. Chapter 01.
    """
    check_tensor("floats", "...", scores=scores)
    if not scores.numel():
        return scores

    # Less the maximum, the largest term is e^0 = 1: nothing overflows. In float16 a sum
    # of 65,520 of them would.
    x = at_least_float32(scores)
    lowest = torch.finfo(x.dtype).min
    maximum = x.detach().amax(dim, keepdim=True).clamp(min=lowest)
    exponentials = (x - maximum).exp()

    # So the sum is at least 1, but for rows in which nothing may be attended: 0 / 1.
    weights = exponentials / exponentials.sum(dim, keepdim=True).clamp(min=1)
    return weights.to(scores.dtype)


def causal_mask(
    n_queries: int, n_keys: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Hides what comes later. Returns (t s): True where the key is not after the query.

    The last query and the last key align: with a cache there are more keys than
    queries, and query t sees the keys up to s = t + n_keys - n_queries. PyTorch's
    `is_causal=True` aligns the first of both. Raises ValueError for fewer keys than
    queries. Vaswani et al. 2017, section 3.2.3.
    """
    n_keys = n_queries if n_keys is None else n_keys
    check_whole(0, n_queries=n_queries, n_keys=n_keys)
    if n_keys < n_queries:
        raise ValueError(f"{n_queries} queries need as many keys, there are {n_keys}")
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def padding_mask(lengths: Tensor, n_keys: int) -> Tensor:
    """Hides padding. Returns (b 1 1 s): True at each sequence's first `lengths` (b).

    Raises ValueError for lengths outside 0 to n_keys. Only lengths on the CPU are
    read: elsewhere the reading would wait for the device. Chapter 02.
    """
    check_tensor("integers", "b", lengths=lengths)
    if lengths.is_cpu and bool(((lengths < 0) | (lengths > n_keys)).any()):
        raise ValueError(f"lengths {lengths.tolist()} do not lie within 0 to {n_keys}")
    keys = torch.arange(n_keys, device=lengths.device)
    return rearrange(keys < lengths[:, None], "b s -> b 1 1 s")


def attention_weights(
    queries: Heads, keys: Heads, mask: Tensor | None = None
) -> Tensor:
    """How much each query attends to each key: softmax(Q Kᵀ / √d). Returns (b h t s).

    Queries (b h t d), keys (b h s d). The mask, broadcastable to (b h t s), is True
    where a query may attend, or floats that are added to the scores. Rows sum to 1, or
    to 0 where the mask allows no key. Raises ValueError where sizes or dtypes disagree,
    and for a mask (b t s) or (h t s), which could be either; floats (h t s) are taken
    where there are not as many streams.
    Vaswani et al. 2017, eq. 1.
    """
    check_attention(queries, keys, keys, mask)
    return softmax(attention_scores(queries, keys, mask))


def attention(
    queries: Heads, keys: Heads, values: Heads, mask: Tensor | None = None
) -> Heads:
    """Averages the values (b h s d) for each query: softmax(Q Kᵀ / √d) V.

    Returns (b h t d). Queries, keys, mask and errors are those of `attention_weights`.
    Vaswani et al. 2017, eq. 1.
    """
    check_attention(queries, keys, values, mask)
    return softmax(attention_scores(queries, keys, mask)) @ values


def check_keys_and_values(pair: tuple, width: int) -> None:
    """Raises ValueError unless a pair is keys and values (b s c) of this width."""
    if len(pair) == 2:
        if all(fits(x, "floats", "b s c") and x.shape[-1] == width for x in pair):
            return
    given = ", ".join(shown(x) for x in pair)
    raise ValueError(
        f"the context is a pair, {given}; it must be keys and values (b s {width}) that"
        " were made before, or features alone: a mask goes beside it"
    )


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` subspaces of `d_model / n_heads` features each.

    Each of `n_kv_heads` heads of keys and values serves n_heads / n_kv_heads heads of
    queries (Ainslie et al. 2023). `qk_norm`: queries and keys have a mean square of 1
    over each head's features, as RMSNorm without a gain makes them (Henry et al. 2020
    scale them to length 1). `engine` is one of ENGINES; the explicit one passes its
    weights (b h t s) through `self.pattern`, where a hook can read them.
    Raises ValueError for sizes that do not divide and for an unknown engine.
    Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        bias: bool = True,
        *,
        n_kv_heads: int | None = None,
        qk_norm: bool = False,
        engine: str = "fused",
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_whole(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)
        check_name(ENGINES, engine=engine)
        if d_model % n_heads:
            raise ValueError(
                f"d_model ({d_model}) is not divisible by n_heads ({n_heads})"
            )
        if n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads ({n_heads}) is not divisible by n_kv_heads ({n_kv_heads})"
            )

        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.n_heads_per_kv_head = int(n_heads // n_kv_heads)  # NumPy's is another
        self.qk_norm = qk_norm
        self.engine = engine

        self.to_queries = nn.Linear(d_model, d_model, bias)
        self.to_keys = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_values = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_output = nn.Linear(d_model, d_model, bias)
        self.pattern = nn.Identity()

    def forward(
        self,
        x: Tensor,
        context: Tensor | KeysAndValues | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        store: CacheUpdate | None = None,
    ) -> Tensor:
        """Lets x (b t c) attend to the context (b s c), or to itself. Returns (b t c).

        A context may be a pair, the keys and values (b s c) that `to_keys` and
        `to_values` made of it. `mask` is as in `attention_weights`;
        `nn.MultiheadAttention`'s is True where attention is forbidden. `is_causal`
        stands for `causal_mask` of the queries and all keys, without a table where none
        is needed. `rope` rotates queries and keys, see `apply_rotary`. `store` takes
        the new keys and values (b h t d) and gives those to attend to, (b h s d), as a
        cache does. Raises ValueError for another pair, for a mask of other
        numbers, for one of three axes that may be of streams or of heads, and for one
        beside `is_causal`.
        """
        # Project. A context may come as keys and values that were made before.
        if isinstance(context, tuple):
            n_kv_heads = self.n_heads // self.n_heads_per_kv_head
            check_keys_and_values(context, n_kv_heads * self.d_head)
            keys, values = context
        else:
            source = x if context is None else context  # self- or cross-attention
            keys = self.to_keys(source)
            values = self.to_values(source)
        queries = self.to_queries(x)

        # Cut into heads: (b t c) -> (b h t d).
        queries = queries.unflatten(-1, (-1, self.d_head)).transpose(1, 2)
        keys = keys.unflatten(-1, (-1, self.d_head)).transpose(1, 2)
        values = values.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

        if self.qk_norm:
            queries = F.rms_norm(queries, (self.d_head,))
            keys = F.rms_norm(keys, (self.d_head,))
        if rope is not None:
            queries = apply_rotary(queries, rope)
            keys = apply_rotary(keys, rope)
        if store is not None:
            keys, values = store(keys, values)

        # Attend, and join the heads again: (b h t d) -> (b t c).
        out = self.attend(queries, keys, values, mask, is_causal)
        return self.to_output(out.transpose(1, 2).flatten(2))

    def attend(
        self,
        queries: Heads,
        keys: Heads,
        values: Heads,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Heads:
        """Averages the values (b h s d) for each query (b h t d), by one of ENGINES.

        Returns (b h t d). Keys and values may have fewer heads than queries. `mask`,
        `is_causal` and the errors are those of `forward`.
        """
        b, n_heads, n_queries, d_head = queries.shape
        n_keys = keys.shape[-2]
        if mask is not None:
            check_mask_beside(queries, mask, is_causal)
            if mask.is_floating_point():
                mask = mask.to(queries.dtype)

        # The kernel's flag aligns the first query and key, `causal_mask` the last of
        # both: that is the same only for as many queries as keys.
        if is_causal and not (self.engine == "fused" and n_queries == n_keys):
            mask = causal_mask(n_queries, n_keys, queries.device)
            is_causal = False

        if self.engine != "fused":
            return self.attend_by_hand(queries, keys, values, mask)

        # With one query a stream, queries that share keys can be the rows of one
        # matrix: in bfloat16 five times as fast as heads. Not if they have masks of
        # their own (ALiBi), nor with the flag, which takes rows for positions.
        group_size = self.n_heads_per_kv_head
        is_one_mask = mask is None or mask.dim() < 3 or mask.shape[-3] == 1
        if group_size > 1 and n_queries == 1 and is_one_mask and not is_causal:
            queries = queries.reshape(b, -1, group_size, d_head)

        # One bias for several streams goes in as (h t s): with four axes the kernel
        # takes another way, which rounds differently.
        if b > 1 and mask is not None and mask.is_floating_point() and mask.dim() == 4:
            mask = mask.squeeze(0)
        out = F.scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=is_causal, enable_gqa=group_size > 1
        )
        return out.reshape(b, n_heads, n_queries, d_head)

    def attend_by_hand(
        self, queries: Heads, keys: Heads, values: Heads, mask: Tensor | None
    ) -> Heads:
        """What `attend` returns, without PyTorch's kernel: explicit, or in blocks."""
        # A head of keys and values for each head of queries.
        keys = keys.repeat_interleave(self.n_heads_per_kv_head, 1)
        values = values.repeat_interleave(self.n_heads_per_kv_head, 1)
        if self.engine == "flash":
            return flash_attention(queries, keys, values, mask)
        return self.pattern(attention_weights(queries, keys, mask)) @ values

"""Homework of chapter 12: two questions and their checks, the teacher's alone."""

import torch
from gguf import GGMLQuantizationType, dequantize

from companion import GPT, GPTConfig
from companion.course.checks.compare import draw

# %% [markdown]
# **1. Write a block.** The chapter reads a block of Q4_1; now make one. Write
# `my_block(weights)`. It takes 32 weights (float32, not all equal), and returns 20
# bytes (uint8): scale and smallest value in float16, then sixteen bytes, as the chapter
# draws them. The scale is as small as it can be, so that the smallest weight gets the
# number 0 and the largest 15. Read back, no weight is off by more than half a scale
# (and a little, as scale and smallest value were rounded).


# %%
def my_block(weights):
    raise NotImplementedError


# %%
def check_block(answer):
    rising = torch.linspace(-3, 12, 32)  # both ends are the block's
    for weights in (rising, rising.flip(0), *draw(6, 32), *(draw(6, 32) / 50 + 0.2)):
        block = answer(weights.clone())
        words = "20 bytes are wanted, a tensor of dtype uint8"
        assert isinstance(block, torch.Tensor) and block.dtype == torch.uint8, words
        assert block.shape == (20,), f"20 bytes are wanted, not {tuple(block.shape)}"

        scale, smallest = block[:4].view(torch.float16).tolist()
        words = (
            f"the smallest value is {weights.min():.4g}, the block says {smallest:.4g}"
        )
        assert abs(smallest - weights.min()) < 0.001 * weights.abs().max(), words
        finest = (weights.max() - weights.min()).item() / 15
        words = f"there are 15 steps of {finest:.4g} from 0 to 15, not of {scale:.4g}"
        assert abs(scale - finest) < 0.002 * finest, words

        # llama.cpp's own package reads it.
        read = dequantize(block.numpy(), GGMLQuantizationType.Q4_1)
        off = (torch.tensor(read) - weights).abs() / scale
        i = int(off.argmax())
        words = f"weight {i} comes back {off[i]:.2g} scales off: rounded? in its place?"
        assert off[i] < 0.51 + 0.002 * weights.abs().max() / scale, words


# %% [markdown]
# **2. Count before you load.** A header tells all sizes. Write `my_count(d_vocab,
# d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied)`: how many numbers the
# chapter's `MyGPT` has. With `tied`, the output matrix is the embedding, and counts
# once; without, it has as many numbers of its own. Remember the norms, two in a block
# and one behind the last. SmolLM2 has 134,515,008. On paper: how many has Llama 3 8B
# (128,256, 4,096, 32, 8, 32, 14,336, not tied)?


# %%
def my_count(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
    raise NotImplementedError


# %%
def check_count(answer):
    def built(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
        config = GPTConfig(
            d_vocab=d_vocab,
            context_length=8,
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            n_layers=n_layers,
            d_hidden=d_hidden,
            positions="rotary",
            norm="rms",
            feed_forward="gated",
            activation="silu",
            bias=False,
            tie_embeddings=tied,
        )
        return sum(p.numel() for p in GPT(config).parameters())

    sizes = (50, 24, 6, 2, 3, 40)
    n = answer(*sizes, True)
    wanted = built(*sizes, True)
    known = {
        50 * 24: "the tied matrix counts once",
        3 * 24 * 24 * 2 * 2 // 3: "keys and values have n_kv_heads heads alone",
        24: "two norms in each block, and one behind the last",
        2 * 3 * 24: "two norms in each block, and one behind the last",
        7 * 24: "two norms in each block, and one behind the last",
        3 * 24 * 40: "a gated feed-forward layer has three matrices",
    }
    words = known.get(abs(n - wanted), f"{sizes}, tied: {n}, wanted {wanted}")
    assert n == wanted, words

    for sizes in ((50, 24, 6, 2, 3, 40), (7, 16, 4, 4, 1, 64), (90, 36, 9, 3, 2, 100)):
        for tied in (True, False):
            n = answer(*sizes, tied)
            wanted = built(*sizes, tied)
            words = f"{sizes}, {'' if tied else 'not '}tied: {n}, wanted {wanted}"
            assert n == wanted, words
    n = answer(49_152, 576, 9, 3, 30, 1536, True)
    assert n == 134_515_008, f"SmolLM2 has 134,515,008, not {n:,}"

"""The reader's machine agrees with the package: same weights, same logits."""

from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from ..model.gpt import GPT, GPTConfig
from ..model.serving_caches import RaggedCache


def config_after(chapter: int) -> GPTConfig:
    """Returns a small configuration with all that a chapter's model has by then."""
    config = GPTConfig(
        d_vocab=11,
        context_length=8,
        d_model=24,
        n_heads=4,
        n_layers=2,
        activation="gelu",
        tie_embeddings=False,
    )
    if chapter >= 5:
        config = replace(
            config,
            positions="rotary",
            norm="rms",
            activation="squared_relu",
            bias=False,
            qk_norm=True,
        )
    if chapter >= 9:
        config = replace(config, n_kv_heads=2)
    if chapter >= 12:
        config = replace(
            config,
            feed_forward="gated",
            activation="silu",
            d_hidden=30,
            qk_norm=False,
            rotary_base=1000,
            tie_embeddings=True,
        )
    return config


@torch.no_grad()
def check_agreement(my_gpt: ModuleType, chapter: int) -> None:
    """Holds the reader's model after `chapter` against GPT, with the same weights.

    `my_gpt` is the module with the reader's classes. Raises ValueError where the logits
    differ, at once or in pieces with a cache.
    """
    if chapter < 4:  # there is none yet
        return
    generator = torch.Generator().manual_seed(0)
    config = config_after(chapter)
    with torch.random.fork_rng(devices=[]):  # the chapter's random numbers stay
        package = GPT(config, generator).eval()
        mine = my_gpt.MyGPT(config).eval()
    for parameter in package.parameters():
        parameter.normal_(generator=generator)  # gains and biases, too
    mine.load_state_dict(package.state_dict())

    tokens = torch.randint(config.d_vocab, (2, 8), generator=generator)
    expected = package(tokens)
    check_logits(mine(tokens), expected, "its logits")
    if chapter >= 7:
        cache = my_gpt.MyCache()
        pieces = [mine(piece, cache) for piece in tokens.split([3, 1, 4], dim=1)]
        check_logits(torch.cat(pieces, 1), expected, "its logits with a cache")
    if chapter >= 10:
        ragged = RaggedCache(8, 2)
        mine(tokens[:, :5], ragged)
        ragged.truncate(torch.tensor([5, 2]))
        second = torch.stack([tokens[0, 5:], tokens[1, 2:5]])
        last = torch.stack([expected[0, 7], expected[1, 4]])
        check_logits(
            mine(second, ragged, last=-1), last, "its logits in rows of two lengths"
        )


def check_logits(logits: Tensor, expected: Tensor, what: str) -> None:
    """Raises ValueError unless logits (b t v) are the package's, but for rounding."""
    if logits.shape != expected.shape:
        raise ValueError(f"{what} are {tuple(logits.shape)}, not {(*expected.shape,)}")
    # Two orders of the same sums differ by some roundings of the largest logit.
    bound = 1e-4 * expected.abs().max()
    difference = (logits - expected).abs().max()
    if not difference <= bound:
        raise ValueError(f"{what} differ from the package's by up to {difference:.2g}")

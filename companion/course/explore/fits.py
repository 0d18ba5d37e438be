"""Whether the page can show a model: it computes a plain GPT, and nothing else."""

from dataclasses import replace

import torch

from ...model.blocks import LayerNorm, RMSNorm
from ...model.gpt import GPT, evaluating
from ...text.tokenizers import BPETokenizer, CharTokenizer
from ..stored_models import gpt_of, plain_shapes


def check_fits(model: object, tokenizer: object) -> None:
    """Raises ValueError, naming what the page can't show, unless it can show both."""
    for x, classes in ((model, GPT), (tokenizer, CharTokenizer | BPETokenizer)):
        if not isinstance(x, classes):
            raise ValueError(
                "the page shows a GPT with a CharTokenizer or a BPETokenizer, no"
                f" {type(x).__name__}"
            )

    config = model.config
    n_weights = sum(x.numel() for x in model.parameters())
    d_vocab = config.d_vocab
    shapes = {name: x.shape for name, x in model.state_dict().items()}

    if next(model.parameters()).is_meta:
        misfit = "its weights lie on the device meta, which keeps no numbers"
    elif n_weights > 5_000_000:
        misfit = f"{n_weights:,} weights are more than 5,000,000"
    elif d_vocab > 2048:
        misfit = f"{d_vocab:,} tokens are more than 2,048"
    elif not config.pre_norm:
        misfit = "its blocks are post-norm, not pre-norm"
    elif config.positions == "t5":
        misfit = "its positions are T5's relative bias"
    elif not model.causal or shapes != plain_shapes(config):
        misfit = "its parts are not those of a plain GPT"
    elif d_vocab != tokenizer.d_vocab:
        misfit = f"it has {d_vocab} tokens, its tokenizer {tokenizer.d_vocab}"
    else:
        return
    raise ValueError(f"the page can't show this model: {misfit}")


def check_text(tokenizer: CharTokenizer | BPETokenizer, text: str) -> list[int]:
    """Returns the tokens of `text`. Raises ValueError where it has none, or unknown."""
    tokens = tokenizer.encode(text)
    if not tokens:
        raise ValueError("text is ''; it needs one character or more")
    return tokens


def plain_copy(model: GPT, engine: str) -> GPT:
    """Returns the model anew, made as the page makes it: of configuration and weights.

    Two matrices, since a model may have been untied after it was made.
    """
    config = replace(model.config, engine=engine, tie_embeddings=False)
    copy = gpt_of(config, model.state_dict())
    for norm in copy.modules():
        if isinstance(norm, LayerNorm | RMSNorm):
            norm.eps = model.norm.eps
    return copy.to(next(model.parameters()))


@torch.no_grad()
def check_answers(model: GPT, tokens: list[int]) -> None:
    """Raises ValueError where the model's logits aren't those of its plain copy.

    Whatever was changed after the model was made, the page would not know of it.
    """
    x = torch.tensor([tokens[-min(model.config.context_length, 64) :]])
    x = x.to(next(model.parameters()).device)
    expected = plain_copy(model, model.config.engine)(x).float()
    with evaluating(model):
        error = (model(x).float() - expected).abs().max()

    precision = torch.finfo(next(model.parameters()).dtype).eps
    if not error <= precision**0.5 * expected.abs().max():  # nor where it is NaN
        raise ValueError(
            "the page can't show this model: its logits are off by"
            f" {error:.2g} from those of a plain GPT with its configuration and weights"
        )

"""Models in files: a run's checkpoint, and the weights that chapter 05 keeps."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..model.gpt import GPT, GPTConfig
from ..pretrained.weights import empty
from ..training.checkpoints import read_checkpoint


def plain_shapes(config: GPTConfig) -> dict[str, torch.Size]:
    """Returns the shapes that the weights of a GPT have, by their names."""
    return {name: x.shape for name, x in empty(config).state_dict().items()}


def check_parts(weights: dict[str, Tensor], config: GPTConfig) -> None:
    """Raises ValueError unless these are a GPT's weights, by their names and shapes."""
    expected = plain_shapes(config)
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights:
            raise ValueError(f"it has no {name}")
        if name not in expected:
            raise ValueError(f"it has {name}, which a GPT of its configuration hasn't")
        shape = tuple(weights[name].shape)
        expected_shape = tuple(expected[name])
        if shape != expected_shape:
            raise ValueError(f"{name} is {shape}, and must be {expected_shape}")


def gpt_of(config: GPTConfig, weights: dict[str, Tensor]) -> GPT:
    """Returns a GPT with copies of these weights, which can also be trained.

    PyTorch's own random numbers go on as if nothing had been loaded.
    """
    with torch.random.fork_rng(devices=[]):
        model = GPT(config)
    model.load_state_dict(weights)
    return model.eval()


def config_from(model_settings: dict[str, Any]) -> GPTConfig:
    """Returns a model's configuration from what its checkpoint says of the model.

    The checkpoint has a value for each field of GPTConfig, and beside them the shapes
    and dtypes of its tensors. Raises KeyError for a field that it hasn't.
    """
    names = [field.name for field in fields(GPTConfig)]
    return GPTConfig(**{name: model_settings[name] for name in names})


def load_model(path: Path) -> GPT:
    """Returns the GPT of a checkpoint, on the CPU.

    Raises ValueError for one that is damaged or of no GPT.
    """
    tensors, about = read_checkpoint(path)
    try:
        config = config_from(about["model"])
    except KeyError as error:
        raise ValueError(
            f"{path} holds another model than a GPT: it has no {error.args[0]}"
        ) from None

    prefix = "model."
    weights = {
        name.removeprefix(prefix): x
        for name, x in tensors.items()
        if name.startswith(prefix)
    }
    try:
        check_parts(weights, config)
    except ValueError as error:
        raise ValueError(f"{path} holds another model than a GPT: {error}") from None

    # A model may have been untied after it was made.
    same = torch.equal(weights["unembedding.weight"], weights["embedding.weight"])
    config = replace(config, tie_embeddings=config.tie_embeddings and same)
    return gpt_of(config, weights)


def read_my_gpt(path: Path, config: GPTConfig) -> GPT:
    """Reads the weights that chapter 05's own class has learned. Returns a GPT of them.

    The file holds nothing but weights, so the configuration is given. Raises ValueError
    for a file that is damaged, that doesn't fit, or in which a number isn't finite.
    """
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} can't be read ({error})") from error
    try:
        check_parts(weights, config)
    except ValueError as error:
        raise ValueError(f"{path} isn't chapter 05's model: {error}") from None
    for name, x in weights.items():
        if not x.isfinite().all():
            raise ValueError(f"{path}: {name} holds numbers that are not finite")

    return gpt_of(config, weights)

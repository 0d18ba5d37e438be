"""Ten more silent faults, for a class to be graded by: the teacher's alone. Chapter 16.

`make assignment` puts them into a hidden test of the last assignment.
"""

import torch
from torch import Tensor

from companion.course.cabinet.faults import (
    cache_fault,
    model_fault,
    with_attention,
    with_norm,
)
from companion.course.cabinet.machine import (
    Attention,
    Cache,
    Machine,
    RMSNorm,
    Run,
    SmallGPT,
)


class ScaleMissing(Attention):
    """The scores are not scaled. Chapter 01."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT


class OtherBase(Attention):
    """The speeds of rotation have another base. Chapter 03."""

    base = 1_000


class GainShared(SmallGPT):
    """Two blocks share the gain of a norm. Chapter 04."""

    def tie(self) -> None:
        super().tie()
        self.blocks[1].attention_norm.gain = self.blocks[0].attention_norm.gain


class LastBlockLeftOut(SmallGPT):
    """The last block is built, and never called. Chapter 04."""

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, is_text: Tensor | None = None
    ) -> Tensor:
        blocks = self.blocks
        self.blocks = blocks[:-1]
        try:
            return super().forward(tokens, cache, is_text)
        finally:
            self.blocks = blocks


class NormOverBatch(RMSNorm):
    """The mean square is that of all texts of a batch: neighbours count. Chapter 04."""

    axis = (0, -1)


class CursorInEveryLayer(SmallGPT):
    """The cursor moves once a layer, so that positions are skipped. Chapter 07."""

    def positions(self, n_seen: int, n_new: int) -> Tensor:
        start = n_seen * len(self.blocks)
        return torch.arange(start, start + n_new)


class FirstStreamsKeys(Cache):
    """All texts of a batch read the keys of the first. Chapter 10."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        seen_before = layer in self.layers
        keys, values = super().append(layer, keys, values)
        if not seen_before:
            return keys, values
        return keys[:1].expand_as(keys), values


class FillerDivides(Machine):
    """Filler has no loss, but the mean is over all places. Chapter 08."""

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        is_text = targets != -100
        return super().loss(logits, targets) * is_text.float().mean()


class StepForgotten(Machine):
    """A resumed run warms up again. Chapter 05."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        run.step = 0
        return run


class TemperatureTooLate(Machine):
    """The temperature divides probabilities, which does nothing. Chapter 06."""

    def temperature(self, logits: Tensor, t: float) -> Tensor:
        return (logits.softmax(-1) / t).log()


FAULTS = (
    model_fault(with_attention(ScaleMissing)),
    model_fault(with_attention(OtherBase)),
    model_fault(GainShared),
    model_fault(LastBlockLeftOut),
    model_fault(with_norm(NormOverBatch)),
    model_fault(CursorInEveryLayer),
    cache_fault(FirstStreamsKeys),
    FillerDivides,
    StepForgotten,
    TemperatureTooLate,
)

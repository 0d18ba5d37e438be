"""Twenty-seven machines with one silent fault each. Chapter 16.

Nothing crashes in any of them, all shapes are right, and the loss falls. Each says what
is wrong and where the like of it was found. **Who wants to find them should not read
on.**
"""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from .machine import Attention, Block, Cache, Machine, RMSNorm, Run, SmallGPT


def with_attention(attention: type[Attention]) -> type[SmallGPT]:
    """Returns `SmallGPT` with another attention in its blocks."""

    class OtherBlock(Block):
        attention_class = attention

    return with_block(OtherBlock)


def with_norm(norm: type[RMSNorm]) -> type[SmallGPT]:
    """Returns `SmallGPT` with another norm."""

    class OtherBlock(Block):
        norm_class = norm

    return with_block(OtherBlock)


def with_block(block: type[Block]) -> type[SmallGPT]:
    """Returns `SmallGPT` with other blocks."""

    class OtherGPT(SmallGPT):
        block_class = block

    return OtherGPT


# Attention.


class ScaleIsD(Attention):
    """The scores are divided by d, not by its root. Chapter 01."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT / queries.shape[-1]


class MaskAfterSoftmax(Attention):
    """The mask comes after softmax, so rows don't sum to 1. Chapter 01."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.softmax(-1).masked_fill(~mask, 0.0)


class SoftmaxOverQueries(Attention):
    """Softmax runs along the queries, not along the keys. Chapter 01."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        shares = scores.masked_fill(~mask, -math.inf).softmax(-2)
        return shares.nan_to_num()


class WeightsDetached(Attention):
    """The weights are right, and have no gradient. pytorch/torchtitan, PR 4796."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weights(scores.detach(), mask)


class HeadsByView(Attention):
    """Heads are cut by a view alone, without a transpose. Chapter 02."""

    def cut(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        return x.reshape(b, self.n_heads, t, c // self.n_heads)


class OneAhead(SmallGPT):
    """The triangle of the mask reaches one place too far: `tril(1)`. Chapter 01."""

    def mask(self, n_seen: int, n_new: int, is_text: Tensor | None) -> Tensor:
        n_keys = n_seen + n_new
        mask = torch.ones(n_new, n_keys, dtype=torch.bool).tril(n_seen + 1)
        if is_text is None:
            return mask
        itself = torch.eye(n_keys, dtype=torch.bool)[n_seen:]
        return mask & (is_text[:, None, None, :] | itself)


class FillerSeen(SmallGPT):
    """Filler looks at nothing, but text looks at filler. Chapter 01."""

    def mask(self, n_seen: int, n_new: int, is_text: Tensor | None) -> Tensor:
        mask = super().mask(n_seen, n_new, None)
        if is_text is None:
            return mask
        itself = torch.eye(n_seen + n_new, dtype=torch.bool)[n_seen:]
        return mask & (is_text[:, None, n_seen:, None] | itself)


# Positions.


class NeighboursPaired(Attention):
    """Neighbours are paired, but turned at the speeds of halves. Chapter 03."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        speeds = self.base ** (-torch.arange(d // 2) / (d // 2))
        angles = (positions[:, None] * speeds).repeat(1, 2)
        pairs = rearrange(x, "b h t (i two) -> b h t i two", two=2)
        turned = torch.stack([-pairs[..., 1], pairs[..., 0]], -1).flatten(-2)
        return x * angles.cos() + turned * angles.sin()


class ValuesTurned(Attention):
    """Values are turned by their positions, too. Chapter 03."""

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> Tensor:
        queries = self.rotate(self.cut(self.to_queries(x)), positions)
        keys = self.rotate(self.cut(self.to_keys(x)), positions)
        values = self.rotate(self.cut(self.to_values(x)), positions)
        if cache is not None:
            keys, values = cache.append(layer, keys, values)
        weights = self.weights(self.scores(queries, keys), mask)
        return self.to_output(rearrange(weights @ values, "b h t d -> b t (h d)"))


class PositionsFromZero(SmallGPT):
    """With a cache each new token believes to stand at position 0. Chapter 07."""

    def positions(self, n_seen: int, n_new: int) -> Tensor:
        return torch.arange(n_new)


# Blocks.


class ShortcutAfterNorm(Block):
    """The shortcut carries the normalised stream, not the stream. Chapter 04."""

    def forward(self, x: Tensor, *place: object) -> Tensor:
        x = self.attention_norm(x)
        x = x + self.drop(self.attention(x, *place))
        x = self.feed_forward_norm(x)
        return x + self.drop(self.feed_forward(x))


class NormOverTime(RMSNorm):
    """The norm is taken over the places, so that later ones count. Chapter 04."""

    axis = -2


class NormDetached(RMSNorm):
    """The way back takes the root mean square for a constant. Chapters 04 and 16."""

    def forward(self, x: Tensor) -> Tensor:
        square = x.detach().square().mean(self.axis, keepdim=True)
        return x * (square + 1e-5).rsqrt() * self.gain


class DropoutStays(Block):
    """Dropout is on in evaluation, too. karpathy/ng-video-lecture, issue 62."""

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.1, training=True)


class TiedOnce(SmallGPT):
    """The output matrix is a copy of the embedding, which then goes its own way."""

    def tie(self) -> None:
        with torch.no_grad():
            self.unembedding.weight.copy_(self.embedding.weight)


# Training.


class TargetsNotShifted(Machine):
    """The targets are the inputs. Chapter 05."""

    def batch(
        self, tokens: Tensor, generator: torch.Generator, batch_size: int = 8
    ) -> tuple[Tensor, Tensor]:
        inputs, _ = super().batch(tokens, generator, batch_size)
        return inputs, inputs


class SoftmaxTwice(Machine):
    """The loss gets probabilities where it wants logits. Chapter 05."""

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().loss(logits.softmax(-1), targets)


class FillerCounted(Machine):
    """Filler counts in the loss, as token 0. Chapter 08."""

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().loss(logits, targets.clamp(min=0))


class GradientsKept(Machine):
    """Gradients are never cleared, so that each step repeats all before. Chapter 05."""

    def train_step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Iterable[tuple[Tensor, Tensor]],
        step: int,
    ) -> float:
        loss = self.backward(model, list(batches))
        self.update(model, optimizer, step)
        return loss


class NotDivided(Machine):
    """The gradients of micro-batches are added up, and not divided. Chapter 09."""

    def backward(self, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
        total = 0.0
        for batch in batches:
            total += super().backward(model, [batch]) / len(batches)
        return total


class ClippedTooLate(Machine):
    """Gradients are clipped after the step that they were to shorten. Chapter 05."""

    def update(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
    ) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.rate * self.schedule(step)
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


class AllDecays(Machine):
    """Gains decay, too. Chapter 05."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=0.1)


class ScheduleLate(Machine):
    """The schedule is a step late: the first step doesn't move. Chapter 05."""

    def schedule(self, step: int) -> float:
        return super().schedule(step - 1)


class GeneratorForgotten(Machine):
    """A resumed run draws the batches that it has drawn already. Chapter 05."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        run.generator.manual_seed(0)
        return run


# Writing.


class CrossingDropped(Machine):
    """Top-p drops the token that crosses p. Chapter 06."""

    def top_p(self, probabilities: Tensor, p: float) -> Tensor:
        if p >= 1:
            return probabilities
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        dropped = ordered.cumsum(-1) > p
        dropped[:, 0] = False
        kept = ordered.masked_fill(dropped, 0.0)
        kept = torch.zeros_like(kept).scatter(-1, order, kept)
        return kept / kept.sum(-1, keepdim=True)


class PromptNotRead(Machine):
    """What is written follows the prompt's last token alone. Chapter 07."""

    @torch.no_grad()
    def write(self, model: nn.Module, prompts: Tensor, n_new: int) -> Tensor:
        return super().write(model, prompts[:, -1:], n_new)


class LastKeyForgotten(Cache):
    """What is read in one piece is kept but for its last key. Chapter 07."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        all_keys, all_values = super().append(layer, keys, values)
        if keys.shape[-2] > 1:
            kept_keys = all_keys.clone()
            kept_keys[..., -1, :] = 0.0
            self.layers[layer] = (kept_keys, all_values)
        return all_keys, all_values


def model_fault(model: type[SmallGPT]) -> type[Machine]:
    """Returns the machine whose model has a fault."""

    class WithFault(Machine):
        model_class = model

    WithFault.__qualname__ = model.__name__
    return WithFault


def cache_fault(cache: type[Cache]) -> type[Machine]:
    """Returns the machine whose cache has a fault."""

    class WithFault(Machine):
        cache_class = cache

    WithFault.__qualname__ = cache.__name__
    return WithFault


FAULTS = (
    model_fault(with_attention(ScaleIsD)),
    model_fault(with_attention(MaskAfterSoftmax)),
    model_fault(with_attention(SoftmaxOverQueries)),
    model_fault(with_attention(WeightsDetached)),
    model_fault(with_attention(HeadsByView)),
    model_fault(OneAhead),
    model_fault(FillerSeen),
    model_fault(with_attention(NeighboursPaired)),
    model_fault(with_attention(ValuesTurned)),
    model_fault(PositionsFromZero),
    model_fault(with_block(ShortcutAfterNorm)),
    model_fault(with_norm(NormOverTime)),
    model_fault(with_norm(NormDetached)),
    model_fault(with_block(DropoutStays)),
    model_fault(TiedOnce),
    TargetsNotShifted,
    SoftmaxTwice,
    FillerCounted,
    GradientsKept,
    NotDivided,
    ClippedTooLate,
    AllDecays,
    ScheduleLate,
    GeneratorForgotten,
    CrossingDropped,
    PromptNotRead,
    cache_fault(LastKeyForgotten),
)

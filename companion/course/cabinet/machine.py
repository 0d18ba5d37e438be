"""The right machine: `SmallGPT`, and all that trains it and writes with it. Chapter 16.

It is what chapters 04 to 07 build, in parts small enough that a fault can be put into
one of them. `cabinet.faults` does so.
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention of several heads, with rotary positions. Chapters 01 to 03."""

    base = 10_000

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.to_queries = nn.Linear(d_model, d_model, bias=False)
        self.to_keys = nn.Linear(d_model, d_model, bias=False)
        self.to_values = nn.Linear(d_model, d_model, bias=False)
        self.to_output = nn.Linear(d_model, d_model, bias=False)

    def cut(self, x: Tensor) -> Tensor:
        """Cuts features (b t c) into heads. Returns (b h t d)."""
        return rearrange(x, "b t (h d) -> b h t d", h=self.n_heads)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turns the pairs (i, i + d/2) of x (b h t d) by positions (t)."""
        half = x.shape[-1] // 2
        speeds = self.base ** (-torch.arange(half, device=x.device) / half)
        angles = positions[:, None] * speeds
        first, second = x.chunk(2, -1)
        turned_first = first * angles.cos() - second * angles.sin()
        turned_second = second * angles.cos() + first * angles.sin()
        return torch.cat([turned_first, turned_second], -1)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Compares queries (b h t d) with keys (b h s d). Returns (b h t s)."""
        return queries @ keys.mT / math.sqrt(queries.shape[-1])

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Makes scores (b h t s) shares that add up to 1, where the mask allows it."""
        return scores.masked_fill(~mask, -math.inf).softmax(-1)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor,
        cache: "Cache | None" = None,
        layer: int = 0,
    ) -> Tensor:
        """Lets each place of x (b t c) look at those that the mask allows."""
        queries = self.rotate(self.cut(self.to_queries(x)), positions)
        keys = self.rotate(self.cut(self.to_keys(x)), positions)
        values = self.cut(self.to_values(x))
        if cache is not None:
            keys, values = cache.append(layer, keys, values)

        weights = self.weights(self.scores(queries, keys), mask)
        return self.to_output(rearrange(weights @ values, "b h t d -> b t (h d)"))


class RMSNorm(nn.Module):
    """Divides each place's features by their root mean square. Chapter 04."""

    axis = -1

    def __init__(self, d_model: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Returns x (b t c) with a root mean square of 1, times the gain."""
        square = x.square().mean(self.axis, keepdim=True)
        return x * (square + 1e-5).rsqrt() * self.gain


class FeedForward(nn.Module):
    """Works on each place by itself. Chapter 04."""

    def __init__(self, d_model: int):
        super().__init__()
        self.to_hidden = nn.Linear(d_model, 4 * d_model, bias=False)
        self.to_output = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns (b t c)."""
        return self.to_output(F.relu(self.to_hidden(x)).square())


class Block(nn.Module):
    """Attention and feed-forward, each added to the stream. Chapter 04."""

    attention_class = Attention
    norm_class = RMSNorm

    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        self.attention_norm = self.norm_class(d_model)
        self.attention = self.attention_class(d_model, n_heads)
        self.feed_forward_norm = self.norm_class(d_model)
        self.feed_forward = FeedForward(d_model)
        self.dropout = dropout

    def drop(self, x: Tensor) -> Tensor:
        """Sets random features to 0, in training alone."""
        return F.dropout(x, self.dropout, training=self.training)

    def forward(self, x: Tensor, *place: object) -> Tensor:
        """Returns the stream (b t c) after this block."""
        x = x + self.drop(self.attention(self.attention_norm(x), *place))
        return x + self.drop(self.feed_forward(self.feed_forward_norm(x)))


class Cache:
    """The keys and values of all tokens that were read. Chapter 07."""

    def __init__(self) -> None:
        self.layers = {}
        self.n_seen = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds a layer's keys and values (b h t d). Returns all that it has."""
        if layer in self.layers:
            old_keys, old_values = self.layers[layer]
            keys = torch.cat([old_keys, keys], -2)
            values = torch.cat([old_values, values], -2)
        self.layers[layer] = (keys, values)
        return keys, values


class SmallGPT(nn.Module):
    """Predicts every next token. Chapters 04, 05 and 07.

    With `is_text` (b s), of what the cache holds and the new tokens, filler is what is
    False there: no token may look at it.
    """

    block_class = Block

    def __init__(
        self,
        d_vocab: int,
        context_length: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.context_length = context_length
        self.embedding = nn.Embedding(d_vocab, d_model)
        blocks = [self.block_class(d_model, n_heads, dropout) for _ in range(n_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = self.block_class.norm_class(d_model)
        self.unembedding = nn.Linear(d_model, d_vocab, bias=False)
        self.tie()

    def tie(self) -> None:
        """Makes the output matrix the embedding's."""
        self.unembedding.weight = self.embedding.weight

    def positions(self, n_seen: int, n_new: int) -> Tensor:
        """Returns where the new tokens stand, (t)."""
        return torch.arange(n_seen, n_seen + n_new)

    def mask(self, n_seen: int, n_new: int, is_text: Tensor | None) -> Tensor:
        """Returns who may look at whom: (t s), or (b 1 t s) where there is filler."""
        n_keys = n_seen + n_new
        mask = torch.ones(n_new, n_keys, dtype=torch.bool).tril(n_seen)
        if is_text is None:
            return mask
        itself = torch.eye(n_keys, dtype=torch.bool)[n_seen:]  # no row is left empty
        return mask & (is_text[:, None, None, :] | itself)

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, is_text: Tensor | None = None
    ) -> Tensor:
        """Returns logits (b t v) for tokens (b t), which come after the cache's."""
        n_seen = 0 if cache is None else cache.n_seen
        n_new = tokens.shape[1]
        positions = self.positions(n_seen, n_new)
        mask = self.mask(n_seen, n_new, is_text)

        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, positions, mask, cache, layer)
        if cache is not None:
            cache.n_seen += n_new
        return self.unembedding(self.norm(x))


@dataclass
class Run:
    """A training that can be stopped, saved and gone on with."""

    model: SmallGPT
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step: int = 0


@dataclass
class Machine:
    """A Transformer, and all that trains it and writes with it: what a test is given.

    Its sizes are small, and differ from machine to machine.
    """

    d_vocab: int = 17
    context_length: int = 16
    d_model: int = 32
    n_heads: int = 4
    n_layers: int = 2
    rate = 0.01
    n_warmup = 5

    model_class = SmallGPT
    cache_class = Cache

    def model(self, seed: int = 0) -> SmallGPT:
        """Returns a new model in evaluation mode; its weights are the seed's."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(
                d_vocab=self.d_vocab,
                context_length=self.context_length,
                d_model=self.d_model,
                n_heads=self.n_heads,
                n_layers=self.n_layers,
            )
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(0.5 / parameter.std() / math.sqrt(self.d_model))
        return model.eval()

    # Training. Chapter 05.

    def batch(
        self, tokens: Tensor, generator: torch.Generator, batch_size: int = 8
    ) -> tuple[Tensor, Tensor]:
        """Draws windows of tokens (t). Returns inputs and targets, both (b t)."""
        last = len(tokens) - self.context_length
        starts = torch.randint(last, (batch_size,), generator=generator)
        windows = torch.stack(
            [tokens[start : start + self.context_length + 1] for start in starts]
        )
        return windows[:, :-1], windows[:, 1:]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean surprise in nats; targets of -100 are filler.

        Logits (b t v), targets (b t).
        """
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns AdamW, in which matrices decay, and gains don't."""
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        gains = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": matrices, "weight_decay": 0.1},
            {"params": gains, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.rate)

    def schedule(self, step: int) -> float:
        """Returns the part of the rate that step 0, 1, ... takes: it rises to 1."""
        return min(1.0, (step + 1) / self.n_warmup)

    def train_step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Iterable[tuple[Tensor, Tensor]],
        step: int,
    ) -> float:
        """Makes one step on the mean loss of some micro-batches. Returns it.

        All gradients together are clipped to a length of 1, and the rate is
        `self.rate` times the schedule's part.
        """
        optimizer.zero_grad()
        loss = self.backward(model, list(batches))
        self.update(model, optimizer, step)
        return loss

    def backward(self, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
        """Adds the gradients of the micro-batches' mean loss. Returns that loss."""
        total = 0.0
        for inputs, targets in batches:
            loss = self.loss(model(inputs), targets) / len(batches)
            loss.backward()
            total += loss.item()
        return total

    def update(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
    ) -> None:
        """Clips the gradients, sets the rate, and moves the parameters."""
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = self.rate * self.schedule(step)
        optimizer.step()

    def start(self, seed: int = 0) -> Run:
        """Returns a run that has made no step."""
        model = self.model(seed).train()
        generator = torch.Generator().manual_seed(seed)
        return Run(model, self.optimizer(model), generator)

    def go_on(self, run: Run, tokens: Tensor, n_steps: int) -> list[float]:
        """Makes steps on windows of tokens (t). Returns their losses."""
        losses = []
        for _ in range(n_steps):
            batch = self.batch(tokens, run.generator)
            losses.append(self.train_step(run.model, run.optimizer, [batch], run.step))
            run.step += 1
        return losses

    def save(self, run: Run) -> dict:
        """Returns all that the next step depends on, as copies."""
        weights = {name: w.clone() for name, w in run.model.state_dict().items()}
        return {
            "weights": weights,
            "optimizer": copy.deepcopy(run.optimizer.state_dict()),
            "generator": run.generator.get_state(),
            "step": run.step,
        }

    def resume(self, saved: dict) -> Run:
        """Returns a run that goes on where the saved one stood."""
        run = self.start(seed=1)
        run.model.load_state_dict(saved["weights"])
        run.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        run.generator.set_state(saved["generator"])
        run.step = saved["step"]
        return run

    # Writing. Chapters 06 and 07.

    def temperature(self, logits: Tensor, t: float) -> Tensor:
        """Returns logits (b v) at a temperature."""
        return logits / t

    def top_p(self, probabilities: Tensor, p: float) -> Tensor:
        """Keeps the likeliest tokens that have p together; the others get 0.

        The token that crosses p stays. Probabilities (b v), as is what is returned.
        """
        if p >= 1:
            return probabilities  # all stay, also where their sum is rounded to 1 early
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        dropped = before >= p
        dropped[..., 0] = False  # a tiny p would be rounded to 0
        kept = ordered.masked_fill(dropped, 0.0)
        kept = torch.zeros_like(kept).scatter(-1, order, kept)
        return kept / kept.sum(-1, keepdim=True)

    def probabilities(self, logits: Tensor, t: float = 1.0, p: float = 1.0) -> Tensor:
        """Returns with which probabilities (b v) a token is drawn."""
        return self.top_p(self.temperature(logits, t).softmax(-1), p)

    def sample(
        self, logits: Tensor, generator: torch.Generator, t: float = 1.0, p: float = 1.0
    ) -> Tensor:
        """Draws a token for each row of logits (b v). Returns (b)."""
        drawn = torch.multinomial(
            self.probabilities(logits, t, p), 1, generator=generator
        )
        return drawn[:, 0]

    @torch.no_grad()
    def write(self, model: nn.Module, prompts: Tensor, n_new: int) -> Tensor:
        """Goes on after prompts (b t) with the likeliest tokens. Returns (b n_new)."""
        cache = self.cache_class()
        unread = prompts
        written = []
        for _ in range(n_new):
            new = model(unread, cache)[:, -1].argmax(-1)
            written.append(new)
            unread = new[:, None]
        return torch.stack(written, 1)

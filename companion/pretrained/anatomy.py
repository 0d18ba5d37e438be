"""What a published model is made of: its parts, and what they cost. Chapter 12.

`config_json.read_anatomy` reads it off a config.json. Each part names the chapter that
derives it, and whether `load_family` can hold it.
"""

from dataclasses import dataclass

from ..inputs import check_whole
from .model_types import AFTER, ALL_HEADS, BEFORE, BOTH, EACH_HEAD, FAMILIES


@dataclass(frozen=True)
class Part:
    """A part of a model, in the course's words.

    `chapter` derives it, if one does; `is_held`: `load_family` can load it.
    """

    what: str
    chapter: str | None = None
    is_held: bool = True


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What a model is made of, as `read_anatomy` reads it off a configuration.

    windows: how many tokens each layer sees; None: all.
    n_experts: 0 without experts.
    dense_layers: those with one feed-forward among such with experts.
    unsupported: what a known key asks for by its value, and nothing here computes.
    unknown: keys that aren't known, and might change the numbers.
    """

    family: str
    d_vocab: int
    context_length: int
    d_model: int
    d_head: int
    d_hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    rotary_base: float
    norm_epsilon: float
    attention_bias: bool
    mlp_bias: bool
    is_tied: bool
    windows: tuple[int | None, ...]
    n_experts: int
    n_experts_per_token: int
    d_expert: int
    dense_layers: frozenset[int]
    unsupported: tuple[str, ...]
    unknown: tuple[str, ...]

    def n_parameters(self, *, active: bool = False) -> int:
        """Counts the parameters; with `active` those that one token goes through.

        Of an embedding that is no output matrix as well one row is active.
        """
        family = FAMILIES[self.family]
        d = self.d_model
        d_queries = self.n_heads * self.d_head
        d_keys = self.n_kv_heads * self.d_head

        # Attention and norms, the same in each layer.
        each = 2 * d * d_queries + 2 * d * d_keys
        if self.attention_bias:
            each += d_queries + 2 * d_keys + d
        if family.qk_norm == EACH_HEAD:
            each += 2 * self.d_head
        elif family.qk_norm == ALL_HEADS:
            each += d_queries + d_keys
        if family.has_sinks:
            each += self.n_heads
        each += d * (4 if family.norms == BOTH else 2)

        # Feed-forward, or experts and their router.
        dense = 3 * d * self.d_hidden
        if self.mlp_bias:
            dense += 2 * self.d_hidden + d
        expert = 3 * d * self.d_expert
        router = d * self.n_experts
        if family.has_expert_biases:
            expert += 2 * self.d_expert + d
            router += self.n_experts
        n_used = self.n_experts_per_token if active else self.n_experts

        n_dense = len(self.dense_layers) if self.n_experts else self.n_layers
        total = self.n_layers * each + n_dense * dense + d  # with the last norm
        total += (self.n_layers - n_dense) * (router + n_used * expert)

        # Embedding and output matrix.
        matrix = self.d_vocab * d
        if self.is_tied:
            return total + matrix
        return total + matrix + (d if active else matrix)

    def n_seen(self, n_positions: int) -> int:
        """Returns how many positions the last of a text sees, summed over layers."""
        check_whole(n_positions=n_positions)
        return sum(
            n_positions if window is None else min(window, n_positions)
            for window in self.windows
        )

    def cache_bytes(self, n_positions: int, bytes_per_number: int = 2) -> int:
        """Returns the bytes of keys and values of a text. ValueError for no such size.

        A layer with a window keeps no more than its window. Chapters 07 and 09.
        """
        check_whole(bytes_per_number=bytes_per_number)
        n_numbers = self.n_seen(n_positions) * 2 * self.n_kv_heads * self.d_head
        return n_numbers * bytes_per_number

    def operations(self, n_positions: int) -> int:
        """Returns the operations of a text's last token. ValueError for no such size.

        Two for each active weight, and four for each feature of a position that a head
        sees: one product with the query, one with its weight. Chapter 09.
        """
        products = 4 * self.n_seen(n_positions) * self.n_heads * self.d_head
        return 2 * self.n_parameters(active=True) + products

    def parts(self) -> list[Part]:
        """Returns the model's parts, in the order in which a token meets them."""
        family = FAMILIES[self.family]
        tie = "also the output matrix" if self.is_tied else "and an output matrix"
        found = [Part(f"embedding of {self.d_vocab:,} tokens, {tie}", "04")]
        if family.scales_embeddings:
            found.append(Part("embeddings times √d_model", "08", False))
        found.append(Part(f"rotary positions, base {self.rotary_base:,.0f}", "03"))

        is_held = family.norms != BOTH
        chapter = {BEFORE: "05", AFTER: "04"}.get(family.norms)
        where = f"{family.norms} each half of a block"
        found.append(Part(f"RMSNorm {where}", chapter, is_held))
        heads = f"{self.n_heads} heads of {self.d_head} features"
        fits_width = self.n_heads * self.d_head == self.d_model
        if not fits_width:
            heads += f", together not d_model ({self.d_model:,})"
        found.append(Part(heads, "02", fits_width))
        if self.n_kv_heads < self.n_heads:
            n_sharing = self.n_heads // self.n_kv_heads
            text = f"keys and values shared by {n_sharing} heads each"
            found.append(Part(text, "09"))
        if self.attention_bias:
            found.append(Part("biases in attention", "02"))
        if family.qk_norm:
            text = (
                f"queries and keys to a mean square of 1, {family.qk_norm}, with gains"
            )
            found.append(Part(text, "05"))
        widths = [window for window in self.windows if window is not None]
        if widths:
            text = f"windows of {widths[0]:,} tokens in {len(widths)} layers of"
            found.append(Part(f"{text} {self.n_layers}", "17", False))
        if family.has_sinks:
            found.append(Part("a learned sink for each head", "17", False))

        width = f"{self.d_hidden:,} features"
        if self.n_experts:
            text = f"{self.n_experts} experts of {self.d_expert:,} features,"
            text += f" {self.n_experts_per_token} for each token"
            found.append(Part(text, "17", False))
        if not self.n_experts or self.dense_layers:
            text = f"{family.feed_forward} feed-forward of {width}"
            found.append(Part(text, "12", family.feed_forward == "SwiGLU"))
        if self.mlp_bias:
            found.append(Part("biases in the feed-forward", "04"))
        return found

    def lacking(self) -> list[str]:
        """Returns what stands between this model and `load_family`, if anything."""
        parts = [part.what for part in self.parts() if not part.is_held]
        unknown = [f"{key}, which isn't known here" for key in self.unknown]
        return [*parts, *self.unsupported, *unknown]


def describe(anatomy: Anatomy) -> str:
    """Writes what a model is made of, one thing a line. Returns the text."""
    lines = [
        f"{anatomy.family}: {anatomy.n_layers} blocks, d_model {anatomy.d_model:,},"
        f" context {anatomy.context_length:,}"
    ]
    for part in anatomy.parts():
        where = "not in this course"
        if part.chapter is not None:
            where = f"chapter {part.chapter}"
        lines.append(f"  {part.what:<66} {where}")

    n_all = anatomy.n_parameters()
    n_active = anatomy.n_parameters(active=True)
    size = f"{n_all:,} parameters"
    if n_active != n_all:
        size += f", {n_active:,} at work on a token"
    lines.append(size)
    context = anatomy.context_length
    for n_positions in (1, context):
        kept = anatomy.cache_bytes(n_positions)
        work = anatomy.operations(n_positions)
        lines.append(
            f"at position {n_positions:,}: {kept:,} bytes of cache in 16 bits,"
            f" {work:,} operations for the token"
        )

    for thing in anatomy.unsupported:
        lines.append(f"not in this course: {thing}")
    for key in anatomy.unknown:
        lines.append(f"not known here, and might change the numbers: {key}")
    lines.append(
        "load_family can't load it" if anatomy.lacking() else "load_family can load it"
    )
    return "\n".join(lines)

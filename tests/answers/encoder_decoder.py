"""Right and wrong answers to the exercises of chapter 08."""

import copy
import functools

import numpy as np
import torch
from einops import rearrange

import companion
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_shifted(answers, begin):
    first = torch.full_like(answers[:, :1], begin)
    return torch.cat([first, answers[:, :-1]], 1)


def shifted_in_place(answers, begin):
    result = answers.roll(1, 1)
    result[:, 0] = begin
    return result


def shifted_by_lists(answers, begin):
    return torch.tensor([[begin, *row[:-1]] for row in answers.tolist()])


@wrong(checks.shifted, "come round to the front")
def rolled(answers, begin):
    return torch.cat([answers[:, -1:], answers[:, :-1]], 1)


@wrong(checks.shifted, "one token too many")
def too_long(answers, begin):
    return torch.cat([torch.full_like(answers[:, :1], begin), answers], 1)


@wrong(checks.shifted, "the first token is lost")
def overwritten(answers, begin):
    result = answers.clone()
    result[:, 0] = begin
    return result


@wrong(checks.shifted, "changes its input")
def overwritten_input(answers, begin):
    answers[:, 1:] = answers[:, :-1].clone()
    answers[:, 0] = begin
    return answers


@wrong(checks.shifted, "shifted the wrong way")
def wrong_way(answers, begin):
    last = torch.full_like(answers[:, :1], begin)
    return torch.cat([answers[:, 1:], last], 1)


@wrong(checks.shifted, "`begin` stands at the end")
def at_the_end(answers, begin):
    return torch.cat([answers[:, :-1], torch.full_like(answers[:, :1], begin)], 1)


@wrong(checks.shifted, "the dtype is torch.float32, wanted torch.int64")
def from_zeros(answers, begin):
    result = torch.zeros(answers.shape)
    result[:, 0] = begin
    result[:, 1:] = answers[:, :-1]
    return result


@wrong(checks.shifted, "overwritten before it is copied")
def smeared(answers, begin):
    result = answers.clone()
    for i in range(1, result.shape[1]):
        result[:, i] = result[:, i - 1]
    result[:, 0] = begin
    return result


def filled(targets, d_vocab, others, right):
    result = torch.full((*targets.shape, d_vocab), others)
    return result.scatter(-1, targets[..., None], right)


def right_soft(targets, d_vocab, smoothing):
    share = smoothing / d_vocab
    return filled(targets, d_vocab, share, 1 - smoothing + share)


@wrong(checks.soft_targets, "wrong tokens alone")
def others_only(targets, d_vocab, smoothing):
    return filled(targets, d_vocab, smoothing / (d_vocab - 1), 1 - smoothing)


@wrong(checks.soft_targets, "the right token gets its part too")
def too_little(targets, d_vocab, smoothing):
    return filled(targets, d_vocab, smoothing / d_vocab, 1 - smoothing)


@wrong(checks.soft_targets, "sum is above 1")
def too_much(targets, d_vocab, smoothing):
    hard = torch.eye(d_vocab)[targets]
    return hard + smoothing / d_vocab


def soft_by_loops(targets, d_vocab, smoothing):
    result = torch.full((*targets.shape, d_vocab), smoothing / d_vocab)
    for i, row in enumerate(targets):
        for j, target in enumerate(row):
            result[i, j, target] += 1 - smoothing
    return result


@wrong(checks.soft_targets, "it gives")
def by_length(targets, d_vocab, smoothing):
    hard = torch.eye(d_vocab)[targets]
    return (1 - smoothing) * hard + smoothing / targets.shape[1]


@wrong(checks.soft_targets, "divided among all")
def undivided(targets, d_vocab, smoothing):
    return (1 - smoothing) * torch.eye(d_vocab)[targets] + smoothing


def losses(logits, targets):
    pairs = zip(logits.flatten(0, 1), targets.flatten(), strict=True)
    each = torch.stack([z.logsumexp(0) - z[y] for z, y in pairs])
    return each.view(targets.shape)


def real(targets, lengths):
    return torch.arange(targets.shape[1]) < lengths[:, None]


def right_padded(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.cat([row[:n] for row, n in rows]).mean()


def divided(logits, targets, lengths):
    return (losses(logits, targets) * real(targets, lengths)).sum() / lengths.sum()


@wrong(checks.padded_loss, "a mean of means: count tokens")
def by_sequence(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.stack([row[:n].mean() for row, n in rows]).mean()


@wrong(checks.padded_loss, "divided by all tokens")
def by_all(logits, targets, lengths):
    return right_padded(logits, targets, lengths) * lengths.sum() / targets.numel()


@wrong(checks.padded_loss, "a real one may be 0")
def without_zeros(logits, targets, lengths):
    return companion.next_token_loss(logits, targets.masked_fill(targets == 0, -100))


@wrong(checks.padded_loss, "one token too many")
def one_too_many(logits, targets, lengths):
    longer = torch.arange(targets.shape[1]) > lengths[:, None]
    return companion.next_token_loss(logits, targets.masked_fill(longer, -100))


def masked(logits, targets, lengths, value):
    outside = ~real(targets, lengths)[..., None]
    return losses(logits.masked_fill(outside, value), targets)


@wrong(checks.padded_loss, "a real token may cost 0")
def not_zero(logits, targets, lengths):
    each = losses(logits, targets) * real(targets, lengths)
    return each.sum() / (each != 0).sum()


def padded_by_loops(logits, targets, lengths):
    terms = []
    for z, y, n in zip(logits, targets, lengths, strict=True):
        terms += [z[i].logsumexp(0) - z[i, y[i]] for i in range(n)]
    return sum(terms) / len(terms)


@wrong(checks.padded_loss, "nan")
def log_of_softmax(logits, targets, lengths):
    chances = torch.eye(logits.shape[-1])[targets] * logits.softmax(-1).log()
    return -chances.sum(-1)[real(targets, lengths)].mean()


def keys_and_values(layer, x):
    return layer.to_keys(x), layer.to_values(x)


def right_once(layer, x, real):
    pair = keys_and_values(layer, x)
    return lambda y: layer(y, pair, mask=real)


def cut(layer, features):
    b, n, _ = features.shape
    return features.view(b, n, layer.n_heads, layer.d_head).transpose(1, 2)


def pre_norm(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    normed = block.cross_attention_norm(y)
    y = y + block.cross_attention(normed, x, mask=real)
    return y + block.feed_forward(block.feed_forward_norm(y))


def by_pytorch(block, y, causal, x, real):
    """PyTorch's layer, with the block's weights."""
    c = y.shape[-1]
    layer = torch.nn.TransformerDecoderLayer(
        c, 2, 4 * c, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    attentions = {"self_attn": block.attention, "multihead_attn": block.cross_attention}
    others = {
        "norm1": block.attention_norm,
        "norm2": block.cross_attention_norm,
        "norm3": block.feed_forward_norm,
        "linear1": block.feed_forward.to_hidden,
        "linear2": block.feed_forward.to_output,
    }
    weights = {}
    for kind in ("weight", "bias"):
        for name, part in attentions.items():
            ways = part.to_queries, part.to_keys, part.to_values
            joined = torch.cat([getattr(way, kind) for way in ways])
            weights[f"{name}.in_proj_{kind}"] = joined
            weights[f"{name}.out_proj.{kind}"] = getattr(part.to_output, kind)
        for name, part in others.items():
            own = "gain" if kind == "weight" and "norm" in name else kind
            weights[f"{name}.{kind}"] = getattr(part, own)
    layer.load_state_dict(weights)
    return layer(y, x, tgt_mask=~causal, memory_key_padding_mask=~real[:, 0, 0])


def part_by_part(block, y, causal, x, real):
    parts = {
        block.attention_norm: lambda z: block.attention(z, mask=causal),
        block.cross_attention_norm: lambda z: block.cross_attention(z, x, mask=real),
        block.feed_forward_norm: block.feed_forward,
    }
    for norm, part in parts.items():
        y = y + part(norm(y))
    return y


@wrong(checks.pre_norm_block, "the post-norm order")
def as_in_the_chapter(block, y, causal, x, real):
    y = block.attention_norm(y + block.attention(y, mask=causal))
    y = block.cross_attention_norm(y + block.cross_attention(y, x, mask=real))
    return block.feed_forward_norm(y + block.feed_forward(y))


@wrong(checks.pre_norm_block, "the shortcut carries the norm")
def normed_stream(block, y, causal, x, real):
    y = block.attention_norm(y)
    y = y + block.attention(y, mask=causal)
    y = block.cross_attention_norm(y)
    y = y + block.cross_attention(y, x, mask=real)
    y = block.feed_forward_norm(y)
    return y + block.feed_forward(y)


@wrong(checks.pre_norm_block, "the future is seen")
def looks_ahead(block, y, causal, x, real):
    return pre_norm(block, y, None, x, real)


@wrong(checks.pre_norm_block, "the padding is seen")
def looks_at_padding(block, y, causal, x, real):
    return pre_norm(block, y, causal, x, None)


@wrong(checks.pre_norm_block, "the masks have changed places")
def masks_swapped(block, y, causal, x, real):
    return pre_norm(block, y, real, x, causal)


@wrong(checks.pre_norm_block, "the source is normed")
def normed_source(block, y, causal, x, real):
    return pre_norm(block, y, causal, block.cross_attention_norm(x), real)


@wrong(checks.pre_norm_block, "the target asks itself again")
def asks_itself(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = y + block.cross_attention(block.cross_attention_norm(y))
    return y + block.feed_forward(block.feed_forward_norm(y))


@wrong(checks.pre_norm_block, "nobody asks the source")
def never_asks(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    return y + block.feed_forward(block.feed_forward_norm(y))


@wrong(checks.pre_norm_block, "a shortcut is missing: the second part")
def no_second_shortcut(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = block.cross_attention(block.cross_attention_norm(y), x, mask=real)
    return y + block.feed_forward(block.feed_forward_norm(y))


@wrong(checks.pre_norm_block, "one norm is read by all three parts")
def normed_once(block, y, causal, x, real):
    normed = block.attention_norm(y)
    y = y + block.attention(normed, mask=causal)
    y = y + block.cross_attention(normed, x, mask=real)
    return y + block.feed_forward(normed)


@wrong(checks.pre_norm_block, "norm is used for all three")
def one_norm_for_all(block, y, causal, x, real):
    norm = block.attention_norm
    y = y + block.attention(norm(y), mask=causal)
    y = y + block.cross_attention(norm(y), x, mask=real)
    return y + block.feed_forward(norm(y))


@wrong(checks.pre_norm_block, "the feed-forward comes before the look across")
def fed_before_the_look(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = y + block.feed_forward(block.feed_forward_norm(y))
    return y + block.cross_attention(block.cross_attention_norm(y), x, mask=real)


@wrong(checks.pre_norm_block, "a norm is added at the end")
def normed_at_the_end(block, y, causal, x, real):
    return block.feed_forward_norm(pre_norm(block, y, causal, x, real))


@wrong(checks.pre_norm_block, "the source asks the target")
def source_asks(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = y + block.cross_attention(x, block.cross_attention_norm(y), mask=real)
    return y + block.feed_forward(block.feed_forward_norm(y))


@wrong(checks.pre_norm_block, "the source is normed, and asks the target")
def normed_source_asks(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = y + block.cross_attention(block.cross_attention_norm(x), y, mask=real)
    return y + block.feed_forward(block.feed_forward_norm(y))


@wrong(checks.pre_norm_block, "the second part's norm is used again")
def second_norm_again(block, y, causal, x, real):
    y = y + block.attention(block.attention_norm(y), mask=causal)
    y = y + block.cross_attention(block.cross_attention_norm(y), x, mask=real)
    return y + block.feed_forward(block.cross_attention_norm(y))


@wrong(checks.pre_norm_block, "changes its input")
def stream_written_into(block, y, causal, x, real):
    y += block.attention(block.attention_norm(y), mask=causal)
    y += block.cross_attention(block.cross_attention_norm(y), x, mask=real)
    y += block.feed_forward(block.feed_forward_norm(y))
    return y


@wrong(checks.read_once, "it gives")
def by_whole(layer, x, real):
    keys, values = keys_and_values(layer, x)
    keys = keys * (layer.d_head / x.shape[-1]) ** 0.5
    return lambda y: layer(y, (keys, values), mask=real)


def at_first_look(layer, x, real):
    pair = []

    def look(y):
        if not pair:
            pair.extend(keys_and_values(layer, x))
        return layer(y, tuple(pair), mask=real)

    return look


@wrong(checks.read_once, r"at looks\[1\]")
def first_answer(layer, x, real):
    pair = keys_and_values(layer, x)
    answers = {}

    def look(y):
        if y.shape not in answers:
            answers[y.shape] = layer(y, pair, mask=real)
        return answers[y.shape]

    return look


def by_ignoring(logits, targets, lengths):
    ignoring = targets.masked_fill(~real(targets, lengths), -100)
    return torch.nn.functional.cross_entropy(logits.mT, ignoring)


def looker(
    values="values", scale=True, mask=lambda real: real, output=True, zeroed=False
):
    """A right answer by hand, or a wrong one by what is changed."""

    def read(layer, x, real):
        keys = cut(layer, layer.to_keys(x))
        taken = keys if values == "keys" else cut(layer, layer.to_values(x))
        taken = taken * real.mT if zeroed else taken
        real = torch.ones_like(real) if zeroed else real

        def look(y):
            scores = cut(layer, layer.to_queries(y)) @ keys.mT
            scores = scores / layer.d_head**0.5 if scale else scores
            weights = scores.masked_fill(~mask(real), -torch.inf).softmax(-1)
            answers = (weights @ taken).transpose(1, 2).reshape(y.shape)
            return layer.to_output(answers) if output else answers

        return look

    return read


@wrong(checks.read_once, "made anew")
def by_functional(layer, x, real):
    """No hook of the layer's own matrices sees that they are used again."""

    def look(y):
        linear = torch.nn.functional.linear
        keys, values = (
            linear(x, part.weight, part.bias)
            for part in (layer.to_keys, layer.to_values)
        )
        return layer(y, (keys, values), mask=real)

    return look


@wrong(checks.read_once, "feature by feature")
def joined_badly(layer, x, real):
    pair = [cut(layer, part) for part in keys_and_values(layer, x)]

    def look(y):
        answers = layer.attend(cut(layer, layer.to_queries(y)), *pair, real)
        return layer.to_output(answers.permute(0, 2, 3, 1).reshape(y.shape))

    return look


@wrong(checks.read_once, "heads are not cut")
def whole_heads(layer, x, real):
    keys, values = layer.to_keys(x), layer.to_values(x)
    return lambda y: layer.to_output(
        companion.attention(layer.to_queries(y), keys, values, real[:, 0])
    )


def head_by_head(layer, x, real):
    keys, values = layer.to_keys(x), layer.to_values(x)

    def look(y):
        queries = layer.to_queries(y)
        outs = []
        for i in range(layer.n_heads):
            head = slice(i * layer.d_head, (i + 1) * layer.d_head)
            scores = torch.einsum("btd,bsd->bts", queries[..., head], keys[..., head])
            scores = (scores / layer.d_head**0.5).masked_fill(~real[:, 0], -torch.inf)
            outs.append(scores.softmax(-1) @ values[..., head])
        return layer.to_output(torch.cat(outs, -1))

    return look


@wrong(checks.read_once, "the target's keys are appended")
def appended(layer, x, real):
    keys, values = keys_and_values(layer, x)

    def look(y):
        more = keys_and_values(layer, y)
        both = [torch.cat(pair, 1) for pair in zip((keys, values), more, strict=True)]
        mask = torch.nn.functional.pad(real, (0, y.shape[1]), value=True)
        return layer(y, tuple(both), mask=mask)

    return look


@wrong(checks.read_once, "a second source changes the first look")
def kept_in_the_layer(layer, x, real):
    layer.pair = keys_and_values(layer, x)
    return lambda y: layer(y, layer.pair, mask=real)


PAIRS = {}


@wrong(checks.read_once, "a second source gets the first one's")
def kept_by_layer(layer, x, real):
    pair = PAIRS.setdefault(layer, keys_and_values(layer, x))
    return lambda y: layer(y, pair, mask=real)


@wrong(checks.padded_loss, "add nothing to a probability before its log")
def never_sure(logits, targets, lengths):
    real = torch.arange(targets.shape[1]) < lengths[:, None]
    chances = logits.softmax(-1).gather(-1, targets[..., None])[..., 0]
    return -((chances + 1e-9).log() * real).sum() / real.sum()


@wrong(checks.read_once, "mask before softmax")
def masked_late(layer, x, real):
    keys, values = (cut(layer, part) for part in keys_and_values(layer, x))

    def look(y):
        weights = companion.attention_weights(cut(layer, layer.to_queries(y)), keys)
        answers = (weights * real) @ values
        return layer.to_output(answers.transpose(1, 2).flatten(2))

    return look


@wrong(checks.read_once, "made anew")
def half_kept(layer, x, real):
    values = layer.to_values(x)
    return lambda y: layer(y, (layer.to_keys(x), values), mask=real)


class Looker:
    def __init__(self, layer, x, real):
        self.layer = layer
        self.keys_and_values = keys_and_values(layer, x)
        self.real = real

    def __call__(self, y):
        return self.layer(y, self.keys_and_values, mask=self.real)


def by_parts(queries=None, keys=None, form="(h d)", d=None):
    """Attention by hand, where a matrix is left out or the heads are cut otherwise."""

    def read(layer, x, real):
        def parted(z):
            if d is None:
                return rearrange(z, f"b t {form} -> b h t d", h=layer.n_heads)
            return rearrange(z, f"b t {form} -> b h t d", d=d)

        pair = parted((keys or layer.to_keys)(x)), parted(layer.to_values(x))

        def look(y):
            asking = parted((queries or layer.to_queries)(y))
            answers = companion.attention(asking, *pair, real)
            return layer.to_output(rearrange(answers, "b h t d -> b t (h d)"))

        return look

    return read


def shifted_by_numpy(answers, begin):
    return torch.from_numpy(np.insert(answers.numpy(), 0, begin, axis=1)[:, :-1])


def shifted_by_a_product(answers, begin):
    table = torch.ones(answers.shape[1] - 1, dtype=answers.dtype).diagflat(1)
    result = torch.einsum("bt,ts->bs", answers, table)
    result[:, 0] += begin
    return result


def column(shape):
    def shift(answers, begin):
        first = torch.full(shape(*answers.shape), begin)
        return torch.cat([first, answers[:, :-1]], 1)

    return shift


def soft_by_a_table(targets, d_vocab, smoothing):
    table = (1 - smoothing) * np.eye(d_vocab) + smoothing / d_vocab
    return torch.from_numpy(table[targets.numpy()])


def padded_in_place(logits, targets, lengths):
    """In place, but on tensors of its own."""
    padded = targets.clone()
    outside = ~real(targets, lengths)
    padded[outside] = 0
    each = torch.nn.functional.cross_entropy(logits.mT, padded, reduction="none")
    each[outside] = 0
    return each.sum() / lengths.sum()


def padded_by_parts(logits, targets, lengths):
    """In log-space, a sequence after the other."""
    total = 0
    for z, y, n in zip(logits, targets, lengths, strict=True):
        pairs = torch.einsum("tv,tv->t", z, torch.eye(z.shape[1])[y])
        total = total + (z.logsumexp(-1) - pairs)[:n].sum()
    return total / sum(lengths)


@wrong(checks.padded_loss, "changes its input: work on a copy")
def written_into(logits, targets, lengths):
    logits[~real(targets, lengths)] = 0
    return divided(logits, targets, lengths)


@wrong(checks.padded_loss, "has gone backward already")
def gone_backward(logits, targets, lengths):
    loss = divided(logits, targets, lengths)
    loss.backward()
    return loss


def by_sdpa(layer, x, real):
    keys, values = (cut(layer, part) for part in keys_and_values(layer, x))
    mixed = torch.nn.functional.scaled_dot_product_attention

    def look(y):
        answers = mixed(cut(layer, layer.to_queries(y)), keys, values, attn_mask=real)
        return layer.to_output(answers.transpose(1, 2).flatten(2))

    return look


def without_padding(layer, x, real):
    """Each text by itself, cut to its real tokens, and each target token, too."""
    lengths = real.sum(-1).flatten()
    pairs = [
        keys_and_values(layer, part[None, :n])
        for part, n in zip(x, lengths, strict=True)
    ]

    def look(y):
        rows = []
        for text, pair in zip(y, pairs, strict=True):
            rows.append(
                torch.cat([layer(token[None, None], pair) for token in text], 1)
            )
        return torch.cat(rows)

    return look


def output_first(layer, x, real):
    """The output matrix turns the values, once; a look mixes what comes out."""
    keys, values = (cut(layer, part) for part in keys_and_values(layer, x))
    output = layer.to_output.weight.view(-1, layer.n_heads, layer.d_head)
    turned = torch.einsum("bhsd,chd->bhsc", values, output)

    def look(y):
        queries = cut(layer, layer.to_queries(y))
        weights = companion.attention_weights(queries, keys, real)
        return (weights @ turned).sum(1) + layer.to_output.bias

    return look


def copied_layer(layer, x, real):
    """Made once from the layer; that it looks by a copy does no harm."""
    twin = copy.deepcopy(layer)
    return functools.partial(twin, context=keys_and_values(layer, x), mask=real)


@wrong(checks.read_once, "made anew at each look")
def anew_by_a_twin(layer, x, real):
    twin = copy.deepcopy(layer)
    return lambda y: twin(y, x, mask=real)


@wrong(checks.read_once, "made anew at each look")
def anew_by_a_twin_from_a_copy(layer, x, real):
    twin, source = copy.deepcopy(layer), x.clone()
    return lambda y: twin(y, source, mask=real)


@wrong(checks.read_once, "made anew at each look")
def values_anew_by_a_twin(layer, x, real):
    to_values = copy.deepcopy(layer.to_values)
    source = 1 * x
    keys = layer.to_keys(x)
    return lambda y: layer(y, (keys, to_values(source)), mask=real)


@wrong(checks.read_once, "made anew at each look")
def anew_text_by_text(layer, x, real):
    twin, texts = copy.deepcopy(layer), x.clone().unbind()

    def look(y):
        keys = torch.stack([twin.to_keys(text) for text in texts])
        return layer(
            y, (keys, torch.stack(list(map(twin.to_values, texts)))), mask=real
        )

    return look


@wrong(checks.read_once, "made anew at each look")
def anew_without_a_product(layer, x, real):
    parts = [copy.deepcopy(part) for part in (layer.to_keys, layer.to_values)]

    def look(y):
        pair = [(x[..., None, :] * z.weight).sum(-1) + z.bias for z in parts]
        return layer(y, tuple(pair), mask=real)

    return look


@wrong(checks.read_once, "changes its input: work on a copy")
def source_written_into(layer, x, real):
    x *= real[:, 0].mT
    return right_once(layer, x, real)


RIGHT = [
    (checks.shifted, shifted_by_numpy),
    (checks.shifted, shifted_by_a_product),
    (checks.shifted, column(lambda b, t: (b, 1))),
    (checks.soft_targets, soft_by_a_table),
    (
        checks.soft_targets,
        lambda y, v, e: (torch.arange(v) == y[..., None]) * (1 - e) + e / v,
    ),
    (checks.padded_loss, padded_in_place),
    (checks.padded_loss, padded_by_parts),
    (checks.pre_norm_block, pre_norm),
    (checks.pre_norm_block, by_pytorch),
    (checks.pre_norm_block, part_by_part),
    (checks.read_once, by_sdpa),
    (checks.read_once, without_padding),
    (checks.read_once, output_first),
    (checks.read_once, copied_layer),
    (checks.shifted, lambda a, b: torch.nn.functional.pad(a, (1, -1), value=b)),
    (checks.soft_targets, soft_by_loops),
    (checks.padded_loss, padded_by_loops),
    (checks.read_once, head_by_head),
    (checks.read_once, Looker),
    (checks.read_once, by_parts()),
    (checks.shifted, right_shifted),
    (checks.shifted, shifted_in_place),
    (checks.shifted, shifted_by_lists),
    (checks.soft_targets, right_soft),
    (checks.soft_targets, lambda y, v, e: torch.eye(v)[y] * (1 - e) + e / v),
    (checks.padded_loss, right_padded),
    (checks.padded_loss, divided),
    (checks.padded_loss, lambda *a: divided(*a)[None][0]),
    (checks.padded_loss, by_ignoring),
    (checks.read_once, at_first_look),
    (checks.read_once, right_once),
    (checks.read_once, looker()),
]
WRONG = [
    *wrong,
    (checks.shifted, column(lambda b, t: (1, 1)), "a row for each sequence"),
    (checks.shifted, column(lambda b, t: (b,)), "no single axis"),
    (
        checks.shifted,
        column(lambda b, t: (t, 1)),
        r"RuntimeError: Sizes of tensors[^:]*$",
    ),
    (
        checks.shifted,
        lambda a, b: torch.cat([torch.full_like(a[:, :1], b), a[:, :-1]]),
        "joins along axis 0 unless it is told",
    ),
    (checks.padded_loss, lambda z, y, n: losses(z, y)[real(y, n)], "at loss the shape"),
    (
        checks.shifted,
        lambda a, b: torch.cat([torch.full_like(a[:1], b), a[:-1]]),
        "sequences are shifted, not their tokens",
    ),
    (checks.shifted, lambda a, b: a.masked_fill(a == a, b), "it gives"),
    (
        checks.soft_targets,
        lambda y, v, e: torch.eye(v)[y] * (1 - e),
        "sum is below 1: the other tokens get their shares too",
    ),
    (
        checks.padded_loss,
        lambda z, y, n: divided(z, y, n) * n.sum() / len(n),
        "divided by sequences: count tokens",
    ),
    (checks.padded_loss, lambda *case: -divided(*case), "the sign: it is -log"),
    (
        checks.padded_loss,
        lambda z, y, n: losses(z, y)[~real(y, n)].mean(),
        "only the padding counts",
    ),
    (
        checks.padded_loss,
        lambda z, y, n: divided(z, y, n).item() + 0 * z.sum(),
        "no gradient leads back",
    ),
    (
        checks.padded_loss,
        lambda *case: torch.tensor(divided(*case).item(), requires_grad=True),
        "no gradient leads back",
    ),
    (checks.shifted, lambda a, b: torch.hstack([torch.tensor(b), a]), r"\(b 1\)"),
    (
        checks.shifted,
        lambda a, b: right_shifted(a, 3),
        r"b = 4: at \[0, 0\] it gives 3",
    ),
    (checks.soft_targets, lambda y, v, e: right_soft(y, v, 0.1), "take `smoothing`"),
    (
        checks.soft_targets,
        lambda y, v, e: right_soft(y, v, 1 - e),
        "1 - smoothing is shared",
    ),
    (
        checks.padded_loss,
        lambda z, y, n: losses(z, y)[:, : n.max()].mean(),
        "cut at the longest",
    ),
    (checks.read_once, by_parts(form="(d h)"), "cut feature by feature"),
    (checks.read_once, by_parts(d=4), "it stops with"),
    (checks.read_once, by_parts(d=3), "it stops with|it gives"),
    (checks.read_once, lambda a, x, r: lambda y: None, "nothing is returned"),
    (checks.shifted, lambda a, b: a, "nothing is shifted"),
    (checks.shifted, lambda a, b: right_shifted(right_shifted(a, b), b), "it gives 3"),
    (checks.shifted, lambda a, b: right_shifted(a, b)[:, 1:], r"the shape is \(2, 3\)"),
    (checks.soft_targets, lambda y, v, e: torch.eye(v)[y], "nothing is smoothed"),
    (
        checks.soft_targets,
        lambda y, v, e: filled(y, v, e / (v - 1), 1 - e + e / v),
        "sum is above 1: by V and by V - 1",
    ),
    (checks.soft_targets, lambda y, v, e: right_soft(y, 6, e), "it stops with"),
    (checks.soft_targets, lambda y, v, e: right_soft(y, v, e).mT, "the shape is"),
    (checks.padded_loss, lambda z, y, n: losses(z, y).mean(), "padding counts"),
    (checks.padded_loss, lambda *a: divided(*a) * a[2].sum(), "this is the sum"),
    (
        checks.padded_loss,
        lambda z, y, n: losses(z, y).sum() / n.sum(),
        "padding costs still",
    ),
    (
        checks.padded_loss,
        lambda z, y, n: losses(z, y.where(real(y, n), 0)).mean(),
        "targets set to 0",
    ),
    (checks.padded_loss, lambda z, y, n: divided(z, y, n - 1), "one token too few"),
    (
        checks.padded_loss,
        lambda z, y, n: masked(z, y, n, 0).mean(),
        "cost ln V still: leave",
    ),
    (
        checks.padded_loss,
        lambda z, y, n: masked(z, y, n, -torch.inf).mean(),
        "nan: leave out losses, not logits",
    ),
    (checks.read_once, lambda a, x, r: lambda y: a(y, x, mask=r), "made anew"),
    (checks.read_once, lambda a, x, r: lambda y: a(y, x), "the padding is seen"),
    (checks.read_once, looker(mask=torch.ones_like), "the padding is seen"),
    (checks.read_once, lambda a, x, r: lambda y: a(y), "target asks itself"),
    (checks.read_once, lambda a, x, r: lambda y: a(x, y), "the source asks"),
    (
        checks.read_once,
        lambda a, x, r: lambda y: a(y, keys_and_values(a, x)[::-1], mask=r),
        "changed places",
    ),
    (checks.read_once, looker(values="keys"), "given as values too"),
    (checks.read_once, looker(mask=torch.logical_not), "upside down"),
    (checks.read_once, looker(output=False), "output matrix is missing"),
    (checks.read_once, looker(scale=False), "not divided by √d"),
    (checks.padded_loss, lambda *a: divided(*a).item(), "no gradient"),
    (checks.padded_loss, torch.no_grad()(divided), "no gradient"),
    (checks.read_once, lambda a, x, r: a(x, x, mask=r), "it gives no function"),
]

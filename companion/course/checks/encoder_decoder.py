"""Checks of chapter 08."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from ...model.attention import (
    MultiHeadAttention,
    attention,
    attention_weights,
    padding_mask,
)
from .compare import Exercise, Mistake, Raises, check, difference, draw
from .watch import Watch

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")  # of matrices


@check
def shifted() -> Exercise:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def right(answers: Tensor, begin: int) -> Tensor:
        first = torch.full_like(answers[:, :1], begin)
        return torch.cat([first, answers[:, :-1]], 1)

    def not_shifted(answers: Tensor, begin: int) -> Tensor:
        return answers

    def come_round(answers: Tensor, begin: int) -> Tensor:
        return answers.roll(1, 1)

    def too_long(answers: Tensor, begin: int) -> Tensor:
        first = torch.full_like(answers[:, :1], begin)
        return torch.cat([first, answers], 1)

    def wrong_way(answers: Tensor, begin: int) -> Tensor:
        last = torch.full_like(answers[:, :1], begin)
        return torch.cat([answers[:, 1:], last], 1)

    def begin_at_the_end(answers: Tensor, begin: int) -> Tensor:
        last = torch.full_like(answers[:, :1], begin)
        return torch.cat([answers[:, :-1], last], 1)

    def overwritten_first(answers: Tensor, begin: int) -> Tensor:
        result = answers.clone()
        for i in range(1, result.shape[1]):
            result[:, i] = result[:, i - 1]
        result[:, 0] = begin
        return result

    def first_lost(answers: Tensor, begin: int) -> Tensor:
        result = answers.clone()
        result[:, 0] = begin
        return result

    def sequences_shifted(answers: Tensor, begin: int) -> Tensor:
        first = torch.full_like(answers[:1], begin)
        return torch.cat([first, answers[:-1]])

    shorter = torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]])
    longer = torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6])
    cases = [(shorter, 3), (longer, 4)]
    mistakes = {
        "nothing is shifted: the decoder reads the answer": not_shifted,
        "the last token has come round to the front": come_round,
        "one token too many: after the last nothing is written": too_long,
        "shifted the wrong way: it reads what comes after": wrong_way,
        "`begin` stands at the end": begin_at_the_end,
        "overwritten before it is copied": overwritten_first,
        "the first token is lost": first_lost,
        "sequences are shifted, not their tokens: t is axis 1": sequences_shifted,
        "as a column `begin` has the shape (b 1), a row for each sequence": Raises(
            RuntimeError, "except in dimension 1. Expected size 1 but got size"
        ),
        "t is axis 1, and `torch.cat` joins along axis 0 unless it is told": Raises(
            RuntimeError, "except in dimension 0. Expected size 1 but got size"
        ),
        "as a column `begin` has the shape (b 1), two axes": Raises(
            RuntimeError, "must have same number of dimensions"
        ),
        "as a column `begin` has the shape (b 1), no single axis": Raises(
            IndexError, "[-1, 0], but got 1"
        ),
    }
    praise = "each position reads all that comes before its answer"
    return Exercise(right, cases, mistakes, praise)


@check
def soft_targets() -> Exercise:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def right(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        hard = F.one_hot(targets, d_vocab)
        return (1 - smoothing) * hard + smoothing / d_vocab

    def filled(
        targets: Tensor, d_vocab: int, *, target: float, others: float
    ) -> Tensor:
        """Rows (... v) with one probability for the target and one for each other."""
        hard = F.one_hot(targets, d_vocab)
        return torch.where(hard > 0, target, others)

    def not_smoothed(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        return F.one_hot(targets, d_vocab).float()

    def wrong_tokens_alone(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        share = smoothing / (d_vocab - 1)
        return filled(targets, d_vocab, target=1 - smoothing, others=share)

    def no_share_for_the_target(
        targets: Tensor, d_vocab: int, smoothing: float
    ) -> Tensor:
        share = smoothing / d_vocab
        return filled(targets, d_vocab, target=1 - smoothing, others=share)

    def not_taken_away(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        share = smoothing / d_vocab
        return filled(targets, d_vocab, target=1 + share, others=share)

    def not_divided(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        hard = F.one_hot(targets, d_vocab)
        return (1 - smoothing) * hard + smoothing

    def by_v_and_v_minus_1(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        own = 1 - smoothing + smoothing / d_vocab
        share = smoothing / (d_vocab - 1)
        return filled(targets, d_vocab, target=own, others=share)

    def no_share_for_others(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        return (1 - smoothing) * F.one_hot(targets, d_vocab)

    def the_rest_shared(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        return right(targets, d_vocab, 1 - smoothing)

    def the_papers(targets: Tensor, d_vocab: int, smoothing: float) -> Tensor:
        return right(targets, d_vocab, 0.1)

    wide = torch.tensor([[0, 2, 4], [1, 1, 3]])
    long = torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]])
    cases = [(wide, 6, 0.1), (long, 10, 0.3)]
    mistakes = {
        "nothing is smoothed: spread a share over all": not_smoothed,
        "the share goes to the wrong tokens alone: here the right one gets its part of"
        " it too": wrong_tokens_alone,
        "a row's sum is below 1: the right token gets its part too": (
            no_share_for_the_target
        ),
        "a row's sum is above 1: what is spread must be taken away": not_taken_away,
        "a row's sum is above 1: the share is divided among all": not_divided,
        "a row's sum is above 1: by V and by V - 1": by_v_and_v_minus_1,
        "a row's sum is below 1: the other tokens get their shares too": (
            no_share_for_others
        ),
        "1 - smoothing is shared out": the_rest_shared,
        "0.1 is the paper's: take `smoothing`": the_papers,
    }
    praise = "every token gets a share of each target"
    return Exercise(right, cases, mistakes, praise)


@check
def padded_loss() -> Exercise:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def right(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(targets.shape[1]) < lengths[:, None]
        losses = F.cross_entropy(logits.mT, targets, reduction="none")
        return (losses * real).sum() / real.sum()

    # What the mistakes share.

    def is_real(targets: Tensor, lengths: Tensor) -> Tensor:
        """Which tokens (b t) are no padding."""
        return torch.arange(targets.shape[1]) < lengths[:, None]

    def all_losses(logits: Tensor, targets: Tensor) -> Tensor:
        """Of every token (b t), padding included."""
        return F.cross_entropy(logits.mT, targets, reduction="none")

    def real_losses(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """Those of the real tokens (b t), and 0 for padding."""
        return all_losses(logits, targets) * is_real(targets, lengths)

    # Mistakes with what is added up, and by what it is divided.

    def padding_counts(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return all_losses(logits, targets).mean()

    def divided_by_all(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return real_losses(logits, targets, lengths).mean()

    def mean_of_means(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        means = real_losses(logits, targets, lengths).sum(1) / lengths
        return means.mean()

    def sum_of_all(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return real_losses(logits, targets, lengths).sum()

    def by_sequences(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return real_losses(logits, targets, lengths).sum() / len(lengths)

    def without_the_sign(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return -right(logits, targets, lengths)

    def padding_alone(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        padding = ~is_real(targets, lengths)
        return all_losses(logits, targets)[padding].mean()

    def padding_in_the_sum(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return all_losses(logits, targets).sum() / lengths.sum()

    def cut_at_the_longest(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        longest = max(lengths)
        return all_losses(logits, targets)[:, :longest].mean()

    def only_what_costs(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        losses = real_losses(logits, targets, lengths)
        return losses.sum() / (losses != 0).sum()

    # Mistakes with how padding is left out.

    def targets_of_0(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        real = is_real(targets, lengths)
        return F.cross_entropy(logits.mT, targets * real)

    def logits_of_0(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        real = is_real(targets, lengths)
        return F.cross_entropy((logits * real[..., None]).mT, targets)

    def every_0_left_out(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return F.cross_entropy(logits.mT, targets, ignore_index=0)

    def logits_of_minus_inf(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        padding = ~is_real(targets, lengths)
        hidden = logits.masked_fill(padding[..., None], -torch.inf)
        return F.cross_entropy(hidden.mT, targets)

    def one_too_many(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return right(logits, targets, lengths + 1)

    def one_too_few(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return right(logits, targets, lengths - 1)

    def cut_off(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return right(logits, targets, lengths).detach()

    def trained(
        answer: Callable, logits: Tensor, targets: Tensor, lengths: Tensor
    ) -> dict[str, object]:
        """The loss, and its gradient, which is 0 where nothing can be trained."""
        leaf = logits.clone().requires_grad_()
        copied = leaf.clone()  # a tensor that may be written into, unlike a leaf
        loss = answer(copied, targets, lengths)
        if not torch.equal(copied, leaf):
            raise Mistake("the function changes its input: work on a copy")
        if leaf.grad is not None:
            raise Mistake("the loss has gone backward already: give it as it is")

        if isinstance(loss, Tensor) and loss.requires_grad and loss.isfinite().all():
            loss.sum().backward()
        gradient = 0 * logits if leaf.grad is None else leaf.grad
        return {"loss": loss, "gradient": gradient}

    few_logits = 3 * draw(2, 5, 4)
    few_targets = torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    more_logits = 2 * draw(3, 6, 7, seed=1)
    more_logits[1, 2, 5] = 200  # a real token that costs nothing
    more_targets = torch.tensor(
        [[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]]
    )
    cases = [
        (few_logits, few_targets, torch.tensor([2, 5])),
        (more_logits, more_targets, torch.tensor([4, 5, 1])),
    ]
    mistakes = {
        "the padding counts too: leave it out": padding_counts,
        "divided by all tokens, padding included": divided_by_all,
        "a mean of means: count tokens": mean_of_means,
        "this is the sum: the mean is asked for": sum_of_all,
        "divided by sequences: count tokens": by_sequences,
        "the sign: it is -log": without_the_sign,
        "only the padding counts": padding_alone,
        "the padding costs still": padding_in_the_sum,
        "cut at the longest: not enough": cut_at_the_longest,
        "a real token may cost 0": only_what_costs,
        "targets set to 0 are targets still: the loss must leave them out": (
            targets_of_0
        ),
        "logits set to 0 cost ln V still: leave out the loss": logits_of_0,
        "every token 0 is left out: a real one may be 0, only `lengths` says": (
            every_0_left_out
        ),
        "nan: leave out losses, not logits": logits_of_minus_inf,
        "one token too many: length 2 means 0 and 1": one_too_many,
        "one token too few: length 2 means 0 and 1": one_too_few,
        "no gradient leads back to the logits: give the tensor, no number": cut_off,
    }
    praise = "filling costs nothing"
    return Exercise(right, cases, mistakes, praise, trained)


@check
def read_once() -> Exercise:
    """`answer(layer, x, real)`: `look`, with the keys and values of x made once."""

    def right(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def heads(features: Tensor) -> Tensor:
            return features.unflatten(-1, (layer.n_heads, -1)).transpose(1, 2)

        keys = heads(layer.to_keys(x))
        values = heads(layer.to_values(x))

        def look(y: Tensor) -> Tensor:
            mixed = attention(heads(layer.to_queries(y)), keys, values, real)
            return layer.to_output(mixed.transpose(1, 2).flatten(2))

        return look

    # What the mistakes share: heads (b h t d), cut and joined as they should be.

    def queries_of(layer: MultiHeadAttention, y: Tensor) -> Tensor:
        return rearrange(layer.to_queries(y), "b t (h d) -> b h t d", h=layer.n_heads)

    def keys_of(layer: MultiHeadAttention, x: Tensor) -> Tensor:
        return rearrange(layer.to_keys(x), "b s (h d) -> b h s d", h=layer.n_heads)

    def values_of(layer: MultiHeadAttention, x: Tensor) -> Tensor:
        return rearrange(layer.to_values(x), "b s (h d) -> b h s d", h=layer.n_heads)

    def output_of(layer: MultiHeadAttention, mixed: Tensor) -> Tensor:
        return layer.to_output(rearrange(mixed, "b h t d -> b t (h d)"))

    # Mistakes with the source: who asks, and what is made when.

    def made_anew(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def look(y: Tensor) -> Tensor:
            return layer(y, x, mask=real)

        return look

    def target_asks_itself(
        layer: MultiHeadAttention, x: Tensor, real: Tensor
    ) -> Callable:
        def look(y: Tensor) -> Tensor:
            return layer(y)

        return look

    def source_asks(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def look(y: Tensor) -> Tensor:
            return layer(x, y)

        return look

    def target_appended(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def look(y: Tensor) -> Tensor:
            mask = F.pad(real, (0, y.shape[1]), value=True)
            return layer(y, torch.cat([x, y], 1), mask=mask)

        return look

    # Mistakes with what goes into the attention.

    def padding_seen(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            return output_of(layer, attention(queries_of(layer, y), keys, values))

        return look

    def changed_places(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            mixed = attention(queries_of(layer, y), values, keys, real)
            return output_of(layer, mixed)

        return look

    def keys_as_values(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)

        def look(y: Tensor) -> Tensor:
            mixed = attention(queries_of(layer, y), keys, keys, real)
            return output_of(layer, mixed)

        return look

    def upside_down(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            mixed = attention(queries_of(layer, y), keys, values, ~real)
            return output_of(layer, mixed)

        return look

    def masked_late(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            weights = attention_weights(queries_of(layer, y), keys)
            return output_of(layer, (weights * real) @ values)

        return look

    def not_scaled(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            queries = queries_of(layer, y)
            scores = queries @ keys.mT
            weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
            return output_of(layer, weights @ values)

        return look

    # Mistakes with the heads.

    def no_output_matrix(
        layer: MultiHeadAttention, x: Tensor, real: Tensor
    ) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            mixed = attention(queries_of(layer, y), keys, values, real)
            return rearrange(mixed, "b h t d -> b t (h d)")

        return look

    def cut_by_features(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def heads(features: Tensor) -> Tensor:
            return rearrange(features, "b t (d h) -> b h t d", h=layer.n_heads)

        keys = heads(layer.to_keys(x))
        values = heads(layer.to_values(x))

        def look(y: Tensor) -> Tensor:
            mixed = attention(heads(layer.to_queries(y)), keys, values, real)
            return output_of(layer, mixed)

        return look

    def joined_by_features(
        layer: MultiHeadAttention, x: Tensor, real: Tensor
    ) -> Callable:
        keys = keys_of(layer, x)
        values = values_of(layer, x)

        def look(y: Tensor) -> Tensor:
            mixed = attention(queries_of(layer, y), keys, values, real)
            return layer.to_output(rearrange(mixed, "b h t d -> b t (d h)"))

        return look

    def heads_not_cut(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        keys = layer.to_keys(x)[:, None]
        values = layer.to_values(x)[:, None]

        def look(y: Tensor) -> Tensor:
            mixed = attention(layer.to_queries(y)[:, None], keys, values, real)
            return layer.to_output(mixed[:, 0])

        return look

    # How an answer is looked at.

    def makes_keys(look: Callable, y: Tensor, n_keys: int) -> bool:
        """Whether a look at one token makes as many numbers as one text has keys."""
        with Watch() as watch:
            look(y)
        return any(
            result.numel() >= n_keys for name, result in watch.made if name in PRODUCTS
        )

    def looks(
        answer: Callable, x: Tensor, real: Tensor, y: Tensor
    ) -> dict[str, object]:
        """Four looks, and whether they make keys and values, though they are right."""
        d_model = x.shape[-1]
        layer = MultiHeadAttention(d_model, 5 if d_model == 15 else 2)
        for i, weights in enumerate(layer.parameters()):
            weights.data = draw(*weights.shape, seed=i) / 2

        source = x.clone()
        look = answer(layer, source, real)
        if not callable(look):
            raise Mistake("it gives no function: return `look` itself")
        results = [look(part) for part in (y[:, :1], y[:, 1:2], y[:, 1:], y)]
        if not torch.equal(source, x):
            raise Mistake("the function changes its input: work on a copy")

        # What was made once asks neither for the source again nor for the weights.
        is_anew = makes_keys(look, y[:, :1], x[0].numel())
        source.neg_()
        for weights in (layer.to_keys.weight, layer.to_values.weight):
            weights.data = weights.data.flip(0)
        if not is_anew:
            is_anew = difference(look(y), results[3]) is not None

        # Of a wrong answer its numbers alone are told.
        if is_anew and difference(results, looks(right, x, real, y)["looks"]):
            is_anew = False
        return {"looks": results, "keys and values": "made anew" if is_anew else "kept"}

    few = padding_mask(torch.tensor([2, 9]), 12)
    many = padding_mask(torch.tensor([6, 1, 4]), 8)
    cases = [
        (draw(2, 12, 15), few, draw(2, 6, 15, seed=1)),
        (draw(3, 8, 14), many, draw(3, 5, 14, seed=1)),
    ]
    mistakes = {
        "keys or values are made anew at each look": made_anew,
        "the target asks itself: keys and values come from x": target_asks_itself,
        "the source asks here: queries come from y": source_asks,
        "the padding is seen: the attention needs `real`": padding_seen,
        "keys and values changed places": changed_places,
        "keys are given as values too": keys_as_values,
        "upside down: True is seen": upside_down,
        "mask before softmax: the weights no longer sum to 1": masked_late,
        "the target's keys are appended: only the source answers": target_appended,
        "not divided by √d": not_scaled,
        "the output matrix is missing": no_output_matrix,
        "cut feature by feature: (h d) is one head after another": cut_by_features,
        "joined feature by feature: (h d) is one head after another": (
            joined_by_features
        ),
        "the heads are not cut: there are `n_heads`": heads_not_cut,
    }
    praise = "the target grows, its source stays"
    return Exercise(right, cases, mistakes, praise, looks)

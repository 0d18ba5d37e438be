"""Homework of chapter 16: eight questions and their checks, the teacher's alone.

The last six are pull requests and reports of others, reduced.
"""

import torch
import torch.nn.functional as F

from companion.course.cabinet.machine import Machine
from companion.course.checks.homework import tells_apart
from companion.course.checks.judge import right_machines

# %% [markdown]
# **1. What it writes.** `machine.write(model, prompts, n_new)` goes on after prompts (b
# t) with a cache, and returns (b n_new), each time the likeliest token. Write
# `my_writes_the_likeliest(machine)`, which returns whether it does: a pass over the
# whole text, without a cache, must agree with each token. One wrong machine reads the
# last token of a prompt alone, one forgets the prompt after its first token, and one
# writes the first prompt's answer for all. Flag these, and no right one. (The chapter's
# exercise 1 has what a machine offers.)


# %%
def my_writes_the_likeliest(machine):
    raise NotImplementedError


# %%
def check_writes_the_likeliest(answer):
    class PromptUnread(Machine):
        def write(self, model, prompts, n_new):
            return super().write(model, prompts[:, -1:], n_new)

    class PromptForgotten(Machine):
        def write(self, model, prompts, n_new):
            first = super().write(model, prompts, 1)
            if n_new == 1:
                return first
            return torch.cat([first, super().write(model, first, n_new - 1)], 1)

    class FirstForAll(Machine):
        def write(self, model, prompts, n_new):
            return super().write(model, prompts[:1], n_new).expand(len(prompts), -1)

    for machine in (Machine(), *right_machines()):
        assert answer(machine), "it flags a machine that is right"
    for wrong, words in (
        (PromptUnread, "it passes a machine that reads only the prompt's last token"),
        (PromptForgotten, "it passes who forgets the prompt: let it write more tokens"),
        (
            FirstForAll,
            "it passes one answer for all prompts: give several, unlike ones",
        ),
    ):
        assert not answer(wrong()), words


# %% [markdown]
# **2. The generator alone.** `machine.sample(logits, generator)` draws a token for each
# row of logits (b v). A run can be repeated only if the draws depend on the generator's
# state, and on nothing else: not on PyTorch's own, which `torch.manual_seed` sets. And
# a generator that goes on must draw anew. Write `my_generator_alone(machine)`, which
# returns whether both is so. One wrong machine draws from PyTorch's own generator,
# another begins each time at seed 0.


# %%
def my_generator_alone(machine):
    raise NotImplementedError


# %%
def check_generator_alone(answer):
    class OtherGenerator(Machine):
        def sample(self, logits, generator, t=1.0, p=1.0):
            return torch.multinomial(self.probabilities(logits, t, p), 1)[:, 0]

    class SeedAgain(Machine):
        def sample(self, logits, generator, t=1.0, p=1.0):
            return super().sample(logits, torch.Generator().manual_seed(0), t, p)

    with torch.random.fork_rng(devices=[]):
        for machine in (Machine(), *right_machines()):
            assert answer(machine), "it flags a machine that is right"
        words = (
            "it passes who draws from PyTorch's own: set its seed anew between draws"
        )
        assert not answer(OtherGenerator()), words
        words = (
            "it passes who begins at seed 0 each time: draw twice from one generator"
        )
        assert not answer(SeedAgain()), words


# %% [markdown]
# **3. Weights of one expert.** A router's shares (t e) go in, and the k largest come
# out as weights (t k), divided by their own sum if k is more than 1. A merged pull
# request (databricks/megablocks 87) repaired k = 1, where the sum had run over the
# tokens: since then each weight is 1. Write `my_weights(weigh)`, which returns whether
# `weigh(shares, k)` is right: no token's weights depend on other tokens, and for each
# k, 1 to 3, a loss of the weights reaches the shares.


# %%
def my_weights(weigh):
    raise NotImplementedError


# %%
def check_weights(answer):
    def right(shares, k):
        weights = shares.topk(k, -1).values
        return weights / weights.sum(-1, keepdim=True) if k > 1 else weights

    def by_sorting(shares, k):
        weights = shares.sort(-1, descending=True).values[:, :k]
        return weights / (weights.sum(-1, keepdim=True) if k > 1 else 1)

    def over_tokens(shares, k):
        return right(shares, k) if k > 1 else right(shares, 1) / right(shares, 1).sum()

    def all_ones(shares, k):
        weights = shares.topk(k, -1).values
        return weights / weights.sum(-1, keepdim=True)

    def detached(shares, k):
        return right(shares, k).detach() if k == 3 else right(shares, k)

    wrong = {
        "it passes the version before: with k = 1 a token's weight is divided by the"
        " others', too": over_tokens,
        "it passes the version after: with k = 1 weights are 1, and teach nothing": (
            all_ones
        ),
        "it passes a version whose weights have no gradient for k = 3: try each k": (
            detached
        ),
    }
    tells_apart(answer, [right, by_sorting], wrong)


# %% [markdown]
# **4. The mask that got lost.** In tuning, only the answers' tokens count. A rewrite
# dropped the mask (karpathy/nanochat 570, restored by 582), and the loss still fell.
# Write `my_answers_count(loss)`, which returns whether `loss(logits, targets, counts)`
# is the mean surprise of the targets (b t) where `counts` (b t) is True, and of no
# others; logits are (b t v). One wrong version divides by the number of all tokens, and
# one has its mask a place too late.


# %%
def my_answers_count(loss):
    raise NotImplementedError


# %%
def check_answers_count(answer):
    def surprise(logits, targets):
        return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]

    def right(logits, targets, counts):
        return surprise(logits, targets)[counts].mean()

    def ignoring(logits, targets, counts):
        targets = targets.masked_fill(~counts, -100)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def mask_lost(logits, targets, counts):
        return surprise(logits, targets).mean()

    def of_all(logits, targets, counts):
        return (surprise(logits, targets) * counts).mean()

    def too_late(logits, targets, counts):
        return right(logits, targets, counts.roll(1, -1))

    def by_rows(logits, targets, counts):
        rows = zip(logits, targets, counts, strict=True)
        return torch.stack([right(*row) for row in rows if row[-1].any()]).mean()

    wrong = {
        "it passes a loss of everything: leave some tokens out of the count": mask_lost,
        "it passes a loss that is divided by the number of all tokens": of_all,
        "it passes a mask that is a place too late": too_late,
        "it passes a mean of the rows' means: rows may have unlike numbers": by_rows,
    }
    tells_apart(answer, [right, ignoring], wrong)


# %% [markdown]
# **5. Nobody counts.** The mean over a micro-batch in which all targets are filler (-1)
# is 0/0, NaN (karpathy/nanochat 590, 811). Write `my_empty_batch(loss)`, which returns
# whether `loss(logits, targets)` is right: the mean surprise of the targets (n) that
# aren't -1, and with none of them 0, with a gradient of 0. Logits are (n v). In one
# wrong version the loss is 0 as it should be, and the gradient is NaN.


# %%
def my_empty_batch(loss):
    raise NotImplementedError


# %%
def check_empty_batch(answer):
    def summed(logits, targets):
        return F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")

    def right(logits, targets):
        return summed(logits, targets) / (targets != -1).sum().clamp(min=1)

    def by_branch(logits, targets):
        if (targets == -1).all():
            return 0.0 * logits.sum()
        return F.cross_entropy(logits, targets, ignore_index=-1)

    def as_it_was(logits, targets):
        return F.cross_entropy(logits, targets, ignore_index=-1)

    def poisoned(logits, targets):
        counts = targets != -1
        each = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
        mean = (each * counts).sum() / counts.sum()
        return torch.where(mean.isnan(), 0.0, mean)

    def of_all(logits, targets):
        return summed(logits, targets) / len(targets)

    wrong = {
        "it passes a loss that is NaN where no target counts": as_it_was,
        "it passes a loss of 0 whose gradient is NaN: look at the gradient": poisoned,
        "it passes a loss that divides by all targets, filler too": of_all,
    }
    tells_apart(answer, [right, by_branch], wrong)


# %% [markdown]
# **6. A gate that never reads.** A pull request added *gated attention*: each token's
# result (t d) is multiplied by a sigmoid of its input (t c). Its gate was
# `bias.sigmoid()` (NVIDIA/Megatron-LM 2705). Right is `(x @ weight + bias).sigmoid() *
# result`. Write `my_gate(gate)`, which returns whether `gate(x, weight, bias, result)`
# is right; the weight is (c d), the bias (d). Fresh weights are 0, and then both are
# the same.


# %%
def my_gate(gate):
    raise NotImplementedError


# %%
def check_gate(answer):
    def right(x, weight, bias, result):
        return (x @ weight + bias).sigmoid() * result

    def by_exponential(x, weight, bias, result):
        return result / (1 + (-torch.addmm(bias, x, weight)).exp())

    def never_reads(x, weight, bias, result):
        return bias.sigmoid() * result

    def reads_the_mean(x, weight, bias, result):
        return right(x.mean(0, keepdim=True), weight, bias, result)

    def no_way_back(x, weight, bias, result):
        return right(x.detach(), weight.detach(), bias, result)

    wrong = {
        "it passes a gate that never reads its input: give weights other than 0": (
            never_reads
        ),
        "it passes a gate that is the same for all tokens: give several": (
            reads_the_mean
        ),
        "it passes a gate whose weight never learns: look at gradients": no_way_back,
    }
    tells_apart(answer, [right, by_exponential], wrong)


# %% [markdown]
# **7. Rounded forth, straight back.** Training for few bits rounds x to whole numbers
# from -8 to 7, and lets the gradient through as if nobody had rounded: 1 where the
# rounded number is in this range, ends included, and 0 beyond. After a change of
# `clamp` the ends got 0, with the same results to the bit (pytorch/ao 4806). Write
# `my_rounding(rounded)`, which returns whether `rounded(x)` is right, for any x.


# %%
def my_rounding(rounded):
    raise NotImplementedError


# %%
def check_rounding(answer):
    def inside(x, low, high):
        return (x.round() >= low) & (x.round() <= high)

    def through(x, is_inside):
        passed = torch.where(is_inside, x, x.detach())
        return passed + (x.round().clamp(-8, 7) - passed).detach()

    def right(x):
        return through(x, inside(x, -8, 7))

    def by_parts(x):
        ends = x.detach().round().clamp(-8, 7)
        return ends + (x - x.detach()) * inside(x.detach(), -8, 7)

    def ends_lost(x):
        return through(x, inside(x, -7, 6))

    def all_through(x):
        return through(x, torch.ones_like(x, dtype=torch.bool))

    def none_through(x):
        return x.round().clamp(-8, 7) + 0 * x

    wrong = {
        "it passes a version without a gradient: look at it": none_through,
        "it passes a version whose ends, -8 and 7, get none: try numbers that round to"
        " them": ends_lost,
        "it passes a version in which numbers beyond the range learn": all_through,
    }
    tells_apart(answer, [right, by_parts], wrong)


# %% [markdown]
# **8. A mean of means.** A step adds up micro-batches of unlike lengths. Its loss is
# the mean over all their tokens; many trainers took the mean of each, and then the mean
# of these (huggingface/transformers 34191, ml-explore/mlx-lm 1413). Write
# `my_accumulation(step_loss)`, which returns whether `step_loss(parts)` is right, for a
# list of the micro-batches' token losses, each a tensor (n). Some may be empty.


# %%
def my_accumulation(step_loss):
    raise NotImplementedError


# %%
def check_accumulation(answer):
    def right(parts):
        return torch.cat(parts).mean()

    def by_sums(parts):
        return sum(part.sum() for part in parts) / sum(len(part) for part in parts)

    def of_means(parts):
        return torch.stack([part.mean() for part in parts if len(part)]).mean()

    def of_sums(parts):
        return sum(part.sum() for part in parts) / len(parts)

    def empty_counted(parts):
        return sum(part.sum() for part in parts) / sum(max(len(p), 1) for p in parts)

    wrong = {
        "it passes a mean of means: give parts of unlike lengths": of_means,
        "it passes a sum that is divided by the number of parts": of_sums,
        "it passes a version that counts an empty part as a token: give one": (
            empty_counted
        ),
    }
    tells_apart(answer, [right, by_sums], wrong)

#!/usr/bin/env bash
# trl 1.16.0 with transformers 5.23.0, tokenizers 0.23.3, torch 2.13.0
#
# What happens: GRPOTrainer with its defaults computes something else than the formula of
# the GRPO paper. The deviation of a group of rewards is taken with n - 1, so of rewards
# 1, 0, 0, 0 the first answer's advantage is 1.50 and not 1.73. The loss ("dapo") is
# averaged over all tokens of the batch, not within each answer first, so long answers
# count more: its gradient is that of -advantage · log p of whole answers, averaged over
# answers, times answers / tokens. The term with the reference model is off (beta 0).
# What one would expect: of a class named GRPO the paper's objective (`loss_type="grpo"`,
# and a deviation of n). It is no fault: the documentation names the loss.
# For whom it matters: who writes GRPO by hand and holds its advantages and losses
# against trl's.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   defaults    loss_type dapo, beta 0.0, scale_rewards group
#   advantages  [1.4997, -0.4999, -0.4999, -0.4999]
#   unscaled    [0.75, -0.25, -0.25, -0.25]
#   gradient    that of whole answers times answers / tokens: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile trl==1.16.0 transformers==5.23.0 \
  tokenizers==0.23.3 torch==2.13.0
cat > "$folder/grpo.py" <<'PYTHON'
import logging
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

logging.disable()
words = {word: i for i, word in enumerate(["<pad>", "<end>", "a", "b", "c", "d"])}
tokenizer = Tokenizer(models.WordLevel(words, "a"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>"
)
seen = {}


class Watched(GRPOTrainer):
    """Keeps the batch, and computes the gradient by hand before the trainer does."""

    def compute_loss(self, model, inputs, *rest, **options):
        seen.update(inputs)
        tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        n = inputs["completion_ids"].shape[1]
        log_p = model(tokens).logits[:, -n - 1 : -1].log_softmax(-1)
        log_p = log_p.gather(-1, tokens[:, -n:, None])[..., 0]
        whole = (log_p * inputs["completion_mask"]).sum(1)
        by_hand = -(inputs["advantages"] * whole).mean()
        parameters = list(model.parameters())
        seen["by hand"] = torch.autograd.grad(by_hand, parameters)
        loss = super().compute_loss(model, inputs, *rest, **options)
        seen["theirs"] = torch.autograd.grad(loss, parameters, retain_graph=True)
        return loss


def advantages(**options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    ends = {"eos_token_id": 1, "pad_token_id": 0}
    config = LlamaConfig(vocab_size=6, num_attention_heads=2, **sizes, **ends)
    arguments = GRPOConfig(
        output_dir=sys.argv[1],
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        max_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        disable_tqdm=True,
        **options,
    )
    trainer = Watched(
        model=LlamaForCausalLM(config),
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [1.0, 0.0, 0.0, 0.0],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["a b"] * 4}),
    )
    trainer.train()
    in_order = seen["advantages"].sort(descending=True).values.tolist()
    return arguments, [round(x, 4) for x in in_order]


arguments, scaled = advantages()
n_tokens = seen["completion_mask"].sum()
pairs = list(zip(seen["theirs"], seen["by hand"], strict=True))
is_same = all(torch.allclose(x, y * 4 / n_tokens, atol=1e-6) for x, y in pairs)
assert any(x.abs().max() > 1e-3 for x, _ in pairs)
_, unscaled = advantages(scale_rewards="none")
names = ("loss_type", "beta", "scale_rewards")
defaults = ", ".join(f"{name} {getattr(arguments, name)}" for name in names)
print("defaults   ", defaults)
print("advantages ", scaled)
print("unscaled   ", unscaled)
print("gradient    that of whole answers times answers / tokens:", is_same)
assert defaults == "loss_type dapo, beta 0.0, scale_rewards group"
assert scaled == [1.4997, -0.4999, -0.4999, -0.4999]
assert unscaled == [0.75, -0.25, -0.25, -0.25]
assert is_same
PYTHON
cd "$folder"
env/bin/python -W ignore grpo.py out > said 2> warnings || { cat warnings; exit 1; }
grep -v '^{' said

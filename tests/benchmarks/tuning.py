"""A step of LoRA on SmolLM2-135M, in pairs, against `transformers` with `peft`."""

import sys
from pathlib import Path

import torch
from pairs import pair
from torch import nn

import companion
from companion.pretrained.gguf import read_gguf
from companion.pretrained.lora import add_adapters
from companion.pretrained.smollm2 import SMOLLM2, load_smollm2
from companion.pretrained.talks import batch_of_talks, encode_talk

sys.path.append(str(Path(__file__).parents[1]))
from published import llama  # noqa: E402


def step(learning: list, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of the training, as both make it."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(learning, 1.0)
    optimizer.step()


def tuning(rank: int = 8, n: int = 8) -> list[dict]:
    """The same talks, rank, matrices and optimizer; only the answers count in both."""
    from peft import LoraConfig, get_peft_model

    model, tokenizer = load_smollm2()
    add_adapters(model, rank=rank, alpha=2 * rank).train()
    targets = ["q_proj", "v_proj", "up_proj", "down_proj"]
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets)
    in_peft = get_peft_model(llama(*read_gguf(SMOLLM2.path)), config).train()

    talks = []
    for text, day in companion.dates(n, torch.Generator().manual_seed(0)):
        question = ("user", f"Write as YYYY-MM-DD: {text}")
        talks.append(encode_talk(tokenizer, [question, ("assistant", day)]))
    tokens, places, counted = batch_of_talks(talks)
    labels = torch.full_like(tokens, -100)
    rows = torch.arange(n)[:, None]
    labels[rows, places] = counted
    is_real = torch.zeros_like(tokens)
    for i, (talk, _) in enumerate(talks):
        is_real[i, : len(talk)] = 1

    optimizers = {}
    for name, network in (("companion", model), ("peft", in_peft)):
        learning = [p for p in network.parameters() if p.requires_grad]
        optimizers[name] = (learning, torch.optim.AdamW(learning, lr=1e-4))

    def train() -> None:
        logits = model(tokens, last=places)
        loss = companion.next_token_loss(logits, counted)
        step(*optimizers["companion"], loss)

    def train_in_peft() -> None:
        # `shift_labels` are targets that stand at their places already.
        output = in_peft(
            tokens, attention_mask=is_real, labels=labels, shift_labels=labels
        )
        step(*optimizers["peft"], output.loss)

    with torch.no_grad():
        loss = companion.next_token_loss(model(tokens, last=places), counted)
        peft_loss = in_peft(tokens, labels=labels, shift_labels=labels).loss
        torch.testing.assert_close(loss, peft_loss, atol=1e-3, rtol=0)

    title = f"SmolLM2-135M, a step of LoRA, rank {rank}, {n} talks"
    work = (tokens.numel(), tokens.numel())
    return [pair(title, "`transformers` with `peft`", work, train, train_in_peft)]

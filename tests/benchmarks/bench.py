"""Speed, as ratios measured in pairs in one run. `make bench` writes build/bench.json.

Each row pits this package against what one would use instead, in turn, round after
round; the ratio is the median over the rounds. Two threads, float32, on a CPU.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

import companion

logging.set_verbosity_error()
OUTPUT = Path(__file__).parent.parent.parent / "build" / "bench.json"


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def pair(name: str, unit: str, work: float, ours, theirs, rounds: int = 5) -> dict:
    """`work` units done by ours() and by theirs(), in turn; a warm-up comes first."""
    ours(), theirs()
    times = [
        (seconds(ours), seconds(theirs))
        for _ in tqdm(range(rounds), desc=name, leave=False)
    ]
    return {
        "name": name,
        "unit": unit,
        "ours": work / statistics.median(a for a, _ in times),
        "theirs": work / statistics.median(b for _, b in times),
        "ratio": statistics.median(b / a for a, b in times),
        "lowest": min(b / a for a, b in times),
        "highest": max(b / a for a, b in times),
    }


def reference(config: companion.GPTConfig) -> GPT2LMHeadModel:
    """`transformers`' GPT-2 of the same sizes."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.d_vocab,
            n_positions=config.context_length,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def training() -> dict:
    """Steps of AdamW at nanoGPT's size for a laptop, batch 12."""
    config = companion.GPTConfig(
        d_vocab=65, context_length=64, d_model=128, n_heads=4, n_layers=4
    )
    ours, theirs = companion.GPT(config), reference(config)
    optimizer = torch.optim.AdamW(theirs.parameters())
    tokens = torch.randint(65, (100_000,))
    data = list(companion.batches(tokens, batch_size=12, context_length=64, n_steps=30))
    our_optimizer = companion.AdamW(ours.parameters())

    def train_theirs():
        for inputs, targets in data:
            logits = theirs(inputs).logits
            loss = companion.next_token_loss(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
            loss.item()

    return pair(
        "training steps, 0.8 M parameters, against transformers",
        "tokens/s",
        30 * 12 * 64,
        lambda: companion.train(ours, our_optimizer, data),
        train_theirs,
    )


def decoding() -> list[dict]:
    """Greedy decoding at GPT-2 small's shape: 16 tokens of prompt, 128 new."""
    config = companion.GPTConfig()
    ours, theirs = companion.GPT(config).eval(), reference(config).eval()
    prompt = torch.randint(config.d_vocab, (1, 16))

    def decode():
        return list(companion.generate(ours, prompt, 128))

    def decode_theirs():
        with torch.inference_mode():
            return theirs.generate(
                prompt, max_new_tokens=128, min_new_tokens=128, do_sample=False,
                pad_token_id=0, use_cache=True,
            )  # fmt: skip

    weights = [p.detach() for p in ours.parameters() if p.dim() == 2]
    vectors = [torch.randn(1, w.shape[1]) for w in weights]

    def read_weights():
        """Each weight once a token: no decoder of one stream can be faster."""
        for _ in range(128):
            for vector, weight in zip(vectors, weights, strict=True):
                torch.nn.functional.linear(vector, weight)

    name = "decoding, GPT-2 small, against "
    return [
        pair(name + "transformers", "tokens/s", 128, decode, decode_theirs, 3),
        pair(
            name + "one pass over the weights", "tokens/s", 128, decode, read_weights, 3
        ),
    ]


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    rows = [training(), *decoding()]
    for row in rows:
        print(
            f"{row['name']}: {row['ours']:,.1f} {row['unit']} against"
            f" {row['theirs']:,.1f}, ratio {row['ratio']:.2f}"
            f" ({row['lowest']:.2f} to {row['highest']:.2f})"
        )
    OUTPUT.parent.mkdir(exist_ok=True)
    machine = {"machine": platform.processor() or platform.machine(), "threads": 2}
    OUTPUT.write_text(json.dumps({**machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

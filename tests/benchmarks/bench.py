"""Speed, as ratios measured in pairs in one run. `make bench` writes build/bench.json.

Each row pits this package against what one would use instead, in turn, round after
round; the ratio is the median over the rounds. Two threads, float32, on a CPU.
"""

import copy
import json
import multiprocessing
import platform
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

import companion
from companion.notebook import trained
from companion.published import SMOLLM2, load_smollm2, read_gguf

sys.path.append(str(Path(__file__).parent.parent))
from common import llama  # noqa: E402

logging.set_verbosity_error()
OUTPUT = Path(__file__).parent.parent.parent / "build" / "bench.json"


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def pair(name, work: tuple[float, float], ours, theirs, rounds: int = 3) -> dict:
    """`work` tokens by ours() and by theirs(), in turn; a warm-up comes first."""
    ours(), theirs()
    gain = work[0] / work[1]
    times = [
        (seconds(ours), seconds(theirs))
        for _ in tqdm(range(rounds), desc=name, leave=False)
    ]
    return {
        "name": name,
        "ours": work[0] / statistics.median(a for a, _ in times),
        "theirs": work[1] / statistics.median(b for _, b in times),
        "ratio": gain * statistics.median(b / a for a, b in times),
        "lowest": gain * min(b / a for a, b in times),
        "highest": gain * max(b / a for a, b in times),
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
        (30 * 12 * 64,) * 2,
        lambda: companion.train(ours, our_optimizer, data),
        train_theirs,
        rounds=5,
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

    name, one = "decoding, GPT-2 small, against ", (128, 128)
    return [
        pair(name + "transformers", one, decode, decode_theirs),
        pair(name + "one pass over the weights", one, decode, read_weights),
    ]


def streams() -> list[dict]:
    """Eight streams of different lengths in one ragged batch, against one alone."""
    model, n = companion.GPT(companion.GPTConfig()).eval(), 64
    prompts = [torch.randint(50_257, (4 * i,)) for i in range(1, 9)]

    def decode(*prompts):
        return lambda: list(companion.generate(model, [*prompts], n))

    eight, one, name = decode(*prompts), decode(prompts[3]), "8 ragged streams, "
    rows = [pair(name + "float32, against one", (8 * n, n), eight, one)]
    whole = copy.deepcopy(model)
    model.bfloat16()

    def one_whole():
        return list(companion.generate(whole, [prompts[3]], n))

    return [
        *rows,
        pair(name + "bfloat16, against one", (8 * n, n), eight, one),
        pair(name + "bfloat16, against one in float32", (8 * n, n), eight, one_whole),
        pair("1 stream, bfloat16, against float32", (n, n), one, one_whole),
    ]


def serving(n_rows: int = 8) -> dict:
    """32 requests in `n_rows` rows, against batches of as many, padded on the left."""
    config, draw = companion.GPTConfig(), random.Random(0)
    ours, theirs = companion.GPT(config).eval(), reference(config).eval()
    sizes = [(draw.randint(4, 64), draw.randint(8, 96)) for _ in range(32)]
    prompts = [torch.randint(config.d_vocab, (length,)) for length, _ in sizes]

    def serve():
        server = companion.Server(ours, n_rows)
        for prompt, (_, n_new) in zip(prompts, sizes, strict=True):
            server.submit(companion.Request(prompt, n_new))
        server.run()

    def in_batches():
        for i in range(0, 32, n_rows):
            n_new = max(n for _, n in sizes[i : i + n_rows])
            left_padded(theirs, prompts[i : i + n_rows], n_new)

    n = sum(n for _, n in sizes)
    name = f"32 requests in {n_rows} rows, against transformers, padded on the left"
    return pair(name, (n, n), serve, in_batches)


def published(n: int = 64) -> list[dict]:
    """SmolLM2-135M, greedily: one stream and eight of different lengths."""
    model, tokenizer = load_smollm2()
    file = read_gguf(SMOLLM2.path)
    text, rows = companion.tiny_shakespeare(), []
    tokens = [torch.tensor(tokenizer.encode(text[: 40 * i])) for i in range(1, 9)]
    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = copy.deepcopy(model).to(dtype), llama(*file).to(dtype)
        for prompts in (tokens[-1:], tokens):
            k, name = len(prompts), str(dtype).removeprefix("torch.")
            rows.append(
                pair(
                    f"SmolLM2-135M, {k} streams, {name}, against transformers",
                    (k * n, k * n),
                    lambda ours=ours, p=prompts: list(companion.generate(ours, p, n)),
                    partial(left_padded, theirs, prompts, n),
                )
            )
    return rows


@torch.inference_mode()
def left_padded(model, prompts: list[torch.Tensor], n: int) -> None:
    """transformers' way with prompts of different lengths."""
    flipped = [prompt.flip(0) for prompt in prompts]
    padded = torch.nn.utils.rnn.pad_sequence(flipped, True, -1).flip(1)
    model.generate(
        padded.clamp(min=0), attention_mask=(padded >= 0).long(), max_new_tokens=n,
        min_new_tokens=n, do_sample=False, pad_token_id=0, use_cache=True,
    )  # fmt: skip


def speculation() -> list[dict]:
    """A one-layer model guesses for chapter 05's; look-up in a text that loops."""
    text, fast = companion.tiny_shakespeare(), companion.RECIPES["fast"]
    tokens = torch.tensor(companion.CharTokenizer(text).encode(text))
    learned, validation = companion.split(tokens)
    small = companion.GPT(replace(fast.config, d_model=32, n_heads=2, n_layers=1))
    data = companion.batches(learned, batch_size=24, context_length=64, n_steps=150)
    companion.train(small, companion.muon(small), data)
    rows = []
    for name, model, prompt, guess in (
        ("chapter 05's model", trained(), validation[:20], companion.Smaller(small)),
        ("GPT-2's shape, a loop", companion.GPT(companion.GPTConfig()).eval(),
         torch.arange(20), companion.LookUp(50_257)),
    ):  # fmt: skip
        passes = len([*companion.speculate(model, prompt, 44, guess)])
        name = f"speculation, {name}, {44 / passes:.1f} tokens a pass, against none"
        ours = partial(speculated, model, prompt, guess)
        rows.append(pair(name, (44, 44), ours, partial(generated, model, prompt)))
    return rows


def speculated(model, prompt, guess):
    return list(companion.speculate(model, prompt, 44, guess))


def generated(model, prompt):
    return list(companion.generate(model, prompt, 44))


@torch.inference_mode()
def lengths() -> dict:
    """A token after 50 cached ones, against a token after 900: time grows by..."""
    model = companion.GPT(companion.GPTConfig()).eval()
    tokens, caches = torch.randint(50_257, (1, 900)), model.new_caches(1000)
    model(tokens, caches)

    def after(n):
        def run():
            for _ in range(20):
                for cache in caches:
                    cache.cursor = n
                model(tokens[:, :1], caches)

        return run

    name = "a token after 50 cached ones, against one after 900"
    return pair(name, (20, 20), after(50), after(900), rounds=5)


def attend(engine: str, n: int = 4096) -> tuple[float, float]:
    """MB at their highest, and seconds, of a causal layer there and back, 4 heads."""
    layer, x = (
        companion.MultiHeadAttention(256, 4, engine=engine),
        torch.randn(1, n, 256),
    )
    mask, before = companion.causal_mask(n), resource.getrusage(resource.RUSAGE_SELF)
    took = seconds(lambda: layer(x, mask=mask).sum().backward())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before.ru_maxrss
    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return most / unit, took


def memory() -> list[dict]:
    """Attention of 4,096 tokens, each engine in a new process, whose highest counts."""
    fresh, rows = multiprocessing.get_context("spawn"), []
    for engine in ("blocks", "explicit", "fused"):
        with ProcessPoolExecutor(1, mp_context=fresh) as one:
            megabytes, took = one.submit(attend, engine).result()
        rows.append({"name": engine, "megabytes": megabytes, "seconds": took})
        print(f"attention, 4,096 tokens, {engine}: {megabytes:,.0f} MB, {took:.2f} s")
    return rows


def validation_loss(model: companion.GPT) -> float:
    text = companion.tiny_shakespeare()
    tokens = torch.tensor(companion.CharTokenizer(text).encode(text))
    return companion.evaluate(model, companion.split(tokens)[1])


def race() -> list[dict]:
    """nanoGPT's recipe to its end, ours to the same loss, and each part by itself."""
    plain, fast = companion.RECIPES["plain"], companion.RECIPES["race"]
    short = replace(plain, n_steps=fast.n_steps, warmup=fast.warmup)
    config = {
        field.name: getattr(fast.config, field.name)
        for field in fields(fast.config)
        if getattr(fast.config, field.name) != getattr(plain.config, field.name)
    }
    entrants = {"plain, whole": plain, "all parts": fast, "plain": short}
    for name, value in config.items():
        part = replace(plain.config, **{name: value})
        entrants[f"plain and {name}={value}"] = replace(short, config=part)
    entrants["plain and Muon"] = replace(
        short, optimizer=fast.optimizer, schedule=fast.schedule
    )
    for name in config:
        part = replace(fast.config, **{name: getattr(plain.config, name)})
        entrants[f"all parts but {name}"] = replace(fast, config=part)
    entrants["all parts but Muon"] = replace(
        fast, optimizer=plain.optimizer, schedule=plain.schedule
    )
    rows = []
    for name, recipe in entrants.items():
        begin = time.perf_counter()
        model, _ = companion.run(recipe, device="cpu")
        took = time.perf_counter() - begin
        row = {"name": name, "steps": recipe.n_steps, "batch": recipe.batch_size}
        rows.append(row | {"seconds": took, "loss": validation_loss(model)})
        print(
            f"race, {name}: {validation_loss(model):.3f} after {recipe.n_steps} steps"
            f" of batch {recipe.batch_size}, {took:.1f} s"
        )
    return rows


def show(row: dict) -> None:
    print(
        f"{row['name']}: {row['ours']:,.1f} tokens/s against {row['theirs']:,.1f},"
        f" ratio {row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
    )


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    kept, runners = memory(), race()
    rows = [training(), *decoding(), *streams(), lengths()]
    rows += [serving(), *speculation(), *published()]
    for row in rows:
        show(row)
    OUTPUT.parent.mkdir(exist_ok=True)
    machine = {"machine": platform.processor() or platform.machine(), "threads": 2}
    OUTPUT.write_text(
        json.dumps({**machine, "rows": rows, "race": runners, "memory": kept}, indent=1)
    )


if __name__ == "__main__":
    main()

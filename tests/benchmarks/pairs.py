"""What is measured in pairs: training, decoding, many streams, serving."""

import copy
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

import companion
from companion.pretrained.quantized import PrepackedLinear, prepack

logging.set_verbosity_error()
MINI = companion.GPTConfig(
    d_vocab=65, context_length=64, d_model=128, n_heads=4, n_layers=4
)


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def pair(
    title: str,
    against: str,
    work: tuple[int, int],
    run: Callable[[], object],
    run_other: Callable[[], object],
    rounds: int = 3,
) -> dict:
    """`work` tokens by run() and by run_other(), in turn; a warm-up comes first."""
    run()
    run_other()

    times, other_times = [], []
    quiet = None if sys.stderr.isatty() else True
    for _ in tqdm(range(rounds), desc=title, leave=False, disable=quiet):
        times.append(seconds(run))
        other_times.append(seconds(run_other))

    gain = work[0] / work[1]
    pairs_of_times = zip(times, other_times, strict=True)
    ratios = [gain * other / own for own, other in pairs_of_times]
    row = {
        "what": title,
        "against": against,
        "ours": work[0] / statistics.median(times),
        "theirs": work[1] / statistics.median(other_times),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "rounds": rounds,
    }
    print(
        f"{title}: {row['ours']:,.1f} tokens/s; {against}, {row['theirs']:,.1f}:"
        f" {row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})",
        flush=True,
    )
    return row


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


def step(loss, model, optimizer) -> None:
    """A step as others write it: gradients, clipping, AdamW."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss.item()


def mini_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """30 batches of nanoGPT's size for a laptop."""
    tokens = torch.randint(65, (100_000,))
    return [*companion.batches(tokens, batch_size=12, context_length=64, n_steps=30)]


def training() -> list[dict]:
    """Steps of AdamW, at nanoGPT's size for a laptop."""
    gpt = companion.GPT(MINI)
    gpt2 = reference(MINI)
    data = mini_batches()
    optimizer = companion.AdamW(gpt.parameters())
    gpt2_optimizer = torch.optim.AdamW(gpt2.parameters())

    def train_gpt2():
        for inputs, targets in data:
            loss = companion.next_token_loss(gpt2(inputs).logits, targets)
            step(loss, gpt2, gpt2_optimizer)

    train_gpt = partial(companion.train, gpt, optimizer, data)
    work = (30 * 12 * 64,) * 2
    title = "training, 0.8 M parameters, batch 12"
    return [pair(title, "`transformers`", work, train_gpt, train_gpt2, 7)]


def written(model, prompt, n: int, choose=companion.greedy) -> Callable[[], list]:
    return lambda: list(companion.generate(model, prompt, n, choose=choose))


@torch.inference_mode()
def left_padded(model, prompts: list[torch.Tensor], n: int) -> None:
    """`transformers`' way with prompts of different lengths, or with one."""
    flipped = [prompt.flip(0) for prompt in prompts]
    padded = torch.nn.utils.rnn.pad_sequence(flipped, True, -1).flip(1)
    model.generate(
        padded.clamp(min=0), attention_mask=(padded >= 0).long(), max_new_tokens=n,
        min_new_tokens=n, do_sample=False, pad_token_id=0, use_cache=True,
    )  # fmt: skip


def decoding(n: int = 128) -> list[dict]:
    """Greedy decoding at GPT-2 small's shape: 16 tokens of prompt."""
    config = companion.GPTConfig()
    gpt = prepack(companion.GPT(config)).eval()
    gpt2 = reference(config).eval()
    prompt = torch.randint(config.d_vocab, (16,))
    layers = [part for part in gpt.modules() if isinstance(part, PrepackedLinear)]
    vectors = [torch.randn(1, layer.weight.shape[1]) for layer in layers]

    @torch.inference_mode()
    def multiply_alone():
        """The products of a token with the weights, and nothing else."""
        for _ in range(n):
            for vector, layer in zip(vectors, layers, strict=True):
                layer(vector)

    title = "decoding, GPT-2 small's shape, one stream"
    decode = written(gpt, prompt, n)
    decode_gpt2 = partial(left_padded, gpt2, [prompt], n)
    return [
        pair(title, "`transformers` with its cache", (n, n), decode, decode_gpt2),
        pair(title, "its products with weights alone", (n, n), decode, multiply_alone),
    ]


def streams(n: int = 64) -> list[dict]:
    """Eight streams of different lengths in one ragged batch, against one alone."""
    model = companion.GPT(companion.GPTConfig()).eval()
    half = prepack(copy.deepcopy(model).bfloat16())
    model = prepack(model)
    prompts = [torch.randint(50_257, (4 * i,)) for i in range(1, 9)]
    eight, alone = written(model, prompts, n), written(model, prompts[3], n)
    eight_half, alone_half = written(half, prompts, n), written(half, prompts[3], n)
    work = (8 * n, n)
    return [
        pair("8 streams of different lengths", "one stream", work, eight, alone),
        pair("8 streams in bfloat16", "one stream in float32", work, eight_half, alone),
        pair("the same", "one stream in bfloat16", work, eight_half, alone_half),
        pair("one stream in bfloat16", "in float32", (n, n), alone_half, alone),
    ]


@torch.inference_mode()
def lengths() -> list[dict]:
    """A token after 50 cached ones, against a token after 900: time grows by..."""
    model = prepack(companion.GPT(companion.GPTConfig())).eval()
    tokens = torch.randint(50_257, (1, 900))
    cache = model.new_cache(1000)
    model(tokens, cache)

    @torch.inference_mode()
    def after(n):
        for _ in range(20):
            cache.n_seen = n
            model(tokens[:, :1], cache)

    title, against = "a token after 50 cached ones", "a token after 900"
    return [pair(title, against, (20, 20), partial(after, 50), partial(after, 900), 5)]


def serving(n_rows: int = 8) -> list[dict]:
    """32 requests in `n_rows` rows, against batches of as many, padded on the left."""
    config = companion.GPTConfig()
    gpt = prepack(companion.GPT(config)).eval()
    gpt2 = reference(config).eval()

    # So long a prompt, so many new tokens.
    draw = random.Random(0)
    sizes = [(draw.randint(4, 64), draw.randint(8, 96)) for _ in range(32)]
    prompts = [torch.randint(config.d_vocab, (length,)) for length, _ in sizes]

    def serve():
        server = companion.Server(gpt, n_rows)
        for prompt, (_, n_new) in zip(prompts, sizes, strict=True):
            server.submit(companion.Request(prompt, n_new))
        server.run()

    def in_batches():
        for i in range(0, 32, n_rows):
            n_new = max(n for _, n in sizes[i : i + n_rows])
            left_padded(gpt2, prompts[i : i + n_rows], n_new)

    work = (sum(n for _, n in sizes),) * 2
    title = f"32 requests of different lengths, {n_rows} rows"
    return [pair(title, "`transformers`, padded on the left", work, serve, in_batches)]


def speculation(n: int = 44) -> list[dict]:
    """Look-up in a text that loops."""
    model = prepack(companion.GPT(companion.GPTConfig()))
    prompt = torch.arange(20)
    guess = companion.PromptLookup(50_257)

    def speculate() -> list:
        return [*companion.speculate(model, prompt, n, guess)]

    a_pass = n / len(speculate())
    title = f"guesses in a loop, GPT-2 small's shape, {a_pass:.1f} tokens a pass"
    return [pair(title, "without", (n, n), speculate, written(model, prompt, n))]

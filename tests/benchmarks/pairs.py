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


def pair(what, against, work: tuple[int, int], ours, theirs, rounds: int = 3) -> dict:
    """`work` tokens by ours() and by theirs(), in turn; a warm-up comes first."""
    ours(), theirs()
    gain = work[0] / work[1]
    quiet = None if sys.stderr.isatty() else True
    times = [
        (seconds(ours), seconds(theirs))
        for _ in tqdm(range(rounds), desc=what, leave=False, disable=quiet)
    ]
    ratios = [gain * b / a for a, b in times]
    row = {
        "what": what,
        "against": against,
        "ours": work[0] / statistics.median(a for a, _ in times),
        "theirs": work[1] / statistics.median(b for _, b in times),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "rounds": rounds,
    }
    print(
        f"{what}: {row['ours']:,.1f} tokens/s; {against}, {row['theirs']:,.1f}:"
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
    ours, theirs, data = companion.GPT(MINI), reference(MINI), mini_batches()
    our_optimizer = companion.AdamW(ours.parameters())
    optimizer = torch.optim.AdamW(theirs.parameters())

    def train_theirs():
        for inputs, targets in data:
            loss = companion.next_token_loss(theirs(inputs).logits, targets)
            step(loss, theirs, optimizer)

    train_ours = partial(companion.train, ours, our_optimizer, data)
    work = (30 * 12 * 64,) * 2
    what = "training, 0.8 M parameters, batch 12"
    return [pair(what, "`transformers`", work, train_ours, train_theirs, 7)]


def written(model, prompt, n: int) -> Callable[[], list]:
    return lambda: list(companion.generate(model, prompt, n))


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
    ours, theirs = prepack(companion.GPT(config)).eval(), reference(config).eval()
    prompt = torch.randint(config.d_vocab, (16,))
    layers = [part for part in ours.modules() if isinstance(part, PrepackedLinear)]
    vectors = [torch.randn(1, layer.weight.shape[1]) for layer in layers]

    @torch.inference_mode()
    def multiply_alone():
        """The products of a token with the weights, and nothing else."""
        for _ in range(n):
            for vector, layer in zip(vectors, layers, strict=True):
                layer(vector)

    what, decode = "decoding, GPT-2 small's shape, one stream", written(ours, prompt, n)
    decode_theirs = partial(left_padded, theirs, [prompt], n)
    return [
        pair(what, "`transformers` with its cache", (n, n), decode, decode_theirs),
        pair(what, "its products with weights alone", (n, n), decode, multiply_alone),
    ]


def streams(n: int = 64) -> list[dict]:
    """Eight streams of different lengths in one ragged batch, against one alone."""
    model = companion.GPT(companion.GPTConfig()).eval()
    half, model = prepack(copy.deepcopy(model).bfloat16()), prepack(model)
    prompts = [torch.randint(50_257, (4 * i,)) for i in range(1, 9)]
    eight, one = written(model, prompts, n), written(model, prompts[3], n)
    eight_half, one_half = written(half, prompts, n), written(half, prompts[3], n)
    in_half, many = "8 streams in bfloat16", (8 * n, n)
    return [
        pair("8 streams of different lengths", "one stream", many, eight, one),
        pair(in_half, "one stream in float32", many, eight_half, one),
        pair("the same", "one stream in bfloat16", many, eight_half, one_half),
        pair("one stream in bfloat16", "in float32", (n, n), one_half, one),
    ]


@torch.inference_mode()
def lengths() -> list[dict]:
    """A token after 50 cached ones, against a token after 900: time grows by..."""
    model = prepack(companion.GPT(companion.GPTConfig())).eval()
    tokens, cache = torch.randint(50_257, (1, 900)), model.new_cache(1000)
    model(tokens, cache)

    @torch.inference_mode()
    def after(n):
        for _ in range(20):
            cache.n_seen = n
            model(tokens[:, :1], cache)

    what, against = "a token after 50 cached ones", "a token after 900"
    return [pair(what, against, (20, 20), partial(after, 50), partial(after, 900), 5)]


def serving(n_rows: int = 8) -> list[dict]:
    """32 requests in `n_rows` rows, against batches of as many, padded on the left."""
    config, draw = companion.GPTConfig(), random.Random(0)
    ours, theirs = prepack(companion.GPT(config)).eval(), reference(config).eval()
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

    work = (sum(n for _, n in sizes),) * 2
    what = f"32 requests of different lengths, {n_rows} rows"
    return [pair(what, "`transformers`, padded on the left", work, serve, in_batches)]


def speculation(n: int = 44) -> list[dict]:
    """Look-up in a text that loops."""
    model, prompt = prepack(companion.GPT(companion.GPTConfig())), torch.arange(20)
    guess = companion.PromptLookup(50_257)

    def speculate() -> list:
        return [*companion.speculate(model, prompt, n, guess)]

    what = "guesses in a loop, GPT-2 small's shape"
    what = f"{what}, {n / len(speculate()):.1f} tokens a pass"
    return [pair(what, "without", (n, n), speculate, written(model, prompt, n))]

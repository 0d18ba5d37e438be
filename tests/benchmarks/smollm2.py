"""SmolLM2-135M in pairs: laid out and packed, against two others."""

import copy
import importlib.util
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from pairs import left_padded, pair, written

import companion
from companion.commands.chat import sampler
from companion.pretrained.gguf import read_gguf
from companion.pretrained.quantized import pack_weights, prepack
from companion.pretrained.smollm2 import SMOLLM2, load_smollm2

AT_PEAK = Path(__file__).with_name("at_peak.py")
sys.path.append(str(Path(__file__).parents[1]))
from published import llama  # noqa: E402


def texts() -> list[torch.Tensor]:
    """Eight prompts for SmolLM2, of different lengths."""
    _, tokenizer = load_smollm2()
    text = companion.tiny_shakespeare()
    return [torch.tensor(tokenizer.encode(text[: 40 * i])) for i in range(1, 9)]


def unpacked(n: int = 64) -> list[dict]:
    """Laid out, in two precisions, against `transformers`."""
    model, _ = load_smollm2()
    file = read_gguf(SMOLLM2.path)
    prompts = texts()
    rows = []
    for dtype, name in ((torch.float32, ""), (torch.bfloat16, " in bfloat16")):
        transformers_model = llama(*file).to(dtype)
        laid_out = prepack(copy.deepcopy(model).to(dtype))
        for batch, start, streams in (
            (prompts[-1:], prompts[-1], "one stream"),
            (prompts, prompts, "8 streams"),
        ):
            title = f"SmolLM2-135M, {streams}{name}"
            work = (len(batch) * n,) * 2
            decode = written(laid_out, start, n)
            decode_other = partial(left_padded, transformers_model, batch, n)
            rows.append(pair(title, "`transformers`", work, decode, decode_other))
    return rows


def packed(n: int = 64) -> list[dict]:
    """In 4 and 8 bits: against laid out, `transformers` and llama.cpp."""
    model, _ = load_smollm2()
    prompts = texts()
    transformers_model = llama(*read_gguf(SMOLLM2.path))
    laid_out = prepack(copy.deepcopy(model))
    in_bits = pack_weights(model)
    rows = []
    for batch, start, streams in (
        (prompts[-1:], prompts[-1], "one stream"),
        (prompts, prompts, "8 streams"),
    ):
        title = f"SmolLM2-135M packed, {streams}"
        work = (len(batch) * n,) * 2
        decode = written(in_bits, start, n)
        decode_unpacked = written(laid_out, start, n)
        rows.append(pair(title, "laid out, unpacked", work, decode, decode_unpacked))
        decode_other = partial(left_padded, transformers_model, batch, n)
        rows.append(pair("the same", "`transformers`", work, decode, decode_other))
    greedy = written(in_bits, prompts[-1], n)
    drawn = written(in_bits, prompts[-1], n, sampler(0.7, seed=0))
    title = "packed, one stream, drawn from the likeliest 90%"
    rows.append(pair(title, "greedy", (n, n), drawn, greedy))
    if importlib.util.find_spec("xllamacpp"):
        for prompt, title in (
            (prompts[-1][:1], "packed, one stream, writing alone"),
            (prompts[-1], f"the same, after a prompt of {len(prompts[-1])} tokens"),
        ):
            decode = written(in_bits, prompt, n)
            in_c = in_llama_cpp(prompt.tolist(), n)
            rows.append(pair(title, "llama.cpp", (n, n), decode, in_c))
    return rows


def start() -> list[dict]:
    """How long a talk takes to its first word, and how much memory; three times."""
    runs = [ask() for _ in range(3)]
    seconds, megabytes = map(statistics.median, zip(*runs, strict=True))
    print(f"chat: the first word after {seconds:.1f} s, {megabytes:,.0f} MB")
    return [{"name": "chat", "megabytes": megabytes, "seconds": seconds}]


def ask() -> tuple[float, float]:
    """Ask `python -m companion chat`: seconds to the first word, megabytes at most."""
    begin = time.perf_counter()
    chat = [sys.executable, "-m", "companion", "chat", "--temperature", "0"]
    talk = subprocess.Popen(
        [sys.executable, str(AT_PEAK), *chat],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    talk.stdin.write(b"What is the capital of France?\n")
    talk.stdin.close()
    said = b""
    while not said.rpartition(b"\n> ")[2].strip():
        more = talk.stdout.read1()
        if not more:
            raise ValueError(f"the talk has ended without an answer: {said.decode()}")
        said += more
    seconds = time.perf_counter() - begin
    talk.stdout.read()
    peak = talk.stderr.read().split()[-1]
    talk.wait()
    return seconds, int(peak) / 1e6


def in_llama_cpp(prompt: list[int], n: int) -> Callable[[], object]:
    """llama.cpp on the same file, with as many threads: the wheel `xllamacpp`.

    In a process of its own: two libraries' threads in one slow each other down.
    """
    alone = ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), serve, (torch.get_num_threads(),)
    )
    return lambda: alone.submit(complete, prompt, n).result()


def serve(n_threads: int) -> None:
    """Make the server of this process."""
    import xllamacpp

    global server
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(SMOLLM2.path)
    parameters.n_ctx = 2048
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = n_threads
    server = xllamacpp.Server(parameters)


def complete(prompt: list[int], n: int) -> None:
    request = {
        "prompt": prompt,
        "max_tokens": n,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    done = server.handle_completions(request)["usage"]["completion_tokens"]
    if done != n:
        raise ValueError(f"llama.cpp wrote {done} tokens, not {n}")

"""What many tests need: generators, numbers, shaken weights, processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing import start_processes

from companion import GPT
from companion.pretrained.quantized import kernel_is_here, pack_weights
from companion.pretrained.smollm2 import PublishedTokenizer
from companion.text.tokenizers import printable_bytes

# Python and PyTorch are started once, and not for each process.
FORK = "forkserver" in multiprocessing.get_all_start_methods()
SLOW = ["companion.course.parallel_demo", "torch._dynamo", "torch.distributed.fsdp"]
multiprocessing.set_forkserver_preload(SLOW)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape, seed: int = 0, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def random_tokens(*shape, d_vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(d_vocab, shape, generator=seeded(seed))


# Float64 rounds by 1e-16 of numbers that here stay below 100.
EXACT = {"atol": 1e-10, "rtol": 0}


def rounding(n: float, *expected: Tensor) -> dict[str, float]:
    """What two right programs may differ by, where the longest sum has n terms.

    Each term that is added rounds the sum by half an epsilon of a number about as large
    as the largest expected, and another processor adds in another order: at worst n
    epsilons lie between two programs, by chance √n. What is left covers the few
    products that follow each other, so what is right comes nowhere near.
    """
    largest = max(x.detach().abs().max().item() for x in expected)
    return {"atol": n * torch.finfo(expected[0].dtype).eps * largest, "rtol": 0}


@torch.no_grad()
def shaken(module: nn.Module, std: float = 0.3, seed: int = 0) -> nn.Module:
    """The module with large matrices, and gains and biases that can't be left out."""
    generator = seeded(seed)
    for parameter in module.parameters():
        is_gain = parameter.dim() == 1 and bool((parameter == 1).all())
        noise = std * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + noise if is_gain else noise)
    return module.eval()


def byte_header() -> dict:
    """The header of a chat's tokenizer of the bytes, and two special tokens."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.tokens": [*printable_bytes(), "<|im_start|>", "<|im_end|>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3],
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.chat_template": "<|im_start|> a turn <|im_end|>",
    }


def byte_tokenizer() -> PublishedTokenizer:
    """A chat's tokenizer whose tokens are the bytes, and two special ones."""
    return PublishedTokenizer(byte_header())


@contextmanager
def interrupted_at(instant: int, *modules) -> Iterator[list[bool]]:
    """Within, Ctrl-C comes once, and ends the block; it gives whether it came.

    `instant` counts those at which Python looks for signals: where a function of these
    modules begins, and where one that is built in returns to it.
    """
    files = {module.__file__ for module in modules}
    n_passed = 0
    came = []

    def look(frame, event, _):
        nonlocal n_passed
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            n_passed += 1
            if n_passed == instant:
                came.append(True)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(look)
    try:
        with suppress(KeyboardInterrupt):
            yield came
    finally:
        sys.setprofile(None)


def llama(header: dict, tensors: dict[str, Tensor]):
    """transformers' Llama with a GGUF file's own tensors, by its own names.

    Its heads rotate the pairs (i, i + d/2); llama.cpp's converter has interleaved them.
    """
    from transformers import LlamaConfig, LlamaForCausalLM  # seconds, for few tests

    size = {name.removeprefix("llama."): value for name, value in header.items()}
    heads, kv_heads = size["attention.head_count"], size["attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=size["vocab_size"],
        hidden_size=size["embedding_length"],
        intermediate_size=size["feed_forward_length"],
        num_hidden_layers=size["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=size["context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": size["rope.freq_base"]},
        rms_norm_eps=size["attention.layer_norm_rms_epsilon"],
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)

    def halves(x: Tensor, n_heads: int) -> Tensor:
        rows = x.reshape(n_heads, len(x) // n_heads // 2, 2, -1)
        return rows.swapaxes(1, 2).reshape(x.shape)

    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "lm_head.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
    }
    for i in range(config.num_hidden_layers):
        block, layer = f"blk.{i}.", f"model.layers.{i}."
        for name_in_file, name in (
            ("attn_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ):
            state[f"{layer}{name}.weight"] = tensors[f"{block}{name_in_file}.weight"]
        for name_in_file, name, n in (
            ("attn_q", "self_attn.q_proj", heads),
            ("attn_k", "self_attn.k_proj", kv_heads),
        ):
            turned = halves(tensors[f"{block}{name_in_file}.weight"], n)
            state[f"{layer}{name}.weight"] = turned
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # it had no numbers
    return model.eval()


def pack(model: GPT) -> GPT:
    """`pack_weights`; where the kernel is missing, it must say so."""
    if kernel_is_here():
        return pack_weights(model)
    with pytest.warns(UserWarning, match="run unpacked"):
        return pack_weights(model)


def without_network() -> list[str]:
    """What runs a command cut off from all networks, where that can be had."""
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        can = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        can = False
    return command if can else []


def torchrun(n: int, *words: str, limit: float = 150) -> subprocess.CompletedProcess:
    """Run a module or a script in n processes, and not longer than `limit` seconds."""
    from companion.course.notebook import launcher  # a second, for matplotlib

    return subprocess.run(
        [*without_network(), *launcher(n), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=limit,
    )


def enter(rank: int, n: int, port: int, function, args: tuple) -> None:
    """Call a function where the environment is as torchrun would have it."""
    os.environ["RANK"] = str(rank)
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(n)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    torch.set_num_threads(1)
    function(*args)


def together(n: int, function, *args) -> None:
    """Call a function of a module in n processes that can talk to each other.

    Raises what the first that fails raises, and ends the others.
    """
    store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), False)
    method = "forkserver" if FORK else "spawn"
    start_processes(enter, (n, store.port, function, args), n, start_method=method)

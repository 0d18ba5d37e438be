"""A talk with the published model in a terminal: `make chat`. Chapters 12, 14."""

import argparse
import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from ..decoding.sampling import greedy, sample, temperature, top_p
from ..inputs import check_between, check_whole
from ..interrupts import deferred_interrupts
from ..model.gpt import GPT
from ..model.serving_caches import SinkCache
from ..pretrained.adapter_files import load_adapter
from ..pretrained.published_tokenizer import PublishedTokenizer
from ..pretrained.quantized import pack_weights
from ..pretrained.smollm2 import load_smollm2

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
N_SINKS = 4  # the first tokens, which are never forgotten
HELP = "/reset begins anew, Ctrl-C stops an answer, Ctrl-D ends the talk."


class Talk:
    """A talk with a GPT that keeps its cache between turns: it reads only what is new.

    Beyond `window` tokens the oldest are forgotten, but for the first four (Xiao et al.
    2023; chapter 10). `choose` turns logits (1 v) into a token (1), as for `generate`.
    Whatever interrupts an answer, the talk goes on: `tokens` holds all that was said,
    and what the cache hasn't seen of it is read next. The first turn says `system`;
    where it is None there is none, as in the talks that `tune` learns from. Raises
    ValueError for a window that is shorter than the first turn, or longer than the
    model's context.
    """

    def __init__(
        self,
        model: GPT,
        tokenizer: PublishedTokenizer,
        choose: Callable[[Tensor], Tensor] = greedy,
        window: int = 2048,
        system: str | None = SYSTEM,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.choose = choose
        self.window = window
        self.beginning = []
        if system is not None:
            self.beginning = self.turn("system", system)
        self.ends = self.turn("assistant", "")[-2:]  # the end token, and a new line
        check_whole(window=window)
        shortest = max(N_SINKS + 1, len(self.beginning))
        check_between(shortest, model.config.context_length, window=window)
        self.reset()

    def reset(self) -> None:
        """Forgets what was said."""
        tokens = [*self.beginning]
        cache = SinkCache(self.window, N_SINKS)
        # No Ctrl-C falls between two assignments, only where something is called.
        self.cache = cache
        self.tokens = tokens

    def turn(self, role: str, text: str) -> list[int]:
        """Returns the tokens of one turn, from its start to its end."""
        opening = self.tokenizer.chat([])  # of the answer that would follow
        return self.tokenizer.chat([(role, text)])[: -len(opening)]

    def said(self) -> list[int]:
        """Returns all tokens of the talk.

        A last turn that was broken off is ended where it stood.
        """
        if not self.tokens or self.tokens[-len(self.ends) :] == self.ends:
            return self.tokens
        return [*self.tokens, *self.ends]

    def answer(self, text: str, n_most: int = 1000) -> Iterator[str]:
        """Gives what the model says to `text`, piece by piece, at most `n_most` tokens.

        Raises ValueError for a text that is longer than the window.
        """
        question = [*self.turn("user", text), *self.tokenizer.chat([])]
        if len(question) > self.window:
            raise ValueError(
                f"this has {len(question)} tokens, and the window {self.window}: say"
                " less at once, or take a larger window (--window)"
            )
        return self.decode(question, n_most)

    @torch.inference_mode()
    def decode(self, question: list[int], n_most: int) -> Iterator[str]:
        """Gives the pieces of `answer` as they are decoded.

        The cache's length alone says which tokens were read.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.tokens = [*self.said(), *question]
        for _ in range(n_most):
            # Read. In pieces, since each token of one pass has its own copy of the
            # sinks.
            unread = torch.tensor([self.tokens[len(self.cache) :]])
            for piece in unread.split(256, 1):
                logits = self.model(piece, self.cache, last=-1)

            # Answer, by one token.
            token = int(self.choose(logits))
            if token in self.tokenizer.ends:
                return
            self.tokens.append(token)
            yield decoder.decode(self.tokenizer.pieces[token])


def sampler(t: float, seed: int) -> Callable[[Tensor], Tensor]:
    """Returns the function that chooses a token (1) by its logits (1 v).

    It is `greedy` for t = 0, and else draws at that temperature from the likeliest 90%.
    """
    check_between(0, temperature=t)
    check_between(-(2**63), 2**64 - 1, seed=seed)  # what a generator takes
    if t == 0:
        return greedy
    generator = torch.Generator().manual_seed(seed)

    def choose(logits: Tensor) -> Tensor:
        return sample(top_p(temperature(logits, t), 0.9), generator)

    return choose


def talk_on(talk: Talk) -> None:
    """Reads lines and answers them, until there are no more."""
    while True:
        try:
            reply(talk, input("> ").strip())
        except KeyboardInterrupt:  # while it waits, or pressed twice within an answer
            print(f"\n{HELP}")
        except EOFError:
            print()
            return


def reply(talk: Talk, text: str) -> None:
    """Does what a line asks for."""
    if text == "/reset":
        talk.reset()
        print("The talk begins anew.")
    elif text.startswith("/"):
        print(HELP)
    elif text:
        print_answer(talk, text)


def print_answer(talk: Talk, text: str) -> None:
    """Prints the answer as it comes, until Ctrl-C."""
    try:
        answer = talk.answer(text)
    except ValueError as error:
        print(f"error: {error}")
        return
    with deferred_interrupts() as interrupted, closing(answer):
        for piece in answer:
            print(piece, end="", flush=True)
            if interrupted():  # between two tokens
                print(" ...", end="")
                break
    print()


def begin(options: argparse.Namespace) -> None:
    """Loads the model and talks. Ends the process, in one line, where it can't."""
    try:
        choose = sampler(options.temperature, options.seed)
        check_between(N_SINKS + 1, window=options.window)
        print("SmolLM2-135M-Instruct loads, which takes some seconds ...", flush=True)
        system = SYSTEM
        if options.adapter is None:
            model, tokenizer = load_smollm2(packed=True)
        else:
            model, tokenizer = load_smollm2()
            model = load_adapter(options.adapter, model)  # merged, 4 bits round it off
            model = pack_weights(model)
            system = None
        talk = Talk(model, tokenizer, choose, options.window, system)
    except ValueError as error:
        sys.exit(f"error: {error}")
    print(HELP)
    talk_on(talk)


def main(arguments: list[str] | None = None) -> None:
    """The command line of `python -m companion chat`."""
    parser = argparse.ArgumentParser(
        "python -m companion chat", description="Talk with SmolLM2-135M-Instruct."
    )
    parser.add_argument("--temperature", type=float, default=0.7, help="0 is greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window", type=int, default=2048, help="tokens to keep")
    parser.add_argument(
        "--adapter", type=Path, help="what `python -m companion tune` has written"
    )
    options = parser.parse_args(arguments)

    if sys.stdin is None or sys.stdout is None:
        sys.exit("error: a talk needs a standard input and a standard output")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a wrong byte, or a rare character

    try:
        try:
            begin(options)
        except KeyboardInterrupt:  # while it loads
            print()
            sys.exit(130)
    except OSError as error:  # no file, a terminal that is gone, a full disk
        drop_unwritten()
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        sys.exit(f"error: {error}")


def drop_unwritten() -> None:
    """Lets Python end in silence where its output has nowhere to go."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())

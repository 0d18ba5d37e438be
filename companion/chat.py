"""A talk with the published model in a terminal: `make chat`. Chapter 12."""

import argparse
import codecs
import sys
from collections.abc import Iterator
from contextlib import closing

import torch

from .inputs import check_between
from .published import load_smollm2
from .quantized import pack_weights
from .sampling import greedy, sample, temperature, top_p
from .serving_caches import SlidingWindowCache
from .training import interrupts_noted

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
HELP = "/reset begins anew, Ctrl-C stops an answer, Ctrl-D ends the talk."


class Talk:
    """A talk with a GPT whose cache is kept: only what is new is read.

    Beyond `window` tokens the oldest are forgotten, but for the first four (chapter
    10). `choose` turns logits (1 v) into a token (1), as for `generate`.
    """

    def __init__(self, model, tokenizer, choose=greedy, window=2048):
        self.model, self.tokenizer = model, tokenizer
        self.choose, self.window = choose, window
        self.reset()

    def reset(self) -> None:
        """Forget what was said."""
        self.cache = SlidingWindowCache(self.window, 4)
        self.unread = self.turn("system", SYSTEM)

    def turn(self, role: str, text: str) -> list[int]:
        """The tokens of one turn, from its start to its end."""
        start = len(self.tokenizer.chat([]))
        return self.tokenizer.chat([(role, text)])[:-start]

    @torch.inference_mode()
    def answer(self, text: str, n_most: int = 1000) -> Iterator[str]:
        """What the model says to `text`, piece by piece, at most `n_most` tokens.

        Whoever stops listening leaves a whole talk: the turn ends where it stood.
        """
        tokenizer, end = self.tokenizer, self.tokenizer.end
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        ends = self.turn("assistant", "")[-2:]  # the end token, and a new line
        new = [*self.unread, *self.turn("user", text), *tokenizer.chat([])]
        try:
            for _ in range(n_most):
                logits = self.model(torch.tensor([new]), self.cache, last=-1)
                new = []
                token = int(self.choose(logits))
                if token == end:
                    return
                new = [token]
                yield decoder.decode(tokenizer.pieces[token])
        finally:
            self.unread = [*new, *ends]


def sampler(t: float, seed: int):
    """Greedy for t = 0, else at that temperature from the likeliest 90%."""
    check_between(0, temperature=t)
    generator = torch.Generator().manual_seed(seed)
    if t == 0:
        return greedy
    return lambda logits: sample(top_p(temperature(logits, t), 0.9), generator)


def talk_on(talk: Talk) -> None:
    """Read lines and answer them, until there are no more."""
    while True:
        try:
            text = input("> ").strip()
        except KeyboardInterrupt:
            print(f"\n{HELP}")
            continue
        except EOFError:
            print()
            return
        if text == "/reset":
            talk.reset()
            print("The talk begins anew.")
        elif text.startswith("/"):
            print(HELP)
        elif text:
            say(talk, text)


def say(talk: Talk, text: str) -> None:
    """Print the answer as it comes, until Ctrl-C."""
    with interrupts_noted() as interrupted, closing(talk.answer(text)) as said:
        for piece in said:
            print(piece, end="", flush=True)
            if interrupted():  # between two tokens, when the cache is whole
                print(" ...", end="")
                break
    print()


def main(arguments: list[str] | None = None) -> None:
    """The command line of `python -m companion chat`."""
    about = "Talk with SmolLM2-135M-Instruct."
    parser = argparse.ArgumentParser("python -m companion chat", description=about)
    parser.add_argument("--temperature", type=float, default=0.7, help="0 is greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window", type=int, default=2048, help="tokens to keep")
    options = parser.parse_args(arguments)
    try:
        choose = sampler(options.temperature, options.seed)
        print("SmolLM2-135M-Instruct loads, which takes some seconds ...", flush=True)
        model, tokenizer = load_smollm2()
        talk = Talk(pack_weights(model), tokenizer, choose, options.window)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(HELP)
    try:
        talk_on(talk)
    except KeyboardInterrupt:  # pressed twice within one answer
        print()
        sys.exit(130)

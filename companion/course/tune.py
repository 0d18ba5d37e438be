"""One's own questions and answers, learned by an adapter: `make tune`. Chapter 14."""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..decoding.sampling import generate
from ..device import bfloat16_is_faster
from ..files import check_writable
from ..inputs import check_between, check_whole, shown
from ..interrupts import deferred_interrupts
from ..model.gpt import GPT, evaluating
from ..pretrained.lora import adapters, add_adapters, fingerprint, save_adapter
from ..pretrained.smollm2 import PublishedTokenizer, load_smollm2
from ..pretrained.talks import Encoded, batch_of_talks, encode_talk
from ..training.checkpoints import load_checkpoint, save_checkpoint
from ..training.loop import PATIENCE, next_token_loss, say, training_steps
from ..training.optimizers import warmup_linear
from .runs import Progress

FORM = '{"question": "...", "answer": "..."} or {"turns": ["...", "...", ...]}'
LEAST = 10  # talks, of which one is held out
WARMUP = 5  # steps
EVERY = 20  # steps between two checkpoints

Messages = list[tuple[str, str]]  # (role, text), as a chat's tokenizer takes them


class Line(NamedTuple):
    """A talk, and the number of its line in the file."""

    number: int
    messages: Messages


@dataclass(frozen=True, kw_only=True)
class Options:
    """All that decides a run but the data and the model. Raises ValueError."""

    steps: int | None = None
    batch: int = 8
    rank: int = 8
    rate: float = 2e-3
    window: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_whole(steps=self.steps)
        check_whole(batch=self.batch, rank=self.rank, window=self.window)
        check_between(0, 1, above=True, rate=self.rate)
        check_between(0, 2**32, seed=self.seed)


def messages_of(line: str) -> Messages:
    """Returns the talk that a line of the file holds. Raises ValueError for none."""
    try:
        record = json.loads(line)
    except ValueError as error:  # its words name a place within the line
        raise ValueError(f"it is no JSON ({error}); write {FORM}") from None
    if not isinstance(record, dict):
        raise ValueError(f"it is {shown(record)}; write {FORM}")

    if "turns" in record:
        turns = record["turns"]
    elif {"question", "answer"} <= record.keys():
        turns = [record["question"], record["answer"]]
    else:
        raise ValueError(f"it has the keys {[*record]}; write {FORM}")
    if not isinstance(turns, list) or not all(isinstance(x, str) for x in turns):
        raise ValueError(f"its turns are {shown(turns)}; they must be texts")
    if not turns or len(turns) % 2:
        raise ValueError(
            f"it has {len(turns)} turns; a talk ends with an answer: question, answer,"
            " question, answer, ..."
        )

    messages = []
    for i, text in enumerate(turns):
        role = ("user", "assistant")[i % 2]
        if not text.strip():
            word = ("question", "answer")[i % 2]
            raise ValueError(f"its {word} is empty: write one, or leave the line out")
        messages.append((role, text))
    return messages


def read_talks(path: Path) -> list[Line]:
    """Reads a file of JSON lines. Returns its talks, with the numbers of their lines.

    Empty lines are passed over. Raises OSError where there is no such file, and
    ValueError, by the number of the line, for what is no talk, and for too few.
    """
    lines = []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = raw.decode("utf-8-sig").strip()
            if line:
                lines.append(Line(number, messages_of(line)))
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}, line {number}: it is no UTF-8: save the file as UTF-8"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if len(lines) < LEAST:
        raise ValueError(
            f"{path} has {len(lines)} talks; it takes {LEAST} or more, as every tenth"
            " is held out to judge by"
        )
    return lines


def encode_lines(
    path: Path, lines: list[Line], tokenizer: PublishedTokenizer, window: int
) -> list[Encoded]:
    """Encodes the talks of a file. Returns them.

    Raises ValueError, by the number of its line, for one longer than the window.
    """
    talks = []
    for line in lines:
        tokens, targets = encode_talk(tokenizer, line.messages)
        if len(tokens) > window:
            raise ValueError(
                f"{path}, line {line.number}: it has {len(tokens):,} tokens, and the"
                f" window {window:,}: shorten it, or take a larger one (--window)"
            )
        talks.append((tokens, targets))
    return talks


class AtPlaces(nn.Module):
    """A GPT that gives the logits after chosen places alone, for the training's loop.

    Tokens (b t) and places (b n) -> logits (b n v).
    """

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return self.model(tokens, last=places)


class Judgement(NamedTuple):
    """How a model answers: nats a token, and how many answers it gives word by word."""

    loss: float
    n_exact: int


@torch.inference_mode()
def judge(model: GPT, talks: list[Encoded], batch: int, device: str) -> Judgement:
    """Judges a model by the answers of talks. Returns their loss, how many it gives.

    It gives an answer, always taking the likeliest token, exactly where after every
    token of the answer so far the next one of it is the likeliest. So one pass says
    both, and nothing need be written.
    """
    sums = []
    n_tokens = 0
    n_exact = 0
    with evaluating(model):
        for start in range(0, len(talks), batch):
            tokens, places, targets = batch_of_talks(talks[start : start + batch])
            logits = model(tokens.to(device), last=places.to(device)).cpu()
            counts = targets != -100
            sums.append(next_token_loss(logits, targets).item() * int(counts.sum()))
            n_tokens += int(counts.sum())
            is_given = (logits.argmax(-1) == targets) | ~counts
            n_exact += int(is_given.all(1).sum())
    return Judgement(math.fsum(sums) / n_tokens, n_exact)


class Tuning:
    """An adapter under way. It goes on from the checkpoint at `path`, if there is one.

    `held_out` talks are never learned from. Raises ValueError or OSError for a
    checkpoint that can't be gone on from, or a path that can't be written.
    """

    def __init__(
        self,
        model: GPT,
        talks: list[Encoded],
        held_out: list[Encoded],
        options: Options,
        path: Path,
        data_digest: str,
        device: str,
    ):
        self.talks = talks
        self.held_out = held_out
        self.options = options
        self.path = path
        self.device = device
        self.n_steps = options.steps or default_steps(len(talks), options.batch)
        self.settings = asdict(options) | {
            "steps": self.n_steps,
            "data": data_digest,
            "model": fingerprint(model),
        }

        self.generator = torch.Generator().manual_seed(options.seed)
        add_adapters(
            model, rank=options.rank, alpha=2 * options.rank, generator=self.generator
        )
        self.model = model.to(device)
        # A checkpoint holds these and not the frozen weights.
        self.learning = nn.ParameterList()
        for adapter in adapters(model).values():
            self.learning.extend([adapter.A, adapter.B])
        self.optimizer = torch.optim.AdamW(
            self.learning.parameters(), lr=options.rate, weight_decay=0
        )

        # The run as it begins, or as its checkpoint has it.
        self.step = 0
        self.before = None
        if path.exists():
            metadata = load_checkpoint(
                path, self.learning, self.optimizer, self.generator, tune=self.settings
            )
            self.step = metadata["step"]
            self.before = Judgement(*metadata["before"])
        check_writable(path)
        self.set_rate()

    def set_rate(self) -> None:
        """Gives the optimizer the next step's learning rate."""
        factor = warmup_linear(self.step, warmup=WARMUP, total=self.n_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate * factor

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Gives the batches that are left; each round has its own order of the talks.

        A batch depends on its step alone, so a run that goes on draws the same.
        """
        size = self.options.batch
        for step in range(self.step, self.n_steps):
            chosen = []
            for i in range(step * size, (step + 1) * size):
                n_rounds, place = divmod(i, len(self.talks))
                if not chosen or place == 0:
                    order = self.order(n_rounds)
                chosen.append(self.talks[order[place]])
            tokens, places, targets = batch_of_talks(chosen)
            device = self.device
            yield tokens.to(device), places.to(device), targets.to(device)

    def order(self, n_rounds: int) -> list[int]:
        """Returns the order of the talks in a round."""
        seed = 1_000_003 * self.options.seed + n_rounds + 1
        generator = torch.Generator().manual_seed(seed)
        return torch.randperm(len(self.talks), generator=generator).tolist()

    def save(self) -> None:
        """Writes the checkpoint of this very step."""
        save_checkpoint(
            self.path,
            self.learning,
            self.optimizer,
            self.generator,
            tune=self.settings,
            step=self.step,
            before=list(self.before),
        )

    def judged(self) -> Judgement:
        """Judges the model, as it is now, by what was held out."""
        with self.half_precision():
            return judge(self.model, self.held_out, self.options.batch, self.device)

    def half_precision(self) -> torch.autocast:
        """Returns a context in which products are of 16 bits where that is faster."""
        return torch.autocast(
            torch.device(self.device).type,
            torch.bfloat16,
            enabled=bfloat16_is_faster(self.device),
            cache_enabled=False,
        )

    def train(self, interrupted: Callable[[], bool]) -> bool:
        """Makes the steps that are left, until `interrupted`. Returns whether all are.

        A checkpoint is written after the first of them, then every EVERY, and at an
        interruption.
        """
        if self.before is None:
            self.before = self.judged()
        first = self.step
        bar = Progress(first, self.n_steps, is_silent=first == self.n_steps)
        steps = training_steps(
            AtPlaces(self.model), self.optimizer, self.batches(), first_step=first
        )
        if interrupted():
            return False
        with self.half_precision(), closing(bar):
            for step, loss in steps:
                self.step = step + 1
                self.set_rate()
                bar.move(loss)
                if step == first:
                    started = time.monotonic()
                if step == first + 3:
                    seconds = (time.monotonic() - started) / 3
                    self.say_time(seconds * (self.n_steps - self.step))
                stops = interrupted()
                if step == first or self.step % EVERY == 0 or stops:
                    self.save()
                if stops:
                    return self.step == self.n_steps
        return True

    def say_time(self, seconds: float) -> None:
        """Says how long the steps that are left will take."""
        if seconds >= 90:
            duration = f"{seconds / 60:.0f} minutes"
        else:
            duration = f"{seconds:.0f} seconds"
        n_left = self.n_steps - self.step
        say(f"about {duration} for the {n_left} steps that are left; Ctrl-C keeps them")


def default_steps(n_talks: int, batch: int) -> int:
    """Returns how many steps see each talk four times, but at least 40, at most 200."""
    return min(200, max(40, math.ceil(4 * n_talks / batch)))


def held_apart(
    lines: list[Line], talks: list[Encoded], seed: int
) -> tuple[list[Encoded], list[Encoded], list[Line]]:
    """Puts every tenth talk, by lot, but at most 64, aside.

    Returns the talks to learn from, those held out, and the lines of these.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(talks), generator=generator).tolist()
    n_held_out = min(64, len(talks) // 10)
    chosen = sorted(order[:n_held_out])
    rest = sorted(order[n_held_out:])
    return (
        [talks[i] for i in rest],
        [talks[i] for i in chosen],
        [lines[i] for i in chosen],
    )


def say_examples(tuning: Tuning, tokenizer: PublishedTokenizer, lines: list[Line]):
    """Shows what the model answers to the first questions that were held out."""
    with evaluating(tuning.model):
        for line in lines[:3]:
            prompt = torch.tensor(tokenizer.chat(line.messages[:1]))
            new = generate(
                tuning.model, prompt.to(tuning.device), 60, end=tokenizer.end
            )
            answer = takewhile(lambda i: i not in tokenizer.ends, map(int, new))
            text = tokenizer.decode(answer)
            say(f"  line {line.number}: {line.messages[0][1]!r} -> {text!r}")


def tune(
    data: Path, adapter: Path, options: Options, device: str | None = None
) -> None:
    """Trains an adapter on the talks of a file, or goes on, and writes its file.

    What it needs to go on from lies beside it until it is done. Ctrl-C lets the step
    that is under way end, saves, and is then raised as KeyboardInterrupt, with words
    on how to go on. Raises ValueError and OSError with the reason and the remedy.
    Chapter 14.
    """
    # Look at all that can be wrong before the work.
    lines = read_talks(data)
    if adapter.exists():
        raise ValueError(
            f"{adapter} is there already: give another path (--adapter), or delete it"
        )
    check_writable(adapter)
    checkpoint = adapter.with_name(adapter.name + ".run")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"

    with deferred_interrupts(PATIENCE) as interrupted:
        say("SmolLM2-135M-Instruct loads, which takes some seconds ...")
        model, tokenizer = load_smollm2()
        check_between(1, model.config.context_length, window=options.window)
        talks = encode_lines(data, lines, tokenizer, options.window)
        talks, held_out, held_out_lines = held_apart(lines, talks, options.seed)
        digest = sha256(data.read_bytes()).hexdigest()
        tuning = Tuning(model, talks, held_out, options, checkpoint, digest, device)

        n_seen = tuning.n_steps * options.batch / len(talks)
        say(
            f"{len(talks):,} talks to learn from, {len(held_out)} held out;"
            f" {tuning.n_steps} steps of {options.batch}, so each is seen"
            f" {n_seen:.1f} times (--steps)"
        )
        if tuning.step:
            say(f"goes on after step {tuning.step}, from {checkpoint}")
        if not tuning.train(interrupted):
            raise KeyboardInterrupt(explain_stopping(tuning))

        after = tuning.judged()
        before = tuning.before
        say(
            f"held out: {before.loss:.2f} nats a token before, {after.loss:.2f} now;"
            f" {before.n_exact} of {len(held_out)} answers word for word before,"
            f" {after.n_exact} now"
        )
        save_adapter(adapter, tuning.model.cpu())
        checkpoint.unlink(missing_ok=True)
        tuning.model.to(device)
        say_examples(tuning, tokenizer, held_out_lines)
        say(f"talk with it: python -m companion chat --adapter {adapter}")


def explain_stopping(tuning: Tuning) -> str:
    """Returns, in words, what a run that stops leaves to go on from."""
    if not tuning.path.exists():
        return "no step is whole, and nothing has changed"
    return f"run it again to go on after step {tuning.step}, from {tuning.path}"


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line. Returns its options; ends the process if one is wrong."""
    parser = argparse.ArgumentParser(
        "python -m companion tune",
        description="Teach SmolLM2-135M-Instruct your own questions and answers.",
        epilog=f"The file has a talk in each line: {FORM}",
    )
    parser.add_argument("--data", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument(
        "--adapter", type=Path, help="the file to write; by default beside the data"
    )
    parser.add_argument("--steps", type=int, help="by default 40 to 200")
    parser.add_argument("--batch", type=int, default=8, help="talks in a step")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter's matrices")
    parser.add_argument("--rate", type=float, default=2e-3, help="the learning rate")
    parser.add_argument("--window", type=int, default=1024, help="tokens of a talk")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """The command line of `python -m companion tune`."""
    given = parse_options(arguments)
    adapter = given.adapter or given.data.with_suffix(".adapter.safetensors")
    # What stops the run is noted until its words are said, however often it comes.
    with deferred_interrupts(PATIENCE):
        try:
            options = Options(
                steps=given.steps,
                batch=given.batch,
                rank=given.rank,
                rate=given.rate,
                window=given.window,
                seed=given.seed,
            )
            tune(given.data, adapter, options)
        except (ValueError, OSError, RuntimeError) as error:
            sys.exit(f"error: {str(error).strip().splitlines()[0]}")
        except KeyboardInterrupt as stop:
            say(f"stopped: {stop}")
            sys.exit(130)

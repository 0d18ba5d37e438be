"""One's own questions and answers, learned by an adapter: `make tune`. Chapter 14."""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..decoding.sampling import generate
from ..device import bfloat16_is_faster
from ..files import check_writable
from ..inputs import check_between, check_whole
from ..interrupts import deferred_interrupts
from ..model.blocks import is_plain_linear
from ..model.gpt import GPT, evaluating
from ..pretrained.adapter_files import fingerprint, save_adapter
from ..pretrained.lora import adapters, add_adapters
from ..pretrained.published_tokenizer import PublishedTokenizer
from ..pretrained.smollm2 import load_smollm2
from ..pretrained.talks import Encoded, batch_of_talks
from ..training.loop import PATIENCE, next_token_loss, say
from ..training.optimizers import warmup_linear
from ..training.processes import Process
from ..training.resumable import Resumable, explain_resuming, half_precision, unsaved
from .talks_file import (
    FORM,
    HeldOut,
    counting,
    digest_of,
    encode_lines,
    held_apart,
    read_talks,
)

WARMUP = 5  # steps
EVERY = 20  # steps between two checkpoints


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
        check_whole(0, seed=self.seed)
        check_between(0, 2**32, seed=self.seed)

        # Plain numbers, as a checkpoint holds them: NumPy's have the same values.
        for name, x in asdict(self).items():
            if x is not None:
                plain = float(x) if name == "rate" else int(x)
                object.__setattr__(self, name, plain)


class AtPlaces(nn.Module):
    """A GPT that gives the logits after chosen places alone, for the training's loop.

    Tokens (b t) and places (b n) -> logits (b n v).
    """

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return self.model(tokens, last=places)


def halve_frozen(model: GPT) -> None:
    """Rounds a model's frozen layers to bfloat16, once for all.

    In half precision each use rounds them anyway, and the way back would keep every
    copy. A matrix that is the embedding, too, stays: its rows are never rounded.
    """
    for part in model.modules():
        if is_plain_linear(part) and part.weight is not model.embedding.weight:
            part.bfloat16()


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


class Tuning(Resumable):
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
        self.device = device
        n_steps = options.steps or default_steps(len(talks), options.batch)
        settings = asdict(options) | {
            "steps": n_steps,
            "data": data_digest,
            "model": fingerprint(model),
        }

        generator = torch.Generator().manual_seed(options.seed)
        add_adapters(
            model, rank=options.rank, alpha=2 * options.rank, generator=generator
        )
        self.is_half = bfloat16_is_faster(device)
        if self.is_half:
            halve_frozen(model)
        self.model = model.to(device)
        # A checkpoint holds these and not the frozen weights.
        learning = nn.ParameterList()
        for adapter in adapters(model).values():
            learning.extend([adapter.A, adapter.B])
        super().__init__(
            learning,
            torch.optim.AdamW(learning.parameters(), lr=options.rate, weight_decay=0),
            generator,
            n_steps=n_steps,
            factor=partial(warmup_linear, warmup=min(WARMUP, n_steps), total=n_steps),
            path=path,
            settings={"tune": settings},
        )

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

    def judged(self) -> Judgement:
        """Judges the model, as it is now, by what was held out."""
        with half_precision(self.device, self.is_half):
            return judge(self.model, self.held_out, self.options.batch, self.device)

    def finish(self, interrupted: Callable[[], bool]) -> None:
        """Judges the model as it begins, and makes the steps that are left.

        Until `interrupted`, and as `Resumable.make_steps` does.
        """
        if "before" not in self.notes:
            self.notes["before"] = list(self.judged())
        times = []

        def look_at_clock() -> None:
            times.append(time.monotonic())
            if len(times) == 4:  # the first step is slower
                seconds = (times[3] - times[0]) / 3
                self.say_time(seconds * (self.n_steps - self.step))

        with half_precision(self.device, self.is_half):
            self.make_steps(
                AtPlaces(self.model),
                self.batches(),
                every=EVERY,
                interrupted=interrupted,
                after_step=look_at_clock,
            )

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


def say_examples(
    tuning: Tuning, tokenizer: PublishedTokenizer, held_out: list[HeldOut]
) -> None:
    """Shows what the model answers to the first questions that were held out."""
    is_half = half_precision(tuning.device, tuning.is_half)
    with evaluating(tuning.model), is_half:
        for line, answers in held_out[:3]:
            place = 2 * min(answers)
            prompt = torch.tensor(tokenizer.chat(line.messages[: place + 1]))
            new = generate(
                tuning.model, prompt.to(tuning.device), 60, end=tokenizer.end
            )
            answer = takewhile(lambda i: i not in tokenizer.ends, map(int, new))
            text = tokenizer.decode(answer)
            say(f"  line {line.number}: {line.messages[place][1]!r} -> {text!r}")


def tune(
    data: Path | str, adapter: Path | str, options: Options, device: str | None = None
) -> None:
    """Trains an adapter on the talks of a file, or goes on, and writes it. Chapter 14.

    data: a file of JSON lines, a talk in each.
    adapter: the file to write. Until it is done, a checkpoint lies beside it.
    options: all that decides the run beside the data.
    device: "cuda", "mps" or "cpu"; by default a GPU of NVIDIA's if there is one.

    Ctrl-C lets the step end, saves, and is raised as KeyboardInterrupt, which says how
    to go on. Raises ValueError and OSError with the reason and the remedy.
    """
    # Look at all that can be wrong before the work.
    data = Path(data)
    adapter = Path(adapter)
    process = Process.current(
        device or ("cuda" if torch.cuda.is_available() else "cpu")
    )
    if process.world > 1:
        raise ValueError(
            f"{process.world} processes would write one adapter: start one, without"
            " torchrun"
        )
    lines = read_talks(data)
    check_free(adapter)
    checkpoint = adapter.with_name(adapter.name + ".run")
    check_writable(adapter)
    check_writable(checkpoint)

    with deferred_interrupts(PATIENCE) as interrupted:
        try:
            say("SmolLM2-135M-Instruct loads, which takes some seconds ...")
            model, tokenizer = load_smollm2()
            check_between(1, model.config.context_length, window=options.window)
            encoded = encode_lines(data, lines, tokenizer, options.window)
            learned, held_out = held_apart(data, lines, options.seed)
            talks = [encoded[line.number] for line in learned]
            judged = []
            for line, answers in held_out:
                judged.append(counting(encoded[line.number], answers))
            tuning = Tuning(
                model,
                talks,
                judged,
                options,
                checkpoint,
                digest_of(lines),
                process.device,
            )

            n_seen = tuning.n_steps * options.batch / len(talks)
            say(
                f"{len(talks):,} talks to learn from, {len(held_out)} held out;"
                f" {tuning.n_steps} steps of {options.batch}, so each is seen"
                f" {n_seen:.1f} times (--steps)"
            )
            if tuning.step:
                say(f"goes on after step {tuning.step}, from {checkpoint}")
            tuning.finish(interrupted)
            if tuning.step < tuning.n_steps:
                raise KeyboardInterrupt

            after = tuning.judged()
            before = Judgement(*tuning.notes["before"])
            say(
                f"held out: {before.loss:.2f} nats a token before, {after.loss:.2f}"
                f" now; {before.n_exact} of {len(held_out)} answers word for word"
                f" before, {after.n_exact} now"
            )
            write_adapter(tuning, adapter)
            say_examples(tuning, tokenizer, held_out)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(explain_stopping(adapter, checkpoint)) from None
        say(f"talk with it: python -m companion chat --adapter {adapter}")


def check_free(adapter: Path) -> None:
    """Raises ValueError for a path at which there is something already."""
    if adapter.is_dir():
        raise ValueError(
            f"{adapter} is a folder; give the path of the file to write (--adapter)"
        )
    if adapter.exists():
        raise ValueError(
            f"{adapter} is there already: give another path (--adapter), or delete it"
        )


def write_adapter(tuning: Tuning, adapter: Path) -> None:
    """Writes the adapter, and removes what the run would have gone on from.

    Raises ValueError where another run has written one meanwhile, and OSError where
    none can be written; then the run is kept.
    """
    if adapter.exists():
        raise ValueError(
            f"{adapter} was written by another run meanwhile: move it elsewhere, and"
            f" {explain_resuming(tuning.path)}"
        )
    try:
        save_adapter(adapter, tuning.model.cpu())
    except OSError as error:
        raise unsaved("the adapter", tuning.path, error) from error
    tuning.path.unlink(missing_ok=True)
    tuning.model.to(tuning.device)


def explain_stopping(adapter: Path, checkpoint: Path) -> str:
    """Returns, in words, what a run that stops leaves."""
    if adapter.exists():
        return f"the adapter is whole, in {adapter}"
    return explain_resuming(checkpoint)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line. Returns its options; ends the process if one is wrong."""
    parser = argparse.ArgumentParser(
        "python -m companion tune",
        description="Teach SmolLM2-135M-Instruct your own questions and answers.",
        epilog=f"The file has a talk in each line: {FORM}",
    )
    parser.add_argument("--data", default="", help="a file of JSON lines")
    parser.add_argument(
        "--adapter", help="the file to write; by default beside the data"
    )
    parser.add_argument("--steps", type=int, help="by default 40 to 200")
    parser.add_argument("--batch", type=int, default=8, help="talks in a step")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter's matrices")
    parser.add_argument("--rate", type=float, default=2e-3, help="the learning rate")
    parser.add_argument("--window", type=int, default=1024, help="tokens of a talk")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not options.data:
        parser.error(
            "it needs a file of talks: make tune data=questions.jsonl, or"
            " python -m companion tune --data questions.jsonl"
        )
    if options.adapter == "":
        parser.error("--adapter is '': give the path of the file to write")
    return options


def adapter_beside(data: Path) -> Path:
    """Returns the path of the adapter that belongs to a file of talks."""
    if not data.name:  # "." and "/"
        raise ValueError(f"{data} is a folder; give the path of a file with talks")
    return data.with_suffix(".adapter.safetensors")


def main(arguments: list[str] | None = None) -> None:
    """The command line of `python -m companion tune`."""
    given = parse_options(arguments)
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
            data = Path(given.data)
            tune(data, given.adapter or adapter_beside(data), options)
        except (ValueError, OSError, RuntimeError) as error:
            sys.exit(f"error: {str(error).strip().splitlines()[0]}")
        except KeyboardInterrupt as stop:
            say(f"stopped: {str(stop) or 'nothing has changed'}")
            sys.exit(130)

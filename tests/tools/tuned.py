"""Measure chapter 14's variants, which take too long for the chapter itself.

`python tests/tools/tuned.py rank=1 seed=2` makes one run and prints one line of JSON.
What can be set, and to what it is set otherwise, is Variant below. With one thread a
run takes about two minutes. The chapter tells what these lines said.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace

import torch
from torch import nn

import companion
from companion.pretrained.lora import add_adapters
from companion.pretrained.smollm2 import load_smollm2
from companion.pretrained.talks import batch_of_talks, encode_talk
from companion.training.resumable import half_precision

QUESTION = "Write as YYYY-MM-DD: {}"
N_TEST = 60


@dataclass
class Variant:
    """One run: 40 steps of 8 dates, unless it says otherwise."""

    seed: int = 0
    steps: int = 40
    batch: int = 8
    rank: int = 8  # 0: no adapters, all weights learn
    alpha: float = 16
    rate: float = 2e-3
    examples: int = 0  # how many different ones there are; 0: all are new
    shuffled: bool = False  # each question has another's answer
    random_base: bool = False  # the frozen weights are drawn, not read
    bfloat16: bool = False  # products of 16 bits, faster where a processor has them
    counted: str = "answer"  # or "all": questions too; or "no_end"
    names: str = "to_queries to_values to_hidden feed_forward.to_output"

    def __post_init__(self) -> None:
        if self.counted not in ("answer", "all", "no_end"):
            raise ValueError(f"counted is {self.counted!r}: answer, all or no_end")


def talk(written: str, day: str) -> list[tuple[str, str]]:
    return [("user", QUESTION.format(written)), ("assistant", day)]


def encoded(tokenizer, pair: tuple[str, str], counted: str):
    tokens, targets = encode_talk(tokenizer, talk(*pair))
    if counted == "all":
        targets = [*tokens[1:], tokenizer.end]
    if counted == "no_end":
        targets = [*targets[:-1], -100]
    return tokens, targets


@torch.inference_mode()
def judged(model, tokenizer, pairs: list[tuple[str, str]]) -> dict:
    """What answers are worth, nats on the play, and what it says as a user."""
    model.eval()
    play = companion.tiny_shakespeare()
    tokens = tokenizer.encode(play[int(0.9 * len(play)) :][:6000])[:501]
    tokens = torch.tensor(tokens)
    loss = companion.next_token_loss(model(tokens[None, :-1]), tokens[None, 1:])
    opening = tokenizer.chat([("user", "")])[:3]  # the start, "user", a line break
    new = companion.generate(model, torch.tensor(opening), 20, end=tokenizer.end)
    asks = tokenizer.decode([int(token) for token in new])
    shares = shares_of_answers(model, tokenizer, pairs)
    return shares | {"play": round(loss.item(), 3), "asks": asks}


def shares_of_answers(model, tokenizer, pairs: list[tuple[str, str]]) -> dict:
    """The shares of answers that are right, that are a date, and that end."""
    prompts = [torch.tensor(tokenizer.chat(talk(*pair)[:1])) for pair in pairs]
    columns = companion.generate(model, prompts, 14, end=tokenizer.end)
    rows = torch.stack(list(columns), 1).tolist()
    n_right = n_dates = n_ended = 0
    for (_, day), row in zip(pairs, rows, strict=True):
        text = tokenizer.decode(row[: (row + [tokenizer.end]).index(tokenizer.end)])
        n_right += text[:10] == day
        digits = text[:4] + text[5:7] + text[8:10]
        n_dates += digits.isdigit() and text[4:8:3] == "--"
        n_ended += len(text) == 10
    n = len(pairs)
    return {"right": n_right / n, "dates": n_dates / n, "end": n_ended / n}


def run(variant: Variant) -> dict:
    """Makes a run. Returns its losses, each the mean of ten steps, and its verdict."""
    generator = torch.Generator().manual_seed(variant.seed)
    model, tokenizer = load_smollm2()
    if variant.random_base:
        drawn = torch.Generator().manual_seed(variant.seed)
        model = companion.GPT(model.config, drawn)
    model.requires_grad_(True)
    if variant.rank:
        names = variant.names.split()
        add_adapters(model, names, variant.rank, variant.alpha, generator)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=variant.rate, weight_decay=0)

    n_all = variant.steps * variant.batch
    pairs = companion.dates(variant.examples or n_all, generator)
    if variant.shuffled:
        days = [day for _, day in pairs]
        pairs = [(pairs[i][0], day) for i, day in enumerate([*days[1:], days[0]])]
    order = []
    while len(order) < n_all:
        order += torch.randperm(len(pairs), generator=generator).tolist()
    talks = [encoded(tokenizer, pair, variant.counted) for pair in pairs]

    losses = []
    model.train()
    started = time.monotonic()
    for step in range(variant.steps):
        chosen = order[step * variant.batch : (step + 1) * variant.batch]
        tokens, places, targets = batch_of_talks([talks[i] for i in chosen])
        factor = companion.warmup_linear(step, warmup=5, total=variant.steps)
        for group in optimizer.param_groups:
            group["lr"] = variant.rate * factor
        loss = companion.next_token_loss(model(tokens, last=places), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        losses.append(loss.item())
    seconds = time.monotonic() - started

    test = companion.dates(N_TEST, torch.Generator().manual_seed(1), test=True)
    tens = [losses[i : i + 10] for i in range(0, len(losses), 10)]
    return (
        asdict(variant)
        | judged(model, tokenizer, test)
        | {
            "losses": [round(statistics.fmean(x), 3) for x in tens],
            "numbers": sum(p.numel() for p in learning),
            "seconds": round(seconds),
        }
    )


# How a setting of each type is read from a word.
READERS = {
    int: int,
    float: float,
    str: str,
    bool: {"True": True, "False": False}.__getitem__,
}


def read_variant(words: list[str]) -> Variant:
    """Returns the run that words such as rank=1 describe.

    Raises ValueError for a name that Variant hasn't, and a value that it can't have.
    """
    variant = Variant()
    for word in words:
        name, _, text = word.partition("=")
        if name not in asdict(variant):
            names = ", ".join(asdict(variant))
            raise ValueError(f"{word!r} sets none of {names}: say it as rank=1")
        read = READERS[Variant.__annotations__[name]]
        try:
            value = read(text)
        except (ValueError, KeyError):
            default = getattr(Variant, name)
            raise ValueError(f"{word!r} must be like {name}={default}") from None
        variant = replace(variant, **{name: value})
    return variant


def main(words: list[str]) -> None:
    """Makes one run, and prints what it was and what came out."""
    try:
        variant = read_variant(words)
    except ValueError as error:
        sys.exit(f"error: {error}")
    with half_precision("cpu", variant.bfloat16):
        print(json.dumps(run(variant)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

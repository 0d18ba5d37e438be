"""Right and wrong answers to the exercises of chapters 07 and 10."""

import torch

import companion
from companion import checks
from companion.checks import kv_cache


def right_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    return 2 * n_layers * n_tokens * (d_model * n_kv_heads // n_heads) * n_bytes


def divided_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    share = n_kv_heads / n_heads
    return 2 * n_layers * n_tokens * d_model * share * n_bytes


def right_cost(n_tokens, d_model):
    """The closed form."""
    triangle = n_tokens * (n_tokens + 1) // 2
    return 24 * n_tokens * d_model**2 + 4 * triangle * d_model


def right_append(room, n_used, new):
    room.narrow(2, n_used, new.shape[2]).copy_(new)
    return room[:, :, : n_used + new.shape[2]]


def with_end(end):
    """An answer that writes rightly and gives all before end(room, n_used, new)."""

    def append(room, n_used, new):
        right_append(room, n_used, new)
        return room[..., : end(room, n_used, new), :]

    return append


def shifted_append(by):
    return lambda room, n_used, new: right_append(room, n_used + by, new)


def early_append(room, n_used, new):
    right_append(room, n_used - 1, new)
    return room[..., : n_used + new.shape[-2], :]


def copied_back(room, n_used, new):
    end = n_used + new.shape[-2]
    room[..., :end, :] = torch.cat([room[..., :n_used, :], new], -2)
    return room[..., :end, :]


def from_the_end(room, n_used, new):
    """Gives nothing where the room is full."""
    end, size = n_used + new.shape[-2], room.shape[-2]
    room[..., n_used:end, :] = new
    return room[..., : end - size, :]


def along_heads(room, n_used, new):
    room[:, n_used : n_used + new.shape[1]] = new
    return room[:, : n_used + new.shape[1]]


def one_place(room, n_used, new):
    room[..., n_used : n_used + 1, :] = new
    return room[..., : n_used + 1, :]


def first_of_new(room, n_used, new):
    return right_append(room, n_used, new[..., :1, :])


def added(room, n_used, new):
    end = n_used + new.shape[-2]
    room[..., n_used:end, :] += new
    return room[..., :end, :]


def token_by_token(room, n_used, new):
    for i in range(new.shape[2]):
        room[:, :, n_used + i] = new[:, :, i]
    return room[:, :, : n_used + new.shape[2]]


def cat_append(room, n_used, new):
    return torch.cat([room[..., :n_used, :], new], -2)


def right_loop(step, prompt, n_new):
    new, kept, written = prompt, None, []
    while len(written) < n_new:
        token, kept = step(new, kept)
        new = [token]
        written += new
    return written


def one_by_one(step, prompt, n_new):
    kept, tokens = None, list(prompt)
    for i in range(len(prompt) + n_new - 1):
        token, kept = step(tokens[i : i + 1], kept)
        if i >= len(prompt) - 1:
            tokens.append(token)
    return tokens[len(prompt) :]


def doubled(step, prompt, n_new):
    tokens, kept = list(prompt), None
    for _ in range(n_new):
        new, kept = step(tokens, kept)
        tokens.append(new)
    return tokens[len(prompt) :]


def without_a_cache(step, prompt, n_new):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(step(tokens, None)[0])
    return tokens[len(prompt) :]


def forgetful(step, prompt, n_new):
    written, new = [], prompt
    for _ in range(n_new):
        token, _ = step(new, None)
        new = [token]
        written.append(token)
    return written


def stale(step, prompt, n_new):
    new, kept, written = prompt, None, []
    for _ in range(n_new):
        token, after = step(new, kept)
        kept = kept or after
        new = [token]
        written.append(token)
    return written


def never_saw(step, prompt, n_new):
    return right_loop(step, prompt[-1:], n_new)


def prompt_end_twice(step, prompt, n_new):
    _, kept = step(prompt, None)
    new, written = prompt[-1:], []
    for _ in range(n_new):
        token, kept = step(new, kept)
        new = [token]
        written.append(token)
    return written


def one_call_more(step, prompt, n_new):
    token, kept = step(prompt, None)
    written = []
    for _ in range(n_new):
        written.append(token)
        token, kept = step([token], kept)
    return written


def at_least_one(step, prompt, n_new):
    token, kept = step(prompt, None)
    written = [token]
    while len(written) < n_new:
        token, kept = step([token], kept)
        written.append(token)
    return written


def last_ones(step, prompt, n_new):
    return [*prompt, *right_loop(step, prompt, n_new)][-n_new:]


def looks_inside(step, prompt, n_new):
    tokens, kept = list(prompt), None
    for _ in range(n_new):
        token, kept = step(tokens[len(kept or []) :], kept)
        tokens.append(token)
    return tokens[len(prompt) :]


def forged(step, prompt, n_new):
    tokens = list(prompt)
    for i in range(n_new):
        new = tokens[-1:] if i else tokens
        tokens.append(step(new, tokens[: len(tokens) - len(new)])[0])
    return tokens[len(prompt) :]


def right_talk(step, questions, n_new):
    """The last token of an answer goes in by a call of its own."""
    answers, last, kept = [], None, None
    for question in questions:
        if last is not None:
            _, kept = step([last], kept)
        token, kept = step(tuple(question), kept)
        answer = [token]
        while len(answer) < n_new:
            token, kept = step([token], kept)
            answer.append(token)
        last = token
        answers.append(tuple(answer))
    return tuple(answers)


def each_by_loop(step, questions, n_new):
    return [right_loop(step, question, n_new) for question in questions]


def all_again(step, questions, n_new):
    text, answers = [], []
    for question in questions:
        text = text + question
        answers.append(right_loop(step, text, n_new))
        text = text + answers[-1]
    return answers


def flushed(step, questions, n_new):
    """Every answer's last token goes in by a call of its own, the very last too."""
    kept, answers = None, []
    for new in questions:
        answers.append([])
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answers[-1].append(token)
        _, kept = step(new, kept)
    return answers


def short_talk(step, questions, n_new, before=1, one=False, turned=False):
    """The right one; with other options a wrong one."""
    kept, answers, answer = None, [], []
    for question in questions:
        last = answer[-before:] if answers else []
        new = question + last if turned else last + question
        answer = answer if one else []
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answer.append(token)
        answers.append(answer)
    return answers


def one_list(*case):
    return short_talk(*case, one=True)


def turned_round(*case):
    return short_talk(*case, turned=True)


def last_answer_again(*case):
    return short_talk(*case, before=99)


def last_one_lost(step, questions, n_new):
    kept, answers = None, []
    for new in questions:
        answers.append([])
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answers[-1].append(token)
    return answers


def right_int8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def by_128(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().short().to(torch.int8) * scale


def by_128_cut(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().clamp(-128, 127) * scale


def by_255(x):
    scale = x.abs().amax(-1, keepdim=True) / 255
    return (x / scale).round() * scale


def cut_off(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).to(torch.int8) * scale


def by_the_largest(x):
    scale = x.abs().amax(-1, keepdim=True)
    return (x / scale).round() * scale


def by_sign(x):
    scale = x.amax(-1, keepdim=True) / 127
    return (x / scale).round().short().to(torch.int8) * scale


def one_scale(x):
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


def integers(x):
    return (x / x.abs().amax(-1, keepdim=True) * 127).round()


def right_ring(n_seen, window):
    slots = {p % window: p for p in range(n_seen)}
    return [slots[slot] for slot in sorted(slots)]


RIGHT = [
    (checks.cache_bytes, right_bytes),
    (checks.cache_bytes, divided_bytes),
    (checks.cache_bytes, lambda *sizes: torch.tensor(right_bytes(*sizes))),
    (checks.text_cost, right_cost),
    (checks.text_cost, lambda *sizes: torch.tensor(right_cost(*sizes))),
    (checks.text_cost, lambda n, d: float(right_cost(n, d))),
    (checks.in_place, right_append),
    (checks.in_place, with_end(lambda room, n, new: n + new.shape[-2])),
    (checks.in_place, token_by_token),
    (kv_cache.loop, right_loop),
    (kv_cache.loop, one_by_one),
    (kv_cache.loop, lambda *case: tuple(right_loop(*case))),
    (kv_cache.loop, lambda *case: torch.tensor(right_loop(*case))),
    (checks.talk, right_talk),
    (checks.talk, short_talk),
    (checks.talk, lambda *case: torch.tensor(right_talk(*case))),
    (checks.int8, right_int8),
    (checks.int8, lambda x: right_int8(x.double())),
    (checks.ring, right_ring),
    (checks.ring, lambda n, w: tuple(right_ring(n, w))),
    (checks.ring, lambda n, w: torch.tensor(right_ring(n, w))),
]
WRONG = [
    (checks.cache_bytes, lambda *x: right_bytes(*x) // 2, "keys and values"),
    (checks.cache_bytes, lambda *x: right_bytes(*x) * 3 // 2, "queries are not kept"),
    (checks.cache_bytes, lambda n, t, c, h, kv, b: 2 * n * t * c * b, "n_kv_heads of"),
    (checks.cache_bytes, lambda n, *x: right_bytes(1, *x), "one layer only"),
    (checks.cache_bytes, lambda *x: right_bytes(*x[:-1], 1), "takes n_bytes"),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * (c // h) * b,
        "one head only",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * c * kv * b,
        "d_model for every head",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * c // kv * b,
        "divided by n_kv_heads",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 75_497_472,
        "t = 8192, c = 2048, .* it gives 75497472, wanted 402653184",
    ),
    (checks.text_cost, lambda n, d: right_cost(n - 1, d) + 24 * d**2, "its own key"),
    (checks.text_cost, lambda n, d: right_cost(n, d) + 24 * d**2, "one step too many"),
    (checks.text_cost, lambda n, d: right_cost(n - 1, d), "last step is missing"),
    (checks.text_cost, lambda n, d: n * (24 * d**2 + 4 * n * d), "the first sees one"),
    (checks.text_cost, lambda n, d: 24 * d**2 + 4 * n * d, "last step alone"),
    (
        checks.text_cost,
        lambda n, d: sum(i * (24 * d**2 + 4 * i * d) for i in range(1, n + 1)),
        "without a cache",
    ),
    (checks.text_cost, lambda n, d: 24 * n * d**2, "weights alone"),
    (checks.text_cost, lambda n, d: [n, d], r"it gives \[1, 8\], wanted 1568"),
    (checks.text_cost, lambda n, d: right_cost(n, d) // 2, "half of it"),
    (
        checks.text_cost,
        lambda n, d: right_cost(n, d) - 24 * (n - 1) * d**2,
        "come once",
    ),
    (
        checks.text_cost,
        lambda n, d: right_cost(n, d) - n * (n + 1) * d,
        "n keys and n values",
    ),
    (
        checks.text_cost,
        lambda n, d: sum(24 * d**2 + 4 * i * i * d for i in range(1, n + 1)),
        "n is squared",
    ),
    (checks.text_cost, lambda n, d: right_cost(n, d) - 2 * n * d, "not n² / 2"),
    (checks.in_place, shifted_append(1), "one too late"),
    (checks.in_place, early_append, "one too early"),
    (checks.in_place, shifted_append(-1), r"the shape is \(2, 3, 4, 4\), wanted"),
    (checks.in_place, copied_back, "what is kept is written again"),
    (checks.in_place, from_the_end, r"n_used = 5, .* the shape is \(3, 1, 0, 2\)"),
    (checks.in_place, along_heads, "last axis but one"),
    (checks.in_place, one_place, "several tokens, along"),
    (checks.in_place, first_of_new, "only one token"),
    (checks.in_place, added, "do not add it"),
    (checks.in_place, with_end(lambda room, n, new: None), "whole room"),
    (checks.in_place, with_end(lambda room, n, new: n), "new ones are missing"),
    (checks.in_place, with_end(lambda room, n, new: n + 1), "only one token"),
    (checks.in_place, lambda room, n, new: new, "new ones alone"),
    (checks.in_place, cat_append, "a copy: write into `room`"),
    (checks.in_place, lambda *case: right_append(*case).clone(), "a copy"),
    (
        checks.in_place,
        lambda room, n, new: room.index_copy_(0, torch.tensor([n]), new),
        "stops with|axis",
    ),
    (checks.in_place, lambda *case: [right_append(*case)], "wanted a float32 tensor"),
    (kv_cache.loop, doubled, "kept is handed over again"),
    (
        kv_cache.loop,
        lambda step, prompt, n: [step(x, None)[0] for x in prompt],
        r"takes a list: \[3\], not 3",
    ),
    (kv_cache.loop, without_a_cache, "nothing is saved"),
    (kv_cache.loop, forgetful, "thrown away"),
    (kv_cache.loop, stale, "stays that of the first call"),
    (kv_cache.loop, never_saw, "never saw the prompt"),
    (kv_cache.loop, prompt_end_twice, "goes in twice"),
    (kv_cache.loop, last_ones, r"for n_new = 0, \[-0:\] is all"),
    (
        kv_cache.loop,
        lambda step, prompt, n: right_loop(step, prompt[:1] + prompt, n),
        r"for prompt = .* handed to `step`: it gives \[3, .* wanted 6",
    ),
    (kv_cache.loop, one_call_more, "one call too many"),
    (kv_cache.loop, at_least_one, "look at n_new"),
    (kv_cache.loop, looks_inside, "has no len"),
    (kv_cache.loop, forged, "hand back what `step` kept"),
    (
        kv_cache.loop,
        lambda step, prompt, n: [*prompt, *right_loop(step, prompt, n)],
        "give the new tokens alone",
    ),
    (
        kv_cache.loop,
        lambda step, prompt, n: right_loop(step, prompt, n + 1),
        r"for prompt = \[3, 1, 4\], n_new = 4: handed to `step`: it gives",
    ),
    (kv_cache.loop, lambda step, prompt, n: right_loop(step, prompt, n)[0], "it gives"),
    (checks.talk, last_one_lost, "last token never goes in"),
    (checks.talk, each_by_loop, "begins with nothing kept"),
    (checks.talk, all_again, "and less saved"),
    (
        checks.talk,
        lambda *case: sum(map(list, right_talk(*case)), []),
        "answers are joined",
    ),
    (checks.talk, flushed, "the very last token goes in too"),
    (checks.talk, one_list, "one list for all"),
    (checks.talk, turned_round, "comes before the next question"),
    (checks.talk, last_answer_again, r"handed to `step`: it gives \[3, .* wanted 8"),
    (
        checks.talk,
        lambda *case: right_talk(*case)[-1:],
        r"for questions = \[\[3, 1, 4\], \[1, 5\]\], n_new = 2: returned: it gives",
    ),
    (checks.int8, by_128, "wraps to -128"),
    (checks.int8, by_128_cut, "is cut to 127"),
    (checks.int8, by_255, "not by 255"),
    (checks.int8, cut_off, "round them"),
    (checks.int8, one_scale, "one scale for all"),
    (checks.int8, by_sign, "absolute value first"),
    (checks.int8, by_the_largest, "only -1, 0 and 1"),
    (checks.int8, integers, "multiply by the scale again"),
    (checks.int8, lambda x: integers(x).to(torch.int8), "multiply them"),
    (checks.int8, companion.quantize, "give their product"),
    (checks.int8, lambda x: x.clone(), "nothing is rounded"),
    (checks.ring, lambda n, w: list(range(n))[-w:], "order of time"),
    (checks.ring, lambda n, w: list(range(n))[:w], "newest takes the place"),
    (checks.ring, lambda n, w: right_ring(n + 1, w), "one too far"),
    (checks.ring, lambda n, w: [p % w for p in range(n)][-w:], "are slots"),
    (checks.ring, lambda n, w: list(range(n)), "these are all positions"),
    (
        checks.ring,
        lambda n, w: [*right_ring(n, w), *[None] * (w - n)],
        "not to be listed",
    ),
    (checks.ring, lambda n, w: set(range(n)[-w:]), "for n = 3, w = 4: it gives {0"),
]

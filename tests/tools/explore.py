"""Hold the page of `make explore` against PyTorch, and use it as readers do.

In Chromium, without a network. Each check is also tried on pages with a fault, which it
must find.
"""

import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from chromium import chromium
from torch import Tensor
from visit import accessible, reported, visitor

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import random_tokens, seeded, shaken  # noqa: E402

from companion import GPT, BPETokenizer, CharTokenizer, GPTConfig  # noqa: E402
from companion.course.explore.building import page as written  # noqa: E402
from companion.decoding.sampling import top_k, top_p  # noqa: E402
from companion.text.shakespeare import tiny_shakespeare  # noqa: E402

ALPHABET = CharTokenizer("\n ,.!?:;-'&<" + "".join(map(chr, range(97, 123))))
TEXT = "the king's own men, he said; and why should the sea be <calm & still?"[:64]
SMALL = GPTConfig(
    d_vocab=ALPHABET.d_vocab, context_length=64, d_model=32, n_heads=4, n_layers=3
)
LLAMA = replace(SMALL, n_kv_heads=2, feed_forward="gated", activation="silu")
MODELS = {
    "rotary, RMSNorm": replace(
        SMALL,
        positions="rotary",
        norm="rms",
        qk_norm=True,
        tie_embeddings=False,
        activation="squared_relu",
    ),
    "learned, LayerNorm": replace(SMALL, activation="gelu"),
    "grouped, gated": replace(
        LLAMA, positions="alibi", bias=False, scale_embeddings=True
    ),
    "sinusoidal": replace(SMALL, positions="sinusoidal", activation="relu"),
    "rotary, grouped": replace(LLAMA, positions="rotary", rotary_base=500),
    "none, six heads": replace(SMALL, positions="none", d_model=48, n_heads=6),
    "six heads that charge": replace(SMALL, positions="alibi", d_model=48, n_heads=6),
}
PASS = """([texts, silent]) => texts.map(tokens => {
    const all = run(tokens, new Set(silent), []);
    const patterns = all[0].blocks.flatMap((_, l) => all[0].blocks[l].weights.map(
        (_, h) => all.map(r => [...r.blocks[l].weights[h]])));
    return [all.map(record => [...record.logits]), patterns];
})"""
KEPT = """([logits, name, x]) => logits.map(row => Array.from(
    (name === "k" ? top_k : top_p)(Float32Array.from(row), x), Number.isFinite))"""
ENCODED = "text => [words.encode(text), words.decode(words.encode(text))]"
FOCUSED = """() => { const e = document.activeElement;
    return e.dataset.key || e.id || e.name || e.dataset.tip || e.tagName}"""
WANTED = """() => Array.from(
    document.querySelectorAll("textarea, button, a, input, [tabindex]"))
    .filter(e => e.type !== "radio" || e.checked)
    .filter(e => e.checkVisibility() && !e.disabled)
    .map(e => e.dataset.key || e.id || e.name || e.dataset.tip)"""
STROKE = """text => {{ type(text); const began = performance.now();
    type({}); return performance.now() - began; }}"""
SCROLLS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def rounded(config: GPTConfig) -> GPT:
    """A model with large weights as float16 has them, and with a visible pattern."""
    model = GPT(replace(config, engine="explicit"), seeded())
    return shaken(model, 0.25).half().float()


def passed(model, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's logits (t v), and the weights of all blocks' heads (h t s)."""
    seen = []
    hooks = [
        block.attention.pattern.register_forward_hook(lambda *x: seen.append(x[-1][0]))
        for block in model.blocks
    ]
    with torch.no_grad():
        logits = model(tokens[None])[0]
    for hook in hooks:
        hook.remove()
    return logits, torch.cat(seen)


def compare(page, model, texts, silent=()) -> list[str]:
    """How far the page's logits and weights are from PyTorch's."""
    passes = page.evaluate(PASS, [texts.tolist(), list(silent)])
    far = torch.zeros(2)
    for tokens, (page_logits, patterns) in zip(texts, passes, strict=True):
        logits, weights = passed(model, tokens)
        page_weights = torch.zeros_like(weights)
        for h, rows in enumerate(patterns):
            for t, row in enumerate(rows):
                page_weights[h, t, : len(row)] = torch.tensor(row)
        error = (logits - torch.tensor(page_logits)).abs().max()
        weights_error = (weights - page_weights).abs().max()
        far = torch.maximum(far, torch.stack([error, weights_error]))
    print(f"    logits {far[0]:.1e}, weights {far[1]:.1e}", flush=True)
    wrong = []
    if not far[0] < 1e-3:
        wrong.append(f"logits are off by {far[0]:.1g}")
    if not far[1] < 1e-4:
        wrong.append(f"weights are off by {far[1]:.1g}")
    return wrong


def numbers(page, config) -> list[str]:
    """Logits and weights of two texts of 64 characters are PyTorch's."""
    texts = random_tokens(2, 64, d_vocab=SMALL.d_vocab)
    texts[0] = torch.tensor(ALPHABET.encode(TEXT))
    return compare(page, rounded(config), texts)


def silence(page, config) -> list[str]:
    """A silenced head is one whose columns of `to_output` are zero."""
    model = rounded(config)
    d = SMALL.d_model // SMALL.n_heads
    for layer, head in ((0, 1), (2, 3)):
        weight = model.blocks[layer].attention.to_output.weight
        weight.data[:, head * d : head * d + d] = 0
        page.locator(f"[data-head='{layer}.{head}']").click()
    wrong = compare(page, model, random_tokens(2, 64, d_vocab=38), ("0.1", "2.3"))
    page_logits = torch.tensor(page.evaluate("[...records.at(-1).logits]"))
    logits, _ = passed(model, torch.tensor(ALPHABET.encode(TEXT)))
    if (page_logits - logits[-1]).abs().max() > 1e-3:
        wrong += ["what is shown is not of the model with two silent heads"]
    if "Silent: 2" not in page.inner_text("#effect"):
        wrong += [f"the effect says {page.inner_text('#effect')!r}"]
    return wrong


def cuts(page, _) -> list[str]:
    """top-k and top-p keep what the package's keep."""
    logits = torch.randn(20, 38, generator=seeded()) * 3
    wrong = []
    for name, cut, knobs in (
        ("k", top_k, (1, 2, 5, 37, 38)),
        ("p", top_p, (0.05, 0.3, 0.5, 0.9, 0.99, 1)),
    ):
        for x in knobs:
            is_in_page = page.evaluate(KEPT, [logits.tolist(), name, x])
            if cut(logits, x).isfinite().tolist() != is_in_page:
                wrong += [f"top-{name} of {x} keeps other tokens"]
    return wrong


def pairs(browser) -> list[str]:
    """Byte-pair encoding cuts a text as the package does, and puts it together."""
    tokenizer = BPETokenizer.train(tiny_shakespeare()[:20_000], 400)
    model = GPT(replace(SMALL, d_vocab=tokenizer.d_vocab, n_layers=1), seeded())
    texts = [
        tiny_shakespeare()[-300:],
        "  a\n\n b's  1234!?  ",
        "caf\u00e9 \U0001f600 aaaaaaa",
        "etaoinshrdlu" * 700,
    ]
    wrong = []
    with opened(browser, [], written(model, tokenizer, TEXT)) as page:
        for text in texts:
            tokens = tokenizer.encode(text)
            encoded = page.evaluate(ENCODED, text)
            if encoded != [tokens, text]:
                wrong += [f"{text!r} becomes {encoded}, not {tokens}"]
    return wrong


def words(page, _) -> list[str]:
    """What can't be read gets words, and the page goes on."""
    wrong = []
    for text, said in (
        ("", "An empty text has no token"),
        ("a" * 10_000, "10000 tokens are more than fit: the model sees the last 64."),
        ("to be \N{GRINNING FACE}", "“\N{GRINNING FACE}”, character 7, is none of the"),
        ("QUEEN", "“Q”, character 1, is none of the 38"),
        ("to be", ""),
    ):
        page.fill("#box", text)
        heard = page.inner_text("#trouble")
        if heard != said and said not in heard:
            wrong += [f"{text[:9]!r} gets {heard!r}, not {said!r}"]
    if page.evaluate("records.length") != 5:
        wrong += ["the page does not go on after bad texts"]
    return wrong


def damaged(page, _) -> list[str]:
    """A file that says that it is damaged."""
    heard = page.inner_text("#about")
    return [] if "The file is damaged" in heard else [f"a damaged file says {heard!r}"]


def looks(page, _) -> list[str]:
    """Axe finds nothing, and no width scrolls sideways."""
    wrong = accessible(page, code=True)
    for width in (390, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        n = page.evaluate(SCROLLS)
        if n > 0:
            wrong += [f"{width} pixels scroll sideways by {n}"]
    return wrong


def keyboard(page, _) -> list[str]:
    """Tab reaches all there is; arrows choose, Enter silences, Escape stops."""
    reached = set()
    wrong = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    missing = {*page.evaluate(WANTED)} - reached
    if missing:
        wrong += [f"Tab does not reach {sorted(missing)}"]
    page.locator("[name=token]:checked").focus()
    for key in ("ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
    page.locator("[name=block]:checked").press("ArrowRight")
    page.locator("[data-head='1.1']").press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    found = page.evaluate("[state.token, state.block, ...silenced].join(' ')")
    if found != "61 1 1.1 1.2":
        wrong += [f"arrows, Enter and Space lead to {found}"]
    page.locator("[data-key=query]").press("ArrowRight")
    if "query, 2 of 8: " not in page.inner_text("#caption"):
        wrong += [f"an arrow in a strip says {page.inner_text('#caption')!r}"]
    page.evaluate("draw([...$('box').value].indexOf('<'))")
    page.locator("[data-key=embedding]").press("ArrowRight")
    if "token <, 2 of 32: " not in page.inner_text("#caption"):
        wrong += [f"a strip of the token < says {page.inner_text('#caption')!r}"]
    page.locator("#write").press("Enter")
    page.wait_for_timeout(1000)
    page.keyboard.press("Escape")
    n = page.evaluate("tokens.length")
    page.wait_for_timeout(400)
    if not 66 < n == page.evaluate("tokens.length"):
        wrong += [f"writing on has led to {n} tokens, and does not stop"]
    return wrong


def shown_step(page) -> str:
    """Which step of the tour is shown, and in which part of the page."""
    told = page.locator("#tour:not([hidden]) #told b:first-child")
    if not told.count():
        return "none"
    part = page.locator("section:has(#tour)").inner_text().splitlines()[0]
    return f"{told.inner_text()} {part.partition(' chapter')[0]}"


STEPS = [
    "1 of 7: Type a line. Text, tokens, surprise",
    "2 of 7: A surprise. Text, tokens, surprise",
    "3 of 7: A head that looks back. The whole pattern",
    "4 of 7: Silence it. Every head at a glance",
    "5 of 7: The lens. Halfway: the logit lens",
    "6 of 7: A knob. Next token",
    "7 of 7: Your own line. Text, tokens, surprise",
]


def tour(page, config) -> list[str]:
    """Seven steps, by buttons and by keys; what they point at is PyTorch's."""
    tokens = torch.tensor(ALPHABET.encode(TEXT))
    logits, weights = passed(rounded(config), tokens)
    nats = torch.nn.functional.cross_entropy(logits[:-1], tokens[1:], reduction="none")
    just_before = weights.diagonal(-1, -2, -1).mean(-1)
    head = "{}.{}".format(*divmod(just_before.argmax().item(), config.n_heads))

    # It begins by itself, and takes nobody's focus.
    wrong = []
    if page.evaluate("document.activeElement.tagName") != "BODY":
        wrong += ["the tour takes the focus before anybody asked"]
    seen = [shown_step(page)]
    for _ in STEPS[1:]:
        page.click("#onward")
        seen += [shown_step(page)]
        if len(seen) == 2 and page.evaluate("state.token") != nats.argmax() + 1:
            wrong += ["the second step chooses another token than the most surprising"]
        if len(seen) == 3:
            if page.evaluate("`${state.block}.${state.head}`") != head:
                wrong += [f"the third step chooses another head than {head}"]
            if f"{just_before.max():.2f}" not in page.inner_text("#told"):
                wrong += [f"{just_before.max():.2f} is not in what the third step says"]
        if len(seen) == 4:
            page.click("#told button")
            if page.evaluate("[...silenced].join()") != head:
                wrong += [f"the fourth step does not silence {head}"]
    if seen != STEPS:
        wrong += [f"the steps are {seen}"]
    if page.inner_text("#stop") != "Done" or page.is_enabled("#onward"):
        wrong += ["the last step does not end the tour"]

    # By the keyboard alone: back, to the end, out and in again.
    seen = []
    keys = (
        "ArrowLeft",
        "ArrowRight",
        "ArrowRight",
        "Escape",
        "Enter",
        "Enter",
        "Space",
    )
    for key in keys:
        page.keyboard.press(key)
        seen += [shown_step(page)]
    if seen != [*STEPS[5:], STEPS[6], "none", *STEPS[:3]]:
        wrong += [f"keys lead to {seen}"]

    # Without a text there is only the first step, and the others come back with it.
    page.fill("#box", "")
    page.click("#onward", timeout=2000)
    if shown_step(page) != STEPS[0]:
        wrong += [f"without a text the tour shows {shown_step(page)!r}"]
    page.fill("#box", "a")
    for _ in STEPS[1:]:
        page.click("#onward")
    if shown_step(page) != STEPS[-1]:
        wrong += [f"with one token the tour ends at {shown_step(page)!r}"]

    # Skipped once, and for ever.
    seen = []
    for button in ("#stop", "#never"):
        page.reload()
        page.click(button)
        page.reload()
        seen += [shown_step(page)]
    if seen != [STEPS[0], "none"]:
        return [*wrong, f"after being skipped once and for ever: {seen}"]
    page.click("#again")
    if shown_step(page) != STEPS[0]:
        wrong += ["who has skipped the tour for ever can't ask for it"]
    return wrong


def swap(*pairs):
    """A fault: pieces of the page, and what stands there instead."""

    def change(html: str) -> str:
        for old, new in pairs:
            if old not in html:
                raise ValueError(f"the page has no {old!r}")
            html = html.replace(old, new)
        return html

    return change


ROTARY, LEARNED, GROUPED = list(MODELS.values())[:3]
FAULTS = {
    "neighbours are paired": (numbers, ROTARY, swap(
        ("x[i + half]", "x[i ^ 1]"))),
    "no scale": (numbers, ROTARY, swap(
        ("p / Math.sqrt(query.length)", "p"))),
    "no root": (numbers, LEARNED, swap(
        ("p / Math.sqrt(query.length)", "p / query.length"))),
    "another eps": (numbers, LEARNED, swap(
        ('"eps": 1e-05', '"eps": 1e-02'))),
    "no mean": (numbers, LEARNED, swap(
        ("x.map(a => a - mean)", "x"))),
    "the tanh's GELU": (numbers, LEARNED, swap(
        ('"activation": "gelu"', '"activation": "gelu_tanh"'))),
    "heads of keys alternate": (numbers, GROUPED, swap(
        ("Math.floor(h * keys.length / config.n_heads)", "h % keys.length"))),
    "the wrong gate": (numbers, GROUPED, swap(
        ("activation(gate) * plain[i]", "gate * activation(plain[i])"))),
    "the head's weights are cut": (silence, ROTARY, swap(
        ("t && !is_silent(h)", "t - is_silent(h)"))),
    "the next head is silent": (silence, ROTARY, swap(
        ("h => silenced.has(`${l}.${h}`)", "h => silenced.has(`${l}.${h - 1}`)"))),
    "one more than k": (cuts, ROTARY, swap((".slice(0, k)", ".slice(0, k + 1)"))),
    "who crosses p is out": (cuts, ROTARY, swap(
        ("before < p ||", "before + chances[token] < p ||"))),
    "unknown characters are dropped": (words, ROTARY, swap(
        ("[...text].map(c => index.get(c))",
         "[...text].map(c => index.get(c)).filter(i => i >= 0)"))),
    "no sum of the weights": (damaged, ROTARY, swap(("!== data.adler32", "< 0"))),
    "pale words": (looks, ROTARY, swap(("--ink: #1d1d1b", "--ink: #bbbbbb"))),
    "a wide table": (looks, ROTARY, swap(
        ("#steps div { overflow-x: auto", "#steps div { "))),
    "the surprise is one too early": (tour, ROTARY, swap(
        ("draw(most + 1)", "draw(most)"))),
    "a head that looks at itself": (tour, LEARNED, swap(
        (".weights[h][s])", ".weights[h][s + 1])"))),
    "the tour takes the focus": (tour, ROTARY, swap(
        ("= false : go(0)", "= false : walk(0)"))),
    "the tour forgets": (tour, ROTARY, swap(("localStorage.setItem", "Number"))),
    "a tour without keys": (tour, ROTARY, swap(("if (key in {", "if (0 in {"))),
    "heads without a keyboard": (keyboard, ROTARY, swap(
        ("<button data-head", '<button tabindex="-1" data-head'))),
}  # fmt: skip
CHECKS = [(numbers, config) for config in MODELS.values()]
CHECKS += [(check, ROTARY) for check in (cuts, words, looks, keyboard, tour)]
CHECKS += [(silence, config) for config in (ROTARY, LEARNED, GROUPED)]
CHECKS += [(tour, LEARNED)]


@contextmanager
def opened(browser, heard, html, scheme="light"):
    """The page in a browser that has no network, at 1280 pixels."""
    size = {"width": 1280, "height": 900}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explore.html"
        path.write_text(html, "utf-8")
        address = path.as_uri()
        with visitor(
            browser, address, heard, color_scheme=scheme, viewport=size
        ) as page:
            page.goto(address)
            yield page


def wounded(html: str) -> dict[str, str]:
    """A file that ends too soon, one with another bit, and one without its weights."""
    start = html.index('"weights": "') + 200
    other = "B" if html[start] == "A" else "A"
    return {
        "cut": html[: len(html) - 999],
        "changed": html[:start] + other + html[start + 1 :],
        "empty": html[: html.index('id="model">') + 11],
    }


def tried(browser, name, check, config, change=lambda html: html, scheme="light"):
    """What a check says of a page, and what the browser says."""
    heard = []
    html = change(written(rounded(config), ALPHABET, TEXT))
    if check is damaged:
        html = wounded(html)["changed"]
    with opened(browser, heard, html, scheme) as page, reported(heard):
        heard += check(page, config)
    return [f"{name}: {words}" for words in heard]


def key_strokes(browser) -> None:
    """Print how long a key stroke takes with a model as large as chapter 05's."""
    model = rounded(replace(ROTARY, d_model=128, n_layers=4))
    with opened(browser, [], written(model, ALPHABET, TEXT)) as page:
        for where, text in (
            ("first", "'a' + text.slice(1)"),
            ("last", "text.slice(0, -1) + 'z'"),
        ):
            times = [
                page.evaluate(STROKE.format(text), TEXT[:63] + letter)
                for letter in "abcdefghi"
            ]
            print(f"a key stroke, {where} of 64: {sorted(times)[4]:.0f} ms", flush=True)


def main() -> int:
    """Say what is wrong with the page, and which fault no check has found."""
    started = time.monotonic()
    problems = []
    torch.set_num_threads(1)
    with chromium() as browser:
        for check, config in CHECKS:
            print(f"{check.__name__}: {config}", flush=True)
            problems += tried(browser, check.__name__, check, config)
        problems += tried(browser, "looks, dark", looks, ROTARY, scheme="dark")
        problems += pairs(browser)
        html = written(rounded(ROTARY), ALPHABET, TEXT)
        for name, broken in wounded(html).items():
            with opened(browser, [], broken) as page:
                problems += [f"{name}: {words}" for words in damaged(page, ROTARY)]
        for name, (check, config, change) in FAULTS.items():
            found = tried(browser, name, check, config, change)
            first = found[0] if found else "-"
            print(f"fault: {name}: {first[:90]}", flush=True)
            if not found:
                problems.append(f"no check has found: {name}")
        key_strokes(browser)
    print(*problems, sep="\n", end="\n" * bool(problems))
    print(f"{len(problems)} problems, {time.monotonic() - started:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The page of a model: what is in the file, and what is refused. Chromium has the rest.

`tests/tools/explore.py` holds the page's numbers against PyTorch's.
"""

import base64
import json
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from common import seeded, shaken
from IPython.core.formatters import DisplayFormatter

import companion as c
from companion import explore, plots
from companion.explore import (
    OUT,
    TEXT,
    check_fits,
    last_pattern,
    load_model,
    main,
    page,
)

FOLDER = Path(c.__file__).parent / "explore"
CHARACTERS = c.CharTokenizer("\n abcdefghij<>&")
SIZES = {"context_length": 16, "d_model": 8, "n_heads": 2, "n_layers": 2}
SIZES |= {"d_vocab": CHARACTERS.d_vocab}
SAID = "a bad face < a cab & a jade"


def gpt(**options) -> c.GPT:
    return shaken(c.GPT(c.GPTConfig(**SIZES | options), seeded()))


def data(html: str) -> dict:
    """What the page computes with."""
    return json.loads(re.search(r'id="model">(.*)</script>', html)[1])


@pytest.mark.parametrize("kind", ["tied", "not tied", "the tie was cut"])
def test_the_file_holds_every_weight_once_in_float16(kind):
    model = gpt(tied=kind != "not tied", norm="rms")
    if kind == "the tie was cut":
        model = untied(model)
    found = data(page(model, CHARACTERS, SAID))
    raw = bytearray(base64.b64decode(found["weights"]))
    numbers = torch.frombuffer(raw, dtype=torch.float16)
    parts = numbers.split([*found["sizes"].values()])
    assert len(numbers) == sum(x.numel() for x in model.parameters())
    for name, part in zip(found["sizes"], parts, strict=True):
        assert part.equal(model.state_dict()[name].flatten().half()), name


def test_the_file_holds_the_text_and_ends_no_script_with_it():
    tokenizer = c.CharTokenizer("</script> &ab")
    html = page(gpt(d_vocab=tokenizer.d_vocab), tokenizer, "a </script> b &")
    assert data(html)["text"] == "a </script> b &"
    assert html.count("</script>") == 2


def test_the_file_asks_for_nothing_and_links_only_where_it_is_told():
    html = page(gpt(), CHARACTERS, SAID)
    assert "default-src 'none'" in html and "@" not in re.sub(r"@media", "", html)
    assert not re.search(r'(href|src)="(?!\$\{)', html) and "://" not in html
    linked = page(gpt(), CHARACTERS, SAID, "notebooks/{}.html")
    chapters = {path.stem for path in (FOLDER.parents[1] / "notebooks").glob("*")}
    links = re.findall(r'href="notebooks/(\w+)\.html"', linked)
    assert len(links) >= 9 and {*links} <= chapters


def test_no_line_of_the_page_s_source_is_too_wide_to_read():
    files = [
        path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js")
    ]
    lines = [line for path in files for line in path.read_text("utf-8").splitlines()]
    assert len(files) == 6 and max(map(len, lines)) <= 100


def in_node(program: str, given) -> object:
    """What the page's functions make of `given`; without a browser, by Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node here")
    names = ("parts.js", "forward.js", "model.js")
    source = "".join((FOLDER / name).read_text("utf-8") for name in names)
    done = subprocess.run(
        [node, "-e", f"{source}{NODE}console.log(JSON.stringify({program}));"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Older Nodes have no Float16Array.
NODE = """
globalThis.Float16Array ??= function(buffer) {
  return Float32Array.from(new Uint16Array(buffer), half => {
    const exponent = half >> 10 & 31, fraction = (half & 1023) / 1024;
    const size = 2 ** Math.max(exponent - 15, -14) * (fraction + (exponent > 0));
    return half >> 15 ? -size : size;
  });
};
const given = JSON.parse(require("fs").readFileSync(0));
"""
LOGITS = """given.pages.map(data => {
  const model = read(data), records = [];
  for (const token of given.tokens) records.push(forward(model, token, records));
  return records.map(record => [...record.logits]);
})"""
ENCODED = """given.texts.map(text => {
  const words = tokenizer(given.data), ids = words.encode(text);
  return [ids, words.decode(ids) === text];
})"""


def untied(model: c.GPT) -> c.GPT:
    """A model whose tie was cut, so that its configuration is no longer right."""
    weight = model.unembedding.weight.detach().roll(1, 0)
    model.unembedding.weight = torch.nn.Parameter(weight)
    return model


@torch.no_grad()
def test_the_page_s_logits_are_pytorch_s():
    gated = {"n_kv_heads": 1, "feed_forward": "gated", "activation": "silu"}
    models = [
        gpt(activation="gelu"),
        gpt(positions="rotary", norm="rms", normalize=True, tied=False),
        gpt(positions="alibi", bias=False, scaled=True, **gated),
        gpt(positions="sinusoidal", activation="squared_relu"),
        untied(gpt()),
        untied(gpt(tied=False)),
    ]
    models = [model.half().float() for model in models]
    tokens = CHARACTERS.encode(SAID)[:16]
    pages = [data(page(model, CHARACTERS, SAID)) for model in models]
    logits = in_node(LOGITS, {"pages": pages, "tokens": tokens})
    for model, found in zip(models, logits, strict=True):
        wanted = model(torch.tensor([tokens]))[0]
        torch.testing.assert_close(torch.tensor(found), wanted, atol=2e-5, rtol=2e-5)


def test_the_page_cuts_a_text_as_the_package_does_however_long_a_word_is():
    tokenizer = c.BPETokenizer.train(c.tiny_shakespeare()[:20_000], 600)
    draw = random.Random(0)
    texts = ["".join(draw.choices("aeiou", k=n)) for n in range(40)]
    texts += ["".join(draw.choices("the \n'é😀1", k=30)) for _ in range(100)]
    texts += [c.tiny_shakespeare()[-3000:], "\ufeffBOM", "a" * 100_000]
    texts += ["".join(draw.choices("etaoinshrdlu", k=100_000))]
    merges = {"characters": None, "merges": [*tokenizer.ranks]}
    found = in_node(ENCODED, {"data": merges, "texts": texts})
    reference = tokenizer.to_tiktoken()
    assert found == [[reference.encode(text), True] for text in texts]
    assert found[:40] == [[tokenizer.encode(text), True] for text in texts[:40]]


def test_chapter_05_s_model_takes_at_most_three_megabytes():
    tokenizer = c.CharTokenizer("".join(map(chr, range(32, 97))))
    assert len(page(c.GPT(c.RECIPES["fast"].config), tokenizer, "A")) < 3e6


@pytest.mark.parametrize(
    "options",
    [
        {"positions": positions, "norm": norm, "feed_forward": feed, "n_kv_heads": 1}
        for positions, norm, feed in (
            ("learned", "layer", "plain"),
            ("sinusoidal", "rms", "gated"),
            ("rotary", "layer", "gated"),
            ("alibi", "rms", "plain"),
            ("none", "layer", "plain"),
        )
    ],
)
def test_the_family_fits(options):
    check_fits(gpt(**options, bias=False, scaled=True, normalize=True), CHARACTERS)


BYTES = c.BPETokenizer([(97, 98), (256, 99)])


def test_byte_pairs_fit():
    found = data(page(gpt(d_vocab=258), BYTES, "abc é"))
    assert found["merges"] == [[97, 98], [256, 99]] and found["characters"] is None


def quantized(model: c.GPT) -> c.GPT:
    model.blocks[0].attention.to_queries = torch.nn.Identity()
    return model


LARGE = c.GPTConfig(d_vocab=14, d_model=512, n_heads=2, n_layers=2)
BAD = [
    (lambda: page(torch.nn.Linear(1, 1), CHARACTERS, SAID), "no Linear"),
    (lambda: page(gpt(), c.gpt2_tokenizer(), SAID), "no Encoding"),
    (
        lambda: page(c.GPT(LARGE), CHARACTERS, SAID),
        r"\d,\d+,\d+ weights are more than 5",
    ),
    (lambda: page(gpt(d_vocab=2049), CHARACTERS, SAID), "2,049 tokens are more than"),
    (lambda: page(gpt(pre_norm=False), CHARACTERS, SAID), "post-norm"),
    (lambda: page(gpt(positions="t5"), CHARACTERS, SAID), "T5"),
    (lambda: page(quantized(gpt()), CHARACTERS, SAID), "not those of a plain GPT"),
    (lambda: page(gpt(d_vocab=9), CHARACTERS, SAID), "has 9 tokens, its tokenizer 15"),
    (lambda: page(gpt(), CHARACTERS, "Zebra"), "'Z' is not one of the 15"),
    (lambda: page(gpt(), CHARACTERS, ""), "one character or more"),
]


@pytest.mark.parametrize("call, words", BAD, ids=[words for _, words in BAD])
def test_what_does_not_fit_is_refused_with_its_reason(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_weight_beyond_float16_is_refused():
    model = gpt()
    model.norm.gain.data[3] = 1e5
    with pytest.raises(ValueError, match="65,504"):
        page(model, CHARACTERS, SAID)


def test_a_path_that_can_t_be_written_keeps_what_was_there(tmp_path):
    kept = tmp_path / "kept.html"
    explore(gpt(), CHARACTERS, SAID, kept)
    before = kept.read_text("utf-8")
    with pytest.raises(ValueError):
        explore(gpt(positions="t5"), CHARACTERS, SAID, kept)
    with pytest.raises(OSError):
        explore(gpt(), CHARACTERS, SAID, kept / "below.html")
    assert kept.read_text("utf-8") == before and [*tmp_path.iterdir()] == [kept]


def saved(path: Path, **options) -> Path:
    """A checkpoint of a small model of Shakespeare's characters."""
    sizes = {"d_model": 32, "n_layers": 2} | options
    model = shaken(c.GPT(replace(c.RECIPES["fast"].config, **sizes)))
    c.save_checkpoint(path, model, c.muon(model), seeded(), step=1)
    return path


def test_the_command_writes_a_checkpoint_s_page(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    path, out = saved(tmp_path / "run"), tmp_path / "new" / "page.html"
    main(["--checkpoint", str(path), "--out", str(out), "--text", "To be"])
    assert data(out.read_text("utf-8"))["text"] == "To be"
    assert str(out) in capsys.readouterr().out
    model = load_model(path)
    assert data(page(model, c.CharTokenizer(c.tiny_shakespeare()), "To be")) == data(
        out.read_text("utf-8")
    )


def test_the_command_says_in_one_line_what_is_wrong(tmp_path):
    good, out = saved(tmp_path / "good"), tmp_path / "page.html"
    other = saved(tmp_path / "other", d_vocab=50)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(good.read_bytes()[:-9])
    for options, words in (
        (f"--checkpoint {tmp_path / 'none'}", "No such file"),
        (f"--checkpoint {damaged}", "is damaged"),
        (f"--checkpoint {other}", "has 50 tokens, its tokenizer 65"),
        (f"--checkpoint {good} --text é", "'é' is not one of the 65"),
        (f"--checkpoint {good} --out {good}/below.html", "good"),
    ):
        with pytest.raises(SystemExit, match=f"^error: .*{words}[^\n]*$"):
            main(["--out", str(out), *options.split()])
        assert not out.exists()


def test_the_picture_is_of_the_last_block_and_of_what_follows():
    model, tokens = gpt(engine="fused"), CHARACTERS.encode(SAID)[:9]
    weights, chances = last_pattern(model, tokens)
    x, seen = torch.tensor([tokens]), []
    attention = model.blocks[-1].attention
    attention.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    with torch.no_grad():
        logits = model(x)
        heads = [
            matrix(seen[0]).unflatten(-1, (2, 4)).transpose(1, 2)
            for matrix in (attention.to_queries, attention.to_keys)
        ]
        wanted = c.attention_weights(*heads, c.causal_mask(9))[0].mean(0)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(chances, logits[0, -1].softmax(-1))
    assert model.config.engine == attention.engine == "fused"


def test_a_notebook_shows_a_picture_with_words_and_a_light_link(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(
        plots, "display", lambda *what, **how: shown.append((what, how))
    )
    monkeypatch.chdir(tmp_path)
    made = explore(gpt(), CHARACTERS, SAID)
    assert OUT.exists() and DisplayFormatter().format(made) == ({}, {})
    (_, picture), ((link,), _) = shown
    assert "heat map" in picture["metadata"]["image/png"]["alt"]
    assert link["text/html"].count("build/explore.html") == 3
    assert len(link["text/html"]) < 500


def test_the_first_text_is_one_of_shakespeare_s_characters_and_fits():
    tokenizer = c.CharTokenizer(c.tiny_shakespeare())
    assert len(tokenizer.encode(TEXT)) <= c.RECIPES["fast"].config.context_length

"""The page of a model: what is in the file, and what is refused. Chromium has the rest.

`tests/tools/explore.py` holds the page's numbers against PyTorch's.
"""

import base64
import io
import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
import torch
from common import rounding, seeded, shaken
from fuzzing.interruptions import count_python_steps, interrupt_twice
from IPython.core.formatters import DisplayFormatter
from limits import POSIX, files_of_at_most
from safetensors.torch import save_file, save_model

import companion as c
from companion import explore
from companion.commands import explore as command_line
from companion.commands.explore import main
from companion.course import notebook, plots, runs, stored_models
from companion.course.explore import OUT, last_pattern
from companion.course.explore.building import TEXT, page
from companion.course.explore.fits import check_fits, plain_copy
from companion.course.stored_models import load_model
from companion.files import check_writable, write_atomically
from companion.training.checkpoints import read_checkpoint

FOLDER = Path(c.__file__).parent / "course" / "explore"
CHARACTERS = c.CharTokenizer("\n abcdefghij<>&")
CONFIG = c.GPTConfig(
    d_vocab=CHARACTERS.d_vocab, context_length=16, d_model=8, n_heads=2, n_layers=2
)
SAID = "a bad face < a cab & a jade"


def gpt(**options) -> c.GPT:
    return shaken(c.GPT(replace(CONFIG, **options), seeded()))


def data(html: str) -> dict:
    """What the page computes with."""
    return json.loads(re.search(r'id="model">(.*)</script>', html)[1])


@pytest.mark.parametrize("output", ["tie_embeddings", "not tied", "the tie was cut"])
def test_the_file_holds_every_weight_once_in_float16(output):
    model = gpt(tie_embeddings=output != "not tied", norm="rms")
    if output == "the tie was cut":
        model = untied(model)
    stored = data(page(model, CHARACTERS, SAID))
    raw = bytearray(base64.b64decode(stored["weights"]))
    numbers = torch.frombuffer(raw, dtype=torch.float16)
    parts = numbers.split([*stored["sizes"].values()])
    assert len(numbers) == sum(x.numel() for x in model.parameters())
    for name, part in zip(stored["sizes"], parts, strict=True):
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
    chapters = {path.stem for path in (FOLDER.parents[2] / "notebooks").glob("*")}
    links = re.findall(r'href="notebooks/(\w+)\.html"', linked)
    assert len(links) >= 9 and {*links} <= chapters


def test_the_page_of_the_reader_s_own_model_is_at_most_3_mb():
    tokenizer = c.CharTokenizer(c.tiny_shakespeare())
    html = page(c.GPT(c.RECIPES["fast"].config, seeded()), tokenizer)
    assert len(html.encode()) <= 3_000_000


def test_the_tour_has_seven_steps_and_each_stands_in_a_part_of_the_page():
    html = page(gpt(), CHARACTERS, SAID)
    steps = re.findall(r'^  \["(\w+)", "([^"]+)", \(\) =>', html, re.M)
    assert len({title for _, title in steps}) == len(steps) == 7
    sections = re.findall(r"<section>.*?</section>", html, re.S)
    for name, _ in steps:
        assert len([x for x in sections if f'id="{name}"' in x]) == 1, name


def test_no_line_of_the_page_s_source_is_too_wide_to_read():
    files = [
        path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js")
    ]
    lines = [line for path in files for line in path.read_text("utf-8").splitlines()]
    assert len(files) == 7 and max(map(len, lines)) <= 100


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
    models = [
        gpt(activation="gelu"),
        gpt(positions="rotary", norm="rms", qk_norm=True, tie_embeddings=False),
        gpt(
            positions="alibi",
            bias=False,
            scale_embeddings=True,
            n_kv_heads=1,
            feed_forward="gated",
            activation="silu",
        ),
        gpt(positions="sinusoidal", activation="squared_relu"),
        untied(gpt()),
        untied(gpt(tie_embeddings=False)),
    ]
    models = [model.half().float() for model in models]
    tokens = CHARACTERS.encode(SAID)[:16]
    pages = [data(page(model, CHARACTERS, SAID)) for model in models]
    rows = in_node(LOGITS, {"pages": pages, "tokens": tokens})
    for model, logits in zip(models, rows, strict=True):
        expected = model(torch.tensor([tokens]))[0]
        hidden = 4 * model.config.d_model
        close = rounding(hidden, expected)
        torch.testing.assert_close(torch.tensor(logits), expected, **close)


def test_the_page_cuts_a_text_as_the_package_does_however_long_a_word_is():
    tokenizer = c.BPETokenizer.train(c.tiny_shakespeare()[:20_000], 600)
    draw = random.Random(0)
    texts = ["".join(draw.choices("aeiou", k=n)) for n in range(40)]
    texts += ["".join(draw.choices("the \n'é😀1", k=30)) for _ in range(100)]
    texts += [c.tiny_shakespeare()[-3000:], "\ufeffBOM", "a" * 100_000]
    texts += ["".join(draw.choices("etaoinshrdlu", k=100_000))]
    merges = {"characters": None, "merges": [*tokenizer.ranks]}
    encoded = in_node(ENCODED, {"data": merges, "texts": texts})
    reference = tokenizer.to_tiktoken()
    assert encoded == [[reference.encode(text), True] for text in texts]
    assert encoded[:40] == [[tokenizer.encode(text), True] for text in texts[:40]]


def test_chapter_05_s_model_takes_at_most_three_megabytes():
    tokenizer = c.CharTokenizer("".join(map(chr, range(32, 97))))
    assert len(page(c.GPT(c.RECIPES["fast"].config), tokenizer, "A")) < 3e6


@pytest.mark.parametrize(
    "positions, norm, feed_forward",
    [
        ("learned", "layer", "plain"),
        ("sinusoidal", "rms", "gated"),
        ("rotary", "layer", "gated"),
        ("alibi", "rms", "plain"),
        ("none", "layer", "plain"),
    ],
)
def test_the_family_fits(positions, norm, feed_forward):
    model = gpt(
        positions=positions,
        norm=norm,
        feed_forward=feed_forward,
        n_kv_heads=1,
        bias=False,
        scale_embeddings=True,
        qk_norm=True,
    )
    check_fits(model, CHARACTERS)


BYTES = c.BPETokenizer([(97, 98), (256, 99)])


def test_byte_pairs_fit():
    stored = data(page(gpt(d_vocab=258), BYTES, "abc é"))
    assert stored["merges"] == [[97, 98], [256, 99]] and stored["characters"] is None


def quantized(model: c.GPT) -> c.GPT:
    model.blocks[0].attention.to_queries = torch.nn.Identity()
    return model


def other_activation(model: c.GPT) -> c.GPT:
    model.blocks[1].feed_forward.activation = torch.nn.functional.silu
    return model


def other_eps(model: c.GPT) -> c.GPT:
    model.blocks[0].attention_norm.eps = 0.5
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
    (lambda: page(other_activation(gpt()), CHARACTERS, SAID), "logits are off by"),
    (lambda: page(other_eps(gpt()), CHARACTERS, SAID), "logits are off by"),
    (lambda: page(gpt().to("meta"), CHARACTERS, SAID), "device meta"),
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


def test_two_who_write_the_same_page_do_not_meet(tmp_path):
    path = tmp_path / "page.html"
    pages = [letter * 100_000 for letter in (b"a", b"b", b"c")]
    with ThreadPool(3) as pool:
        pool.starmap(write_atomically, [(path, data) for data in pages * 100])
    assert path.read_bytes() in pages and [*tmp_path.iterdir()] == [path]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    path, link = tmp_path / "new" / "page.html", tmp_path / "link.html"
    link.symlink_to(path)
    write_atomically(link, b"page")
    assert link.is_symlink() and path.read_bytes() == b"page"
    assert {*tmp_path.rglob("*")} == {path.parent, path, link}


@pytest.mark.parametrize(
    "use", [check_writable, lambda path: write_atomically(path, b"")]
)
def test_what_is_no_file_is_never_written(tmp_path, use):
    file = tmp_path / "file"
    file.write_text("kept")
    for path in (tmp_path, Path(os.devnull), file / "below", tmp_path / ("a" * 300)):
        with pytest.raises(OSError):
            use(path)
    assert [*tmp_path.iterdir()] == [file] and file.read_text() == "kept"
    assert Path(os.devnull).is_char_device()


def test_what_can_be_written_stays_as_it_was_when_it_is_tried(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    check_writable(file)
    check_writable(tmp_path / "other")
    assert [*tmp_path.iterdir()] == [file] and file.read_text() == "kept"


def test_a_file_is_whole_wherever_ctrl_c_falls_once_or_twice(tmp_path):
    path = tmp_path / "page.html"

    def write() -> None:
        write_atomically(path, b"new")

    n_steps = count_python_steps(write, ("files.py",))
    assert n_steps > 50
    for first in range(n_steps):
        for second in range(1, 12):
            path.write_bytes(b"old")
            interrupt_twice(write, ("files.py",), first, second)
            assert path.read_bytes() in (b"old", b"new")
            assert [*tmp_path.iterdir()] == [path], (first, second)


def test_a_checkpoint_whose_tie_was_cut_is_shown_with_both_matrices(tmp_path):
    model = untied(shaken(c.GPT(replace(c.RECIPES["fast"].config, n_layers=1))))
    model.config = replace(model.config, tie_embeddings=True)
    path = tmp_path / "cut"
    c.save_checkpoint(path, model, c.muon(model), seeded(), step=1)
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        torch.testing.assert_close(load_model(path)(tokens), model(tokens))


def test_a_model_that_is_read_or_shown_moves_nobody_s_random_numbers(tmp_path):
    path = saved(tmp_path / "run")
    model = load_model(path)
    weights = tmp_path / "my_gpt.safetensors"
    save_model(model, weights)
    untied = replace(model.config, tie_embeddings=False)
    for use in (
        lambda: load_model(path),
        lambda: stored_models.read_my_gpt(weights, untied),
        lambda: plain_copy(model, "fused"),
        lambda: page(model, CHARACTERS, SAID),
    ):
        torch.manual_seed(0)
        expected = torch.rand(3)
        torch.manual_seed(0)
        with suppress(ValueError):  # refused or not
            use()
        assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "name, words", [("model.norm.gain", "norm.gain"), ("rotary_base", "it has no")]
)
def test_a_checkpoint_of_no_gpt_is_named_with_what_differs(
    tmp_path, monkeypatch, name, words
):
    path = saved(tmp_path / "run")
    tensors, about = read_checkpoint(path)
    tensors.pop(name, None)
    about["model"].pop(name, None)
    monkeypatch.setattr(stored_models, "read_checkpoint", lambda path: (tensors, about))
    with pytest.raises(ValueError, match=f"another model than a GPT.*{words}"):
        load_model(path)


def saved(path: Path, **options) -> Path:
    """A checkpoint of a small model of Shakespeare's characters."""
    config = replace(c.RECIPES["fast"].config, d_model=32, n_layers=2)
    model = shaken(c.GPT(replace(config, **options)))
    c.save_checkpoint(path, model, c.muon(model), seeded(), step=1)
    return path


def test_the_command_writes_a_checkpoint_s_page(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    path = saved(tmp_path / "run")
    out = tmp_path / "new" / "page.html"
    main(["--checkpoint", str(path), "--out", str(out), "--text", "To be"])
    assert data(out.read_text("utf-8"))["text"] == "To be"
    assert str(out) in capsys.readouterr().out
    model = load_model(path)
    assert data(page(model, c.CharTokenizer(c.tiny_shakespeare()), "To be")) == data(
        out.read_text("utf-8")
    )


def test_the_command_says_in_one_line_what_is_wrong(tmp_path):
    out = tmp_path / "page.html"
    good = saved(tmp_path / "good")
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


@pytest.fixture
def command(tmp_path, monkeypatch):
    """`python -m companion` in this process, with other streams; how it ended."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words, stdout=None, stderr=None) -> int:
        monkeypatch.setattr(sys, "argv", ["companion", *map(str, words)])
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        try:
            runpy.run_module("companion", run_name="__main__")
        except SystemExit as ended:
            return ended.code
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        return 0

    yield run
    signal.signal(signal.SIGTERM, handler)


def closed_pipe() -> io.TextIOWrapper:
    """A stream whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "ascii")


def test_the_command_ends_well_whoever_reads_and_in_whatever_letters(tmp_path, command):
    path = saved(tmp_path / "run")
    out = tmp_path / "f\u00fcr \u65e5.html"
    stream = ascii_stream()
    options = ("explore", "--checkpoint", path, "--out", out)
    assert command(*options, stdout=stream, stderr=ascii_stream()) == 0
    assert rb"f\xfcr \u65e5.html: " in stream.buffer.getvalue() and out.exists()
    assert command(*options) == 0  # both streams are closed
    assert command(*options, stdout=closed_pipe(), stderr=ascii_stream()) == 141


@pytest.mark.parametrize(
    "number, ended, said",
    [(signal.SIGINT, 130, b"stopped\n"), (signal.SIGTERM, 143, b"")],
)
def test_a_stopped_command_says_so_and_leaves_what_was_there(
    tmp_path, command, monkeypatch, number, ended, said
):
    path = saved(tmp_path / "run")
    out = tmp_path / "page.html"
    out.write_text("old")
    monkeypatch.setattr(os, "replace", lambda *_: signal.raise_signal(number))
    streams = ascii_stream(), ascii_stream()
    options = ("explore", "--checkpoint", path, "--out", out)
    assert command(*options, stdout=streams[0], stderr=streams[1]) == ended
    for stream, words in zip(streams, (b"", said), strict=True):
        stream.flush()
        assert stream.buffer.getvalue() == words
    assert out.read_text() == "old" and {*tmp_path.iterdir()} == {path, out}


def test_where_a_training_was_stopped_a_checkpoint_is_named_only_if_it_is_there(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(command_line, "CACHE", tmp_path)
    checkpoint = tmp_path / "fast.safetensors"

    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "trained", stopped)
    said = "stopped\n"
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["--out", str(tmp_path / "page.html")])
        assert ended.value.code == 130 and capsys.readouterr().err == said
        checkpoint.touch()
        said = f"stopped\nrun it again to go on from {checkpoint}\n"


@POSIX
def test_a_full_disk_keeps_the_old_page_and_says_so(tmp_path):
    path, out = saved(tmp_path / "run"), tmp_path / "page.html"
    out.write_text("old")
    words = r"page.html can't be written \(File too large\): make room, .* there stays"
    with files_of_at_most(1000), pytest.raises(SystemExit, match=words):
        main(["--checkpoint", str(path), "--out", str(out)])
    assert out.read_text() == "old" and {*tmp_path.iterdir()} == {path, out}


@pytest.mark.parametrize(
    "options",
    [
        ["--out", "."],
        ["--out", "/"],
        ["--out", ""],
        ["--checkpoint", "."],
        ["--checkpoint", ""],
        ["--text", "\u00e9"],
        ["--text", ""],
    ],
)
def test_what_can_t_be_had_is_said_before_a_model_is_trained(options, monkeypatch):
    monkeypatch.setattr(command_line, "trained", lambda: pytest.fail("trains"))
    with pytest.raises(SystemExit, match="^error: "):
        main(options)


def test_the_command_shows_the_reader_s_own_model(tmp_path, monkeypatch):
    """The same function decides as in a chapter."""
    assert command_line.trained is notebook.trained
    model = c.GPT(c.RECIPES["fast"].config, seeded(7))
    monkeypatch.setattr(runs, "MY_GPT", tmp_path / "my_gpt.safetensors")
    monkeypatch.delenv("DISPLAY", raising=False)
    save_file(model.state_dict(), runs.MY_GPT)
    main(["--out", str(tmp_path / "page.html")])
    shown = data((tmp_path / "page.html").read_text("utf-8"))
    tokenizer = c.CharTokenizer(c.tiny_shakespeare())
    assert shown["adler32"] == data(page(model.eval(), tokenizer))["adler32"]


def test_a_picture_shows_every_letter_of_a_token_and_all_bars(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "display", lambda *shown, **how: drawn.append(shown[0]))
    monkeypatch.setattr(plots.plt, "close", lambda *figure: None)
    tokenizer = c.BPETokenizer([(36, 36), (256, 36), (92, 36)])
    model = gpt(d_vocab=tokenizer.d_vocab)
    # The likeliest are bytes that are no letter, which all look the same.
    model.embedding.weight.data[200:208] *= 20
    explore(model, tokenizer, "$$ $$$ \\$ a", tmp_path / "a.html")._ipython_display_()
    figure = drawn[0]
    figure.canvas.draw()
    left, right = figure.axes[:2]
    assert [x.get_text() for x in left.get_xticklabels()][0] == "$$"
    assert len({bar.get_y() for bar in right.patches}) == 8
    assert not any(label.get_parse_math() for label in right.get_yticklabels())


def test_a_link_in_a_notebook_leads_to_any_path(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "display", lambda *shown, **how: drawn.append(shown[0]))
    monkeypatch.chdir(tmp_path)
    explore(gpt(), CHARACTERS, SAID, "a#b?<c>.html")._ipython_display_()
    html = drawn[1]["text/html"]
    assert html.count('"a%23b%3F%3Cc%3E.html"') == 2 and ">a#b?&lt;c&gt;.html<" in html


def test_the_picture_is_of_the_last_block_and_of_what_follows():
    model = gpt(engine="fused")
    tokens = CHARACTERS.encode(SAID)[:9]
    weights, chances = last_pattern(model, tokens)
    x = torch.tensor([tokens])
    seen = []
    attention = model.blocks[-1].attention
    attention.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    with torch.no_grad():
        logits = model(x)
        heads = [
            matrix(seen[0]).unflatten(-1, (2, 4)).transpose(1, 2)
            for matrix in (attention.to_queries, attention.to_keys)
        ]
        expected = c.attention_weights(*heads, c.causal_mask(9))[0].mean(0)
    torch.testing.assert_close(weights, expected)
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

"""The reader's machine: kept in any order, twice, by two at a time, and never lost."""

import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from course_gpt import course_text
from IPython.core.interactiveshell import InteractiveShell

from companion.course import agreement, kept, kept_file

COURSE = kept_file.read_sections(kept_file.COURSE)
CHAPTERS = [n for n in COURSE if n != kept_file.TOP]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_GPT_FILE", str(tmp_path / "my_gpt.py"))
    monkeypatch.delitem(sys.modules, "my_gpt", raising=False)
    yield tmp_path / "my_gpt.py"
    sys.modules.pop("my_gpt", None)


def cells(chapter: int) -> list[str]:
    """What a chapter keeps, a statement a cell."""
    return [text for _, text in kept_file.statements(COURSE[chapter])]


def visit(chapter: int, path) -> kept.ReadersMachine:
    """Runs a chapter's kept cells, as a reader would."""
    machine = kept.ReadersMachine(chapter, path)
    for cell in cells(chapter):
        machine.keep(cell)
    return machine


def files(path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_the_course_s_own_copy_is_what_the_chapters_keep():
    """Else `make machine` renews it."""
    assert kept_file.COURSE.read_text("utf-8") == course_text()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_after_each_chapter_it_gives_the_package_s_logits(chapter):
    my_gpt = kept.run(kept_file.sections_before(chapter + 1, COURSE))
    agreement.check_agreement(my_gpt, chapter)

    class Wrong(my_gpt.MyAttention):  # and one that is wrong is found
        def attend(self, queries, *others):
            return super().attend(1.01 * queries, *others)

    my_gpt.MyAttention = Wrong
    with pytest.raises(ValueError, match="its logits differ"):
        agreement.check_agreement(my_gpt, chapter)


WITH_A_CACHE = [chapter for chapter in CHAPTERS if chapter >= 7]
IN_ROWS = [chapter for chapter in CHAPTERS if chapter >= 10]


@pytest.mark.parametrize("chapter", WITH_A_CACHE)
def test_a_cache_that_is_wrong_is_found_from_the_chapter_on_that_brings_it(chapter):
    my_gpt = kept.run(kept_file.sections_before(chapter + 1, COURSE))

    class Wrong(my_gpt.MyGPT):
        def forward(self, tokens, cache=None, **others):
            factor = 1 if cache is None else 1.01
            return factor * super().forward(tokens, cache, **others)

    my_gpt.MyGPT = Wrong
    with pytest.raises(ValueError, match="its logits with a cache differ"):
        agreement.check_agreement(my_gpt, chapter)


@pytest.mark.parametrize("chapter", IN_ROWS)
def test_rows_of_two_lengths_are_compared_from_chapter_10_on(chapter):
    my_gpt = kept.run(kept_file.sections_before(chapter + 1, COURSE))

    class Wrong(my_gpt.MyGPT):
        def forward(self, tokens, cache=None, last=None):
            factor = 1 if last is None else 1.01
            return factor * super().forward(tokens, cache, last)

    my_gpt.MyGPT = Wrong
    with pytest.raises(ValueError, match="in rows of two lengths differ"):
        agreement.check_agreement(my_gpt, chapter)


ORDERS = [CHAPTERS, CHAPTERS[::-1], CHAPTERS * 2, [*CHAPTERS, 4], [CHAPTERS[-1], 4]]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_in_any_order_and_again_the_file_is_the_course_s(order, path, capsys):
    for chapter in order:
        visit(chapter, path)
    if {*order} == {*CHAPTERS}:
        assert path.read_text("utf-8") == kept_file.COURSE.read_text("utf-8")
    assert files(path) == ["my_gpt.py"]
    assert capsys.readouterr().out == ""


def test_it_says_whose_the_machine_is(path):
    assert kept.ReadersMachine(4, path).notice == ""
    assert "no my_gpt.py yet" in kept.ReadersMachine(5, path).notice
    visit(4, path)
    assert kept.ReadersMachine(5, path).notice == "my_gpt.py: the machine is yours"
    assert "has no chapter 05" in kept.ReadersMachine(6, path).notice


def test_what_the_course_lends_doesn_t_become_the_reader_s(path):
    visit(9, path)
    assert [*kept_file.read_sections(path)] == [kept_file.TOP, 9]
    notice = kept.ReadersMachine(10, path).notice
    assert notice.startswith("my_gpt.py has no chapter 04, 05, 07: the course's stands")
    for chapter in (4, 5, 7):  # word for word the course's, and yet the reader's
        visit(chapter, path)
    assert kept.ReadersMachine(10, path).notice == "my_gpt.py: the machine is yours"


def test_two_processes_at_once_lose_nothing(path):
    """Each kernel keeps its chapter's cells, statement by statement."""
    program = textwrap.dedent(
        """
        import sys
        from companion.course import kept, kept_file
        chapter = int(sys.argv[1])
        machine = kept.ReadersMachine(chapter, kept.my_path())
        section = kept_file.read_sections(kept_file.COURSE)[chapter]
        for _, text in kept_file.statements(section) * 3:
            machine.keep(text)
        """
    )

    def process(chapter):
        command = [sys.executable, "-c", program, str(chapter)]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ)

    with ThreadPoolExecutor() as pool:
        for done in pool.map(process, CHAPTERS[:2]):
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
    two = {n: COURSE[n] for n in (kept_file.TOP, *CHAPTERS[:2])}
    assert kept_file.read_sections(path) == two and files(path) == ["my_gpt.py"]


def test_a_cell_that_fails_changes_nothing(path):
    machine = visit(4, path)
    before = path.read_text("utf-8"), sys.modules["my_gpt"]
    bad = {
        "def f(:": SyntaxError,
        "1 / 0": ZeroDivisionError,
        "def new_norm(config):\n    return elsewhere(config)": NameError,
    }
    for cell, error in bad.items():
        with pytest.raises(error):
            machine.keep(cell)
    with pytest.raises(NameError, match="elsewhere is used .* with %%keep, too"):
        machine.keep("class MyNorm:\n    def f(self):\n        return elsewhere")
    assert (path.read_text("utf-8"), sys.modules["my_gpt"]) == before
    machine.keep("def mine():\n    return 1")
    assert "elsewhere" not in path.read_text("utf-8")


def test_what_is_built_by_its_name_is_the_newest(path):
    machine = visit(4, path)
    names = machine.keep("class MyAttention(MyAttention):\n    is_newest = True")
    config = agreement.config_after(4)
    model = names["MyGPT"](config)
    assert all(block.attention.is_newest for block in model.blocks)
    assert names["MyGPT"].__module__ == "my_gpt" and "torch" not in names
    assert sys.modules["my_gpt"].MyGPT is names["MyGPT"]


def test_two_cells_of_a_chapter_may_extend_one_class(path):
    machine = visit(4, path)
    machine.keep("class MyAttention(MyAttention):\n    first = 1")
    machine.keep("class MyAttention(MyAttention):\n    second = 2")
    names = machine.keep("class MyAttention(MyAttention):\n    first = 3")
    assert (names["MyAttention"].first, names["MyAttention"].second) == (3, 2)
    assert path.read_text("utf-8").count("class MyAttention(MyAttention)") == 2


LOOPS = (
    "steps = []\nfor i in (1, 2):\n    steps += [i]\nfor i in (3, 4):\n    steps += [i]"
)


@pytest.mark.parametrize(
    "first, second, given",
    [
        ("squares = [i * i for i in (1, 2)]", "evens = [i for i in (0, 2)]", "squares"),
        ("width, depth = 64, 4", "width = 128", "depth"),
        ("n = 1\nn += 1", "m = 2", "n"),
        (LOOPS, "m = 2", "steps"),
        ("async def later():\n    x = 1", "x = 2", "later"),
        ("text = 'x\fy'", "m = 2", "text"),
    ],
)
def test_nothing_that_a_cell_says_is_lost_by_another(first, second, given, path):
    machine = visit(4, path)
    alone = {}
    exec(first, alone)
    machine.keep(first)
    for cell in (second, second):
        names = machine.keep(cell)
        assert callable(names[given]) or names[given] == alone[given]


def test_what_stands_behind_a_semicolon_is_one_with_what_stands_before_it():
    section = "n = 1; m = 2\nlater = 3"
    found = [names for names, _ in kept_file.statements(section)]
    assert found == [{"n", "m"}, {"later"}]
    redefined = kept_file.merged(section, "later = 4")
    assert redefined == "n = 1; m = 2\n\n\nlater = 4"


EDIT = "def attend(self, queries, keys, values, now):"


def test_a_reader_s_own_edit_is_used_and_kept(path, capsys):
    visit(4, path)
    edited = path.read_text("utf-8").replace(EDIT, f"{EDIT}\n        # mine")
    edited = edited.replace("import torch\n", "import math\nimport torch\n")
    edited += "\n\ndef of_my_own(x):\n    return math.exp(x)\n\n\n# a last word\n"
    path.write_text(edited, "utf-8")

    machine = kept.ReadersMachine(5, path)
    assert machine.notice.endswith("yours")
    for cell in cells(5):
        machine.keep(cell)
    assert path.read_text("utf-8").startswith(edited)
    assert sys.modules["my_gpt"].of_my_own(0) == 1

    # The chapter's own cell, run again, says something else: the edit is copied first.
    visit(4, path)
    assert "# mine" not in path.read_text("utf-8")
    assert "of_my_own" in path.read_text("utf-8")
    assert "# mine" in path.with_name("my_gpt.1.py").read_text("utf-8")
    assert files(path) == ["my_gpt.1.py", "my_gpt.py"]
    assert capsys.readouterr().out.count("what it said is in my_gpt.1.py") == 1


def test_a_cell_that_is_changed_and_run_again_makes_no_copies(path, capsys):
    machine = visit(4, path)
    for i in range(3):
        machine.keep(f"def mine():\n    return {i}")
    assert sys.modules["my_gpt"].mine() == 2
    assert files(path) == ["my_gpt.py"] and capsys.readouterr().out == ""


BROKEN = {
    "result = self.attend": ("result = 2 * self.attend", "its logits differ"),
    "def attend": ("def attend(", "SyntaxError"),
    "import torch\n": ("import torch\nimport no_such\n", "ModuleNotFoundError"),
    f"{kept_file.HEADING}04": (f"{kept_file.HEADING}four", "four has no number"),
    "class MyGPT": ("class HerGPT", "MyGPT"),
    "class MyBlock": (
        f"{kept_file.HEADING}04\n\n\nclass MyBlock",
        "stands there twice",
    ),
    "from torch import nn\n": ("from torch import nn\nexit(1)\n", "SystemExit"),
    "self.to_keys(x)": ("self.to_keyes(x)", "AttributeError"),
}


@pytest.mark.parametrize("right", BROKEN)
def test_a_broken_file_is_named_left_alone_and_stood_in_for(right, path, capsys):
    visit(4, path)
    wrong, reason = BROKEN[right]
    broken = path.read_text("utf-8").replace(right, wrong, 1)
    path.write_text(broken, "utf-8")

    machine = kept.ReadersMachine(5, path)
    assert reason in machine.notice and "course's machine" in machine.notice
    assert path.read_text("utf-8") == broken
    for cell in cells(5):
        machine.keep(cell)
    agreement.check_agreement(sys.modules["my_gpt"], 5)
    visit(4, path)  # which mends it, and what it was isn't lost
    told = [file.read_text("utf-8") for file in path.parent.iterdir()]
    assert any(wrong in text for text in told)
    capsys.readouterr()


@pytest.mark.parametrize("n_kept", [1, 2, 3])
def test_of_an_unfinished_chapter_it_says_so_in_a_line(n_kept, path):
    for chapter in (4, 5):
        visit(chapter, path)
    machine = kept.ReadersMachine(7, path)
    for cell in cells(7)[:n_kept]:
        machine.keep(cell)
    notice = kept.ReadersMachine(9, path).notice
    assert "Error: " in notice and "(is a cell of chapter 07 not kept?)" in notice


def test_an_error_of_many_lines_is_told_by_its_first(path):
    """PyTorch names each weight whose shape is another."""
    visit(4, path)
    machine = kept.ReadersMachine(5, path)
    machine.keep("class MyGPT(MyGPT):\n    pass")
    notice = kept.ReadersMachine(7, path).notice
    assert "loading state_dict for MyGPT (is a cell of chapter 05" in notice
    assert "\n" not in notice


def test_chapter_00_is_one_like_any_other(path):
    machine = kept.ReadersMachine(0, path)
    assert machine.notice == ""
    assert machine.keep("mine = 1")["mine"] == 1
    assert kept_file.HEADING + "00" in path.read_text("utf-8")
    assert visit(4, path).notice == ""
    assert kept_file.read_sections(path)[0] == "mine = 1"


def test_bytes_that_are_no_text_are_copied(path, capsys):
    path.write_bytes(b"\xff\xfe\x00")
    assert "codec can't decode" in kept.ReadersMachine(5, path).notice
    visit(4, path)
    assert path.with_name("my_gpt.1.py").read_bytes() == b"\xff\xfe\x00"
    assert kept.ReadersMachine(5, path).notice.endswith("yours")


def test_where_it_cant_be_written_the_notebook_goes_on(tmp_path, capsys):
    (tmp_path / "file").touch()
    machine = visit(4, tmp_path / "file" / "my_gpt.py")
    assert "can't be written" in capsys.readouterr().out
    agreement.check_agreement(sys.modules["my_gpt"], 4)
    assert machine.section == COURSE[4]


def test_a_lock_that_somebody_has_left_is_waited_for(path, monkeypatch):
    path.with_name("my_gpt.py.lock").touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    visit(4, path)
    assert files(path) == ["my_gpt.py"]


def test_the_chapter_s_random_numbers_stay(path):
    visit(4, path)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    kept.ReadersMachine(5, path)
    assert torch.equal(torch.rand(3), expected)


def test_in_a_notebook_the_cell_magic_keeps(path, monkeypatch, capsys):
    shell = InteractiveShell()
    monkeypatch.setattr(kept, "get_ipython", lambda: shell)
    kept.begin(chapter=4)
    for cell in cells(4):
        shell.run_cell(f"%%keep\n{cell}").raise_error()
    config = "companion.GPTConfig(d_model=24, n_heads=4, n_layers=1, d_vocab=11)"
    shell.run_cell(f"import companion\nmodel = MyGPT({config})").raise_error()
    assert type(shell.user_ns["model"]).__module__ == "my_gpt"
    assert path.exists()

    kept.begin(chapter=5)
    shell.run_cell("from my_gpt import MyGPT").raise_error()
    assert capsys.readouterr().out == "my_gpt.py: the machine is yours\n"


def test_the_file_is_a_module_by_itself(path):
    """Somebody takes it along, without the course's own way to run it."""
    for chapter in CHAPTERS:
        visit(chapter, path)
    program = "import my_gpt, companion; my_gpt.MyGPT(companion.GPTConfig(d_vocab=9,"
    program += "d_model=8, n_heads=2, n_layers=1, n_kv_heads=2, d_hidden=8))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path])}
    subprocess.run(
        [sys.executable, "-c", program], cwd=path.parent, env=environment, check=True
    )


def test_a_function_gives_way_where_the_older_one_stands_within_an_if():
    older = "if True:\n    def width():\n        wide = 2\n        return wide"
    newer = "def width():\n    return 3"
    assert kept_file.merged(older, newer) == newer
    assert kept_file.merged(newer, older) == older

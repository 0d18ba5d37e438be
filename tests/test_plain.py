"""The package reads in plain sight: rooms, annotations, calls, docstrings."""

import ast
import inspect
import re
from graphlib import TopologicalSorter
from pathlib import Path

import plain
import pytest
from common import ROOT

import companion

PACKAGE = Path(companion.__file__).parent
NAME = PACKAGE.name
FILES = sorted(PACKAGE.rglob("*.py"))
# What maintainers run, and what makes the site and the grades.
TOOLS = sorted([*ROOT.glob("tests/tools/**/*.py"), *ROOT.glob("docs/**/*.py")])
# Each room may import from itself, from these, and from companion/ itself.
MAY_IMPORT = {
    "": set(),
    "text": set(),
    "model": set(),
    "training": {"model", "decoding"},  # what is rewarded must be written first
    "decoding": {"model"},
    "pretrained": {"text", "model", "training"},
    "course": {"text", "model", "training", "decoding", "pretrained"},
    "commands": {"text", "model", "training", "decoding", "pretrained", "course"},
}
# The facade and the command line stand above all rooms.
ABOVE_ALL = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}


def module_of(path: Path) -> str:
    """A file's module within the package: "model.attention", or "course.checks"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str) -> str:
    """The folder that a module lies in; "" is companion/ itself."""
    room = module.partition(".")[0]
    return room if room in MAY_IMPORT else ""


MODULES = {module_of(path) for path in FILES}


def imports(path: Path) -> set[str]:
    """The modules of the package that a file imports from, wherever it does so."""
    parts = path.relative_to(PACKAGE).parts[:-1]
    modules = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):  # `import companion` is the facade, ""
            names = (alias.name.split(".") for alias in node.names)
            modules.update(".".join(rest) for [top, *rest] in names if top == NAME)
        if not isinstance(node, ast.ImportFrom):
            continue
        base = node.module.split(".") if node.module else []
        if node.level:
            base = [*parts[: len(parts) - node.level + 1], *base]
        elif base[0] == NAME:
            del base[0]
        else:
            continue
        for alias in node.names:
            whole = ".".join([*base, alias.name])
            modules.add(whole if whole in MODULES else ".".join(base))
    return modules


def test_an_import_counts_in_whatever_form(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    path = tmp_path / "course" / "some.py"
    path.parent.mkdir()
    for line, module in {
        "from ..model.gpt import GPT": "model.gpt",
        "from ..model import gpt": "model.gpt",
        "from companion.model.gpt import GPT": "model.gpt",
        "from companion.model import gpt": "model.gpt",
        "from companion import model": "model",
        "import companion.model.gpt": "model.gpt",
        "import companion": "",
        "from companion import GPT": "",
    }.items():
        path.write_text(line, "utf-8")
        assert imports(path) == {module}, line
    path.write_text("import torch\nfrom torch import nn", "utf-8")
    assert imports(path) == set()


def test_each_room_imports_only_from_those_above_it():
    for path in FILES:
        if path in ABOVE_ALL:
            continue
        room = room_of(module_of(path))
        rooms = {room_of(module) for module in imports(path)}
        extra = rooms - MAY_IMPORT[room] - {room, ""}
        assert not extra, f"{module_of(path)} imports from {extra}"


def test_no_module_imports_itself_by_way_of_others():
    graph = {module_of(path): imports(path) for path in FILES if path not in ABOVE_ALL}
    order = [*TopologicalSorter(graph).static_order()]
    assert len(order) >= len(graph)


def test_no_module_of_the_package_is_covered_by_a_function():
    """`import companion.model.attention` is the module."""
    for module in MODULES - {""}:
        name = f"companion.{module}"
        thing = companion
        for part in name.split(".")[1:]:
            thing = getattr(thing, part, None)
            if thing is None:
                break  # not imported, so not covered
        assert thing is None or inspect.ismodule(thing), name


def test_every_public_parameter_is_annotated():
    bare = [
        f"{module_of(path)}: {name}"
        for path in FILES
        for _, name, annotated in plain.parameters(ast.parse(path.read_text("utf-8")))
        if not annotated
    ]
    assert bare == []


@pytest.mark.parametrize("count", [plain.splatted, plain.unlike, plain.grown])
def test_nothing_is_squeezed(count):
    """No dictionary is made to be splatted, no statement assigns unlike things."""
    assert len(TOOLS) > 40
    places = [
        f"{path.name}:{line}"
        for path in FILES + TOOLS
        for line in count(ast.parse(path.read_text("utf-8")))
    ]
    assert places == []


def test_a_tool_works_out_one_thing_in_a_statement():
    places = [
        f"{path.name}:{line}"
        for path in TOOLS
        for line in plain.paired(ast.parse(path.read_text("utf-8")))
    ]
    assert places == []


def public_names() -> list[tuple[str, object]]:
    """What chapters use: the functions and classes that the facade holds."""
    return [
        (name, thing)
        for name, thing in vars(companion).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
    ]


def test_every_public_function_names_its_paper_or_its_chapter():
    source = re.compile(r"\b(19|20)\d\d\b|[Cc]hapters? \d\d")
    missing = [
        name
        for name, thing in public_names()
        if not source.search(inspect.getdoc(thing) or "")
    ]
    assert missing == []


def test_the_counts_catch_what_they_are_for():
    squeezed = ast.parse(
        "def f(x, n: int):\n"
        "    a, b = x[0], n + 1\n"
        "    how = {'dim': -1}\n"
        "    how |= {'keepdim': True}\n"
        "    return x.sum(**how) if a else b\n"
    )
    assert plain.unlike(squeezed) == [2]
    assert plain.grown(squeezed) == [4]
    assert plain.splatted(squeezed) == [5]
    assert plain.ternaries(squeezed) == [5]
    assert plain.parameters(squeezed) == [(1, "f(x)", False), (1, "f(n)", True)]
    handed_on = ast.parse("def f(x, **options):\n    return g(x, **options)\n")
    assert plain.splatted(handed_on) == []
    pair = ast.parse("keys, values = split(x), split(y)\n")
    assert plain.unlike(pair) == []
    assert plain.paired(pair) == [1]
    assert plain.paired(ast.parse("left, right = right, left\n")) == []

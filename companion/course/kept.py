"""The reader's machine: one file that the chapters write, import and change.

`my_gpt.py` lies beside the notebooks and is the reader's own. A cell that begins with
`%%keep` stands in it, under its chapter's heading. All these cells run as one module,
in the order of the chapters. So a class may extend the one of the same name from an
earlier chapter, and whatever builds it builds the newest.
"""

import ast
import builtins
import dis
import itertools
import linecache
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, ModuleType

import torch
from IPython import get_ipython
from torch import Tensor

from ..files import write_atomically
from ..model.gpt import GPT, GPTConfig
from ..model.serving_caches import RaggedCache

HEAD = '''"""My GPT: begun in chapter 04, changed in 05, 07, 09, 10 and 12."""

import companion
import torch
from einops import rearrange
from torch import nn
'''
HEADING = "# ======== chapter "  # and the number
COURSE = Path(__file__).with_name("my_gpt.txt")  # what the chapters' own cells say
TOP = 0  # where, among the chapters, what stands above all headings is kept
Sections = dict[int, str]  # by chapter, or at TOP
numbers = itertools.count(1)


def begin(chapter: int) -> None:
    """Puts the machine as it is before a chapter into the module `my_gpt`.

    Says in a line whose it is. From then on a cell that begins with `%%keep` runs in
    the machine, is written into the reader's file, and gives the notebook its names.
    """
    machine = Machine(chapter, my_path())
    if machine.said:
        print(machine.said)
    shell = get_ipython()
    if shell is None:  # plain Python has no cells
        return

    def keep(line: str, cell: str) -> None:
        """Runs the cell in my_gpt, keeps it in my_gpt.py, and hands over its names."""
        shell.push(machine.keep(cell))

    shell.register_magic_function(keep, "cell")


class Machine:
    """What a chapter begins with, and what its `%%keep` cells change.

    It is the reader's, from the file at `path`; the course's stands in for chapters
    that the file doesn't have, and for all of it where the file fails the comparison
    with the package. `said` tells which.
    """

    def __init__(self, chapter: int, path: Path):
        self.chapter = chapter
        self.path = path
        self.section = ""  # what was kept since the chapter began
        course = earlier(chapter, read_sections(COURSE))
        try:
            mine = earlier(chapter, read_sections(path))
            self.sections = course | mine
            module = run(self.sections)
            check(module, max(self.sections))
            self.said = whose(path, [n for n in course if n not in mine], len(course))
        except (Exception, SystemExit) as error:  # a reader's file may raise anything
            self.sections = course
            module = run(course)
            reason = str(error)
            if not isinstance(error, ValueError):
                reason = f"{type(error).__name__}: {error}"
            self.said = f"{path.name}: {reason}. It stays as it is; this chapter goes"
            self.said += " on with the course's machine"
        sys.modules["my_gpt"] = module

    def keep(self, cell: str) -> dict[str, object]:
        """Runs a cell in the machine and writes it into the file.

        Returns what the machine defines, by name. A cell that fails changes nothing. If
        the file can't be written, it says so, and the machine is this notebook's alone.
        """
        before = self.section
        section = merged(before, cell)
        module = run(self.sections | {self.chapter: section})
        self.section = section
        sys.modules["my_gpt"] = module
        try:
            with alone(self.path):
                self.write(cell, before)
        except OSError as error:
            print(f"{self.path.name} can't be written ({error}): kept here alone")
        return {
            name: thing
            for name, thing in vars(module).items()
            if not name.startswith("__") and not isinstance(thing, ModuleType)
        }

    def write(self, cell: str, before: str) -> None:
        """Puts a cell into the file.

        The file is copied where it can't be read, and where other text than `before`,
        the chapter's own until now, gives way.
        """
        is_read = True
        try:
            written = read_sections(self.path)
        except ValueError:  # it's no text, or a heading has no number
            written = {}
            is_read = False
        section, lost = self.put_into(written.get(self.chapter, ""), cell, before)
        if lost or not is_read:
            copy = unused(self.path)
            shutil.copyfile(self.path, copy)
            print(f"{self.path.name} has changed here; what it said is in {copy.name}")
        text = as_text(self.sections | written | {self.chapter: section})
        write_atomically(self.path, text.encode())

    def put_into(self, old: str, cell: str, before: str) -> tuple[str, bool]:
        """Returns the file's `old` section with a cell in it, and whether text is lost.

        What `before` says isn't lost, nor what is still there.
        """
        try:
            section = merged(old, cell)
            known = [*statements(before), *statements(section)]
            texts = [text for _, text in known]
            return section, any(text not in texts for _, text in statements(old))
        except SyntaxError:  # a reader has left it half written
            return self.section, True


def my_path() -> Path:
    """Returns where the reader's file is, or would be: here, or as MY_GPT says."""
    return Path(os.environ.get("MY_GPT", "my_gpt.py")).absolute()


def read_sections(path: Path) -> Sections:
    """Returns each chapter's part of such a file; of none, the head alone.

    Raises ValueError for a file that is no text, and for a heading without a number or
    with one that came before.
    """
    if not path.exists():
        return {TOP: HEAD}
    head, *parts = path.read_text("utf-8").split(HEADING)
    sections = {TOP: head}
    for part in parts:
        number, _, body = part.partition("\n")
        if not number.strip().isdigit():
            raise ValueError(f"{HEADING}{number} has no number")
        if int(number) in sections:
            raise ValueError(f"{HEADING}{number} stands there twice")
        sections[int(number)] = body.strip("\n")
    return sections


def as_text(sections: Sections) -> str:
    """Returns the whole file, its chapters in order."""
    text = sections[TOP].rstrip("\n") + "\n"
    for chapter, body in sorted(sections.items())[1:]:
        text += f"\n\n{HEADING}{chapter:02}\n\n\n{body}\n"
    return text


def earlier(chapter: int, sections: Sections) -> Sections:
    """Returns the head and the sections of earlier chapters."""
    return {n: text for n, text in sections.items() if n < chapter}


def whose(path: Path, missing: list[int], n_chapters: int) -> str:
    """Says whose machine it is, if the file lacks some of the course's chapters."""
    if n_chapters == 1:  # nothing but the head
        return ""
    if not path.exists():
        return f"there is no {path.name} yet: the course's machine stands in for yours"
    if missing:
        chapters = ", ".join(f"{n:02}" for n in missing)
        return f"{path.name} has no chapter {chapters}: the course's stands in for it"
    return f"{path.name}: the machine is yours"


def run(sections: Sections) -> ModuleType:
    """Runs the chapters in order. Returns the module `my_gpt`, with all their names.

    Raises NameError for a name that a function uses and nothing defines, which Python
    would notice only when it is called.
    """
    text = as_text(sections)
    name = f"<my_gpt.py {next(numbers)}>"  # so that a traceback finds its own text
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    module = ModuleType("my_gpt")
    module.__file__ = name
    code = compile(text, name, "exec")
    exec(code, vars(module))

    for used in sorted(globals_used(code)):
        if not hasattr(module, used) and not hasattr(builtins, used):
            raise NameError(
                f"{used} is used in my_gpt.py and nowhere defined there: begin the cell"
                " that defines it with %%keep, too"
            )
    return module


def globals_used(code: CodeType) -> set[str]:
    """Returns the global names that a code and all within it look up."""
    names = {x.argval for x in dis.get_instructions(code) if x.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= globals_used(constant)
    return names


def merged(section: str, cell: str) -> str:
    """Puts a cell's statements into a section: each in the place of what it redefines.

    That is a statement all of whose names it defines; one that defines more stays.
    Raises SyntaxError where either is no Python.
    """
    old = statements(section)
    places: list[list[str]] = [[text] for _, text in old]  # what stands in their place
    redefined = set()
    added = []
    for new_names, new_text in statements(cell):
        same = [i for i, (names, _) in enumerate(old) if names and names <= new_names]
        if not new_names:
            same = [i for i, (_, text) in enumerate(old) if text == new_text]
        for i in same:
            if i not in redefined:
                places[i].clear()
        redefined.update(same)
        place = places[same[0]] if same else added
        place.append(new_text)
    return "\n\n\n".join(text for place in [*places, added] for text in place)


def statements(source: str) -> list[tuple[set[str], str]]:
    """Cuts a section into its statements. Returns the names each defines, and its text.

    Comments belong to the statement that follows them; those at the end define nothing.
    """
    lines = source.split("\n")  # as Python counts them
    found: list[tuple[set[str], str]] = []
    start = 0
    for node in ast.parse(source).body:
        if node.end_lineno == start:  # after a `;`: one with what stands before it
            found[-1][0].update(names_defined(node))
            continue
        text = "\n".join(lines[start : node.end_lineno]).strip("\n")
        found.append((names_defined(node), text))
        start = node.end_lineno
    rest = "\n".join(lines[start:]).strip("\n")
    if rest.strip():
        found.append((set(), rest))
    return found


def names_defined(node: ast.stmt) -> set[str]:
    """Returns the names that a statement gives something to.

    A class that extends the one of its name counts by its members: two cells of a
    chapter may each give it other ones.
    """
    if isinstance(node, ast.ClassDef):
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        if node.name not in bases:
            return {node.name}
        members = set().union(*map(names_defined, node.body))
        return {f"{node.name}: {', '.join(sorted(members))}"}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    loops = (x.target for x in ast.walk(node) if isinstance(x, ast.comprehension))
    within = {id(x) for target in loops for x in ast.walk(target)}  # a loop's own
    stored = (x for x in ast.walk(node) if isinstance(x, ast.Name))
    return {
        x.id for x in stored if isinstance(x.ctx, ast.Store) and id(x) not in within
    }


def unused(path: Path) -> Path:
    """Returns a name beside it that no file has: my_gpt.1.py, my_gpt.2.py, …"""
    copies = (path.with_suffix(f".{n}.py") for n in itertools.count(1))
    return next(copy for copy in copies if not copy.exists())


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within, no other kernel writes the file."""
    lock = path.with_name(f"{path.name}.lock")
    mine = secrets.token_hex(8)
    take(lock, mine)
    try:
        yield
    finally:
        if holder(lock) == mine:
            lock.unlink(missing_ok=True)


def take(lock: Path, mine: str) -> None:
    """Waits until nobody holds a lock, and takes it by the word `mine`.

    A lock that says the same for 5 s is that of a kernel that died, and is taken over.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    seen = None
    n_same = 0
    while True:
        try:
            with lock.open("x") as file:
                file.write(mine)
            return
        except FileExistsError:
            pass

        said = holder(lock)
        n_same = n_same + 1 if said == seen else 0
        seen = said
        if n_same == 100:
            lock.write_text(mine)
        time.sleep(0.05)
        if n_same == 100 and holder(lock) == mine:  # nobody else took it over
            return


def holder(lock: Path) -> str | None:
    """Returns the word by which a lock is held; None if it isn't."""
    try:
        return lock.read_text()
    except FileNotFoundError:
        return None


def config_after(chapter: int) -> GPTConfig:
    """Returns a small configuration with all that the machine can after a chapter."""
    config = GPTConfig(
        d_vocab=11,
        context_length=8,
        d_model=24,
        n_heads=4,
        n_layers=2,
        activation="gelu",
        tie_embeddings=False,
    )
    if chapter >= 5:
        config = replace(
            config,
            positions="rotary",
            norm="rms",
            activation="squared_relu",
            bias=False,
            qk_norm=True,
        )
    if chapter >= 9:
        config = replace(config, n_kv_heads=2)
    if chapter >= 12:
        config = replace(
            config,
            feed_forward="gated",
            activation="silu",
            d_hidden=30,
            qk_norm=False,
            rotary_base=1000,
            tie_embeddings=True,
        )
    return config


@torch.no_grad()
def check(machine: ModuleType, chapter: int) -> None:
    """Holds the machine after `chapter` against the package's, with the same weights.

    Raises ValueError where the logits differ, at once or in pieces with a cache.
    """
    if chapter < 4:  # there is none yet
        return
    generator = torch.Generator().manual_seed(0)
    config = config_after(chapter)
    with torch.random.fork_rng(devices=[]):  # the chapter's random numbers stay
        package = GPT(config, generator).eval()
        mine = machine.MyGPT(config).eval()
    for parameter in package.parameters():
        parameter.normal_(generator=generator)  # gains and biases, too
    mine.load_state_dict(package.state_dict())

    tokens = torch.randint(config.d_vocab, (2, 8), generator=generator)
    expected = package(tokens)
    agree(mine(tokens), expected, "its logits")
    if chapter >= 7:
        cache = machine.MyCache()
        pieces = [mine(piece, cache) for piece in tokens.split([3, 1, 4], dim=1)]
        agree(torch.cat(pieces, 1), expected, "its logits with a cache")
    if chapter >= 10:
        rows = RaggedCache(8, 2)
        mine(tokens[:, :5], rows)
        rows.truncate(torch.tensor([5, 2]))
        second = torch.stack([tokens[0, 5:], tokens[1, 2:5]])
        last = torch.stack([expected[0, 7], expected[1, 4]])
        agree(mine(second, rows, last=-1), last, "its logits in rows of two lengths")


def agree(logits: Tensor, expected: Tensor, what: str) -> None:
    """Raises ValueError unless logits (b t v) are the package's, but for rounding."""
    if logits.shape != expected.shape:
        raise ValueError(f"{what} are {tuple(logits.shape)}, not {(*expected.shape,)}")
    # Two orders of the same sums differ by some roundings of the largest logit.
    bound = 1e-4 * expected.abs().max()
    difference = (logits - expected).abs().max()
    if not difference <= bound:
        raise ValueError(f"{what} differ from the package's by up to {difference:.2g}")

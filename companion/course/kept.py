"""The reader's machine: one file that the chapters write, import and change.

`my_gpt.py` lies beside the notebooks and is the reader's own. A cell that begins with
`%%keep` stands in it, under its chapter's heading. All these cells run as one module,
in the order of the chapters. So a class may extend the one of the same name from an
earlier chapter, and whatever builds it builds the newest.
"""

import builtins
import dis
import itertools
import linecache
import os
import shutil
import sys
from pathlib import Path
from types import CodeType, ModuleType

from IPython import get_ipython

from ..files import locked, write_atomically
from .agreement import check_agreement
from .kept_file import (
    COURSE,
    HEAD,
    TOP,
    Sections,
    as_text,
    merged,
    read_sections,
    sections_before,
    statements,
    unfinished,
    unused,
)

run_numbers = itertools.count(1)


def begin(chapter: int) -> None:
    """Puts the machine as it is before a chapter into the module `my_gpt`.

    Says in a line whose it is. From then on a cell that begins with `%%keep` runs in
    the machine, is written into the reader's file, and gives the notebook its names.
    """
    machine = ReadersMachine(chapter, my_path())
    if machine.notice:
        print(machine.notice)
    shell = get_ipython()
    if shell is None:  # plain Python has no cells
        return

    def keep(line: str, cell: str) -> None:
        """Runs the cell in my_gpt, keeps it in my_gpt.py, and hands over its names."""
        shell.push(machine.keep(cell))

    shell.register_magic_function(keep, "cell")


class ReadersMachine:
    """What a chapter begins with, and what its `%%keep` cells change.

    It is the reader's, from the file at `path`; the course's stands in for chapters
    that the file doesn't have, and for all of it where the file fails the comparison
    with the package. `notice` tells which. What stands in isn't written into the file.
    """

    def __init__(self, chapter: int, path: Path):
        self.chapter = chapter
        self.path = path
        self.section = ""  # what was kept since the chapter began
        course = sections_before(chapter, read_sections(COURSE))
        readers: Sections = {}
        try:
            readers = sections_before(chapter, read_sections(path))
            self.sections = course | readers
            module = run(self.sections)
            check_agreement(module, max(self.sections))
            self.notice = say_whose(path, course, readers)
        except (Exception, SystemExit) as error:  # a reader's file may raise anything
            self.sections = course
            module = run(course)
            reason = say_why(error, unfinished(course, readers))
            self.notice = f"{path.name}: {reason}. It stays as it is; this chapter goes"
            self.notice += " on with the course's machine"
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
            with locked(self.path):
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
            written = {TOP: HEAD}
            is_read = False
        section, is_lost = self.put_into(written.get(self.chapter, ""), cell, before)
        if is_lost or not is_read:
            copy = unused(self.path)
            shutil.copyfile(self.path, copy)
            print(f"{self.path.name} has changed here; what it said is in {copy.name}")
        # Not the course's sections: what stands in the file counts as the reader's.
        text = as_text(written | {self.chapter: section})
        write_atomically(self.path, text.encode())

    def put_into(self, old: str, cell: str, before: str) -> tuple[str, bool]:
        """Returns the file's `old` section with a cell in it, and whether text is lost.

        What `before` says isn't lost, nor what is still there.
        """
        try:
            section = merged(old, cell)
            known = {x.text for x in [*statements(before), *statements(section)]}
            return section, any(x.text not in known for x in statements(old))
        except SyntaxError:  # a reader has left it half written
            return self.section, True


def my_path() -> Path:
    """Returns where the reader's file is, or would be: here, or as MY_GPT_FILE says."""
    return Path(os.environ.get("MY_GPT_FILE", "my_gpt.py")).absolute()


def say_whose(path: Path, course: Sections, readers: Sections) -> str:
    """Says whose the machine is, from the course's sections and those of the file."""
    if len(course) == 1:  # nothing but the head: no chapter has begun it
        return ""
    if not path.exists():
        return f"there is no {path.name} yet: the course's machine stands in for yours"
    missing = [f"{chapter:02}" for chapter in course if chapter not in readers]
    if missing:
        chapters = ", ".join(missing)
        return f"{path.name} has no chapter {chapters}: the course's stands in for it"
    return f"{path.name}: the machine is yours"


def say_why(error: BaseException, unfinished: list[int]) -> str:
    """Says in a line why a file isn't taken: its error, and the likely cause of it.

    `unfinished` are the chapters of which it has less than the course does.
    """
    reason = str(error)
    if not isinstance(error, ValueError):
        reason = f"{type(error).__name__}: {error}"
    reason = reason.partition("\n")[0].rstrip(": ")
    if not unfinished:
        return reason
    chapters = ", ".join(f"{chapter:02}" for chapter in unfinished)
    return f"{reason} (is a cell of chapter {chapters} not kept?)"


def run(sections: Sections) -> ModuleType:
    """Runs the chapters in order. Returns the module `my_gpt`, with all their names.

    Raises NameError for a name that a function uses and nothing defines, which Python
    would notice only when it is called.
    """
    text = as_text(sections)
    name = f"<my_gpt.py {next(run_numbers)}>"  # so that a traceback finds its own text
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

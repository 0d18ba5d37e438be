"""The reader's file: a section for each chapter, cut into statements, and merged.

A cell that is kept goes into its chapter's section. Each of its statements takes the
place of those whose names it defines, and what else stands there stays.
"""

import ast
import itertools
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HEAD = '''"""My GPT: begun in chapter 04, changed in 05, 07, 09, 10 and 12."""

import companion
import torch
from einops import rearrange
from torch import nn
'''
HEADING = "# ======== chapter "  # and the number
COURSE = Path(__file__).with_name("my_gpt.txt")  # what the chapters' own cells say
TOP = -1  # where, before chapter 00, what stands above all headings is kept
Sections = dict[int, str]  # by chapter, or at TOP


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


def sections_before(chapter: int, sections: Sections) -> Sections:
    """Returns the head and the sections of earlier chapters."""
    return {n: text for n, text in sections.items() if n < chapter}


class Statement(NamedTuple):
    """A statement of a section: what it defines, and its text with what stands above.

    Where it defines nothing, as a loop may, there are no names.
    """

    names: set[str]
    text: str


def merged(section: str, cell: str) -> str:
    """Puts a cell's statements into a section: each in the place of what it redefines.

    That is a statement all of whose names it defines; one that defines more stays.
    Raises SyntaxError where either is no Python.
    """
    old = statements(section)
    places = [[statement.text] for statement in old]  # what stands in their place
    redefined: set[int] = set()
    added: list[str] = []
    for new in statements(cell):
        same = [i for i, each in enumerate(old) if gives_way(each, new)]
        for i in same:
            if i not in redefined:
                places[i].clear()
        redefined.update(same)
        place = places[same[0]] if same else added
        place.append(new.text)
    return "\n\n\n".join(text for place in [*places, added] for text in place)


def gives_way(old: Statement, new: Statement) -> bool:
    """Whether a new statement takes an old one's place: it defines all that it did."""
    if not new.names:
        return old.text == new.text
    return bool(old.names) and old.names <= new.names


def statements(source: str) -> list[Statement]:
    """Cuts a section into its statements.

    Comments belong to the statement that follows them; those at the end define nothing.
    """
    lines = source.split("\n")  # as Python counts them
    found: list[Statement] = []
    start: int | None = 0
    for node in ast.parse(source).body:
        if node.end_lineno == start:  # after a `;`: one with what stands before it
            found[-1].names.update(names_defined(node))
            continue
        text = "\n".join(lines[start : node.end_lineno]).strip("\n")
        found.append(Statement(names_defined(node), text))
        start = node.end_lineno
    rest = "\n".join(lines[start:]).strip("\n")
    if rest.strip():
        found.append(Statement(set(), rest))
    return found


def unfinished(course: Sections, readers: Sections) -> list[int]:
    """Returns the reader's chapters that lack a name that the course's defines."""
    lacking = []
    for chapter in sorted(course.keys() & readers.keys() - {TOP}):
        with suppress(SyntaxError, ValueError):  # of no Python nothing is known
            if names_in(course[chapter]) - names_in(readers[chapter]):
                lacking.append(chapter)
    return lacking


def names_in(section: str) -> set[str]:
    """Returns all names that a section defines. Raises as `statements` does."""
    return set().union(*(statement.names for statement in statements(section)))


def names_defined(node: ast.AST) -> set[str]:
    """Returns the names that a statement, or a part of one, gives something to.

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
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    parts: list[ast.AST] = [*ast.iter_child_nodes(node)]  # of an `if`: what it holds
    if isinstance(node, ast.comprehension):
        parts.remove(node.target)  # its own
    return set().union(*map(names_defined, parts))


def unused(path: Path) -> Path:
    """Returns a name beside it that no file has: my_gpt.1.py, my_gpt.2.py, …"""
    copies = (path.with_suffix(f".{n}.py") for n in itertools.count(1))
    return next(copy for copy in copies if not copy.exists())

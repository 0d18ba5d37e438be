"""How squeezed the code reads, counted for each 1,000 lines.

Squeezed are: one assignment of unlike things, a dictionary made to be splatted or grown
by `|=`, a ternary, a parameter without annotation, a name that is a pronoun, and a
function without a blank line between its stages. Paths may be given; by default the
package is counted. test_plain.py holds the counts that must be 0.
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRONOUNS = {"how", "what", "kind", "made", "asked", "one", "found", "ours", "given"}
PRONOUNS |= {"theirs", "mine", "kept", "wanted", "where"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def tuples_assigned(tree: ast.AST) -> Iterator[ast.Assign]:
    """The statements that write out several values and name each."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        if isinstance(node.targets[0], ast.Tuple):
            yield node


def unlike(tree: ast.AST) -> list[int]:
    """Lines on which one statement assigns values of different kinds of expression."""
    lines = []
    for node in tuples_assigned(tree):
        kinds = {type(value) for value in node.value.elts}
        if len(kinds) > 1:
            lines.append(node.lineno)
    return lines


def paired(tree: ast.AST) -> list[int]:
    """Lines on which one statement works out several things, and names each."""
    lines = []
    for node in tuples_assigned(tree):
        is_known = [isinstance(x, ast.Name | ast.Constant) for x in node.value.elts]
        if not all(is_known):
            lines.append(node.lineno)
    return lines


def splatted(tree: ast.AST) -> list[int]:
    """Lines on which a dictionary that a name holds is splatted into a call.

    `**kwargs` that a function was itself given may be handed on.
    """
    lines = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.Module | ast.FunctionDef):
            continue
        handed = getattr(getattr(function, "args", None), "kwarg", None)
        for node in own_nodes(function):
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                is_name = isinstance(keyword.value, ast.Name)
                if keyword.arg is not None or not is_name:
                    continue
                if handed is None or keyword.value.id != handed.arg:
                    lines.append(node.lineno)
    return lines


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module or function that are in no function within it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from own_nodes(child)


def grown(tree: ast.AST) -> list[int]:
    """Lines on which a dictionary grows by `|= {...}`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.BitOr)
        and isinstance(node.value, ast.Dict)
    ]


def ternaries(tree: ast.AST) -> list[int]:
    """Lines with `a if condition else b`."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.IfExp)]


def parameters(tree: ast.AST) -> list[tuple[int, str, bool]]:
    """(line, name, whether it is annotated) of public functions' parameters."""
    rows = []
    for node in ast.walk(tree):
        if not isinstance(node, FUNCTIONS):
            continue
        if node.name.startswith("_") and node.name != "__init__":
            continue
        for argument in [
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
        ]:
            if argument.arg not in ("self", "cls"):
                name = f"{node.name}({argument.arg})"
                rows.append((argument.lineno, name, argument.annotation is not None))
    return rows


def names(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, name) wherever a variable or a parameter gets its name."""
    rows = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            rows.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            rows.append((node.lineno, node.arg))
    return rows


def lines_in_functions(tree: ast.AST, text: list[str]) -> tuple[int, int]:
    """How many lines the functions' bodies have, and how many of them are blank."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            first = 1 if ast.get_docstring(node) else 0
            if first < len(node.body):
                inside |= set(range(node.body[first].lineno, node.end_lineno + 1))
    return len(inside), sum(not text[line - 1].strip() for line in inside)


def count(paths: list[Path]) -> dict[str, float]:
    """The table's numbers for some files."""
    totals = dict.fromkeys(("unlike", "splatted", "grown", "ternaries"), 0)
    n_lines = n_parameters = n_bare = n_names = n_pronouns = n_inside = n_blank = 0
    for path in paths:
        source = path.read_text("utf-8")
        tree = ast.parse(source)
        text = source.splitlines()
        n_lines += len(text)
        for function in (unlike, splatted, grown, ternaries):
            totals[function.__name__] += len(function(tree))
        annotated = [known for _, _, known in parameters(tree)]
        n_parameters += len(annotated)
        n_bare += annotated.count(False)
        named = [name for _, name in names(tree)]
        n_names += len(named)
        n_pronouns += sum(name in PRONOUNS for name in named)
        inside, blank = lines_in_functions(tree, text)
        n_inside += inside
        n_blank += blank
    table = {"lines": n_lines}
    for name, n in totals.items():
        table[f"{name}, for 1,000 lines"] = 1000 * n / n_lines
    table["parameters without annotation, %"] = 100 * n_bare / max(1, n_parameters)
    table["names that are pronouns, %"] = 100 * n_pronouns / max(1, n_names)
    table["blank lines in functions, %"] = 100 * n_blank / max(1, n_inside)
    return table


def main() -> None:
    """Print the table, and with --where each place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "companion"])
    parser.add_argument("--where", action="store_true", help="list every place")
    options = parser.parse_args()
    files = []
    for path in options.paths:
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    for name, value in count(files).items():
        print(f"{value:8.1f}  {name}")
    if options.where:
        for path in files:
            tree = ast.parse(path.read_text("utf-8"))
            for function in (unlike, splatted, grown):
                for line in function(tree):
                    print(f"{path}:{line}: {function.__name__}")
            for line, name, annotated in parameters(tree):
                if not annotated:
                    print(f"{path}:{line}: {name} without annotation")


if __name__ == "__main__":
    main()

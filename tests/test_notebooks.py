"""Gates for the notebooks: what strict nbval can't see by itself."""

import ast
import importlib.util
import re

import nbformat
import pytest
from cells import PATHS, read, tags
from execute import failing, is_silenced
from nbformat.v4 import new_code_cell, new_notebook
from plain import grown, splatted, unlike

NOTEBOOKS = {path.stem: read(path) for path in PATHS}
IGNORED = {"nbval-ignore-output", "nbval-skip"}


def cells(notebook, kind: str) -> list:
    return [c for c in notebook.cells if c.cell_type == kind and c.source.strip()]


CODE = {stem: cells(notebook, "code") for stem, notebook in NOTEBOOKS.items()}
PROSE = {
    stem: "\n\n".join(cell.source for cell in cells(notebook, "markdown"))
    for stem, notebook in NOTEBOOKS.items()
}
ALL_CODE = [(stem, cell) for stem, found in CODE.items() for cell in found]


def without_magic(cell) -> str:
    """The code of a cell that is kept, or of an ordinary one; of others nothing."""
    source = cell.source.removeprefix("%%keep\n")
    return "pass" if source.startswith("%") else source


def folded(cell) -> bool:
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_each_is_valid_and_every_cell_ran_in_order():
    numbers = [int(stem[:2]) for stem in NOTEBOOKS]
    assert numbers == [*range(len(numbers))] and len(numbers) >= 13
    for stem, notebook in NOTEBOOKS.items():
        nbformat.validate(notebook)
        counts = [cell.execution_count for cell in CODE[stem]]
        assert counts == [*range(1, len(counts) + 1)], stem


def test_no_error_is_stored_and_no_time():
    """nbval passes a cell that is meant to raise even where nothing is raised."""
    for stem, cell in ALL_CODE:
        errors = [o for o in cell.outputs if o.output_type == "error"]
        assert bool(errors) == ("raises-exception" in tags(cell)), (stem, cell.source)
        assert "execution" not in cell.metadata, (stem, cell.source)


def test_nine_of_ten_printing_cells_are_compared():
    for stem, found in CODE.items():
        printing = [cell for cell in found if cell.outputs]
        ignored = [cell for cell in printing if IGNORED & tags(cell)]
        assert len(ignored) <= 0.1 * len(printing), stem
        assert not any("NBVAL_" in cell.source for cell in found), stem


def test_a_cell_whose_output_is_ignored_is_followed_by_an_assertion():
    """It comes within the next four code cells."""
    for stem, found in CODE.items():
        for i, cell in enumerate(found):
            if IGNORED & tags(cell):
                after = "".join(c.source for c in found[i + 1 : i + 5])
                assert "assert" in after or "checks." in after, (stem, cell.source)


SILENCED = "5;", "plt.plot([1]);  # no list", "if x:\n    y\nf(\n    1\n);\n"
SHOWN = "5", "x = 5;", "f(';')", "5  # ;", "plt.show()", "# 5;", "%time 5;"


def test_a_cell_that_ends_in_a_semicolon_is_named_unless_nbval_ignores_it():
    """nbval runs cells without a history, where IPython hides no value."""
    assert all(map(is_silenced, SILENCED)) and not any(map(is_silenced, SHOWN))
    tagged = new_code_cell("5;", metadata={"tags": ["nbval-ignore-output"]})
    found = failing(new_notebook(cells=[tagged, *map(new_code_cell, SILENCED)]))
    assert [line.split("] ")[1] for line in found] == ["5;", SILENCED[1], ");"]
    for stem, notebook in NOTEBOOKS.items():
        assert failing(notebook) == [], stem


def test_lines_are_short_enough_to_project():
    for stem, found in CODE.items():
        lines = [line for cell in found for line in cell.source.splitlines()]
        assert max(map(len, lines)) <= 88, stem


SQUEEZED = {
    unlike: ("free, plan = [0] * n_rows, []", "queries, keys = x[0], x[1]"),
    splatted: ("GPTConfig(**sizes)", "GPTConfig(d_model=64, n_heads=4)"),
    grown: ("networks |= {'NVLink': 450e9}", "networks['NVLink'] = 450e9"),
}


@pytest.mark.parametrize("find", SQUEEZED, ids=lambda find: find.__name__)
def test_no_cell_is_squeezed(find):
    """No dictionary is made to be splatted, no statement assigns unlike things."""
    bad, good = SQUEEZED[find]
    assert find(ast.parse(bad)) and not find(ast.parse(good))
    for stem, cell in ALL_CODE:
        assert not find(ast.parse(without_magic(cell))), (stem, cell.source)


def test_every_name_in_the_prose_exists():
    for stem, prose in PROSE.items():
        for dotted in re.findall(r"`(companion(?:\.\w+)+)", prose):
            parent, _, name = dotted.rpartition(".")
            if not hasattr(importlib.import_module(parent), name):
                assert importlib.util.find_spec(dotted), f"{stem}: {dotted}"


def test_exercises_are_three_cells_a_question_a_stub_and_a_folded_solution():
    """The stub is the reader's to overwrite; its check is called again on ours."""
    for stem, notebook in NOTEBOOKS.items():
        solutions = [i for i, c in enumerate(notebook.cells) if "solution" in tags(c)]
        # 17 ends in a change of one's own, which is none of these.
        assert len(solutions) >= (1 if stem.startswith("17") else 3), stem
        for i in solutions:
            question, stub, solution = notebook.cells[i - 2 : i + 1]
            (check,) = re.findall(r"^checks\.(\w+)\(solution\)$", solution.source, re.M)
            assert "def solution(" in solution.source, (stem, check)
            assert solution.source.splitlines()[-1] == f"checks.{check}(solution)"
            assert folded(solution) and not folded(stub), (stem, check)
            (name,) = re.findall(r"^def (my_\w+)\(", stub.source, re.M)
            body = f"    raise NotImplementedError\n\nchecks.{check}({name})"
            assert stub.source.endswith(body) and "import " not in stub.source
            assert question.cell_type == "markdown" and f"`{name}" in question.source
            assert stub.outputs[0].text == f"○ {check}: yours to write\n"


def test_every_figure_has_alternative_text():
    for stem, cell in ALL_CODE:
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                alt = output.metadata.get("image/png", {}).get("alt", "")
                assert 40 <= len(alt) <= 500, (stem, cell.source)


def test_a_cell_that_draws_is_folded_and_a_heat_map_has_its_scale():
    for stem, cell in ALL_CODE:
        if "plots.finish(" in cell.source:
            assert folded(cell) and "hide-input" in tags(cell), (stem, cell.source)
        if re.search(r"\.(imshow|matshow|pcolormesh)\(", cell.source):
            assert "colorbar(" in cell.source, (stem, cell.source)


def test_a_folded_cell_says_in_its_first_line_what_it_holds():
    """JupyterLab shows this line in the cell's place."""
    for stem, cell in ALL_CODE:
        assert not folded(cell) or cell.source.startswith("# "), (stem, cell.source)


def test_no_cell_asserts_a_time():
    """No clock is read but in a cell that draws or prints, with ignored output."""
    for stem, cell in ALL_CODE:
        if re.search(r"perf_counter|monotonic|time\.time|timeit", cell.source):
            assert "assert" not in cell.source, (stem, cell.source)


def test_nothing_comes_from_the_network():
    """No picture, script or data by address: only links to read."""
    for stem, found in CODE.items():
        html = "".join(str(o) for cell in found for o in cell.outputs)
        assert not re.search(r"""(src|href)=\\?['"]https?:""", html), stem
        images = r"!\[[^]]*\]\(http|<(img|script|iframe)"
        assert not re.search(images, PROSE[stem]), stem
        code = "\n".join(map(without_magic, found))
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", "")]
                assert not {"requests", "urllib", "urllib.request", "wget"} & {*names}


# Habits that a reader copies. Each function finds one in the code of a chapter.

FACTORIES = ["arange", "empty", "eye", "full", "linspace", "ones", "tensor", "zeros"]
FACTORIES += ["rand", "randint", "randn", "randperm", "causal_mask", "sinusoidal"]
MODELS = ["model", "twin", "game", "package_gpt", "trained_gpt", "small_gpt"]
PASSES = ["decode", "encode", "forward"]


def chapter(sources: list[str]) -> ast.Module:
    """The code of all cells; without a tuple at the end of a cell, which is shown."""
    body = []
    for source in sources:
        statements = ast.parse(source).body
        last = statements[-1]
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Tuple):
            statements.pop()
        body += statements
    return ast.Module(body, [])


def last_name(node: ast.AST) -> str:
    """The c of `a.b.c` and of the call `a.b.c()`."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def every(tree: ast.AST, kind) -> list:
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def calls(tree: ast.AST, names: list[str]) -> list[ast.Call]:
    return [call for call in every(tree, ast.Call) if last_name(call) in names]


def entered(tree: ast.AST) -> list:
    """What stands behind `with`."""
    return [item.context_expr for node in every(tree, ast.With) for item in node.items]


def gradients_off_for_good(tree: ast.AST) -> list:
    switches = calls(tree, ["set_grad_enabled", "__enter__"])
    return [call for call in switches if call not in entered(tree)]


def owner(call: ast.Call) -> str:
    """The b of `a.b.c()`."""
    return last_name(getattr(call.func, "value", None))


def writing_with_gradients(tree: ast.AST) -> list:
    """A loop that calls a model and keeps what it gives, outside of `no_grad`."""
    without = set()
    for node in every(tree, ast.With | ast.FunctionDef):
        around = getattr(node, "decorator_list", []) or entered(node)
        if any(last_name(each) in ("no_grad", "inference_mode") for each in around):
            without |= {*ast.walk(node)}

    found = []
    for loop in every(tree, ast.For | ast.While | ast.ListComp):
        passes = calls(loop, MODELS)
        passes += [x for x in calls(loop, PASSES) if owner(x) in MODELS]
        keeps = isinstance(loop, ast.ListComp) or calls(loop, ["append", "cat"])
        if keeps and not calls(loop, ["backward"]):
            found += [call for call in passes if call not in without]
    return found


def graphs_kept(tree: ast.AST) -> list:
    """What a forward or a hook keeps in an attribute, with all that led to it."""
    hooks = [call.args[0] for call in registered(tree) if call.args]
    names = {"forward", *map(last_name, hooks)}
    found = []
    for function in every(tree, ast.FunctionDef):
        for node in every(function, ast.Assign) if function.name in names else []:
            stored = [x for x in node.targets if isinstance(x, ast.Attribute)]
            # What the record of a pass carries goes when the pass is over.
            kept = any(last_name(target.value) != "now" for target in stored)
            # A cache is there to keep; a choice, and who is text, have no gradient.
            harmless = "detach", "item", "cache", "is_text", "argmax"
            if kept and last_name(node.value) not in harmless:
                found.append(node)
    return found


def tensors_without_a_device(tree: ast.AST) -> list:
    """Made in a method, where the others may lie elsewhere than on the CPU."""
    methods = [
        method
        for node in every(tree, ast.ClassDef)
        for method in every(node, ast.FunctionDef)
        if method.name != "__init__"
    ]
    found = []
    for method in methods:
        moved = [call.func.value for call in calls(method, ["to"])]
        for call in calls(method, FACTORIES):
            placed = "device" in [keyword.arg for keyword in call.keywords]
            if not placed and call not in moved:
                found.append(call)
    return found


def models_left_in_training(tree: ast.AST) -> list:
    """A function that trains a model and returns it in that mode."""
    found = []
    for function in every(tree, ast.FunctionDef):
        trains = calls(function, ["train", "my_train"])
        models = [call.args[0] for call in trains if call.args]
        if calls(function, ["backward"]):
            models += function.args.args[:1]
        names = [getattr(model, "arg", last_name(model)) for model in models]
        for node in every(function, ast.Return):
            if isinstance(node.value, ast.Name) and node.value.id in names:
                found.append(node)
    return found


def roots_without_epsilon(tree: ast.AST) -> list:
    """A division by the root of a mean: of zeros it makes NaN."""
    found = []
    for node in every(tree, ast.BinOp):
        root = node.right
        if isinstance(node.op, ast.Div) and last_name(root) == "sqrt":
            inside = [*root.args, root.func.value][0]
        elif isinstance(node.op, ast.Div) and isinstance(root, ast.BinOp):
            inside = root.left if isinstance(root.op, ast.Pow) else None
        else:
            continue
        if last_name(inside) == "mean":
            found.append(node)
    return found


def registered(tree: ast.AST) -> list[ast.Call]:
    """The calls that hang a hook on a module or a tensor."""
    found = every(tree, ast.Call)
    return [call for call in found if re.match("register.*hook", last_name(call))]


def hooks_that_stay(tree: ast.AST) -> list:
    """A handle is entered by `with`, here or by who gets it, or kept and removed."""
    removed = [call.func.value for call in calls(tree, ["remove"]) if not call.args]
    names = {ast.unparse(each) for each in removed}
    for loop in every(tree, ast.For):
        if ast.unparse(loop.target) in names:
            names.add(ast.unparse(loop.iter))

    used = {last_name(each) for each in entered(tree)}
    safe = [*entered(tree)]
    for function in every(tree, ast.FunctionDef):
        if function.name in used:
            safe += [node.value for node in every(function, ast.Return)]
    for node in every(tree, ast.Assign):
        if names & {*map(ast.unparse, node.targets)}:
            safe += every(node, ast.Call)
    for call in calls(tree, ["append"]):
        if ast.unparse(call.func.value) in names:
            safe += call.args
    return [call for call in registered(tree) if call not in safe]


def data_attributes(tree: ast.AST) -> list:
    return [node for node in every(tree, ast.Attribute) if node.attr == "data"]


def statements_that_are_expressions(tree: ast.AST) -> list:
    """Two calls joined by a comma, or one behind a condition."""
    kinds = ast.Tuple | ast.List | ast.ListComp | ast.IfExp | ast.BoolOp
    return [node for node in every(tree, ast.Expr) if isinstance(node.value, kinds)]


def folders_that_stay(tree: ast.AST) -> list:
    made = ["mkdtemp", "mkstemp", "mktemp", "TemporaryDirectory", "NamedTemporaryFile"]
    return [call for call in calls(tree, made) if call not in entered(tree)]


def modules_as_namespaces(tree: ast.AST) -> list:
    return calls(tree, ["Module"])


def methods_overwritten(tree: ast.AST) -> list:
    """A function that is put in the place of a method, on one object alone."""
    functions = [function.name for function in every(tree, ast.FunctionDef)]
    found = calls(tree, ["setattr"])
    for node in every(tree, ast.Assign):
        value = node.value
        makes = isinstance(value, ast.Lambda) or bool(calls(value, ["MethodType"]))
        makes = makes or (isinstance(value, ast.Call) and last_name(value) == "partial")
        makes = makes or (isinstance(value, ast.Name) and value.id in functions)
        for target in node.targets:
            if isinstance(target, ast.Attribute) and last_name(target.value) != "self":
                if makes or target.attr in ("forward", "__class__"):
                    found.append(node)
    return found


# What a detector finds, and what it lets pass.
HABITS = {
    gradients_off_for_good: (
        "torch.set_grad_enabled(False)",
        "with torch.set_grad_enabled(False):\n    model(x)",
    ),
    writing_with_gradients: (
        "for _ in range(9):\n    new = model(x, cache)\n    x = torch.cat([x, new])",
        "with torch.no_grad():\n    while more:\n        written.append(model(x))",
    ),
    graphs_kept: (
        "def forward(self, x):\n    self.weights = x @ x.mT\n    return x",
        "def forward(self, x):\n    self.weights = (x @ x.mT).detach()\n    return x",
    ),
    tensors_without_a_device: (
        "class A(nn.Module):\n    def embed(self, x):\n        return x + ones(3)",
        "class A(nn.Module):\n    def embed(self, x):\n"
        "        return x + ones(3, device=x.device) + sinusoidal(3, 4).to(x)",
    ),
    models_left_in_training: (
        "def trained():\n    train(model, batches)\n    return model",
        "def trained():\n    train(model, batches)\n    return model.eval()",
    ),
    roots_without_epsilon: (
        "x = x / x.square().mean(-1, keepdim=True).sqrt()",
        "x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()",
    ),
    hooks_that_stay: (
        "for layer in model.layers:\n    layer.register_forward_hook(keep)",
        "with layer.register_forward_hook(keep):\n    model(x)",
    ),
    data_attributes: ("p.data.zero_()", "nn.init.zeros_(p)"),
    statements_that_are_expressions: (
        "plt.grid(False), plt.xlim(0, 1)\nplt.show()",
        "plt.grid(False)\nplt.xlim(0, 1)\ncount(a), count(b)",
    ),
    folders_that_stay: (
        "path = mkdtemp() + 'model.safetensors'",
        "with tempfile.TemporaryDirectory() as folder:\n    save(model, folder)",
    ),
    modules_as_namespaces: (
        "self.encoder = nn.Module()\nself.encoder.blocks = blocks",
        "class Encoder(nn.Module):\n    pass\n\nself.encoder = Encoder()",
    ),
    methods_overwritten: (
        "block.forward = partial(checkpoint, block.forward)",
        "class Checkpointed(Block):\n    def forward(self, x):\n        return x",
    ),
}
# GGUF's reader calls the bytes of a tensor so.
DATA_OF_A_FILE = "x.data"


@pytest.mark.parametrize("find", HABITS, ids=lambda find: find.__name__)
def test_no_chapter_shows_a_habit_that_a_reader_should_not_copy(find):
    bad, good = HABITS[find]
    assert find(chapter([bad])) and not find(chapter([good]))
    for stem, found in CODE.items():
        for node in find(chapter([*map(without_magic, found)])):
            code = ast.unparse(node)
            assert code == DATA_OF_A_FILE and stem.startswith("12"), (stem, code)


def test_make_runs_those_that_read_chapter_05_s_model_last():
    """Beside it, in an empty cache, they would train it once more."""
    makefile = (PATHS[0].parents[1] / "Makefile").read_text("utf-8")
    (told,) = re.findall(r"^LAST := .*foreach n,([\d ]+),", makefile, re.M)
    reading = {
        name[:2]
        for name, notebook in NOTEBOOKS.items()
        if any(re.search(r"\btrained\(\)", c.source) for c in notebook.cells)
    }
    assert {*told.split()} == reading - {"05"}

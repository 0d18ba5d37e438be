"""Put the pages of the site together in build/source/, where Sphinx reads them.

The chapters lie there as they are. The cards of the first page, whose questions are the
README's, and a page for each module are written here; so is the page of chapter 05's
model, which is trained now where it is missing.
"""

import ast
import re
import tomllib
from pathlib import Path

from chapters import PATHS, ROOT, cover, ladder

from companion.course.explore.building import page
from companion.course.runs import trained
from companion.pretrained.config_json import read_anatomy, read_config
from companion.text.shakespeare import tiny_shakespeare
from companion.text.tokenizers import CharTokenizer

SOURCE = ROOT / "build" / "source"
EXTRA = ROOT / "build" / "extra"
ROW = r"^\| \d\d \| \[(.+?)\]\(notebooks/(\w+)\.ipynb\) \| (.+?) \|$"
GROUP = re.compile(r"^CHAPTERS (\d\d)-(\d\d)\n", re.M)
CARD = """\
- [![{alt}](pictures/{name}.png)](notebooks/{name}.ipynb)

  [{number} · {title}](notebooks/{name}.ipynb)

  {question}

  <a href="slides/{name}.html">Slides of {number}</a>
"""
MODULE = """\
```{{eval-rst}}
.. automodule:: {name}
   :ignore-module-all:
```
"""


def cards(first: str, last: str) -> str:
    """A card for each chapter of the README's table, from the first to the last."""
    readme = (ROOT / "README.md").read_text("utf-8")
    text = ""
    for title, name, question in re.findall(ROW, readme, flags=re.M):
        if not first <= name[:2] <= last:
            continue
        _, alt = cover(ROOT / "notebooks" / f"{name}.ipynb")
        text += CARD.format(
            name=name,
            number=name[:2],
            title=title[0].upper() + title[1:],
            question=question,
            alt=" ".join(alt.split()),
        )
    return text


def modules() -> dict[str, str]:
    """Every module's first line, in the order of the rooms in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found = {}
    for package in project["tool"]["setuptools"]["packages"]:
        for path in sorted(ROOT.joinpath(*package.split(".")).glob("[a-z]*.py")):
            words = ast.get_docstring(ast.parse(path.read_text("utf-8")))
            found[f"{package}.{path.stem}"] = words.partition("\n")[0]
    return found


def reference() -> dict[str, str]:
    """The reference's pages: one for each module, and the list of them."""
    known = modules()
    checks = [name for name in known if ".course.checks." in name]
    listed = {name: words for name, words in known.items() if name not in checks}
    listed["companion.course.checks"] = "Checks for the exercises."
    pages = {name: f"# {name}\n\n{MODULE.format(name=name)}" for name in listed}
    for name in checks:
        pages["companion.course.checks"] += f"\n## {name}\n\n{MODULE.format(name=name)}"
    lines = [f"- [](reference/{name}.md): {line}" for name, line in listed.items()]
    tree = [f"reference/{name}" for name in listed]
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    text = text.replace("MODULES", "\n".join(lines)).replace("TREE", "\n".join(tree))
    return {f"reference/{name}.md": page for name, page in pages.items()} | {
        "reference.md": text
    }


def contents() -> dict[str, bytes]:
    """Every file that Sphinx reads, by its path."""
    rungs, alt = ladder()
    files = {}
    for name, text in (pages_of_docs(alt) | reference()).items():
        files[name] = text.encode()
    for path in PATHS:
        files[f"notebooks/{path.name}"] = path.read_bytes()
        files[f"pictures/{path.stem}.png"] = cover(path)[0]
    for path in (ROOT / "findings").glob("*.sh"):
        files[f"findings/{path.name}"] = path.read_bytes()
    files["pictures/ladder.png"] = rungs
    return files


def pages_of_docs(alt: str) -> dict[str, str]:
    """The pages of docs/ and of the project's top, with what is written into them.

    `alt` says what the picture of the ladder shows.
    """
    pages = {}
    for path in [*ROOT.glob("C*.md"), *ROOT.glob("docs/*.md")]:
        pages[path.name] = relinked(path.read_text("utf-8"))

    index = GROUP.sub(lambda group: cards(*group.groups()), pages["index.md"])
    image = f"![{' '.join(alt.split())}](pictures/ladder.png)"
    pages["index.md"] = index.replace("LADDER", image)
    pages["models.md"] = pages["models.md"].replace("MODELS", models())
    return pages


def relinked(text: str) -> str:
    """A page whose links lead from where it lies on the site: one folder further up."""
    return text.replace("](../", "](").replace("](docs/", "](")


def models() -> str:
    """A table of the models in docs/models/, and for each one its parts."""
    chapters = {path.name[:2]: path.stem for path in PATHS}
    found = []
    for path in (ROOT / "docs" / "models").glob("*.json"):
        config = read_config(path)
        found.append((config["_name_or_path"], read_anatomy(config)))
    found.sort(key=lambda pair: pair[1].n_parameters())

    table = [
        "| model | blocks × width | parameters | at work on a token | cache of its"
        " whole context |",
        "| --- | --- | --- | --- | --- |",
    ]
    sections = []
    for name, model in found:
        link = f"[{name.partition('/')[2]}](https://huggingface.co/{name})"
        sizes = (
            f"{model.n_layers} × {model.d_model:,}",
            in_billions(model.n_parameters()),
            in_billions(model.n_parameters(active=True)),
            f"{model.cache_bytes(model.context_length) / 1e9:.2f} GB"
            f" of {model.context_length:,} tokens",
        )
        table.append(f"| {link} | {' | '.join(sizes)} |")

        lines = [f"## {name.partition('/')[2]}", ""]
        for part in model.parts():
            where = "no chapter has it"
            if part.chapter is not None:
                where = f"[{part.chapter}](notebooks/{chapters[part.chapter]}.ipynb)"
            lines.append(f"- {part.what}: {where}")
        lines += [f"- {thing}: no chapter has it" for thing in model.unsupported]
        sections.append("\n".join(lines))
    return "\n\n".join(["\n".join(table), *sections])


def in_billions(n: int) -> str:
    """A number of parameters, rounded: 0.135 billion, 20.9 billion."""
    return f"{n / 1e9:.3g} billion"


def explorable() -> str:
    """The page of chapter 05's model, whose parts link to the site's chapters."""
    tokenizer = CharTokenizer(tiny_shakespeare())
    return page(trained(), tokenizer, chapters="notebooks/{}.html")


def write(files: dict[str, bytes], folder: Path) -> None:
    """Write what has changed, so that Sphinx reads no more; remove what is no more."""
    for old in [path for path in folder.rglob("*") if path.is_file()]:
        if old.relative_to(folder).as_posix() not in files:
            old.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    write(contents(), SOURCE)
    write({"explore.html": explorable().encode()}, EXTRA)

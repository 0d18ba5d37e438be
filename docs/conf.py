"""Sphinx's settings for the site: `make site`."""

import os
import sys
import tomllib
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parent))
from chapters import prepared  # noqa: E402

project = html_title = "The Transformer, by building one"
pyproject = Path(__file__).parents[1] / "pyproject.toml"
release = version = tomllib.loads(pyproject.read_text("utf-8"))["project"]["version"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
suppress_warnings = ["misc.highlighting_failure"]  # of a notebook's `!` and `%`
default_role = "literal"  # the docstrings' `names`

nb_execution_mode = "off"  # the stored outputs, which `make test` compares
nb_merge_streams = True
nb_ipywidgets_js = {}  # by default two scripts from elsewhere
myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True  # as in the source, never as on this machine
add_module_names = False
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 72

html_theme = "sphinx_book_theme"
html_static_path = ["_static", "../build/npm/node_modules/mathjax/es5/tex-svg.js"]
html_css_files = ["site.css"]
html_js_files = ["print.js"]
html_extra_path = ["../build/extra"]  # the page of chapter 05's model
# The reference lists every module; the names are too long for the table on a telephone.
html_domain_indices = False
mathjax_path = "tex-svg.js"
html_favicon = "_static/icon.svg"
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_persistent": [],
    "use_fullscreen_button": False,
    "footer_content_items": [],  # who wrote it is in LICENSE
}
repository = os.environ.get("REPOSITORY")  # owner/name
if repository:
    html_theme_options["repository_url"] = f"https://github.com/{repository}"
    html_theme_options["repository_branch"] = "main"
    html_theme_options["use_repository_button"] = True
    html_theme_options["launch_buttons"] = {
        "notebook_interface": "jupyterlab",
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
    }


def show(app, docname, source):
    """Change a chapter as it is read; the file offered for download stays as it is."""
    if docname.startswith("notebooks/"):
        source[0] = nbformat.writes(prepared(source[0]))


def setup(app):
    app.connect("source-read", show)

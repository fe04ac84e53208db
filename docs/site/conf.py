# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes pages and man pages of the documentation; `make docs` runs it.

The sources are the repository's own folder, so that links between pages are the same here and where the repository is read.
"""

import re

from sphinx.application import Sphinx

from stack import __version__

project = "stack"
author = "The authors of stack"
copyright = author
version = release = __version__

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/site/*.rst"]
extensions = ["myst_parser", "sphinx_click", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = f"stack {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]

# One page for each of the commands that `git carry --help` and `man stack` open.
man_pages = [("docs/site/commands", name, "carry a fork as named patch series", "", 1) for name in ("stack", "git-carry")]

# The theme's own switch of light and dark is not the browser's, which a forge follows.
_PICTURE = "".join(
    f"```{{image}} docs/rebase-{kind}.svg\n:class: only-{kind}\n:alt: A rebase in a terminal\n```\n\n"
    for kind in ("light", "dark")
)
_QUOTED = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_PATH = re.compile(r"PosixPath\('([^']*)'\)")
_CONTENTS = {
    "Start": ("tutorial", "spark", "owner", "owner-check"),
    "Guides": (
        "import",
        "daily-work",
        "proofs",
        "wheels",
        "images",
        "export-pr",
        "validate",
        "serving",
        "roofline",
        "recipes",
        "report",
        "lanes",
        "guards",
        "watch",
        "matrix",
        "export",
    ),
    "Reference": ("site/commands", "settings", "pins", "outcomes", "json", "doctor", "exit-codes", "environment", "plug-ins"),
    "Concepts": ("landing", "crashes", "Threat model <../SECURITY>", "speed", "../ARCHITECTURE"),
    "Kernels": ("decode-kernels", "series", "nvfp4", "harmony-reports"),
    "History": ("kernel-history", "ladder", "demo", "../CHANGELOG", "../CONTRIBUTING"),
}


def setup(app: Sphinx) -> None:
    """Add the table of contents to the first page, which the repository shows without it, and read help texts as they are."""
    app.connect("source-read", _add_contents)
    for part in ("description", "options", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _escape)


def _entry(page: str) -> str:
    """Return a line of a table of contents: the page's path from the repository's folder, behind its title if it has another."""
    title, mark, name = page.rpartition("<")
    name = name.rstrip(">")
    path = f"/{name[3:]}" if name.startswith("../") else f"/docs/{name}"
    return f"{title}<{path}>" if mark else path


def _escape(_app: Sphinx, _context: object, lines: list[str]) -> None:
    """Make code of what a help text quotes, and take every other character of the text as it stands."""
    parts = _QUOTED.split("\n".join(lines))
    text = "".join(f"``{part}``" if place % 2 else part.replace("*", r"\*") for place, part in enumerate(parts))
    lines[:] = _PATH.sub(r"\1", text).split("\n")


def _add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = source[0].replace("```mermaid\n", "```text\n")  # the forge draws it; its script comes from elsewhere
    source[0] = re.sub(r"<picture>.*?</picture>", _PICTURE, source[0], flags=re.DOTALL)
    if page == root_doc:
        for title, pages in _CONTENTS.items():
            listed = "\n".join(_entry(name) for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"

# SPDX-License-Identifier: Apache-2.0
"""Upstream's own tools on real trees: installed at the versions that the tree names, into the cache."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stack.store import cache
from stack.upstreaming.linting import Desk
from stack.upstreaming.linting.finding import LintFinding
from stack.upstreaming.rules import Style

from .factories import STYLE, Making, said

CONFIG = """\
exclude: ^vendored/
repos:
- repo: https://example.org/ruff-pre-commit
  rev: v0.14.0
  hooks:
  - id: ruff-check
  - id: ruff-format
- repo: https://example.org/typos
  rev: v1.43.5
  hooks:
  - id: typos
- repo: https://example.org/clang-format
  rev: v21.1.2
  hooks:
  - id: clang-format
    exclude: ^csrc/generated/
    types_or: [c++, cuda]
- repo: local
  hooks:
  - id: no-print
    entry: python tools/no_print.py
    language: python
    types: [python]
  - id: shell
    entry: tools/check.sh
    language: script
"""
NO_PRINT = """\
import pathlib, sys
bad = [name for name in sys.argv[1:] if "print(" in pathlib.Path(name).read_text()]
print(*(f"{name} prints" for name in bad), sep="\\n")
sys.exit(bool(bad))
"""
SETTINGS = '[tool.ruff]\nline-length = 60\n[tool.ruff.lint]\nselect = ["E", "F", "I"]\n'
BASE = {
    ".pre-commit-config.yaml": CONFIG,
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 60\n",
    "pyproject.toml": SETTINGS,
    "tools/no_print.py": NO_PRINT,
    "pkg/__init__.py": "",
    "pkg/a.py": "import os\n\nX = os.sep\ny = { 'old':1 }\n",
    "csrc/a.cpp": "int  old ( ) { return 1; }\nint a() { return 1; }\n",
}
pytestmark = [pytest.mark.slow, pytest.mark.images]


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with Desk(cache.root(), lambda _: None) as opened:
        yield opened


def check(
    desk: Desk, making: Making, changed: Mapping[str, str], base: Mapping[str, str] = BASE, style: Style = STYLE
) -> list[LintFinding]:
    return list(desk.check(style, making.change(base, {**base, **changed})))


def test_a_change_in_style(desk: Desk, making: Making) -> None:
    changed = {"pkg/a.py": BASE["pkg/a.py"] + 'z = {"new": 1}\n', "csrc/a.cpp": BASE["csrc/a.cpp"] + "int b() { return 2; }\n"}
    assert check(desk, making, changed) == []


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("pkg/a.py", "import sys\n", ("ruff", "error", "pkg/a.py:5")),
        ("pkg/a.py", f"z = '{'long ' * 20}'  # noqa: Q000\n", ("ruff", "error", "pkg/a.py:5")),
        ("pkg/a.py", "z = {  'new':1}\n", ("ruff-format", "error", "pkg/a.py:5")),
        ("pkg/a.py", "# Teh new one.\n", ("typos", "error", "pkg/a.py:5")),
        ("pkg/a.py", "print(X)\n", ("no-print", "error", "pkg/a.py")),
        ("csrc/a.cpp", "int  b ( ) { return 2; }\n", ("clang-format", "error", "csrc/a.cpp:3")),
    ],
)
def test_what_is_out_of_style(desk: Desk, making: Making, path: str, line: str, expected: tuple[str, str, str]) -> None:
    assert expected in said(check(desk, making, {path: BASE[path] + line}))


def test_what_upstream_has_itself_is_not_ours(desk: Desk, making: Making) -> None:
    base = {**BASE, "pkg/a.py": "import os\nimport sys\n\nX = os.sep\n# Teh old one.\n"}
    found = check(desk, making, {"pkg/a.py": base["pkg/a.py"] + "z = 1\n"}, base)
    assert said(found) == [("ruff", "warning", "pkg/a.py:2")]


def test_the_tree_says_which_files(desk: Desk, making: Making) -> None:
    assert (
        check(
            desk,
            making,
            {"csrc/generated/a.cpp": "int  b ( ) { return 2; }\n", "vendored/a.py": "import sys\nz = {  'new':1}\n"},
        )
        == []
    )


def test_the_trees_own_settings_count(desk: Desk, making: Making, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUFF_OUTPUT_FILE", str(tmp_path / "elsewhere"))
    line = "z = " + " + ".join(["X"] * 18) + "\n"
    assert ("ruff", "error", "pkg/a.py:5") in said(check(desk, making, {"pkg/a.py": BASE["pkg/a.py"] + line}))
    wide = {**BASE, "pyproject.toml": SETTINGS.replace("60", "99")}
    assert check(desk, making, {"pkg/a.py": BASE["pkg/a.py"] + line}, wide) == []


def test_without_settings_of_clang_format_nothing_is_said_to_be_in_order(desk: Desk, making: Making) -> None:
    base = {path: text for path, text in BASE.items() if path != ".clang-format"}
    found = check(desk, making, {"csrc/a.cpp": BASE["csrc/a.cpp"] + "int  b ( ) { return 2; }\n"}, base)
    assert said(found) == [("clang-format", "warning", "csrc/a.cpp")]


def test_without_a_configuration_the_rules_say_the_versions(desk: Desk, making: Making) -> None:
    base = {path: text for path, text in BASE.items() if path != ".pre-commit-config.yaml"}
    style = Style(
        ".pre-commit-config.yaml", (("ruff", "0.14.0"), ("typos", "1.43.5"), ("clang-format", "21.1.2")), ("no-print",)
    )
    found = check(desk, making, {"pkg/a.py": BASE["pkg/a.py"] + "print(nothing)\n"}, base, style)
    assert {one.rule for one in found} == {"ruff"}


def test_a_check_that_upstream_has_given_up_shows(desk: Desk, making: Making) -> None:
    style = Style(".pre-commit-config.yaml", (), ("no-print", "no-more"))
    found = check(desk, making, {"docs/a.md": "New.\n"}, style=style)
    assert said(found) == [("style", "warning", ".pre-commit-config.yaml")]


def test_a_file_that_is_no_python(desk: Desk, making: Making) -> None:
    assert ("ruff", "error", "pkg/a.py:5") in said(check(desk, making, {"pkg/a.py": BASE["pkg/a.py"] + "def (:\n"}))

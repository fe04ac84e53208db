# SPDX-License-Identifier: Apache-2.0
"""Rules as data: those that come with the tool, a stack's own, and odd ones."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.upstreaming import rules
from stack.upstreaming.rules import Globs

GOOD = """\
[title]
pattern = 'x: .+'
form = "x: words"

[docs]
files = ["docs/*"]
[[docs.visible]]
what = "flag"
files = ["*.py"]
line = '"(--[a-z]+)"'
"""


def own(root: Path, text: str, upstream: str = "vllm") -> Path:
    file = root / "stacks/rules" / f"{upstream}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize("upstream", ["vllm", "flashinfer", "cutlass"])
def test_those_that_come_along(tmp_path: Path, upstream: str) -> None:
    assert rules.load(upstream, tmp_path).file.name == f"{upstream}.toml"


def test_what_vllm_asks_for(tmp_path: Path) -> None:
    found = rules.load("vllm", tmp_path)
    assert (found.signed_off, found.most_open) == (True, 6)
    assert found.title is not None
    assert found.title.pattern.fullmatch("[Bugfix][MoE] Guard it")


def test_another_upstream_gets_the_general_ones(tmp_path: Path) -> None:
    found = rules.load("sglang", tmp_path)
    assert (found.upstream, found.file.name, found.title, found.size) == ("sglang", "general.toml", None, None)


def test_a_stacks_own_take_the_place_of_ours(tmp_path: Path) -> None:
    file = own(tmp_path, GOOD)
    found = rules.load("vllm", tmp_path)
    assert (found.file, found.most_open, found.signed_off) == (file, None, False)
    assert found.title is not None
    assert found.title.form == "x: words"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[title]", "[titel]", "titel is an unknown key: did you mean 'title'?"),
        ("pattern = 'x: .+'", "pattern = '('", "title.pattern is not a regular expression"),
        ("pattern = 'x: .+'", "", "title.pattern is missing: add it"),
        ('files = ["docs/*"]', 'files = "docs"', "docs.files is 'docs': it has to be a list of strings"),
        ('"(--[a-z]+)"', '"--[a-z]+"', "docs.visible[0].line has 0 groups: give it one group: the name that users see"),
        ("[docs]", "[open]\nmost = -1\n[docs]", "open.most is -1: it has to be a whole number from 0"),
        ("[docs]", '[style]\nhooks = ["a b"]\n[docs]', "style.hooks names 'a b'"),
        ("[docs]", '[style]\nhooks = ["a"]\n[docs]', "style.config is missing"),
        ("[docs]", '[style]\nconfig = "../x"\n[docs]', "style.config is '../x'"),
        ("[docs]", '[style]\nruff = "latest"\n[docs]', "style.ruff is 'latest'"),
        ("[docs]", '[template]\nfiles = ["/etc/passwd"]\n[docs]', "template.files has '/etc/passwd'"),
        ("[docs]", '[template]\nheadings = ["## A"]\nsummary = "B"\n[docs]', "template.headings have no 'B'"),
        ("[title]", "[title", ""),
        ("[title]", "\ufeff[title]", ""),
    ],
)
def test_odd_rules_are_a_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    file = own(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(StackError) as refused:
        rules.load("vllm", tmp_path)
    assert str(refused.value).startswith(f"{file}")
    assert line in str(refused.value)


def test_what_stands_in_the_place_of_rules_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "stacks/rules/vllm.toml").mkdir(parents=True)
    with pytest.raises(StackError, match=r"stacks/rules/vllm\.toml"):
        rules.load("vllm", tmp_path)


def test_globs_go_through_folders() -> None:
    some = Globs(("tests/*test_*.py", "*.md"))
    assert all(map(some.has, ("tests/test_a.py", "tests/v1/x/test_a.py", "docs/a.md", "README.md")))
    assert not any(map(some.has, ("vllm/test_a.py", "tests/a.py", "docs/a.rst")))

# SPDX-License-Identifier: Apache-2.0
"""A prefilled issue: where it goes, what is in it, and how long its address may be."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from stack.base.errors import StackError
from stack.model import verdict as verdicts
from stack.model.verdict import Weights
from stack.owner.sharing import issue, reduced
from stack.owner.sharing.issue import Repository

from ...validation.factories import SPARK, failed, passed, verdict

WHERE = Repository("github.com", "ada/stack")


def form(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query, strict_parsing=True).items()}


def test_a_short_verdict_is_in_the_form() -> None:
    less = reduced.of(verdict(passed("doctor/content"), failed("doctor/stream"), machine=SPARK, recipe="gpt-oss-120b-spark"))
    made = issue.of(less, WHERE)
    assert made.whole
    assert made.address.startswith("https://github.com/ada/stack/issues/new?title=")
    filled = form(made.address)
    assert filled == {"title": made.title, "body": made.body}
    assert made.title == "Verdict: gpt-oss-120b-spark on NVIDIA GB10, 1 case failed"
    data = made.body.partition("```json\n")[2].partition("```")[0]
    assert verdicts.read(data.encode(), "x") == less
    assert json.loads(data)["stack"]["digest"] == less.stack
    assert "| `doctor/stream` |" in made.body


def test_a_long_one_has_to_be_attached() -> None:
    less = reduced.of(verdict(*(passed(f"doctor/case-{number}") for number in range(200)), weights=Weights.REAL))
    made = issue.of(less, WHERE)
    assert not made.whole
    assert len(made.address) <= issue.LONGEST
    assert "attached" in made.body
    assert "```json" not in made.body
    assert made.title.endswith("no case failed")


def test_the_form_is_never_longer_than_it_may_be() -> None:
    less = reduced.of(verdict(*(replace(failed(f"doctor/case-{number}"), why="x" * 200) for number in range(300))))
    assert len(issue.of(less, WHERE).address) <= issue.LONGEST


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("ada/stack", WHERE),
        ("https://github.com/ada/stack", WHERE),
        ("https://github.com/ada/stack.git", WHERE),
        ("https://ada:token@github.com/ada/stack.git", WHERE),
        ("git@github.com:ada/stack.git", WHERE),
        ("ssh://git@github.com/ada/stack", WHERE),
        ("https://git.example.org:8443/ada/stack/", Repository("git.example.org:8443", "ada/stack")),
    ],
)
def test_addresses_of_repositories(text: str, where: Repository) -> None:
    assert issue.repository(text) == where


@pytest.mark.parametrize(
    "text",
    ["", "stack", "/srv/git/stack", "file:///srv/stack", "https://github.com/", "https://github.com/a/b/c", "javascript:alert(1)//a/b",
     "https://[/a/b", "ada/stack?x=1", "ada/stack#x", "ada /stack", "../..", "https://evil\n.example/a/b"],
)  # fmt: skip
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(StackError, match="is not a repository"):
        issue.repository(text)


def test_the_remote_of_a_stack(tmp_path: Path) -> None:
    assert issue.origin(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert issue.origin(tmp_path) is None
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", "git@github.com:ada/stack.git"], check=True)
    assert issue.origin(tmp_path) == WHERE

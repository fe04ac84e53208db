# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --lint` and `--edit`, as a user types them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SCRIPT

from .test_push_verb import run
from .world import Contributor

LINT = ("export-pr", "--no-tests", "--source", "git", "--lint")
EDIT = ("export-pr", "--no-tests", "--source", "git", "--edit")
RULES = """\
[title]
pattern = '(\\[[^\\]\\[]+\\])+ +\\S.*'
form = "[Tag] words"

[commits]
signed_off = true

[open]
most = 1

[template]
headings = ["## What", "## Proof"]
summary = "What"
validation = "Proof"

[tests]
code = ["*.py"]
files = ["tests/*"]
"""


def rules(me: Contributor, text: str = RULES) -> None:
    file = me.root / "stacks/rules/up.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def described(me: Contributor, name: str = "one-hook") -> Path:
    return me.root / f".stack/pulls/up/{name}.md"


def findings(me: Contributor, *args: str) -> dict[str, set[str]]:
    done = run(me, *LINT, "--json", *args)
    assert done.code in (0, 1), done
    told = json.loads(done.out)
    assert told["clean"] == (done.code == 0)
    return {one["name"]: {f["rule"] for f in one["findings"] if f["severity"] == "error"} for one in told["pulls"]}


def test_what_blocks_before_anything_is_written(me: Contributor) -> None:
    rules(me)
    found = findings(me)
    assert list(found) == ["up/one-hook", "up/one-other", "up/one-more"]
    assert set(map(frozenset, found.values())) == {
        frozenset({"title", "sign-off", "tests", "description", "validation", "duplicates"})
    }
    done = run(me, *LINT)
    assert done.code == 1
    assert (
        "warning: up: 2 can be opened now, and 0 are open already: up allows 1: name those that come first with --only"
        in done.out
    )
    assert "up/one-more: 6 errors, 0 warnings\nDo more\n" in done.out


def test_tags_and_descriptions_are_taken(me: Contributor) -> None:
    rules(me)
    file = me.root / "stacks/one/series.toml"
    file.write_text(file.read_text().replace('file = "up/hook.patch"', 'file = "up/hook.patch"\ntags = ["Bugfix"]'))
    done = run(me, *EDIT, "--only", "up/one-hook")
    assert (done.code, done.out) == (0, f"[Bugfix] Do hook\n  {described(me)}\n")
    assert findings(me, "--only", "up/one-hook") == {"up/one-hook": {"sign-off", "tests", "validation", "duplicates"}}


def test_without_rules_the_general_ones_hold(me: Contributor) -> None:
    assert findings(me, "--only", "up/one-hook") == {"up/one-hook": {"description", "validation", "duplicates"}}


def test_a_branch_that_is_behind(me: Contributor) -> None:
    onto = ("--onto", "v1.0", "--only", "up/one-hook")
    assert "base" not in findings(me, *onto)["up/one-hook"]
    me.upstream.commit({"new.py": b"new\n"})
    me.publish()
    assert "base" in findings(me, *onto)["up/one-hook"]
    assert "base" not in findings(me, "--only", "up/one-hook")["up/one-hook"]


def test_descriptions_are_written_and_kept(me: Contributor) -> None:
    rules(me)
    done = run(me, *EDIT, "--json")
    assert [one["file"] for one in json.loads(done.out)["descriptions"]] == [
        str(described(me, name)) for name in ("one-hook", "one-other", "one-more")
    ]
    text = described(me).read_text()
    assert "Why it is needed." in text
    described(me).write_text(text.replace("Why it is needed.", "Why I need it.") + "\nMine.\n")
    again = run(me, *EDIT, "--only", "up/one-hook")
    assert again.out.splitlines()[-1] == "  summary: edited by hand, kept as it is"
    assert described(me).read_text() == text.replace("Why it is needed.", "Why I need it.") + "\nMine.\n"


def test_the_editor_opens_on_a_terminal(me: Contributor, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "Edited here." >> "$1"\n')
    editor.chmod(0o755)
    command = [sys.executable, "-c", SCRIPT, "--root", str(me.root), "--cache", str(me.cache), *EDIT, "--only", "up/one-hook"]
    master, slave = pty.openpty()
    try:
        env = {**os.environ, "EDITOR": str(editor), "VISUAL": "", "TERM": "dumb"}
        done = subprocess.run(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=env, check=False, timeout=120)
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 0, done.stderr
    assert described(me).read_text().endswith("Edited here.\n")


def test_a_description_that_is_no_text(me: Contributor) -> None:
    described(me).parent.mkdir(parents=True)
    described(me).write_bytes(b"\xff\xfe")
    done = run(me, *LINT, "--only", "up/one-hook")
    assert done.code == 2
    assert "is not UTF-8" in done.err


@pytest.mark.parametrize("text", ["[titel]\n", "[title]\npattern = '('\nform = 'x'\n", "[["])
def test_odd_rules_are_a_line(me: Contributor, text: str) -> None:
    rules(me, text)
    done = run(me, *LINT, "--only", "up/one-hook")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "stacks/rules/up.toml" in done.err


def test_what_a_subject_says_stays_on_its_line(me: Contributor) -> None:
    file = me.root / "stacks/one/up/hook.patch"
    file.write_bytes(file.read_bytes().replace(b"[PATCH] Do hook", b"[PATCH] Do \x1b[2Jhook"))
    done = run(me, *LINT, "--only", "up/one-*")
    assert "\x1b" not in done.out
    assert "Do \\x1b[2Jhook" in done.out
    assert done.code == 1

# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --preview`, as a user types it: a folder for each pull request, a page of all, and clear refusals."""

import json
import sys
from pathlib import Path

import pytest

from ..documented import keys, verb
from .test_lint_verb import rules
from .test_push_verb import run
from .world import Contributor

PREVIEW = ("export-pr", "--no-tests", "--source", "git", "--preview")
RULES = """\
[title]
pattern = '(\\[[^\\]\\[]+\\])+ +\\S.*'
form = "[Tag] words"

[template]
headings = ["## What", "## Proof"]
summary = "What"
validation = "Proof"
"""


def tagged(me: Contributor, *names: str) -> None:
    file = me.root / "stacks/one/series.toml"
    text = file.read_text()
    for name in names:
        text = text.replace(f'file = "up/{name}.patch"', f'file = "up/{name}.patch"\ntags = ["Bugfix"]')
    file.write_text(text)


def test_a_folder_for_each_and_a_page_of_all(me: Contributor, tmp_path: Path) -> None:
    rules(me, RULES)
    tagged(me, "hook", "other", "more")
    place = tmp_path / "preview"
    done = run(me, *PREVIEW, str(place))
    assert done.code == 0, done
    assert done.out == f"2 pull requests written, 0 refused, 1 wait for another one\n\n{place}/index.html\n"
    files = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert files == {"index.html", ".stack-written.json"} | {
        f"up/one-{name}/{file}"
        for name in ("hook", "other")
        for file in ("branch", "title", "body.md", "change.diff", f"0001-do-{name}.patch")
    }
    folder = place / "up/one-hook"
    assert (folder / "branch").read_text() == "pr/up/one-hook\n"
    assert (folder / "title").read_text() == "[Bugfix] Do hook\n"
    assert "Why it is needed." in (folder / "body.md").read_text()
    assert (folder / "change.diff").read_text().startswith("diff --git ")
    page = (place / "index.html").read_text()
    assert "[Bugfix] Do hook" in page
    assert "<code>up/one-more</code> needs up/one-" in page


def test_one_that_the_rules_refuse_is_not_written(me: Contributor, tmp_path: Path) -> None:
    rules(me, RULES)
    tagged(me, "other")
    place = tmp_path / "preview"
    done = run(me, *PREVIEW, str(place))
    assert done.code == 1
    assert done.out.startswith("1 pull request written, 1 refused, 1 wait for another one\n\nup/one-hook is refused\nDo hook\n")
    assert "  title: title: is `Do hook`, but has to be [Tag] words" in done.out
    assert [file.name for file in (place / "up").iterdir()] == ["one-other"]
    assert "but has to be [Tag] words" in (place / "index.html").read_text()


def test_a_message_that_says_nothing_is_refused(me: Contributor, tmp_path: Path) -> None:
    file = me.root / "stacks/one/up/hook.patch"
    file.write_bytes(file.read_bytes().replace(b"Why it is needed.\n\n", b""))
    done = run(me, *PREVIEW, str(tmp_path / "preview"), "--only", "up/one-hook", "--json")
    told = json.loads(done.out)
    assert done.code == 1
    assert [(finding["rule"], finding["place"]) for finding in told["pulls"][0]["refused"]] == [("message", "Do hook")]
    assert told["pulls"][0]["folder"] is None
    assert keys(told) == verb("export-pr --preview")


def test_one_without_a_passing_proof_is_refused(me: Contributor, tmp_path: Path) -> None:
    """The tests ran (no --no-tests), and there is none of this patch."""
    place = tmp_path / "preview"
    asked = (
        "export-pr",
        "--source",
        "git",
        "--python",
        sys.executable,
        "--preview",
        str(place),
        "--only",
        "up/one-hook",
        "--json",
    )
    file = me.root / "stacks/one/series.toml"
    (me.root / "proofs").mkdir()
    (me.root / "proofs/test_other.py").write_text('PROVES = {"up/other.patch": ["test_it"]}\ndef test_it(): ...\n')
    file.write_text(file.read_text().replace("state = ", 'proves = ["proofs/test_other.py"]\nstate = ', 1))
    done = run(me, *asked)
    assert done.code == 1, done
    (refused,) = json.loads(done.out)["pulls"][0]["refused"]
    assert (refused["rule"], refused["problem"]) == (
        "alone",
        "its tests do not pass without the rest of the stack (no proof names it)",
    )


def test_an_earlier_preview_is_replaced_and_nothing_else(me: Contributor, tmp_path: Path) -> None:
    place = tmp_path / "preview"
    assert run(me, *PREVIEW, str(place)).code == 0
    assert run(me, *PREVIEW, str(place), "--only", "up/one-other").code == 0
    assert [file.name for file in (place / "up").iterdir()] == ["one-other"]
    (place / "mine.txt").write_text("mine")
    done = run(me, *PREVIEW, str(place))
    assert done.code == 2
    assert "mine.txt was not written by --preview" in done.err
    assert (place / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("other", [("--lint",), ("--output", "x")])
def test_it_is_one_job(me: Contributor, tmp_path: Path, other: tuple[str, ...]) -> None:
    done = run(me, *PREVIEW, str(tmp_path / "preview"), *other)
    assert done.code == 2
    assert not (tmp_path / "preview").exists()

# SPDX-License-Identifier: Apache-2.0
"""Each outcome that the documentation promises, in one real carry over a ladder of releases, at the rung that it is of."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner

from stack.carry.outcome import Outcome
from stack.cli import cli
from stack.store import git
from tests.store.factories import Remote

ROOT = Path(__file__).parents[2]


def lines(name: str, changes: Mapping[int, str] | None = None, above: int = 0) -> bytes:
    """Forty numbered assignments, some of them others, and comments above."""
    numbered = [(changes or {}).get(number, f"{name}_{number} = {number}") for number in range(1, 41)]
    return "".join(f"{line}\n" for line in [f"# above {number}" for number in range(above)] + numbered).encode()


def function(name: str) -> str:
    """A function of which each line stands nowhere else."""
    body = "".join(f"    {name}_{number} = load_{name}({number})\n" for number in range(12))
    return f"def {name}(value):\n{body}    return {name}_0 + value\n"


KEPT, MOVED = function("kept"), function("moved")
OLD = f"import os\n\n\n{KEPT}\n\n{MOVED}"
NAMES = "from tools import (\n    alpha,\n    delta,\n)\n"


@dataclass(frozen=True)
class Case:
    """A file's content on the base, with the patch, and on the releases after it; what has to come out, and at which rung."""

    outcome: Outcome
    rung: str
    base: bytes
    ours: bytes
    first: bytes
    second: bytes
    onto: bytes
    more: tuple[tuple[str, str, bytes], ...] = ()
    """Other files: the release, the path, the content (empty: it is removed)."""


def hunks(name: str) -> dict[int, str]:
    """Two hunks of three lines."""
    return {line: f"{name}_{line} = fixed({line})" for line in (9, 10, 11, 29, 30, 31)}


def first_hunk(name: str) -> dict[int, str]:
    return {line: text for line, text in hunks(name).items() if line < 20}


CASES = {
    "same.py": Case(Outcome.CLEAN, "v4", *(lines("a", c) for c in ({}, {10: "b = 1"}, {}, {}, {}))),
    "shifted.py": Case(Outcome.MOVED, "v4", lines("a"), lines("a", {10: "b = 1"}), *(lines("a", above=n) for n in (3, 3, 5))),
    "taken.py": Case(Outcome.LANDED, "v2", *(lines("a", c) for c in ({}, *[hunks("taken")] * 4))),
    "half.py": Case(Outcome.PARTLY_LANDED, "v4", *(lines("a", c) for c in ({}, hunks("half"), {}, *[first_hunk("half")] * 2))),
    "back.py": Case(Outcome.DROPPED_UPSTREAM, "v4", *(lines("a", c) for c in ({}, *[hunks("back")] * 2, {}, {}))),
    "names.py": Case(
        Outcome.RESOLVED,
        "v4",
        NAMES.encode(),
        NAMES.replace("    delta", "    beta,\n    delta").encode(),
        NAMES.encode(),
        *([NAMES.replace("    delta", "    carry,\n    delta").encode()] * 2),
        more=(("v1", "tools.py", b"alpha = beta = carry = delta = 1\n"),),
    ),
    "old.py": Case(
        Outcome.RELOCATED,
        "v4",
        OLD.encode(),
        OLD.replace("load_moved(5)", "load_moved(55)").encode(),
        OLD.encode(),
        *([f"import os\n\n\n{KEPT}".encode()] * 2),
        more=(("v3", "new.py", f"import os\n\n\n{MOVED}".encode()),),
    ),
    "relies.py": Case(
        Outcome.DRIFTED,
        "v4",
        *(lines("a", c) for c in ({}, {10: "from helper import helped"}, {}, {}, {})),
        more=(("v1", "helper.py", b"def helped():\n    return 1\n"), ("v3", "helper.py", b"def other():\n    return 1\n")),
    ),
    "against.py": Case(Outcome.CONFLICT, "v3", *(lines("a", c) for c in ({}, {10: "b = 1"}, {}, {10: "c = 2"}, {10: "c = 2"}))),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `stack triage` says of the patches, by file."""
    place = tmp_path_factory.mktemp("ladder")
    remote = Remote(place / "up")
    releases: Mapping[str, Callable[[Case], bytes]] = {
        "v1": lambda one: one.base,
        "v2": lambda one: one.first,
        "v3": lambda one: one.second,
        "v4": lambda one: one.onto,
    }
    for name, content in releases.items():
        more = {path: data for one in CASES.values() for release, path, data in one.more if release == name}
        remote.commit(
            {path: content(one) for path, one in CASES.items()} | more | {"VERSION": name.encode()}, f"release {name}"
        )
        remote.tag(name)
    patches = []
    for path, one in CASES.items():
        remote.git("checkout", "--quiet", "--detach", "v1")
        remote.commit({path: one.ours}, f"change {path}")
        patches.append(place / f"{path}.patch")
        patches[-1].write_bytes(git.run(["format-patch", "-1", "--stdout", "--full-index"], cwd=remote.path).stdout)
    asked = ["triage", "--repo", str(remote.path), "--base", "v1", "--onto", "v4", "--through", "auto", "--json"]
    done = CliRunner().invoke(cli, ["--cache", str(place / "cache"), *asked, *map(str, patches)])
    assert done.exit_code == 1, done.output
    said = json.loads(done.output)
    assert [rung["name"] for rung in said["rungs"]] == ["v2", "v3", "v4"]
    return {Path(one["file"]).stem: one for one in said["patches"]}


@pytest.mark.parametrize("path", CASES)
def test_each_outcome_is_of_its_rung(found: dict[str, Any], path: str) -> None:
    one = found[path]
    assert (one["outcome"], one["rung"]) == (CASES[path].outcome, CASES[path].rung), one


def test_the_evidence_of_each_is_as_documented(found: dict[str, Any]) -> None:
    assert found["taken.py"]["landed"]["rung"] == "v2"
    assert found["taken.py"]["landed"]["subject"] == "release v2"
    assert "+half_30 = " in found["half.py"]["residue"]
    assert "+half_10 = " not in found["half.py"]["residue"]
    [conflict] = found["against.py"]["conflicts"]
    assert (conflict["path"], conflict["lines"]) == ("against.py", [10, 10])
    assert [one["subject"] for one in conflict["upstream"]] == ["release v3"]
    [drift] = found["relies.py"]["drifts"]
    assert (drift["path"], drift["line"]) == ("relies.py", 10)
    assert [one["subject"] for one in drift["upstream"]] == ["release v3"]
    for path in ("half.py", "back.py", "names.py", "old.py"):
        assert found[path]["evidence"], path
    for path, one in found.items():
        assert bool(one["conflicts"]) is (path == "against.py"), path
        assert bool(one["drifts"]) is (path == "relies.py"), path


def test_the_documentation_names_these_outcomes_and_no_others() -> None:
    by_merge = {one.outcome.value for one in CASES.values()}
    seen = by_merge | {Outcome.LEFT_OUT.value}  # tests/carry/test_workspace.py reaches it
    assert seen == {one.value for one in Outcome}
    table = re.search(r"\| outcome \| means \|\n\|---\|---\|\n((?:\|.*\n)+)", (ROOT / "docs/outcomes.md").read_text())
    assert table is not None
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table[1], re.MULTILINE)) == seen
    _, _, result = (ROOT / "docs/json.md").read_text().partition("\n### result\n")
    row = re.search(r"^\| `outcome` \| (.*) \|$", result, re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`([a-z-]+)`", row[1])) == seen
    for verb, outcomes in (("triage", by_merge), ("rebase", seen)):
        command = cli.get_command(Context(cli), verb)
        assert command is not None and command.help is not None
        assert all(one in command.help for one in outcomes)

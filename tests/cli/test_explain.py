# SPDX-License-Identifier: Apache-2.0
"""`stack explain`: what upstream did to a patch's lines and why, both sides, what cannot be known, and what to run."""

import re
from pathlib import Path
from typing import Any

import pytest

from stack.carry.explaining import upstream
from stack.model.pins import Pin

from ..carry.test_workspace import RESOLUTIONS, STOPS
from ..carry.test_worktree import user_git
from ..carry.world import World, numbered
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import CONFLICT, parsed

WHY = "Callers pass the limit now.\n\nSee the manual."


def explained(stack: Stack, *args: object) -> dict[str, Any]:
    return dict[str, Any](parsed(stack("explain", *args, "--json")))


def test_at_its_pin(stack: Stack) -> None:
    found = explained(stack, "hook-main")
    assert (found["from"], found["onto"], found["result"], found["changes"]) == ("v2.0", None, None, [])
    assert any("add --onto REV" in sentence for sentence in found["unknown"])
    out = stack("explain", "hook-main").out
    assert "why       It is needed.\n" in out
    assert "+hook\n" in out
    assert "no test is named in `proves` of stacks/one/series.toml" in " ".join(out.split())


def test_a_conflict_with_history(stack: Stack, world: World) -> None:
    found = explained(stack, "hook-main", "--onto", "v2.2", "--source", "git")
    assert keys(found) <= verb("explain") | verb("show") | verb("diff") | verb("rebase") | keys(found["result"])
    assert found["result"]["outcome"] == "conflict"
    assert (found["history"], found["steps"]) == (True, 2)
    [change] = found["changes"]
    assert (change["commit"], change["subject"]) == (world.commits["gamma v2.2"], "v2.2")
    assert change["roles"] == ["conflict", "lines"]
    assert "-main 10\n+upstream's\n" in change["diff"]
    [side] = found["sides"]
    assert (side["path"], side["lines"]) == ("gamma/main.py", [10, 10])
    assert side["hunks"] == [
        {
            "before": "main 7\nmain 8\nmain 9\n",
            "base": "main 10\n",
            "upstream": "upstream's\n",
            "patch": "hook\n",
            "after": "main 11\nmain 12\nmain 13\n",
        }
    ]
    assert found["next"][0]["command"] == "stack rebase gamma --onto v2.2 --workspace DIR"
    out = stack("explain", "hook-main", "--onto", "v2.2", "--source", "git").out
    assert "  upstream:\n     main 7\n     main 8\n     main 9\n    -main 10\n    +upstream's\n" in out
    assert "  the patch:\n     main 7\n     main 8\n     main 9\n    -main 10\n    +hook\n" in out
    sentence = r"Up Stream, 20\d\d-\d\d-\d\d: caused a conflict and changed the same lines \(gamma/main.py\)"
    assert re.search(sentence, " ".join(out.split()))


def test_an_archive_does_not_say_why(stack: Stack) -> None:
    found = explained(stack, "hook-main", "--onto", "v2.2")
    assert found["history"] is False
    assert [change["release"] for change in found["changes"]] == [True]
    assert found["sides"][0]["hunks"][0]["upstream"] == "upstream's\n"
    assert found["unknown"][0].endswith("--source git reads the commits and their messages.")


def test_commits_that_changed_other_lines_are_only_counted(stack: Stack, world: World) -> None:
    found = explained(stack, "hook-main", "--onto", "v2.1", "--source", "git")
    assert (found["result"]["outcome"], found["steps"], found["changes"]) == ("clean", 1, [])
    assert "none of them changed the lines" in stack("explain", "hook-main", "--onto", "v2.1", "--source", "git").out
    landed = explained(stack, "fix-limit", "--onto", "v2.1", "--source", "git")
    assert landed["result"]["outcome"] == "landed"
    assert [change["commit"] for change in landed["changes"]] == [world.commits["gamma v2.1"]]
    assert landed["changes"][0]["roles"] == ["landed", "lines"]


def test_the_lines_are_followed_through_earlier_commits(stack: Stack, world: World, tmp_path: Path) -> None:
    """Two commits move the lines down before a third one changes them; its message is told."""
    clone = tmp_path / "gamma"
    address = re.search(r'\[gamma\]\ngit += "([^"]+)"', world.read("pins.toml"))
    assert address is not None
    user_git(clone.parent, "clone", "--quiet", address[1], str(clone))
    user_git(clone, "checkout", "--quiet", "v2.0")
    for above in (2, 5):
        (clone / "gamma/main.py").write_bytes(numbered("main", above=above))
        user_git(clone, "commit", "--quiet", "--all", "-m", f"Above {above}")
    (clone / "gamma/main.py").write_bytes(numbered("main", {10: "theirs"}, above=5))
    user_git(clone, "commit", "--quiet", "--all", "-m", f"Pass the limit (#12)\n\n{WHY}")
    user_git(clone, "tag", "v2.5")
    world.edit("pins.toml", address[0], address[0].replace(address[1], str(clone)))
    found = explained(stack, "hook-main", "--onto", "v2.5", "--source", "git")
    assert (found["steps"], [change["subject"] for change in found["changes"]]) == (3, ["Pass the limit (#12)"])
    assert (found["changes"][0]["message"], found["changes"][0]["roles"]) == (WHY, ["conflict", "lines"])
    assert found["changes"][0]["pull"] is None, "only addresses of a known form are made"
    out = stack("explain", "hook-main", "--onto", "v2.5", "--source", "git").out
    assert "    Callers pass the limit now.\n\n    See the manual.\n" in out


@pytest.mark.parametrize(
    ("address", "subject", "pull"),
    [
        ("https://github.com/a/b.git", "Fix it (#7)", "https://github.com/a/b/pull/7"),
        ("https://user:secret@github.com/a/b", "Merge pull request #8 from x", "https://github.com/a/b/pull/8"),
        ("https://example.org/a/b", "Fix it (#7)", None),
        ("https://github.com/a/b", "Fix #7 at last", None),
    ],
)
def test_the_address_of_a_pull_request(address: str, subject: str, pull: str | None) -> None:
    assert upstream.pull_address(subject, Pin("up", address, "0" * 40)) == pull


def test_where_a_rebase_has_stopped(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    stack(*CONFLICT, "--workspace", folder)
    found = explained(stack, folder)
    assert f"{found['patch']['series']}/{found['patch']['file']}" == STOPS[0]
    assert found["next"][1]["command"] == f"stack rebase --continue {folder}"
    assert found["sides"][0]["hunks"]
    assert stack("explain", folder, "--onto", "v2.1").code == 2
    for path, content in RESOLUTIONS[STOPS[0]].items():
        (folder / path).write_bytes(content)
        user_git(folder, "add", path)
    stack("rebase", "--continue", folder)
    assert explained(stack, folder)["patch"]["file"] == STOPS[1].partition("/")[2]
    [key, *_] = [each["key"] for each in parsed(stack("resolutions", "list", "--json"))["resolutions"]]
    kept = explained(stack, key[:6])
    assert keys(kept) <= verb("explain resolution") | verb("explain")
    assert (kept["resolution"], kept["patch"]) == (key, STOPS[0])
    assert "The person made of it\n" in stack("explain", key).out


def test_errors(stack: Stack) -> None:
    assert stack("explain", "hok-main").refused() == "unknown patch 'hok-main': did you mean 'one/gamma/hook-main'?"
    assert stack("explain", "hook-main", "--onto", "v9").code == 2


def test_the_next_command_is_one_that_works(stack: Stack) -> None:
    """Other patches conflict there, so a rebase without a working tree would change nothing."""
    needing = [
        row
        for leg in parsed(stack("rebase", "gamma", "--onto", "v2.2", "--json"))["legs"]
        for row in leg["patches"]
        if row["outcome"] == "conflict"
    ]
    [step, *_] = explained(stack, "tool-flag", "--onto", "v2.2")["next"]
    assert step["command"] == "stack rebase gamma --onto v2.2 --workspace DIR"
    assert step["purpose"] == f"move the stack, after the {len(needing)} patches that need a person"
    [step, *_] = explained(stack, "tool-flag", "--onto", "v2.1")["next"]
    assert step["command"] == "stack rebase gamma --onto v2.1"

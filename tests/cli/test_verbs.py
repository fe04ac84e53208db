# SPDX-License-Identifier: Apache-2.0
"""Every verb on a small world: what it prints, its JSON as docs/json.md promises it, and its exit code."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stack.store.cache import upstream_store

from .. import json_documents
from ..carry.conftest import scratch
from ..carry.test_check import add_patch
from ..carry.test_workspace import RESOLUTIONS, STOPS
from ..carry.test_worktree import user_git
from ..carry.trees import Scratch
from ..carry.world import World, numbered
from .conftest import Ran, Stack, run_apart

__all__ = ["scratch"]

REBASE = ("rebase", "gamma", "--onto", "v2.1", "--with-required")
CONFLICT = ("rebase", "gamma", "--onto", "v2.2", "--with-required")


def parsed(ran: Ran) -> Any:
    """The document that a verb has printed, without the name of its schema, with which it was compared."""
    assert ran.err == ""
    document = json_documents.check(ran.out)
    del document["schema"]
    return document


def keys(value: dict[str, Any]) -> str:
    return " ".join(value)


PIN = "upstream git tag commit archive tree subtrees within source tags"


def test_pins_show(stack: Stack, world: World) -> None:
    ran = stack("pins", "show")
    assert ran.code == 0
    assert re.search(r"beta +\w{12} +in alpha at 3rd/beta", ran.out)
    assert re.search(r"alpha +v1.0 +\w{12} +alpha-pkg 1.0\n", ran.out)
    world.edit("pins.toml", "[alpha] # the holder", '[alpha] # the holder\nsource = "git"\ntags = "rel-*"')
    assert re.search(r"alpha +v1.0 +\w{12} +git +rel-\*\n", stack("pins", "show").out)
    found = parsed(stack("pins", "show", "--json"))
    assert [pin["upstream"] for pin in found["upstreams"]] == ["gamma", "alpha", "beta"]
    assert {keys(pin) for pin in found["upstreams"]} == {PIN}
    assert keys(found["upstreams"][1]["archive"]) == "package version sha256"
    assert found["upstreams"][2]["within"] == {"upstream": "alpha", "path": "3rd/beta"}


def test_pins_verify(stack: Stack, world: World) -> None:
    assert stack("pins", "verify").code == 0
    found = parsed(stack("pins", "verify", "--json"))
    assert found["holds"] is True
    assert {keys(check) for check in found["checks"]} == {"upstream field expected found holds"}
    tree = world.load().pins.get("gamma").tree
    assert tree is not None
    world.edit("pins.toml", tree, "f" * 40)
    wrong = stack("pins", "verify")
    assert wrong.code == 1
    assert f"gamma tree: expected {'f' * 40}, found {tree}\n" in wrong.out
    failed = stack("pins", "verify", "--json")
    assert (failed.code, parsed(failed)["holds"]) == (1, False)


def test_pins_set(stack: Stack, world: World) -> None:
    before = world.files()
    refused = stack("pins", "set", "gamma", "v2.1")
    assert refused.code == 1
    assert "gamma v2.1 names Alpha_Pkg==1.1 (requirements/cuda.txt), the pin is 1.0\nnothing was changed: " in refused.out
    as_json = stack("pins", "set", "gamma", "v2.1", "--json")
    assert (as_json.code, keys(parsed(as_json)), parsed(as_json)["set"]) == (1, "lane set pin unmet", False)
    assert world.files() == before
    done = stack("pins", "set", "gamma", "v2.1", "--allow-mismatch")
    assert done.code == 0
    assert "3 patches were made on the old pin" in done.out
    assert stack("undo").code == 0
    assert world.files() == before


def test_fetch(stack: Stack, world: World) -> None:
    shutil.rmtree(world.cache)
    found = parsed(stack("fetch", "--json"))
    assert [(tree["upstream"], tree["tag"]) for tree in found["trees"]] == [("gamma", "v2.0"), ("alpha", "v1.0")]
    assert keys(found["trees"][0]) == "upstream tag version source commit tree names_commit"
    both = stack("fetch", "gamma", "v2.1", "v2.2")
    assert both.code == 0
    assert [line.split()[1] for line in both.out.splitlines()[2:]] == ["v2.1", "v2.2"]
    by_git = parsed(stack("fetch", "alpha", "--source", "git", "--json"))
    assert by_git["trees"][0]["names_commit"] == world.commits["alpha v1.0"]


def test_status(stack: Stack) -> None:
    ran = stack("status")
    assert ran.code == 0
    assert re.search(r"^one +pending +\+4 -3 +One$", ran.out, re.MULTILINE)
    assert "Flag für" not in ran.out
    whole = stack("status", "--all").out
    assert re.search(r"^ +gamma +\+1 -1 +\[tool\] Flag für das Werkzeug$", whole, re.MULTILINE)
    found = parsed(stack("status", "--json"))
    assert keys(found) == "lane digest pins lanes series waiting droppable moved since tried"
    assert whole.endswith(f"\nstack {found['digest']}\n")
    assert re.fullmatch(r"[0-9a-f]{64}", found["digest"])
    assert keys(found["pins"][0]) == "upstream tag commit"
    assert keys(found["series"][0]) == "name title state pull needs patches"
    assert found["series"][0]["patches"][1] == {
        "upstream": "alpha", "file": "alpha/core-switch.patch", "subject": "Core switch", "added": 2, "removed": 1, "pulls": [],
        "own": False,
    }  # fmt: skip


def test_lint(stack: Stack, world: World) -> None:
    ran = stack("lint")
    assert (ran.code, ran.out) == (0, "in order: 6 patches apply and are byte-stable\n")
    world.edit("stacks/one/gamma/hook-main.patch", " main 9\n", " main nine\n")
    bad = stack("lint")
    assert bad.code == 1
    assert bad.out == (
        "stacks/one/gamma/hook-main.patch: does not apply: gamma/main.py:7: the lines that it changes are not there\n"
        "1 finding\n"
    )
    found = stack("lint", "--json")
    assert (found.code, keys(parsed(found)), keys(parsed(found)["findings"][0])) == (
        1,
        "lane clean findings",
        "place problem remedy",
    )


def test_checkout_and_refresh(stack: Stack, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    out = parsed(stack("checkout", "gamma", folder, "--json"))
    assert out == {
        "lane": None,
        "upstream": "gamma",
        "directory": str(folder),
        "commits": 3,
        "head": user_git(folder, "rev-parse", "HEAD"),
    }
    before = world.files()
    user_git(folder, "reset", "-q", "--hard", "HEAD^")
    dry = stack("refresh", "gamma", folder, "--dry-run")
    assert (dry.code, world.files()) == (0, before)
    assert dry.out == "dropped  two/gamma/fix-limit.patch\n2 kept, 0 changed, 0 added, 1 dropped (dry run)\n"
    done = parsed(stack("refresh", "gamma", folder, "--json"))
    assert keys(done) == "lane upstream written kept changed added dropped"
    assert done["dropped"] == ["two/gamma/fix-limit.patch"]
    assert stack("undo").code == 0
    assert parsed(stack("refresh", "gamma", folder, "--json")) == done
    assert stack("refresh", "gamma", folder).out == "2 kept, 0 changed, 0 added, 0 dropped\n"
    assert stack("checkout", "alpha", tmp_path / "alpha").out.endswith("`stack refresh` writes them back\n")


def test_rebase(stack: Stack, world: World) -> None:
    before = world.files()
    found = parsed(stack(*REBASE, "--dry-run", "--json"))
    assert keys(found) == "lane upstream onto conclusion unmet legs emptied guards stopped"
    assert found["conclusion"] == "dry-run"
    assert keys(found["legs"][0]) == "upstream from to rungs patches"
    assert found["legs"][1]["to"] == {"tag": "v1.1", "commit": world.commits["alpha v1.1"]}
    assert keys(found["legs"][0]["patches"][0]) == "series file outcome tree rung landed evidence residue conflicts drifts"
    assert [patch["outcome"] for patch in found["legs"][0]["patches"]] == ["clean", "moved", "landed"]
    assert world.files() == before
    done = stack(*REBASE)
    assert done.code == 0
    assert "gamma v2.0 -> v2.1 (" in done.out
    assert "beta stays at " in done.out
    assert re.search(r"^one/gamma/tool-flag +moved +now at gamma/tool.py:22, was 17$", done.out, re.MULTILINE)
    assert done.out.endswith("switched: gamma, alpha; `stack undo` takes it back\n")
    again = stack(*REBASE)
    assert (again.code, again.out.splitlines()[-1]) == (0, "nothing to do: the stack stands there already")


def test_rebase_in_conflict(stack: Stack, world: World) -> None:
    before = world.files()
    ran = stack(*CONFLICT)
    assert ran.code == 1
    assert "gamma/main.py:10 (content)" in ran.out
    again = "stack rebase gamma --onto v2.2 --with-required --workspace DIR"
    assert ran.out.endswith(f"nothing was changed: resolve the conflicts one by one in a working tree:\n  {again}\n")
    as_json = stack(*CONFLICT, "--json")
    found = parsed(as_json)
    assert (as_json.code, found["conclusion"]) == (1, "conflict")
    assert found["legs"][0]["patches"][0]["conflicts"] == [
        {
            "path": "gamma/main.py",
            "lines": [10, 10],
            "reason": "content",
            "upstream": [{"commit": found["legs"][0]["rungs"][0]["commit"], "subject": "v2.2"}],
        }
    ]
    assert stack(*CONFLICT, "--dry-run").code == 1
    assert world.files() == before


def test_rebase_of_one_without_the_other(stack: Stack, world: World) -> None:
    before = world.files()
    ran = stack("rebase", "gamma", "--onto", "v2.1")
    assert ran.code == 1
    assert "gamma v2.1 names Alpha_Pkg==1.1 (requirements/cuda.txt), the pin is 1.0\nnothing was changed: " in ran.out
    assert parsed(stack("rebase", "gamma", "--onto", "v2.1", "--json"))["conclusion"] == "mismatch"
    assert world.files() == before
    assert stack("rebase", "gamma", "--onto", "v2.1", "--allow-mismatch").code == 0


def test_range_diff(stack: Stack) -> None:
    ran = stack(*REBASE, "--dry-run", "--format", "range-diff")
    assert ran.code == 0
    assert ran.out.startswith("# gamma v2.0 -> v2.1\n1:  ")
    assert "# alpha v1.0 -> v1.1\n" in ran.out
    assert "\x1b" not in ran.out


def rung(patch: str) -> str:
    return "v1.3" if "/alpha/" in patch else "v2.2"


def test_a_workspace(stack: Stack, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    ran = stack(*CONFLICT, "--workspace", folder)
    for number, patch in enumerate(STOPS):
        assert ran.code == 1
        assert (
            f"stopped at {number + 1} of {len(STOPS)}, {patch} on {rung(patch)}: resolve it in {folder}, `git add` it, then:"
            f" stack rebase --continue {folder} " in " ".join([*ran.out.split(), ""])
        )
        assert ran.out.splitlines()[-1] == f"  stack rebase --continue {folder}"
        unresolved = stack("rebase", "--continue", folder, root=None)
        assert unresolved.refused().endswith("is not resolved: edit it, `git add` it, then run --continue again")
        for path, content in RESOLUTIONS[patch].items():
            (folder / path).write_bytes(content)
            user_git(folder, "add", path)
        ran = stack("rebase", "--continue", folder, *(["--json"] if number == 1 else []), root=None)
        if number == 1:
            assert parsed(ran)["conclusion"] == "conflict"
            assert parsed(ran)["stopped"]["patch"] == STOPS[2]
            assert keys(parsed(ran)["stopped"]) == "directory upstream patch rung number of"
            ran = Ran(
                ran.code,
                f"stopped at 3 of {len(STOPS)}, {STOPS[2]} on {rung(STOPS[2])}: resolve it in {folder}, `git add` it, then:\n"
                f"  stack rebase --continue {folder}\n",
                "",
            )
    assert ran.code == 0
    assert not folder.exists()
    assert world.load().pins.get("alpha").tag == "v1.3"


LIMIT = "two/gamma/fix-limit.patch"


def _took_back(world: World, folder: Path) -> None:
    """A release of gamma, v2.3, in which the fix of v2.1 is taken back."""
    clone = folder / "gamma"
    pins = world.read("pins.toml")
    address = re.search(r'\[gamma\]\ngit += "([^"]+)"', pins)
    assert address is not None
    user_git(folder, "clone", "--quiet", address[1], str(clone))
    user_git(clone, "checkout", "--quiet", "v2.1")
    (clone / "gamma/main.py").write_bytes(numbered("main"))
    user_git(clone, "commit", "--quiet", "--all", "-m", "Take the limit back")
    user_git(clone, "tag", "v2.3")
    world.edit("pins.toml", address[0], address[0].replace(address[1], str(clone)))


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "dropped"])
def test_what_upstream_dropped_again_is_kept_or_dropped_by_a_person(
    stack: Stack, world: World, tmp_path: Path, keep: bool
) -> None:
    _took_back(world, tmp_path)
    before = world.files()
    asked = ("rebase", "gamma", "--onto", "v2.3", "--with-required", "--source", "git")
    folder = tmp_path / "work"
    for options in ((), ("--json",), ("--workspace", folder)):
        ran = stack(*asked, *options)
        assert ran.code == 1, ran
        assert "dropped-upstream" in ran.out
        assert world.files() == before
    assert f"stack rebase --continue {folder}" in ran.out
    assert f"stack rebase --skip {folder}" in ran.out
    ended = stack("rebase", "--continue" if keep else "--skip", folder)
    assert ended.code == 0, ended
    assert keep or re.search(r"left-out +a person left it out$", ended.out, re.MULTILINE), ended
    assert (LIMIT in [ref.path for ref in world.load().patches]) is keep


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "left out"])
def test_what_has_drifted_is_kept_or_left_out_by_a_person(
    stack: Stack, world: World, scratch: Scratch, tmp_path: Path, keep: bool
) -> None:
    add_patch(world, scratch, "gamma/rely.py", b"from .old import pack\n")
    folder = tmp_path / "work"
    ran = stack(*REBASE, "--workspace", folder)
    assert ran.code == 1, ran
    words = " ".join(ran.out.split())
    assert "gamma/rely.py:1: " in words.partition("stopped at 1 of 1, ")[0]
    assert "two/gamma/rely.patch on v2.1: nothing is in conflict there, look at the evidence above" in words
    assert "resolve it" not in words
    assert f"stack rebase --continue {folder}" in words
    assert f"stack rebase --skip {folder}" in words
    ended = stack("rebase", "--continue" if keep else "--skip", folder)
    assert ended.code == 0, ended
    assert ("two/gamma/rely.patch" in [ref.path for ref in world.load().patches]) is keep


def test_a_workspace_given_up(stack: Stack, world: World, tmp_path: Path) -> None:
    before = world.files()
    for options, said in (((), "aborted: the stack is unchanged\n"), (("--json",), None)):
        stack(*CONFLICT, "--workspace", tmp_path / "work")
        ran = stack("rebase", "--abort", tmp_path / "work", *options)
        assert ran.code == 0
        assert ran.out == said if said else parsed(ran) == {"aborted": str(tmp_path / "work")}
        assert not (tmp_path / "work").exists()
    assert world.files() == before


def test_only_news_is_printed_again(stack: Stack, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    first = stack(*CONFLICT, "--workspace", folder).out
    clean = re.findall(r"^(\S+) +(?:clean|moved)", first, re.MULTILINE)
    assert clean
    for path, content in RESOLUTIONS[STOPS[0]].items():
        (folder / path).write_bytes(content)
        user_git(folder, "add", path)
    again = stack("rebase", "--continue", folder).out
    assert re.search(rf"^{STOPS[0].removesuffix('.patch')} ", again, re.MULTILINE)
    assert not [name for name in clean if re.search(rf"^{name} ", again, re.MULTILINE)]
    assert re.search(r"^\d patch(es)? as before$", again, re.MULTILINE)
    assert len(again.splitlines()) < len(first.splitlines())


@pytest.mark.parametrize("options", [("--abort",), ("--skip",)])
def test_the_folder_of_the_shell_stays(
    stack: Stack, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    folder = tmp_path / "work"
    stack(*CONFLICT, "--workspace", folder)
    monkeypatch.chdir(folder / "gamma" if options == ("--abort",) else folder)
    while (ran := stack("rebase", *options, folder, root=None)).code == 1:
        assert folder.is_dir()
    assert ran.code == 0
    assert ran.err == f"stack: {folder} is left there, since your shell stands in it: cd out of it, then rm -r {folder}\n"
    assert Path.cwd().is_dir()
    assert stack("rebase", "--abort", folder, root=None).refused().startswith(f"{folder} is not the working tree of a rebase")


def test_no_workspace_for_pins_that_would_be_refused_in_the_end(stack: Stack, tmp_path: Path) -> None:
    """Resolving conflicts is work: it is not begun where its end is known to be refused."""
    ran = stack("rebase", "gamma", "--onto", "v2.2", "--workspace", tmp_path / "work")
    assert ran.refused() == (
        "gamma v2.2 names alpha-pkg==1.3 (requirements/cuda.txt), the pin is 1.0:"
        " add --with-required (or --allow-mismatch) before you resolve conflicts"
    )
    assert not (tmp_path / "work").exists()


def test_a_workspace_shares_rerere_with_a_clone(stack: Stack, tmp_path: Path) -> None:
    clone, folder = tmp_path / "clone", tmp_path / "work"
    user_git(tmp_path, "init", "-q", "clone")
    asked = (*CONFLICT, "--workspace", folder, "--rerere", clone)
    refused = f"{clone} has no rerere: turn it on: git -C {clone} config rerere.enabled true"
    assert stack(*asked).refused() == refused
    user_git(clone, "config", "rerere.enabled", "true")
    assert stack(*asked).code == 1
    assert (folder / ".git/rr-cache").resolve() == clone / ".git/rr-cache"


def test_check(stack: Stack, world: World) -> None:
    ran = stack("check")
    assert (ran.code, ran.out) == (0, "in order: everything that 6 patches rely on exists\n")
    assert parsed(stack("check", "--json")) == {"lane": None, "clean": True, "findings": [], "guards": []}
    assert stack("check", "no-such.yaml").refused().startswith("no-such.yaml cannot be read")


def test_forecast(stack: Stack, world: World) -> None:
    before = world.files()
    ran = stack("forecast", "gamma", "--against", "nightly")
    assert ran.code == 1
    assert ran.out.endswith("gamma v2.2: 2 patches would break\n")
    found = parsed(stack("forecast", "gamma", "--against", "v2.1", "--json"))
    assert keys(found) == "lane against breaks upstreams"
    assert keys(found["upstreams"][0]) == "upstream revision breaks unmet legs guards"
    assert (found["breaks"], found["upstreams"][0]["legs"][0]["to"]["tag"]) == (False, "v2.1")
    assert world.files() == before


def test_undo(stack: Stack, world: World) -> None:
    before = world.files()
    assert stack("undo").refused() == "nothing to undo: no switch is recorded for this stack"
    assert stack("undo", "--finish").out == "nothing to finish: no switch was interrupted\n"
    stack(*REBASE)
    listed = parsed(stack("undo", "--list", "--json"))
    assert [keys(one) for one in listed["switches"]] == ["number title paths"]
    assert listed["switches"][0]["title"] == "rebase gamma --onto v2.1"
    assert "rebase gamma --onto v2.1" in stack("undo", "--list").out
    undone = parsed(stack("undo", "--json"))
    assert keys(undone) == "undone paths"
    assert world.files() == before
    redone = parsed(stack("redo", "--json"))
    assert (keys(redone), redone["redone"]) == ("redone paths", "rebase gamma --onto v2.1")
    assert world.files() != before
    assert stack("redo").refused() == "nothing to redo: no switch of this stack was taken back"
    assert stack("undo").code == 0
    assert stack("redo").out.startswith("redone: rebase gamma --onto v2.1 (")
    assert stack("undo").code == 0
    assert world.files() == before
    stack(*REBASE)
    world.edit("pins.toml", "# A comment at the end.", "")
    assert stack("undo").refused().startswith("pins.toml was changed since `rebase gamma --onto v2.1`")


def test_the_stack_is_found_from_below(stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root / "stacks/one/gamma")
    assert stack("status", root=None).code == 0


def test_a_pipe_gets_no_colours_and_no_progress(world: World) -> None:
    shutil.rmtree(upstream_store(world.cache, "gamma"))
    for args in (("fetch",), (*REBASE, "--dry-run"), ("status",), ("lint",)):
        ran = run_apart(world, *args, env={"FORCE_COLOR": "", "TERM": "xterm-256color"})
        assert (ran.code, ran.err) == (0, "")
        assert "\x1b" not in ran.out
        assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_cache(stack: Stack, world: World) -> None:
    stack("status")
    ran = stack("cache", "show")
    assert ran.code == 0
    assert re.search(r"upstreams +\d+ +\d+\.\d [GM]B", ran.out)
    found = parsed(stack("cache", "show", "--json"))
    assert {keys(entry) for entry in found["entries"]} == {"path kind size used"}
    place = Path(found["cache"]) / "trees/old"
    place.mkdir(parents=True)
    (place / "file").write_bytes(b"x" * 200_000)
    lock = place.with_name("old.lock")
    lock.touch()
    os.utime(lock, (0, 0))
    rehearsed = parsed(stack("cache", "prune", "--dry-run", "--json"))
    assert rehearsed["dry_run"] is True
    assert [entry["path"] for entry in rehearsed["removed"]] == [str(place)]
    assert place.exists()
    assert "0.2 MB removed" in stack("cache", "prune").out
    assert not place.exists()
    assert parsed(stack("cache", "prune", "--json")) == {"dry_run": False, "removed": [], "stuck": []}
    assert stack("cache", "prune", "--older-than", "0").code == 2

# SPDX-License-Identifier: Apache-2.0
"""Merge attributes: upstream's `.gitattributes` count as they do in `git rebase`, the user's own attributes do not."""

from pathlib import Path

import pytest

from stack.carry import triage
from stack.carry.merge import merge
from stack.carry.outcome import Outcome
from stack.carry.triage import Range
from stack.store import git

from .trees import FILE, Scratch, Tree

TEXT = b"".join(b"line %d\n" % number for number in range(40))
NAMES = ("gen.json", "sub/gen.json", "sub/deep/gen [a].json", 'sub/q"uote\\.json', "other.py")


def changed(line: int, text: bytes = TEXT) -> bytes:
    return text.replace(b"line %d\n" % line, b"changed %d\n" % line)


@pytest.mark.parametrize(
    ("attributes", "theirs"),
    [
        ({".gitattributes": b"*.json -merge\n"}, 30),
        ({".gitattributes": b"*.json merge=union\n"}, 2),
        ({".gitattributes": b"*.json merge=union\n", "sub/.gitattributes": b"gen.json !merge\n"}, 2),
        ({".gitattributes": b"[attr]made -merge -diff\nsub/** made\n"}, 30),
        ({".gitattributes": b"*.json binary\n", "sub/deep/.gitattributes": b"* merge\n"}, 30),
        ({".gitattributes": b"*.json merge=binary\n"}, 30),
        ({".gitattributes": b"*.json merge=a-driver-of-theirs\n"}, 30),
        ({"sub/deep/.gitattributes": b"*.json -merge\n"}, 30),
        ({".gitattributes": b"*.json text\n"}, 2),
    ],
)
@pytest.mark.parametrize("renamed", [False, True])
def test_the_same_as_git_rebase(
    scratch: Scratch, tmp_path: Path, attributes: dict[str, bytes], theirs: int, renamed: bool
) -> None:
    stated: Tree = {path: (FILE, data) for path, data in attributes.items()}
    base = stated | dict.fromkeys(NAMES, (FILE, TEXT))
    ours = stated | {name: (FILE, changed(2)) for name in NAMES}
    if renamed:
        ours["sub/renamed.json"] = ours.pop("sub/gen.json")
    patched = stated | {
        name: (FILE, changed(theirs).replace(b"changed 2\n", b"mine 2\n")) for name in NAMES if name != "other.py"
    }
    patched["other.py"] = base["other.py"]
    commits = scratch.commits((base, None, "base\n"), (ours, 0, "ours\n"), (patched, 0, "patched\n"))
    found = merge(scratch.objects, {}, *(scratch.objects.tree_of(commit) for commit in commits))
    run = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "advice.detachedHead=false"]
    git.run(["clone", "--quiet", "--shared", "--no-checkout", str(scratch.objects.repository), "."], cwd=tmp_path)
    git.run([*run, "checkout", "--quiet", commits[2]], cwd=tmp_path)
    done = git.run([*run, "rebase", "--quiet", "--onto", commits[1], commits[0]], cwd=tmp_path, accept=(0, 1))
    unmerged = git.text(["diff", "--name-only", "-z", "--diff-filter=U"], cwd=tmp_path).split("\0")[:-1]
    assert {conflict.path for conflict in found.conflicts} == set(unmerged)
    assert bool(done.returncode) == bool(found.conflicts)
    if not found.conflicts:
        assert found.tree == git.text(["rev-parse", "HEAD^{tree}"], cwd=tmp_path)
        assert ("union" in str(attributes)) == ("lines of both" in str(found.notes)) or renamed


@pytest.mark.parametrize("pattern", ["*", "*.py", "a.py"])
@pytest.mark.parametrize("place", ["home", "config"])
def test_the_users_own_attributes_hide_no_conflict(tmp_path: Path, home: Path, pattern: str, place: str) -> None:
    repo = tmp_path / "repo"
    git.run(["init", "--quiet", "--initial-branch=main", str(repo)])
    for tag, line in (("base", b"one"), ("onto", b"two")):
        (repo / "a.py").write_bytes(b"x = %s\n" % line)
        git.run(["add", "--all"], cwd=repo)
        git.run(["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "-m", tag], cwd=repo)
        git.run(["tag", tag], cwd=repo)
    file = home / (".config/git/attributes" if place == "home" else "attributes")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pattern} merge=union\n")
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/attributes").write_text(f"{pattern} merge=union\n")
    if place == "config":
        (home / ".gitconfig").write_text(f"[core]\n\tattributesFile = {file}\n")
    patch = tmp_path / "one.patch"
    patch.write_text("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = one\n+x = mine\n")
    [row] = triage.triage(repo, Range("base", "onto"), [patch], cache=tmp_path / "cache").rows
    assert row.carried.outcome is Outcome.CONFLICT


def test_what_may_not_be_merged_is_not_resolved_by_its_structure(tmp_path: Path, home: Path) -> None:
    """Both sides add to a list, which a plain file would keep; a generated one has to be made anew."""
    for stated, outcome in (("", Outcome.RESOLVED), ("*.py -merge\n", Outcome.CONFLICT)):
        repo = tmp_path / f"repo-{outcome}"
        git.run(["init", "--quiet", "--initial-branch=main", str(repo)])
        (repo / ".gitattributes").write_text(stated)
        for tag, line in (("base", ""), ("onto", '    "theirs",\n')):
            (repo / "names.py").write_text(f'__all__ = [\n    "one",\n    "two",\n{line}]\n')
            git.run(["add", "--all"], cwd=repo)
            git.run(["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "-m", tag], cwd=repo)
            git.run(["tag", tag], cwd=repo)
        patch = tmp_path / "one.patch"
        hunk = '@@ -1,4 +1,5 @@\n __all__ = [\n     "one",\n     "two",\n+    "mine",\n ]\n'
        patch.write_text(f"diff --git a/names.py b/names.py\n--- a/names.py\n+++ b/names.py\n{hunk}")
        [row] = triage.triage(repo, Range("base", "onto"), [patch], cache=tmp_path / "cache").rows
        assert row.carried.outcome is outcome
    assert ".gitattributes" in row.carried.conflicts[0].reason

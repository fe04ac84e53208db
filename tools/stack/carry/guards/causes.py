# SPDX-License-Identifier: Apache-2.0
"""Find the upstream commit with which a guard's target changed, by bisecting the first-parent history.

Only commits that touch a path on which the judgement depends are looked at. Few of a thousand do, so few files are read, which
counts in a partial clone: it fetches each one.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from stack.carry.blame import begins, first_where
from stack.carry.guards.judgement import Cause
from stack.model.ids import CommitId
from stack.store import git
from stack.store.objects import Objects

Changed = Callable[[CommitId], bool]
"""Tells whether the target has changed at a commit."""


def is_known(objects: Objects, commit: str) -> bool:
    """Return whether the store has a commit; nothing is fetched."""
    ask = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"]
    return git.run(ask, env={"GIT_DIR": str(objects.repository), **git.HERE_ONLY}, accept=(0, 1, 128)).returncode == 0


def full_id(objects: Objects, commit: str) -> CommitId:
    """Return the full id of a commit that the store has."""
    return CommitId(
        git.text(["rev-parse", "--verify", f"{commit}^{{commit}}"], env={"GIT_DIR": str(objects.repository)}).strip()
    )


def find(objects: Objects, start: CommitId, end: CommitId, looked: frozenset[str], changed: Changed) -> Cause | None:
    """Return the first commit after `start` from which on the target has changed up to `end`; None without history.

    Args:
        objects: the store.
        start: a commit at which the target was as the guard says.
        end: a commit at which it has changed.
        looked: the paths on which the judgements at both ends depend.
        changed: judges a commit.

    """
    if start == end or not is_related(objects, start, end):
        return None
    way = _way(objects, start, end)
    if not way:
        return None
    touching = [*_way(objects, start, end, looked)]
    if not touching or touching[-1] != way[-1]:
        touching.append(way[-1])
    place = begins(touching, changed)
    if place is None:
        return None
    # A judgement may depend on further paths in between: then the commit lies between two that touch the known ones.
    first = way.index(touching[place - 1]) + 1 if place else 0
    last = way.index(touching[place])
    between = way[first : last + 1]
    if len(between) > 1 and changed(between[-2]):
        inner = first_where(between, changed)
        found = between[inner] if inner is not None else between[-1]
    else:
        found = between[-1]
    return described(objects, found)


def described(objects: Objects, commit: CommitId) -> Cause:
    """Return a commit with its subject and its author's day."""
    show = ["show", "--no-patch", "--no-show-signature", "--format=%at%x00%s", commit]
    when, _, subject = git.text(show, env={"GIT_DIR": str(objects.repository)}).strip("\n").partition("\0")
    return Cause(commit, subject, _day(when))


def _day(seconds: str) -> str:
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "unknown date"


def is_related(objects: Objects, start: CommitId, end: CommitId) -> bool:
    """Return whether two commits have a common ancestor; commits made from archives have none."""
    done = git.run(["merge-base", start, end], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1))
    return done.returncode == 0


def _way(objects: Objects, start: CommitId, end: CommitId, paths: frozenset[str] | None = None) -> Sequence[CommitId]:
    """Return the first-parent commits after `start` up to `end`, oldest first; with `paths`, only those that touch one."""
    log = ["--literal-pathspecs", "rev-list", "--first-parent", "--reverse", f"{start}..{end}", "--", *sorted(paths or ())]
    if paths is not None and not paths:
        return ()
    listed = git.text(log, env={"GIT_DIR": str(objects.repository)}).split()
    return [CommitId(commit) for commit in listed]

# SPDX-License-Identifier: Apache-2.0
"""Tell what upstream did to the lines of a patch: each commit with its message, or only the release if the history is missing."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.base.addresses import redacted
from stack.carry.explaining.lines import Touched
from stack.carry.history import Index
from stack.carry.outcome import Carried, Upstream
from stack.model.ids import CommitId
from stack.model.pins import Pin
from stack.store import git
from stack.store.objects import Objects

_LONGEST = 6000
"""Upper bound of a commit message, in characters."""
_MOST = 40
"""Upper bound of the commits that an explanation has."""
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)\b")
_GITHUB = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+?(?:\.git)?/?")


@dataclass(frozen=True, slots=True)
class UpstreamChange:
    """A commit, or a release without known commits, and what it has to do with a patch.

    `roles`: `landed` (it brought the patch or a part of it), `conflict`, `drift` (it caused that), `lines` (it changed lines of
    the patch). `message` is the commit's message without the subject; `diff` its changes at the patch's lines.
    """

    commit: CommitId
    subject: str
    release: bool
    roles: tuple[str, ...]
    paths: tuple[str, ...] = ()
    message: str = ""
    author: str = ""
    date: str = ""
    pull: str | None = None
    diff: str = ""


def changes(
    objects: Objects, pin: Pin, row: Carried, touched: Iterable[Touched], index: Index | None
) -> tuple[UpstreamChange, ...]:
    """Collect the upstream changes that explain a patch's outcome: first those that caused it, then those of the same lines."""
    known: dict[str, UpstreamChange] = {}
    for role, path, cause in _causes(row):
        _add(known, UpstreamChange(cause.commit, cause.subject, cause.release, (role,), (path,) if path else ()))
    releases = index is not None and index.releases
    for touch in touched:
        hunks = f"--- {touch.path}\n{_shown(touch)}" if touch.hunks else ""
        step = touch.step
        _add(known, UpstreamChange(step.commit, step.subject, releases, ("lines",), (touch.path,), diff=hunks))
    chosen = list(known.values())[:_MOST]
    told = _messages(objects, [change.commit for change in chosen if not change.release])
    return tuple(_with_message(change, told, pin) for change in chosen)


def _causes(row: Carried) -> Iterator[tuple[str, str, Upstream]]:
    if row.landed is not None and not row.landed.behaviour:
        release = row.landed.subject == row.landed.rung
        yield "landed", "", Upstream(row.landed.commit, row.landed.subject, release)
    for conflict in row.conflicts:
        yield from (("conflict", conflict.path, cause) for cause in conflict.upstream)
    for drift in row.drifts:
        yield from (("drift", drift.path, cause) for cause in drift.upstream)


def _add(known: dict[str, UpstreamChange], change: UpstreamChange) -> None:
    before = known.get(change.commit)
    if before is None:
        known[change.commit] = change
        return
    known[change.commit] = replace(
        before,
        roles=tuple(dict.fromkeys((*before.roles, *change.roles))),
        paths=tuple(dict.fromkeys((*before.paths, *change.paths))),
        diff=before.diff + change.diff,
    )


def _shown(touch: Touched) -> str:
    lines = []
    for hunk in touch.hunks:
        lines.append(f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count} @@")
        lines += [line.decode("utf-8", "backslashreplace") for line in hunk.lines]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _Told:
    author: str
    date: str
    message: str


def _messages(objects: Objects, commits: Sequence[CommitId]) -> Mapping[str, _Told]:
    """Read the messages of commits."""
    if not commits:
        return {}
    show = ["log", "--no-walk=unsorted", "-z", "--format=%H%n%an%n%as%n%b", *dict.fromkeys(commits)]
    told = {}
    for entry in git.text(show, env={"GIT_DIR": str(objects.repository)}).split("\0"):
        commit, author, date, message = (*entry.split("\n", 3), "", "", "")[:4]
        told[commit] = _Told(author, date, message.strip("\n")[:_LONGEST])
    return told


def _with_message(change: UpstreamChange, told: Mapping[str, _Told], pin: Pin) -> UpstreamChange:
    one = told.get(change.commit)
    if one is None:
        return change
    return replace(change, message=one.message, author=one.author, date=one.date, pull=pull_address(change.subject, pin))


def pull_address(subject: str, pin: Pin) -> str | None:
    """Return the address of the pull request that a subject names, where the form of the address is known."""
    match = _PULL.search(subject)
    address = redacted(pin.git)
    if match is None or not _GITHUB.fullmatch(address):
        return None
    return f"{address.rstrip('/').removesuffix('.git')}/pull/{match[match.lastindex or 1]}"

# SPDX-License-Identifier: Apache-2.0
"""The writes that a night may make at a forge, as plain values that a plan lists."""

from dataclasses import dataclass
from typing import TypeAlias

from stack.base.text import printable
from stack.forge.threads import PullThread, ThreadState


@dataclass(frozen=True, slots=True)
class OpenIssue:
    """Open an issue."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class EditIssue:
    """Set the title, the text and the state of an issue."""

    number: int
    title: str
    body: str
    state: ThreadState


@dataclass(frozen=True, slots=True)
class AddComment:
    """Comment on an issue."""

    number: int
    body: str


@dataclass(frozen=True, slots=True)
class RemoveLabel:
    """Take a label from an issue, or from a pull request if `pull`: some forges count both together, others do not."""

    number: int
    label: str
    pull: bool = False


@dataclass(frozen=True, slots=True)
class PushBranch:
    """Point a branch at a commit, if it still is at `expected`; None: if it does not exist."""

    branch: str
    commit: str
    expected: str | None


@dataclass(frozen=True, slots=True)
class OpenPull:
    """Open a draft pull request from a branch of the repository."""

    branch: str
    onto: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class EditPull:
    """Set the title and the text of a pull request, and close it if `closed`."""

    pull: PullThread
    title: str
    body: str
    closed: bool = False


Write: TypeAlias = OpenIssue | EditIssue | AddComment | RemoveLabel | PushBranch | OpenPull | EditPull


def sentence(write: Write) -> str:
    """Say what a write does, in one line."""
    match write:
        case OpenIssue():
            told = f"open an issue: {write.title}"
        case EditIssue():
            told = f"update issue #{write.number} ({write.state.value}): {write.title}"
        case AddComment():
            told = f"comment on issue #{write.number}"
        case RemoveLabel():
            told = f"take the label {write.label} from {'pull request' if write.pull else 'issue'} {write.number}"
        case PushBranch():
            told = f"push {write.commit[:12]} to {write.branch}"
        case OpenPull():
            told = f"open a draft pull request: {write.title}"
        case EditPull():
            told = f"{'close' if write.closed else 'update'} {write.pull.shown}: {write.title}"
    return printable(told)

# SPDX-License-Identifier: Apache-2.0
"""What stands in the forks by our doing: refs of the store, so that it cannot be without its commits.

`refs/stack/pushed/<fork>/<branch>` is what a fork was seen to have after a push, `refs/stack/pushing/<fork>/<branch>` what is on its
way there: a push that was killed may have arrived. `refs/tags/<branch>/v<number>` are earlier versions of a branch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from stack.model.ids import CommitId
from stack.store import git
from stack.upstreaming.fork import Fork

PUSHED = "refs/stack/pushed"
PUSHING = "refs/stack/pushing"
_RECORD = re.compile(r"(?P<fork>.+)/(?P<branch>pr/[^/]+/[^/]+)")
_CHUNK = 200
"""Characters of a file's name, which a part of a ref becomes: Linux has 255 at most."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A branch that a fork has from us; `fork` is its address as it may be shown."""

    fork: str
    branch: str
    commit: CommitId


def everything(store: Path) -> tuple[Pushed, ...]:
    """All that forks of this store's upstream were seen to have from us."""
    found = ((_RECORD.fullmatch(name.removeprefix(f"{PUSHED}/")), commit) for name, commit in refs(store, PUSHED).items())
    return tuple(Pushed(_decoded(one["fork"]), one["branch"], commit) for one, commit in found if one)


def record(kind: str, fork: Fork, branch: str) -> str:
    """The ref that says what a fork has of a branch, or is about to."""
    return f"{kind}/{_encoded(str(fork))}/{branch}"


def refs(store: Path, below: str) -> Mapping[str, CommitId]:
    """Refs of the store with their commits."""
    lines = git.text(["for-each-ref", "--format=%(objectname) %(refname)", below], env={"GIT_DIR": str(store)}).splitlines()
    return {name: CommitId(commit) for commit, name in (line.split(" ", 1) for line in lines)}


def _encoded(address: str) -> str:
    """An address as parts of a ref: dots are encoded, too, since git forbids some."""
    text = quote(address, safe="").replace(".", "%2E").replace("~", "%7E")
    return "/".join(text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))


def _decoded(name: str) -> str:
    return unquote(name.replace("/", ""))

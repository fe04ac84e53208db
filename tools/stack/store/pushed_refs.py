# SPDX-License-Identifier: Apache-2.0
"""Record what this tool has pushed to forks, as refs of the store, which also keep the commits from being collected.

`refs/stack/pushed/<fork>/<branch>` is what the fork had after a push. `refs/stack/pushing/<fork>/<branch>` is a push under way:
if it was killed, its commits may have arrived. `refs/tags/<branch>/v<number>` are earlier versions of a branch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from stack.model.ids import CommitId
from stack.store import git
from stack.store.fork import Fork

PUSHED = "refs/stack/pushed"
PUSHING = "refs/stack/pushing"
_RECORD = re.compile(r"(?P<fork>.+)/(?P<branch>pr/[^/]+/[^/]+)")
_CHUNK = 200
"""Characters of one part of a ref, which becomes a file name: Linux allows 255 at most."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A branch that was pushed to a fork; `fork` is the fork's address without secrets."""

    fork: str
    branch: str
    commit: CommitId


def everything(store: Path) -> tuple[Pushed, ...]:
    """List all branches that were pushed to forks of this store's upstream."""
    matched = ((_RECORD.fullmatch(name.removeprefix(f"{PUSHED}/")), commit) for name, commit in refs(store, PUSHED).items())
    return tuple(Pushed(_decoded(match["fork"]), match["branch"], commit) for match, commit in matched if match)


def record(kind: str, fork: Fork, branch: str) -> str:
    """Return the name of the ref that records a branch of a fork; `kind` is `PUSHED` or `PUSHING`."""
    return f"{kind}/{_encoded(str(fork))}/{branch}"


def refs(store: Path, below: str) -> Mapping[str, CommitId]:
    """Return the refs of the store below a prefix, with their commits."""
    lines = git.text(["for-each-ref", "--format=%(objectname) %(refname)", below], env={"GIT_DIR": str(store)}).splitlines()
    return {name: CommitId(commit) for commit, name in (line.split(" ", 1) for line in lines)}


def _encoded(address: str) -> str:
    """Encode an address as parts of a ref; dots are encoded, too, because git forbids some of them."""
    text = quote(address, safe="").replace(".", "%2E").replace("~", "%7E")
    return "/".join(text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))


def _decoded(name: str) -> str:
    return unquote(name.replace("/", ""))

# SPDX-License-Identifier: Apache-2.0
"""Give a working tree upstream's release tags, and remotes of the user's own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.commits import BASE_TAG
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.store import git, listed_tags
from stack.store.fork import readable
from stack.store.remote import REMOTE, ungrafted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote of the user: its name and address."""

    name: str
    address: str


def read(given: Sequence[str]) -> tuple[Remote, ...]:
    """Parse `NAME=URL` each.

    Raises:
        StackError: a name or an address is not valid, or a name occurs twice.

    """
    remotes = [_remote(one) for one in given]
    names = [remote.name for remote in remotes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StackError(f"two remotes are called {twice}", "give each its own name")
    return tuple(remotes)


def _remote(given: str) -> Remote:
    name, equals, address = given.partition("=")
    if not equals or not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        raise StackError(f"{name!r:.100} cannot be the name of a remote", "write --remote NAME=URL")
    if name == REMOTE:
        raise StackError(f"the remote {REMOTE} is the pin's own", "give yours another name")
    if _CONTROL.search(address):
        raise StackError(f"the address of {name} has a control character", "write --remote NAME=URL")
    readable(address)
    # A relative path would be read from inside of the working tree.
    local = Path(address).expanduser()
    return Remote(name, str(local.resolve()) if "://" not in address and local.is_dir() else address)


def add(folder: Path, remote: Remote) -> None:
    """Configure a remote in a repository; nothing is fetched."""
    git.run(["config", f"remote.{remote.name}.url", remote.address], cwd=folder)
    git.run(["config", f"remote.{remote.name}.fetch", f"+refs/heads/*:refs/remotes/{remote.name}/*"], cwd=folder)


def tags(stores: Stores, upstream: str, base: CommitId) -> Mapping[str, CommitId]:
    """Return the references of upstream's tags: the pin's, and with the git source the releases whose commits the store has."""
    pin = stores.stack.pins.get(upstream)
    if pin.within is not None or stores.source(upstream) != "git":
        return pinned_tag(stores, upstream, base)
    # A working tree with the git source borrows all objects of the store, so that a tag costs nothing.
    listed = listed_tags.known(stores.objects(upstream).repository)
    releases = {f"refs/tags/{tag}": commit for tag, commit in listed.items() if pin.releases.version(tag) is not None}
    own = f"refs/tags/{BASE_TAG}/"
    kept = {ref: commit for ref, commit in releases.items() if not f"{ref}/".startswith(own)}
    return {**kept, **pinned_tag(stores, upstream, base)}


def pinned_tag(stores: Stores, upstream: str, base: CommitId) -> Mapping[str, CommitId]:
    """Return the reference of the pin's tag with upstream's commit; nothing if the pin has no tag that git can hold."""
    tag = stores.stack.pins.get(upstream).tag
    if tag is None or tag == BASE_TAG:
        return {}
    ref = f"refs/tags/{tag}"
    if git.run(["check-ref-format", ref], accept=(0, 1)).returncode:
        return {}
    return {ref: ungrafted(stores.objects(upstream), base)}

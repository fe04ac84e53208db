# SPDX-License-Identifier: Apache-2.0
"""Export the carried tree as a branch, with one commit per patch: into a clone on this machine, or to a remote.

A branch is replaced only if it is still at the commit that an earlier export put there, or at a commit that the user names. The
store records what was exported where.
"""

import contextlib
import tempfile
from collections.abc import Set
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import apply
from stack.carry.exporting import chain as chains
from stack.carry.exporting.chain import Chain
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.store import cache, git, remote, repository, users_clone
from stack.store import fork as forks
from stack.store.fork import Move
from stack.store.objects import Objects
from stack.store.pushed_refs import record, refs
from stack.store.remote import ungrafted

_EXPORTED = "refs/stack/exported"
_EXPORTING = "refs/stack/exporting"
_NONE = "0" * 40
_DIGITS = 7
"""Digits of a commit id that are enough to name it."""


class BranchState(Enum):
    """The state of a branch after an export."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Exported:
    """A branch after an export. `before` is the commit that it was at, None if it is new; `where` is shown without secrets."""

    where: str
    branch: str
    chain: Chain
    before: CommitId | None
    state: BranchState = BranchState.REFUSED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a branch goes: its name, and a clone's folder, an address, or the name of a remote of the stack's git.

    `over`: the commit (seven digits or more) that may be replaced although no export put it there.
    """

    branch: str
    to: str
    over: str | None = None


def export(stores: Stores, upstream: str, target: Target, *, plain: bool) -> Exported:
    """Export an upstream's patches as a branch.

    Raises:
        StackError: the branch's name is invalid, the target cannot be used, a patch does not apply, or a connection failed.

    """
    _check(target)
    folder = Path(target.to)
    common = _git_folder(folder) if folder.is_dir() else None
    if common is not None:
        return _into_clone(stores, upstream, folder, common, target, plain=plain)
    return _to_remote(stores, upstream, target, plain=plain)


def _check(target: Target) -> None:
    if git.run(["check-ref-format", f"refs/heads/{target.branch}"], accept=(0, 1)).returncode or target.branch.startswith("-"):
        raise StackError(f"{target.branch!r} cannot be the name of a branch", "see `git help check-ref-format`")
    if target.over is not None and (len(target.over) < _DIGITS or set(target.over.lower()) - set("0123456789abcdef")):
        raise StackError(f"--force-with-lease={target.over} is not a commit", f"name it by {_DIGITS} digits or more")


def _git_folder(folder: Path) -> Path | None:
    """Return the folder with the objects and references of a repository, None if there is none exactly here."""
    asked = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-prefix"]
    done = git.run(asked, cwd=folder, accept=(0, 128))
    lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    return Path(lines[0]) if done.returncode == 0 and not lines[1] else None


def _into_clone(stores: Stores, upstream: str, folder: Path, common: Path, target: Target, *, plain: bool) -> Exported:
    """Write the commits into a clone, and move the branch and the record of it in one transaction."""
    ref, own = f"refs/heads/{target.branch}", f"{_EXPORTED}/{target.branch}"
    place = {"GIT_DIR": str(common)}
    busy = git.text(["for-each-ref", "--format=%(worktreepath)", ref], env=place)
    if busy:
        raise StackError(f"{target.branch} is checked out in {busy}", "check out another branch there, or name a new one")
    chain = _chain_in_clone(stores, upstream, common, plain=plain)
    now, ours = refs(common, ref).get(ref), refs(common, own).get(own)
    found = _compared(Exported(str(folder), target.branch, chain, now), {ours}, target)
    if found.state is not BranchState.REFUSED:
        orders = (f"update {ref}\0{chain.tip}\0{now or _NONE}\0", f"update {own}\0{chain.tip}\0{ours or _NONE}\0")
        # A hook of the clone could run commands; references alone need none.
        command = ["-c", "core.hooksPath=/dev/null", "update-ref", "-m", "stack export", "--create-reflog", "--stdin", "-z"]
        git.run(command, stdin="".join(orders).encode(), env=place)
    return found


def _chain_in_clone(stores: Stores, upstream: str, common: Path, *, plain: bool) -> Chain:
    """Write the commits on upstream's own commit if the clone has it, else copy the pinned tree and the commits on it."""
    pin, env = stores.stack.pins.get(upstream), {"GIT_DIR": str(common)}
    asked = ["rev-parse", "--verify", "--quiet", f"{pin.commit}^{{commit}}"]
    with users_clone.read_only_here(common):
        has = git.run(asked, env=env, accept=(0, 1, 128)) if pin.within is None else None
    if has is not None and has.returncode == 0:
        with users_clone.read_only_here(common), Objects(common) as objects, contextlib.suppress(apply.DoesNotApply):
            # A patch of a generated or vendored file does not apply: upstream's own commit lacks these files.
            own = CommitId(has.stdout.decode("ascii").strip())
            return chains.write(objects, own, stores.stack.order(upstream), plain=plain)
    elif stores.source(upstream) == "git":
        raise StackError(
            f"the clone lacks {pin.commit[:12]} of {upstream}", f"in the clone: git fetch {pin.git} {pin.revision}"
        )
    chain = chains.of_pin(stores, upstream, plain=plain)
    # Allow fetching any commit by its id: everyone who can read the store can read all of it anyway.
    serve = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
    fetch = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", f"--upload-pack={serve}"]
    # In a repository without settings: those of the clone could send git to another address, or name a program.
    with tempfile.TemporaryDirectory(prefix="stack-") as place:
        git.run(["init", "--quiet", "--bare", "--template=", place])
        into = {"GIT_DIR": place, "GIT_OBJECT_DIRECTORY": str(common / "objects")}
        git.run([*fetch, str(stores.objects(upstream).repository), chain.tip], env=into)
    return chain


def _to_remote(stores: Stores, upstream: str, target: Target, *, plain: bool) -> Exported:
    """Push the branch with an exact lease; a push is recorded before it starts, since only its answer may be lost."""
    chain = _chain_for_remote(stores, upstream, plain=plain)
    store = stores.objects(upstream).repository
    fork = forks.at(stores.stack.pins.get(upstream), target.to, stores.stack.root, store)
    if not chain.real and not fork.local:
        raise StackError(
            f"{stores.stack.pins.get(upstream).shown} from an archive is not a commit of {upstream}",
            "run it with --source git: what is pushed stands on upstream's own commit",
        )
    done, begun = record(_EXPORTED, fork, target.branch), record(_EXPORTING, fork, target.branch)
    ref = f"refs/heads/{target.branch}"
    with cache.lock(store, lambda: stores.tell("waiting for another process")) as held:
        if chain.real and not forks.has(store, fork, ungrafted(stores.objects(upstream), chain.base)):
            raise StackError(f"{fork} lacks {chain.base[:12]} of {upstream}", "bring it up to date with upstream first")
        now = forks.look(store, fork, [target.branch]).get(ref)
        ours = {refs(store, name).get(name) for name in (done, begun)}
        found = _compared(Exported(str(fork), target.branch, chain, now), ours, target)
        if found.state in (BranchState.NEW, BranchState.UPDATED):
            repository.set_refs(store, {begun: chain.tip})
            stores.tell(f"pushing to {fork}")
            refused = forks.push(store, fork, [Move(ref, chain.tip, now)], [held])
            if refused:
                return replace(found, state=BranchState.REFUSED, reason=refused.get(ref, "the remote refused it"))
        if found.state is not BranchState.REFUSED:
            repository.set_refs(store, {done: chain.tip, begun: None} if begun in refs(store, begun) else {done: chain.tip})
    return found


def _chain_for_remote(stores: Stores, upstream: str, *, plain: bool) -> Chain:
    """Write the commits on upstream's own commit; on the pinned tree if they change what upstream only vendors."""
    objects, patches = stores.objects(upstream), stores.stack.order(upstream)
    base = stores.base(upstream)
    own = ungrafted(objects, base)
    real = remote.is_own(objects.repository, own)
    try:
        chain = chains.write(objects, own, patches, plain=plain)
    except apply.DoesNotApply:
        chain = chains.write(objects, base, patches, plain=plain)
    return replace(chain, real=real)


def _compared(found: Exported, ours: Set[CommitId | None], target: Target) -> Exported:
    """Decide what may become of a branch from the commit that it is at now."""
    now = found.before
    if now == found.chain.tip:
        return replace(found, state=BranchState.UNCHANGED)
    if now is None:
        return replace(found, state=BranchState.NEW)
    if now in ours or (target.over is not None and now.startswith(target.over.lower())):
        return replace(found, state=BranchState.UPDATED)
    why = "has moved since the last export" if ours - {None} else "is there, and no export made it"
    reason = f"{target.branch} {why}: --force-with-lease={now[:12]} replaces it"
    return replace(found, state=BranchState.REFUSED, reason=reason)

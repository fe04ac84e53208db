# SPDX-License-Identifier: Apache-2.0
"""Check the patches out as commits of an ordinary git working tree, and write the commits back as patches.

The working tree is a repository of its own and outlives the store. Two trailers in each commit's message name the commit's
series and patch file. `checkout` adds these trailers, and `refresh` removes them.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry import links, patch_sources, worktree_state
from stack.carry.arranging import arranged
from stack.carry.commits import BASE_TAG, WorktreeCommit, exported, read_commits
from stack.carry.new_folder import aside, check_free
from stack.carry.person import Person
from stack.carry.remotes import Remote, add, tags
from stack.carry.signoff import sign_commits, sign_patches
from stack.carry.trailers import PATCH, SERIES, marks, with_trailers
from stack.carry.upstream_stores import Stores
from stack.model import document, lanes, series
from stack.model.ids import LANE, OBJECT, UPSTREAM, CommitId
from stack.model.pins import Source
from stack.model.series import PatchRef
from stack.model.stack import FOLDER, Stack
from stack.store import git
from stack.store.objects import Identity, Objects
from stack.store.remote import REMOTE

BRANCH = "stack"
_RECORD = "stack-checkout.json"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The changes from a working tree to the stack: the files to write, and the patches sorted by kind of change.

    `signed` is the working tree's last commit before and after it was signed off, None if no commit had to be.
    """

    files: Mapping[str, bytes | None]
    expected: Mapping[str, bytes | None]
    kept: tuple[PatchRef, ...]
    changed: tuple[PatchRef, ...]
    added: tuple[PatchRef, ...]
    dropped: tuple[PatchRef, ...]
    signed: tuple[CommitId, CommitId] | None = None

    @property
    def patches(self) -> tuple[PatchRef, ...]:
        """Return the upstream's patches that the working tree has."""
        return (*self.kept, *self.changed, *self.added)


@dataclass(frozen=True, slots=True)
class _Record:
    """The patch files that a working tree was last synchronised with: SHA-256 by path.

    `before`: the same before the last refresh. The stack still has these files if that refresh was killed or undone.
    """

    upstream: str
    source: Source
    base: CommitId
    patches: Mapping[str, str]
    before: Mapping[str, str] = field(default_factory=dict)
    lane: str | None = None


def checkout(stores: Stores, upstream: str, folder: Path, remotes: Sequence[Remote] = ()) -> CommitId:
    """Make a working tree of the pinned upstream with a commit for each patch; return the last commit.

    Upstream's release tags are there, too, as far as they cost no download. `remotes` are the user's own.

    Raises:
        StackError: the folder is not empty, or a patch does not apply.

    """
    check_free(stores.stack, folder)
    patch_sources.check(stores.stack, upstream)
    objects = stores.objects(upstream)
    base = stores.base(upstream)
    patches = stores.stack.order(upstream)
    tip = base
    for patch, commit in zip(patches, links.checked_chain(objects, base, patches), strict=True):
        author = Identity(patch.author.name, patch.author.mail, patch.author.date)
        added = {SERIES: patch.ref.series, PATCH: patch.ref.file}
        tip = objects.write_commit(objects.tree_of(commit), (tip,), with_trailers(patch.message, added), author)
    written = {patch.ref.path: hashlib.sha256(patch.raw).hexdigest() for patch in patches}
    record = _Record(upstream, stores.source(upstream), base, written, lane=stores.stack.lane)
    # A folder cannot be renamed over a link.
    with aside(folder.resolve() if folder.is_symlink() else folder) as part:
        refs = {f"refs/heads/{BRANCH}": tip, f"refs/tags/{BASE_TAG}": base, **tags(stores, upstream, base)}
        seed(part, objects, refs, partial=record.source == "git")
        for remote in remotes:
            add(part, remote)
        git.run(["symbolic-ref", "HEAD", f"refs/heads/{BRANCH}"], cwd=part)
        _write_record(part / ".git" / _RECORD, record)
        git.run(["reset", "--quiet", "--hard"], cwd=part)
    return tip


def seed(folder: Path, objects: Objects, refs: Mapping[str, CommitId], *, partial: bool) -> None:
    """Make a repository in `folder` with some commits of a store; borrow the objects of a partial clone, copy others."""
    git.run(["init", "--quiet", f"--initial-branch={BRANCH}", str(folder)])
    if partial:
        (folder / ".git/objects/info").mkdir(exist_ok=True)
        (folder / ".git/objects/info/alternates").write_text(f"{objects.repository / 'objects'}\n")
        names = (
            "core.repositoryformatversion",
            *(f"remote.{REMOTE}.{name}" for name in ("url", "promisor", "partialclonefilter")),
        )
        known = git.settings(objects.repository)
        git.add_settings(folder / ".git", {name: known[name][-1] for name in names if name in known})
    else:
        # Allow fetching any commit by its id: everyone who can read the store can read all of it anyway.
        serve = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
        git.run(
            ["fetch", "--quiet", "--no-tags", f"--upload-pack={serve}", str(objects.repository), *refs.values()], cwd=folder
        )
    git.run(
        ["update-ref", "--stdin"],
        stdin="".join(f"update {ref} {commit}\n" for ref, commit in refs.items()).encode(),
        cwd=folder,
    )
    # Patches hold the exact bytes of the commits, so a user's setting must not convert line ends.
    git.add_settings(folder / ".git", {"core.autocrlf": "false"})


def recorded_source(folder: Path, upstream: str) -> Source:
    """Return where the trees of a working tree come from, as it was checked out.

    Raises:
        StackError: it is not a working tree of this upstream that `checkout` made.

    """
    return _record(folder, upstream).source


def recorded_lane(folder: Path, upstream: str, asked: str | None) -> str | None:
    """Return the lane that a working tree was checked out in; `asked` is the one that the user names, None if none is named.

    Raises:
        StackError: it was checked out in another lane, or is not a working tree of this upstream that `checkout` made.

    """
    own = lanes.named(_record(folder, upstream).lane)
    if asked is not None and asked != own:
        raise StackError(f"{folder} was checked out with --lane {own}", "leave --lane out, or name the same")
    return lanes.key(own)


def refresh(stores: Stores, upstream: str, folder: Path, *, signer: Person | None = None) -> Refreshed:
    """Compute the new patches from the commits of a working tree; the stack is not written.

    `signer` signs off the commits that nobody has signed off.

    Raises:
        StackError: something would be lost: uncommitted changes, commits without a series, merges, patches that were changed
            in the stack since the checkout; or the working tree stands on another pin.

    """
    record = _record(folder, upstream)
    if record.source != stores.source(upstream):
        raise StackError(f"{folder} was checked out with --source {record.source}", "leave --source out, or name the same")
    _check_settled(folder)
    _check_unchanged(stores.stack, record)
    patch_sources.check(stores.stack, upstream)
    base = record.base
    if base != stores.base(upstream):
        raise StackError(f"{folder} stands on another pin of {upstream}", "check it out anew and move your commits there")
    with Objects(_common(folder)) as objects:
        found = read_commits(objects, folder, base)
        commits = found if signer is None else sign_commits(objects, base, found, signer)
        objects.flush()
        placed = arranged(objects, base, commits, _places(stores.stack, commits))
        refs = _assign(stores.stack, upstream, placed)
        raws = exported(stores.objects(upstream), objects, base, placed, refs)
    signed = None if commits == found else (found[-1].id, commits[-1].id)
    return replace(_refreshed(stores.stack, upstream, raws), signed=signed)


def refresh_from_sources(stores: Stores, upstream: str) -> Refreshed:
    """Compute the new patches of an upstream from the folders that their `from` names; nothing is written.

    Raises:
        StackError: no patch of the upstream has such a folder, or a later patch does not apply to the new files.

    """
    if not any(ref.upstream == upstream for ref in stores.stack.sources):
        raise StackError(
            f"no patch of {upstream} has its files in a folder", f"name a working tree: stack refresh {upstream} DIR"
        )
    return _refreshed(stores.stack, upstream, patch_sources.refreshed(stores, upstream))


def signed_off(stores: Stores, upstream: str, signer: Person) -> Refreshed:
    """Compute the patches of an upstream with a sign-off each; nothing is written.

    Raises:
        StackError: a folder with a patch's files differs from the patch, or a patch does not apply.

    """
    patch_sources.check(stores.stack, upstream)
    return _refreshed(stores.stack, upstream, sign_patches(stores, upstream, signer))


def write_back(stack: Stack, folder: Path, found: Refreshed, *, title: str, follow: bool = False) -> None:
    """Write the result of `refresh` to the stack.

    First the working tree gets its signed commits and a record of the new patch files. If the process is killed in between, the
    next refresh writes the same patches. `follow`: lanes that use the same files follow the change.

    Raises:
        StackError: the stack has changed meanwhile, or cannot be written.

    """
    file = _record_file(folder)
    record = _read_record(file)
    if found.signed is not None:
        before, after = found.signed
        git.run(["update-ref", "-m", "stack refresh --signoff", "HEAD", after, before], cwd=folder)
    written = {ref.path: hashlib.sha256(found.files[f"{FOLDER}/{ref.path}"] or b"").hexdigest() for ref in found.patches}
    _write_record(file, replace(record, patches=written, before=_files(stack, record.upstream)))
    lanes.apply(stack, found.files, title=title, expected=found.expected, follow=follow)


def _record(folder: Path, upstream: str) -> _Record:
    if not folder.is_dir():
        raise StackError(f"{folder} is not a folder", f"`stack checkout {upstream} {folder}` makes it")
    file = _record_file(folder)
    if not file.is_file():
        raise StackError(f"{folder} was not made by `stack checkout`", f"make one: stack checkout {upstream} DIR")
    record = _read_record(file)
    if record.upstream != upstream:
        raise StackError(f"{folder} is a working tree of {record.upstream}", f"stack refresh {record.upstream} {folder}")
    return record


def _read_record(file: Path) -> _Record:
    return worktree_state.read(file, _taken, remedy="check out anew and move your commits there")


def _taken(table: document.Table) -> _Record:
    patches = table.table("patches")
    before = table.optional_table("before")
    return _Record(
        upstream=table.text("upstream", pattern=UPSTREAM),
        source=worktree_state.source(table),
        base=CommitId(table.text("base", pattern=OBJECT)),
        patches={path: patches.text(path) for path in patches},
        before={} if before is None else {path: before.text(path) for path in before},
        lane=table.optional_text("lane", pattern=LANE) if table.given("lane") else None,
    )


def _record_file(folder: Path) -> Path:
    inside = git.run(["rev-parse", "--path-format=absolute", "--git-common-dir"], cwd=folder, accept=(0, 128))
    return Path(inside.stdout.decode().strip()) / _RECORD


def _write_record(file: Path, record: _Record) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(asdict(record), indent=1))
    part.rename(file)


def _common(folder: Path) -> Path:
    return Path(git.text(["rev-parse", "--path-format=absolute", "--git-common-dir"], cwd=folder))


def _check_settled(folder: Path) -> None:
    git_dir = Path(git.text(["rev-parse", "--absolute-git-dir"], cwd=folder))
    for name in ("rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "BISECT_LOG"):
        if (git_dir / name).exists():
            raise StackError(f"{folder} is in the middle of a git operation ({name})", "finish or abort it first")
    dirty = git.text(["status", "--porcelain", "-z", "--untracked-files=all"], cwd=folder).split("\0")[:-1]
    if dirty:
        raise StackError(
            f"{folder} has {counted(len(dirty), 'uncommitted change')}, first {dirty[0][3:]}",
            "commit, stash or remove them: refresh would lose them",
        )


def _check_unchanged(stack: Stack, record: _Record) -> None:
    now = _files(stack, record.upstream)
    if now == record.before:
        return
    for path in sorted(record.patches.keys() | now.keys()):
        if record.patches.get(path) != now.get(path):
            raise StackError(
                f"{FOLDER}/{path} has changed in the stack since the checkout", "check out anew and move your commits there"
            )


def _files(stack: Stack, upstream: str) -> dict[str, str]:
    """Hash an upstream's patch files, as a record holds them."""
    return {patch.ref.path: hashlib.sha256(patch.raw).hexdigest() for patch in stack.order(upstream)}


def _places(stack: Stack, commits: Sequence[WorktreeCommit]) -> Callable[[WorktreeCommit], int]:
    """Return the function that tells the place of a commit's series; each commit has to name one."""
    order = [member.name for member in stack.series]
    for commit in commits:
        name = marks(commit.message).get(SERIES)
        if name is None:
            raise StackError(
                f"commit {commit.id[:12]} ({commit.subject}) names no series",
                f"add one: git commit --amend --trailer '{SERIES}: <name>'",
            )
        if name not in order:
            raise StackError(
                f"commit {commit.id[:12]} names the series {name!r}, which is not in {FOLDER}/",
                f"there are: {', '.join(order)}",
            )
    return lambda commit: order.index(marks(commit.message)[SERIES])


def _assign(stack: Stack, upstream: str, commits: Sequence[WorktreeCommit]) -> list[PatchRef]:
    """Assign a patch to each commit; the commits are in the order of the series."""
    taken: set[PatchRef] = {ref for member in stack.series for ref in member.patches if ref.upstream != upstream}
    refs: list[PatchRef] = []
    for commit in commits:
        marked = marks(commit.message)
        wanted = PatchRef(marked[SERIES], upstream, _file(marked.get(PATCH), upstream, commit.subject))
        ref = _free(wanted, upstream, commit.subject, taken)
        taken.add(ref)
        refs.append(ref)
    return refs


def _file(marked: str | None, upstream: str, subject: str) -> str:
    return (
        marked
        if marked and re.fullmatch(rf"{upstream}/[A-Za-z0-9][A-Za-z0-9._-]*\.patch", marked)
        else f"{upstream}/{series.slug(subject)}.patch"
    )


def _free(ref: PatchRef, upstream: str, subject: str, taken: set[PatchRef]) -> PatchRef:
    """Return a patch that no earlier commit has: the second half of a split commit is named after its own subject."""
    names = (f"{upstream}/{series.slug(subject)}{'' if number == 1 else f'-{number}'}.patch" for number in range(1, 10_000))
    while ref in taken:
        ref = PatchRef(ref.series, upstream, next(names))
    return ref


def _refreshed(stack: Stack, upstream: str, new: Mapping[PatchRef, bytes]) -> Refreshed:
    before = {patch.ref: patch.raw for patch in stack.order(upstream)}
    files: dict[str, bytes | None] = {f"{FOLDER}/{ref.path}": None for ref in before}
    files |= {f"{FOLDER}/{ref.path}": data for ref, data in new.items()}
    expected: dict[str, bytes | None] = {f"{FOLDER}/{ref.path}": before.get(ref) for ref in before.keys() | new.keys()}
    files |= patch_sources.mirrored(stack, {ref: new.get(ref) for ref in before})
    for member in stack.series:
        path = f"{FOLDER}/{member.name}/{series.FILE}"
        text = lanes.text(stack, path)
        expected[path] = text.encode()
        refs = [ref for ref in new if ref.series == member.name]
        files[path] = series.edited(text, _listed(member, upstream, refs)).encode()
    return Refreshed(
        files=files,
        expected=expected,
        kept=tuple(ref for ref in new if before.get(ref) == new[ref]),
        changed=tuple(ref for ref in new if ref in before and before[ref] != new[ref]),
        added=tuple(ref for ref in new if ref not in before),
        dropped=tuple(ref for ref in before if ref not in new),
    )


def _listed(member: series.Series, upstream: str, new: Sequence[PatchRef]) -> tuple[PatchRef, ...]:
    """Return a series' patches with those of one upstream replaced; the other upstreams' patches keep their places."""
    waiting = list(new)
    listed = []
    for ref in member.patches:
        if ref.upstream != upstream:
            listed.append(ref)
        elif waiting:
            listed.append(waiting.pop(0))
    return (*listed, *waiting)

# SPDX-License-Identifier: Apache-2.0
"""Check the patches out as commits of an ordinary git working tree, and write the commits back as patches.

The working tree is a repository of its own and outlives the store. Two trailers in each commit's message name the commit's
series and patch file. `checkout` adds these trailers, and `refresh` removes them.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import links, patch_sources, worktree_state
from stack.carry.export import export
from stack.carry.upstream_stores import Stores
from stack.model import document, mail, series, switch
from stack.model.ids import OBJECT, UPSTREAM, CommitId, TreeId
from stack.model.patch import ends_message, parse, trailers
from stack.model.pins import Source
from stack.model.series import PatchRef
from stack.model.stack import FOLDER, Stack
from stack.store import git
from stack.store.objects import Identity, Objects
from stack.store.remote import REMOTE

SERIES = "Stack-Series"
PATCH = "Stack-Patch"
BRANCH = "stack"
BASE_TAG = "stack-base"
_RECORD = "stack-checkout.json"
_IDENTITY = re.compile(r"^(?P<name>.*?) ?<(?P<mail>[^>]*)> (?P<date>\d+ [+-]\d{4})$")


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The changes from a working tree to the stack: the files to write, and the patches sorted by kind of change."""

    files: Mapping[str, bytes | None]
    expected: Mapping[str, bytes | None]
    kept: tuple[PatchRef, ...]
    changed: tuple[PatchRef, ...]
    added: tuple[PatchRef, ...]
    dropped: tuple[PatchRef, ...]

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


@dataclass(frozen=True, slots=True)
class _Commit:
    id: CommitId
    tree: TreeId
    author: Identity
    message: str


def checkout(stores: Stores, upstream: str, folder: Path) -> CommitId:
    """Make a working tree of the pinned upstream with a commit for each patch; return the last commit.

    Raises:
        StackError: the folder is not empty, or a patch does not apply.

    """
    _check_free(stores.stack, folder)
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
    record = _Record(upstream, stores.source(upstream), base, written)
    # A folder cannot be renamed over a link.
    with _aside(folder.resolve() if folder.is_symlink() else folder) as part:
        seed(part, objects, {f"refs/heads/{BRANCH}": tip, f"refs/tags/{BASE_TAG}": base}, partial=record.source == "git")
        git.run(["symbolic-ref", "HEAD", f"refs/heads/{BRANCH}"], cwd=part)
        _write_record(part / ".git" / _RECORD, record)
        git.run(["reset", "--quiet", "--hard"], cwd=part)
    return tip


def check_empty(folder: Path) -> None:
    """Refuse a path at which a working tree cannot be made.

    Raises:
        StackError: it exists and is not an empty folder, or is a dangling link.

    """
    if folder.is_symlink() and not folder.exists():
        raise StackError(f"{folder} is a dangling link", "remove it, or name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StackError(f"{folder} is not an empty folder", "name one that does not exist yet")


def _check_free(stack: Stack, folder: Path) -> None:
    check_empty(folder)
    inside = (stack.root / name for name in (FOLDER, switch.FOLDER))
    if any(folder.resolve().is_relative_to(place.resolve()) for place in inside):
        raise StackError(f"{folder} is inside of the stack's own files", "name a folder beside the stack")


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """Make a temporary folder that is renamed to `folder` when it is complete, so that a killed checkout can be repeated."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        part.chmod(0o755)
        yield part
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def seed(folder: Path, objects: Objects, refs: Mapping[str, CommitId], *, partial: bool) -> None:
    """Make a repository in `folder` with some commits of a store; borrow the objects of a partial clone, copy others."""
    git.run(["init", "--quiet", f"--initial-branch={BRANCH}", str(folder)])
    if partial:
        (folder / ".git/objects/info").mkdir(exist_ok=True)
        (folder / ".git/objects/info/alternates").write_text(f"{objects.repository / 'objects'}\n")
        for key in (
            "core.repositoryformatversion",
            *(f"remote.{REMOTE}.{name}" for name in ("url", "promisor", "partialclonefilter")),
        ):
            value = git.run(["config", key], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1)).stdout.decode().strip()
            if value:
                git.run(["config", key, value], cwd=folder)
    else:
        # Allow fetching any commit by its id: everyone who can read the store can read all of it anyway.
        serve = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"
        git.run(
            ["fetch", "--quiet", "--no-tags", f"--upload-pack={serve}", str(objects.repository), *refs.values()], cwd=folder
        )
    for ref, commit in refs.items():
        git.run(["update-ref", ref, commit], cwd=folder)
    # Patches hold the exact bytes of the commits, so a user's setting must not convert line ends.
    git.run(["config", "core.autocrlf", "false"], cwd=folder)


def refresh(stores: Stores, upstream: str, folder: Path) -> Refreshed:
    """Compute the new patches from the commits of a working tree; nothing is written.

    Raises:
        StackError: something would be lost: uncommitted changes, commits without a series, merges, patches that were changed
            in the stack since the checkout; or the working tree stands on another pin.

    """
    record = _record(folder, upstream)
    if record.source != stores.source(upstream):
        raise StackError(f"{folder} was checked out with --source {record.source}", "refresh it with the same --source")
    _check_settled(folder)
    _check_unchanged(stores.stack, record)
    patch_sources.check(stores.stack, upstream)
    base = record.base
    if base != stores.base(upstream):
        raise StackError(f"{folder} stands on another pin of {upstream}", "check it out anew and move your commits there")
    common = Path(git.text(["rev-parse", "--path-format=absolute", "--git-common-dir"], cwd=folder))
    with Objects(common) as objects:
        commits = _commits(objects, folder, base)
        refs = _assign(stores.stack, upstream, commits)
        written = _without_marks(objects, base, commits)
        # Export from the store, since settings and attributes of the working tree could change the bytes.
        raws = export(stores.objects(upstream), base, written, borrowed=objects.repository / "objects")
    exported = dict(zip(refs, raws, strict=True))
    for commit, (ref, raw) in zip(commits, exported.items(), strict=True):
        _check_readable(commit, ref, raw)
    return _refreshed(stores.stack, upstream, exported)


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


def write_back(stack: Stack, folder: Path, found: Refreshed, *, title: str) -> None:
    """Write the result of `refresh` to the stack; first record the new patch files in the working tree.

    Raises:
        StackError: the stack has changed meanwhile, or cannot be written.

    """
    file = _record_file(folder)
    record = _read_record(file)
    written = {ref.path: hashlib.sha256(found.files[f"{FOLDER}/{ref.path}"] or b"").hexdigest() for ref in found.patches}
    _write_record(file, replace(record, patches=written, before=_files(stack, record.upstream)))
    switch.apply(stack.root, found.files, title=title, expected=found.expected)


def with_trailers(message: str, added: Mapping[str, str]) -> str:
    """Append trailers to a message."""
    lines = "".join(f"{key}: {value}\n" for key, value in added.items())
    body = message.rstrip("\n")
    return f"{body}\n{lines}" if trailers(message) else f"{body}\n\n{lines}"


def without_trailers(message: str, keys: Iterable[str]) -> str:
    """Remove the trailers with these keys from a message, also from its middle, where a squash leaves some."""
    subject, *paragraphs = message.rstrip("\n").split("\n\n")
    kept = [subject]
    for paragraph in paragraphs:
        lines = paragraph.split("\n")
        if trailers(f"-\n\n{paragraph}"):
            lines = [line for line in lines if line.partition(":")[0] not in set(keys)]
        if lines:
            kept.append("\n".join(lines))
    return "\n\n".join(kept) + "\n"


def marks(message: str) -> Mapping[str, str]:
    """Return the series and the patch file that a commit's trailers name.

    The last series counts, since `git commit --amend --trailer` appends one. The first file counts, since a squash keeps the
    first commit.
    """
    pairs = [pair for paragraph in message.split("\n\n")[1:] for pair in trailers(f"-\n\n{paragraph}")]
    series_pairs = [pair for pair in pairs if pair[0] == SERIES]
    file_pairs = [pair for pair in pairs if pair[0] == PATCH]
    return {**dict(series_pairs), **dict(reversed(file_pairs))}


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
    )


def _record_file(folder: Path) -> Path:
    inside = git.run(["rev-parse", "--path-format=absolute", "--git-common-dir"], cwd=folder, accept=(0, 128))
    return Path(inside.stdout.decode().strip()) / _RECORD


def _write_record(file: Path, record: _Record) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(asdict(record), indent=1))
    part.rename(file)


def _check_settled(folder: Path) -> None:
    git_dir = Path(git.text(["rev-parse", "--absolute-git-dir"], cwd=folder))
    for name in ("rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_HEAD", "BISECT_LOG"):
        if (git_dir / name).exists():
            raise StackError(f"{folder} is in the middle of a git operation ({name})", "finish or abort it first")
    dirty = git.text(["status", "--porcelain", "-z", "--untracked-files=all"], cwd=folder).split("\0")[:-1]
    if dirty:
        raise StackError(
            f"{folder} has {len(dirty)} uncommitted change(s), first {dirty[0][3:]}",
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


def _commits(objects: Objects, folder: Path, base: CommitId) -> list[_Commit]:
    if git.run(["merge-base", "--is-ancestor", base, "HEAD"], cwd=folder, accept=(0, 1, 128)).returncode:
        raise StackError(f"HEAD of {folder} does not stand on the pin", f"rebase your commits onto {BASE_TAG}")
    listed = git.text(["rev-list", "--reverse", "--topo-order", "--parents", f"{base}..HEAD"], cwd=folder).splitlines()
    commits = []
    for line in listed:
        commit, *parents = line.split()
        if len(parents) != 1:
            raise StackError(f"{commit[:12]} is a merge", "a series is a line of commits: rebase instead of merging")
        commits.append(_read(objects, CommitId(commit)))
    return commits


def _read(objects: Objects, commit: CommitId) -> _Commit:
    head, _, message = objects.read(commit).partition(b"\n\n")
    fields = dict(line.split(b" ", 1) for line in reversed(head.splitlines()) if not line.startswith(b" "))
    charset = fields.get(b"encoding", b"utf-8").decode("ascii", "replace")  # of i18n.commitEncoding
    author = _IDENTITY.match(mail.decoded(fields[b"author"], charset))
    text = mail.decoded(message, charset)
    if author is None or not text.strip():
        raise StackError(f"{commit[:12]} has no readable author or no message", "amend it: git rebase -i")
    return _Commit(
        commit, objects.tree_of(commit), Identity(author["name"], author["mail"], author["date"]), text.strip("\n") + "\n"
    )


def _assign(stack: Stack, upstream: str, commits: Sequence[_Commit]) -> list[PatchRef]:
    """Assign a patch to each commit; the commits must be in the order of the series."""
    order = [member.name for member in stack.series]
    taken: set[PatchRef] = {ref for member in stack.series for ref in member.patches if ref.upstream != upstream}
    refs: list[PatchRef] = []
    for commit in commits:
        marked = marks(commit.message)
        name, subject = marked.get(SERIES), commit.message.partition("\n")[0]
        if name is None:
            raise StackError(
                f"commit {commit.id[:12]} ({subject}) names no series",
                f"add one: git commit --amend --trailer '{SERIES}: <name>'",
            )
        if name not in order:
            raise StackError(
                f"commit {commit.id[:12]} names the series {name!r}, which is not in {FOLDER}/",
                f"there are: {', '.join(order)}",
            )
        if refs and order.index(name) < order.index(refs[-1].series):
            raise StackError(
                f"commit {commit.id[:12]} of {name} stands after one of {refs[-1].series}",
                "order the commits as stacks/stack.toml orders the series: git rebase -i",
            )
        ref = _free(PatchRef(name, upstream, _file(marked.get(PATCH), upstream, subject)), upstream, subject, taken)
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


def _without_marks(objects: Objects, base: CommitId, commits: Sequence[_Commit]) -> list[CommitId]:
    written: list[CommitId] = []
    parent = base
    for commit in commits:
        if commit.tree == objects.tree_of(parent):
            raise StackError(f"commit {commit.id[:12]} changes nothing", "drop it: git rebase -i")
        parent = objects.write_commit(commit.tree, (parent,), without_trailers(commit.message, (SERIES, PATCH)), commit.author)
        written.append(parent)
    return written


def _check_readable(commit: _Commit, ref: PatchRef, raw: bytes) -> None:
    """Check that the patch file can be parsed and has the commit's whole message."""
    patch = parse(raw, ref, name=f"commit {commit.id[:12]} ({commit.message.partition(chr(10))[0]})")
    if patch.message.split() != without_trailers(commit.message, (SERIES, PATCH)).split():
        raise StackError(
            f"commit {commit.id[:12]} would lose a part of its message: {_lost(commit.message)}",
            "indent that line: git rebase -i",
        )


def _lost(message: str) -> str:
    """Describe the part of a message that a patch file cannot hold."""
    line = next((line for line in message.split("\n") if ends_message(line)), None)
    return f"in a patch file its line {line!r:.60} ends the message" if line else "a patch file cannot hold its first lines"


def _refreshed(stack: Stack, upstream: str, exported: Mapping[PatchRef, bytes]) -> Refreshed:
    before = {patch.ref: patch.raw for patch in stack.order(upstream)}
    files: dict[str, bytes | None] = {f"{FOLDER}/{ref.path}": None for ref in before}
    files |= {f"{FOLDER}/{ref.path}": data for ref, data in exported.items()}
    expected: dict[str, bytes | None] = {f"{FOLDER}/{ref.path}": before.get(ref) for ref in before.keys() | exported.keys()}
    files |= patch_sources.mirrored(stack, {ref: exported.get(ref) for ref in before})
    for member in stack.series:
        path = f"{FOLDER}/{member.name}/{series.FILE}"
        text = document.read_text(stack.root / path)
        expected[path] = text.encode()
        refs = [ref for ref in exported if ref.series == member.name]
        files[path] = series.edited(text, _listed(member, upstream, refs)).encode()
    return Refreshed(
        files=files,
        expected=expected,
        kept=tuple(ref for ref in exported if before.get(ref) == exported[ref]),
        changed=tuple(ref for ref in exported if ref in before and before[ref] != exported[ref]),
        added=tuple(ref for ref in exported if ref not in before),
        dropped=tuple(ref for ref in before if ref not in exported),
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

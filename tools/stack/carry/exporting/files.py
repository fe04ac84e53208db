# SPDX-License-Identifier: Apache-2.0
"""Export patches as files: a quilt folder, numbered mails for `git am`, or one mailbox."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from stack.base.errors import StackError
from stack.carry.exporting import chain as chains
from stack.carry.exporting import dep3
from stack.carry.new_folder import aside, check_free
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.model.series import PatchRef
from stack.model.stack import Stack
from stack.store import git

_LIST = "series"
Form = Literal["quilt", "am", "mbox"]


@dataclass(frozen=True, slots=True)
class Written:
    """Exported files: the name of each patch's file below the folder, in their order.

    `base` is the commit on which they apply. `needs_git` lists the patches that `patch` and quilt cannot apply.
    """

    base: CommitId
    names: Mapping[PatchRef, str]
    needs_git: tuple[PatchRef, ...]


def export(stores: Stores, upstream: str, form: Form, place: Path, *, plain: bool) -> Written:
    """Write an upstream's patches to a new folder, or for `mbox` to a new file.

    Raises:
        StackError: something is there already, a patch does not apply, or its message cannot stand in a mailbox.

    """
    stack = stores.stack
    if form == "mbox":
        _check_no_file(stack, place)
    else:
        check_free(stack, place)
    chain = chains.of_pin(stores, upstream, plain=plain)
    raws = chains.mails(stores.objects(upstream), chain)
    if form != "quilt":
        _check_mails(chain.patches, raws)
    names, files = _FORMS[form](stack, chain.patches, raws)
    if form == "mbox":
        _write_file(place, b"".join(files.values()))
    else:
        _write_folder(place, files)
    refs = [patch.ref for patch in chain.patches]
    return Written(
        chain.base,
        dict(zip(refs, names, strict=True)),
        tuple(patch.ref for patch in chain.patches if chains.needs_git(patch)),
    )


_Files = tuple[list[str], dict[str, bytes]]


def _quilt(stack: Stack, patches: Sequence[Patch], raws: Sequence[bytes]) -> _Files:
    """Return the names of the patches, and all files: one folder per series, and the list that quilt reads."""
    if any(patch.ref.series == _LIST for patch in patches):
        raise StackError(f"a series is called {_LIST!r}, as quilt calls its list of patches", "rename it, or use --am")
    names = [f"{patch.ref.series}/{PurePosixPath(patch.ref.file).name}" for patch in patches]
    described = [dep3.with_facts(raw, stack, patch) for patch, raw in zip(patches, raws, strict=True)]
    lines: list[str] = []
    series = ""
    for patch, name in zip(patches, names, strict=True):
        if patch.ref.series != series:
            series = patch.ref.series
            lines.append(f"# {series}: {' '.join(stack.get(series).title.split())}")
        lines.append(name)
    listed = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    return names, dict(zip(names, described, strict=True)) | {_LIST: listed}


def _am(_stack: Stack, patches: Sequence[Patch], raws: Sequence[bytes]) -> _Files:
    digits = max(4, len(str(len(patches))))
    names = [f"{number:0{digits}}-{PurePosixPath(patch.ref.file).name}" for number, patch in enumerate(patches, 1)]
    return names, dict(zip(names, raws, strict=True))


_FORMS: Mapping[Form, Callable[[Stack, Sequence[Patch], Sequence[bytes]], _Files]] = {"quilt": _quilt, "am": _am, "mbox": _am}


def _check_mails(patches: Sequence[Patch], raws: Sequence[bytes]) -> None:
    """Have git split the mails as `git am` does: a line of a message may look like the beginning of the next mail."""
    if _count(raws) == len(raws):
        return
    for patch, raw in zip(patches, raws, strict=True):
        if _count([raw]) != 1:
            raise StackError(
                f"the message of {patch.ref.path} has a line that `git am` takes for the next mail", "indent it, or use --quilt"
            )


def _count(raws: Sequence[bytes]) -> int:
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        return int(git.run(["mailsplit", "--keep-cr", f"-o{folder}"], stdin=b"".join(raws)).stdout) if raws else 0


def _write_folder(place: Path, files: Mapping[str, bytes]) -> None:
    with aside(place.resolve() if place.is_symlink() else place) as part:
        for name, data in files.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_bytes(data)


def _check_no_file(stack: Stack, place: Path) -> None:
    if place.exists() or place.is_symlink():
        raise StackError(f"{place} is there already", "name a file that does not exist yet")
    check_free(stack, place)


def _write_file(place: Path, data: bytes) -> None:
    """Write a file that appears whole; a link, unlike a renaming, fails where something has appeared meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(prefix=f".{place.name}-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
        Path(part).chmod(0o644)
        os.link(part, place)
    except FileExistsError as there:
        raise StackError(f"{place} is there already", "name a file that does not exist yet") from there
    finally:
        Path(part).unlink()

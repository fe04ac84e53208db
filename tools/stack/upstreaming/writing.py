# SPDX-License-Identifier: Apache-2.0
"""The patches of a plan as files for `git am`: a folder a wave, in it one a pull request."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.model import series
from stack.upstreaming.proposal import Plan

_WAVE = "wave-"


def write(plans: Sequence[Plan], folder: Path) -> tuple[Path, ...]:
    """Write `<folder>/<upstream>/wave-<number>/<series>-<slug>/<number>-<subject>.patch`; what an earlier call wrote goes.

    Raises:
        StackError: an upstream's folder holds something else.

    """
    for plan in plans:
        _check_ours(folder / plan.upstream)
    written: list[Path] = []
    for plan in plans:
        target, part = folder / plan.upstream, folder / f".{plan.upstream}.part"
        shutil.rmtree(part, ignore_errors=True)
        files = _files(plan)
        part.mkdir(parents=True)
        for place, data in files.items():
            (part / place).parent.mkdir(parents=True, exist_ok=True)
            (part / place).write_bytes(data)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        written += [target / place for place in files]
    return tuple(written)


def _files(plan: Plan) -> dict[Path, bytes]:
    return {
        Path(
            f"{_WAVE}{one.wave}", f"{one.series}-{one.slug}", f"{number:04}-{series.slug(part.patch.subject)}.patch"
        ): part.patch.raw
        for one in plan.proposals
        for number, part in enumerate(one.parts, 1)
    }


def _check_ours(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StackError(f"{folder} is no folder", "name another place with --output")
    odd = [file for file in folder.rglob("*") if not file.is_dir() and file.suffix != ".patch"] if folder.is_dir() else []
    odd += [file for file in folder.iterdir() if not file.name.startswith(_WAVE)] if folder.is_dir() else []
    if odd:
        raise StackError(f"{odd[0]} is none of the patches that --output writes", "name another folder: this one is replaced")

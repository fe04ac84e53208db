# SPDX-License-Identifier: Apache-2.0
"""Write the patches of a plan as files for `git am`: a folder for each wave, and in it a folder for each pull request."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.model import series
from stack.upstreaming import own_folder
from stack.upstreaming.proposal import UpstreamPlan

_WAVE = "wave-"


def write(plans: Sequence[UpstreamPlan], folder: Path) -> tuple[Path, ...]:
    """Write `<folder>/<upstream>/wave-<number>/<series>-<slug>/<number>-<subject>.patch`, replacing what an earlier call wrote.

    Raises:
        StackError: an upstream's folder holds other files.

    """
    for plan in plans:
        _check_ours(folder / plan.upstream)
    written: list[Path] = []
    for plan in plans:
        files, target = _files(plan), folder / plan.upstream
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".stack-", dir=folder) as work:
            own_folder.exchange(target, own_folder.made(Path(work), files), Path(work, "old"))
        written += [target / place for place in files]
    return tuple(written)


def _files(plan: UpstreamPlan) -> dict[Path, bytes]:
    return {
        Path(
            f"{_WAVE}{proposal.wave}",
            f"{proposal.series}-{proposal.slug}",
            f"{number:04}-{series.slug(part.patch.subject)}.patch",
        ): part.patch.raw
        for proposal in plan.proposals
        for number, part in enumerate(proposal.parts, 1)
    }


def _check_ours(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StackError(f"{folder} is not a folder", "name another place with --output")
    odd = [file for file in folder.rglob("*") if not file.is_dir() and file.suffix != ".patch"] if folder.is_dir() else []
    odd += [file for file in folder.iterdir() if not file.name.startswith(_WAVE)] if folder.is_dir() else []
    if odd:
        raise StackError(f"{odd[0]} was not written by --output", "name another folder: this one would be replaced")

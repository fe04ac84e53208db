# SPDX-License-Identifier: Apache-2.0
"""Write a reduced verdict to a file that can be shared: beside the owner's verdicts, or into a stack for a pull request."""

import re
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.model import verdict as verdicts
from stack.model.verdict import Verdict
from stack.store import cache
from stack.validation import signing

KEPT = Path("validation/verdicts")
"""The folder of a stack's kept verdicts, below the stack's folder."""
_SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file to be shared, and its signature if it was signed."""

    file: Path
    signature: Path | None = None


def name(reduced: Verdict) -> str:
    """Name the file of a reduced verdict: its machine, its recipe, its stack and its day."""
    gpus = list(dict.fromkeys(gpu.name for gpu in reduced.machine.gpus)) or [reduced.machine.cpu]
    parts = (*gpus, reduced.recipe or reduced.versions.get("model", ""), reduced.stack[:8], reduced.made[:10])
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-") + ".json"


def beside(folder: Path, reduced: Verdict, key: Path | None = None) -> Prepared:
    """Write a reduced verdict beside the owner's own ones; `key` signs it.

    Raises:
        StackError: it cannot be written or signed.

    """
    return _written(folder / _SHARED / name(reduced), reduced, key)


def for_pull_request(root: Path, reduced: Verdict, key: Path | None = None) -> Prepared:
    """Write a reduced verdict to the kept ones of a stack; `key` signs it.

    Raises:
        StackError: another verdict has its name, or it cannot be written or signed.

    """
    file = root / KEPT / name(reduced)
    if file.exists() and file.read_bytes() != verdicts.write(reduced):
        raise StackError(f"{file} is another verdict", "move it away, or share it first")
    return _written(file, reduced, key)


def _written(file: Path, reduced: Verdict, key: Path | None) -> Prepared:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        signing.place(file).unlink(missing_ok=True)  # it would be that of an earlier content
        cache.put(file, verdicts.write(reduced))
    except OSError as failed:
        raise StackError(
            f"{file} cannot be written ({failed.strerror})", "make room or check its rights, then share again"
        ) from failed
    return Prepared(file, signing.sign(file, key) if key is not None else None)

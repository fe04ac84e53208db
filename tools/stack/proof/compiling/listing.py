# SPDX-License-Identifier: Apache-2.0
"""The translation units that an upstream's JIT would compile for SM121, as its own code says, one list a tree."""

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places

ARCHITECTURE = "12.1a"
SASS_ARCHITECTURE = "sm_121a"
_SCRIPT = Path(__file__).with_name("jit_units.py")
JIT = "flashinfer/jit/core.py"
"""What marks a tree whose JIT is known here."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A source of a module, with the compiler's flags as upstream's code gives them (no program, source or output)."""

    module: str
    source: Path
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """How series and reports name it."""
        return f"{self.module}/{self.source.name}"

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it; the host's compiler does the rest."""
        return self.source.suffix == ".cu"

    def compiled_for(self, architecture: str) -> "Unit":
        """The unit with flags for another GPU (`sm_90a`) than those that were listed."""
        mine, other = (name.removeprefix("sm_") for name in (SASS_ARCHITECTURE, architecture))
        changed = (flag.replace(f"compute_{mine},code=sm_{mine}", f"compute_{other},code=sm_{other}") for flag in self.flags)
        return replace(self, flags=tuple(changed))


@dataclass(frozen=True, slots=True)
class Listing:
    """The units of a tree. `links`: the linker's flags for each module, or why there are none; `made`: the modules of each
    expression, or why there are none; `unlisted`: what could not be listed.
    """

    tree: Path
    work: Path
    units: tuple[Unit, ...]
    links: Mapping[str, tuple[str, ...] | str]
    made: Mapping[str, tuple[str, ...] | str]
    unlisted: Mapping[str, str]

    def fingerprint(self, unit: Unit) -> str:
        """What decides what is compiled, headers of the tree apart: flags, source, and what was generated beside it."""
        content = hashlib.sha256()
        for flag in unit.flags:
            content.update(self._without_places(flag.encode()) + b"\0")
        beside = sorted(unit.source.parent.glob("*.inc")) if self.work in unit.source.parents else []
        for file in (unit.source, *beside):
            content.update(self._without_places(file.read_bytes()) + b"\0")
        return content.hexdigest()

    def _without_places(self, text: bytes) -> bytes:
        return text.replace(str(self.tree).encode(), b"TREE").replace(str(self.work).encode(), b"WORK")


def check_folder(cache: Path) -> None:
    """Refuse a cache folder with a blank in its name: a JIT joins its flags by blanks, and some of them name the folder.

    Raises:
        StackError: there is one.

    """
    if any(blank in str(cache) for blank in " \t"):
        raise StackError(f"the cache folder {cache} has a blank in its name", "set STACK_CACHE to a folder without one")


def of(tree: Path, expressions: Sequence[str], python: Path, toolkit: Toolkit, cache: Path) -> Listing:
    """The units of a tree's JIT, with the modules that Python expressions make beside those that it builds ahead of time.

    Raises:
        StackError: the upstream's code cannot be imported, or the cache folder's name has blanks.

    """
    check_folder(cache)
    asked = json.dumps([str(tree), sorted(expressions), str(python), str(toolkit.home), _SCRIPT.read_text()])
    work = cache / "compiling" / hashlib.sha256(asked.encode()).hexdigest()[:16]
    answer = work / "units.json"
    with places.lock(work):
        if not answer.exists():
            work.mkdir(parents=True, exist_ok=True)
            text = _ask(tree, work, expressions, python, toolkit)
            part = answer.with_suffix(".part")
            part.write_text(text)
            part.rename(answer)
    said = json.loads(answer.read_text())
    units = [_unit(one) for one in said["units"]]
    # Modules for other devices state theirs.
    here = {unit.module for unit in units if any(SASS_ARCHITECTURE in flag for flag in unit.flags)}
    return Listing(
        tree,
        work,
        tuple(unit for unit in units if unit.module in here),
        {name: one if isinstance(one, str) else tuple(one) for name, one in said["links"].items()},
        {name: made if isinstance(made, str) else tuple(made) for name, made in said["made"].items()},
        said["unlisted"],
    )


def _ask(tree: Path, work: Path, expressions: Sequence[str], python: Path, toolkit: Toolkit) -> str:
    # Some generators walk through sets: with one seed, one tree gives one list.
    environment = toolkit.environment | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [str(python), str(_SCRIPT), str(tree), str(work), ARCHITECTURE]
    done = subprocess.run(
        command, input=json.dumps(sorted(expressions)), env=environment, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise StackError(f"{tree.name}: the JIT's modules cannot be listed ({said[0]})", f"`{' '.join(command)}` shows more")
    return done.stdout


def _unit(said: Mapping[str, object]) -> Unit:
    command, source = said["command"], said["source"]
    assert isinstance(command, list) and isinstance(source, str)
    arguments = command[1:]
    output = arguments.index("-o")
    flags = arguments[:output] + arguments[output + 2 :]
    return Unit(str(said["module"]), Path(source), tuple(flag for flag in flags if flag not in ("-c", source)))

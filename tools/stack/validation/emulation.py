# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's kernels for SM120, compiled for SM90 with the headers that stand in for what SM90 lacks: one library, kept in the cache."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model.series import Compiles
from stack.proof import series_proofs
from stack.proof.compiling import check, compiler, instantiations, jobs, layers, toolkit
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.selection import Selection
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places
from stack.validation.numerics import sm120_on_sm90
from stack.validation.numerics.sm120_on_sm90 import TILES, Tile

UPSTREAM = "flashinfer"
UNIT = "gemm_sm120/group_gemm_mxfp4_groupwise_e4m3_bf16_sm120.cu"
ARCHITECTURE = "sm_90a"
FOLDER = Path(sm120_on_sm90.__file__).parent
_INCLUDE = FOLDER / "include"
_ENTRY = FOLDER / "entry.cpp"
_WAITS = "-DCUTLASS_ENABLE_GDC_FOR_SM90=1"
"""What has kernels wait for the one before them, as FlashInfer's own flag does for SM120."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the library is made of: FlashInfer's generated source of all instantiations with the flags for SM90, in its tree."""

    unit: Unit
    tree: Path
    toolkit: Toolkit

    def of(self, tile: Tile, cache: Path) -> Path:
        """The source with one instantiation.

        Raises:
            StackError: there is none of that tile.

        """
        text = self.unit.source.read_text(encoding="utf-8")
        for one in instantiations.of(text):
            if tile.instantiation in one.text:
                return check.cut(self.unit.source, one, cache)
        raise StackError(f"{self.unit.name} has no tile {tile.name}", "emulate tiles that FlashInfer instantiates")


def library(stores: Stores, python: Path | None = None) -> Path:
    """The library, compiled on the first call: minutes, and 6 GB for each compiler.

    `python`: an interpreter that FlashInfer can be imported with, in place of the environment of proofs.

    Raises:
        StackError: there is no compiler, or a kernel does not compile: it needs more of SM120 than is stood in for.

    """
    found = sources(stores, python)
    cache = stores.place.cache
    target = cache / "compiling" / f"{FOLDER.name}-{_fingerprint(found)}.so"
    with places.lock(target):
        if not target.exists():
            work = target.with_suffix("")
            work.mkdir(exist_ok=True)
            objects = list(_compiled(found, work, stores))
            part = target.with_suffix(places.PART)
            _linked(objects, part)
            part.rename(target)
            shutil.rmtree(work)
    return target


def sources(stores: Stores, python: Path | None = None) -> Sources:
    """Find what the library is made of, in the carried tree.

    Raises:
        StackError: the tree, the compiler or FlashInfer's list of units cannot be had.

    """
    tools = toolkit.find(stores.place.cache, stores.tell)
    asking = python or series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)
    layered = layers.of(stores, stores.stack.pins.get(UPSTREAM))
    chosen = Selection(stores, layered, [Compiles(None, unit=UNIT)], asking, tools, everything=False, pristine=False)
    cache = stores.place.cache
    unit = next((one for one in chosen.listing.units if one.name == UNIT), None)
    if unit is None:
        raise StackError(f"FlashInfer's JIT has no {UNIT} any more", "name the unit with its MXFP8 x MXFP4 kernels for SM120")
    look_at_tiles(unit.source.read_text(encoding="utf-8"))
    return Sources(replace(unit, flags=_flags(unit, cache, chosen.listing.tree, asking, tools)), chosen.listing.tree, tools)


def look_at_tiles(source: str) -> None:
    """Find out whether there is a case for every tile that FlashInfer instantiates.

    Raises:
        StackError: there is none for one of them.

    """
    emulated = [tile.instantiation for tile in TILES]
    for one in instantiations.of(source):
        if not any(tile in one.text for tile in emulated):
            raise StackError(f"FlashInfer instantiates what is not emulated: {one.text:.100}", "add the tile to TILES")


def _flags(unit: Unit, cache: Path, tree: Path, python: Path, tools: Toolkit) -> tuple[str, ...]:
    # Of several that fit, the last counts: the cache holds some of the others.
    mapped = {
        cache: "cache",
        tree: "source",
        FOLDER: "emulation",
        python.absolute().parents[1]: "environment",
        tools.home: "cuda",
    }
    renamed = [f"-Xcompiler=-ffile-prefix-map={place}={name}" for place, name in mapped.items()]
    return (f"-I{_INCLUDE}", *unit.compiled_for(ARCHITECTURE).flags, _WAITS, *renamed)


def _fingerprint(found: Sources) -> str:
    """What decides what is compiled: every file that goes into it, flags and compiler."""
    files, error = compiler.dependencies(found.unit, found.toolkit, found.tree)
    if error:
        raise StackError(
            f"{found.unit.name} does not compile for {ARCHITECTURE}: {error[:300]}", "the pinned headers have changed"
        )
    # Not where files lie: the same sources in another folder are the same library.
    flags = [flag for flag in found.unit.flags if "/" not in flag]
    contents = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in (*files, _ENTRY))
    made_of = [flags, [tile.name for tile in TILES], found.toolkit.version, contents]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def _compiled(found: Sources, work: Path, stores: Stores) -> Iterator[Path]:
    """The objects of the library, as they are there: what a run before this one has compiled is kept."""
    wanted = {tile.name: found.of(tile, stores.place.cache) for tile in TILES} | {"entry": _ENTRY}
    pool = ThreadPoolExecutor(jobs.named() or jobs.that_fit())
    try:
        running = [pool.submit(_object, found, source, work / f"{name}.o") for name, source in wanted.items()]
        for number, (name, each) in enumerate(zip(wanted, running, strict=True), 1):
            stores.tell(f"compiling {number} of {len(wanted)} for {ARCHITECTURE}: {name}")
            yield each.result()
    finally:
        # An interrupt reaches the compilers, too; those that wait their turn must not start after it.
        pool.shutdown(cancel_futures=True)


def _object(found: Sources, source: Path, target: Path) -> Path:
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}{places.PART}")
        run = compiler.compile_unit(found.unit, source, part, found.toolkit, found.tree)
        if run.error:
            raise StackError(
                f"{target.stem} does not compile for {ARCHITECTURE}: {run.error[:300]}", "the pinned headers have changed"
            )
        part.rename(target)
    return target


def _linked(objects: list[Path], target: Path) -> None:
    """CUDA's runtime stays open: the process that loads the library has it."""
    command = [*compiler.cxx(), "-shared", "-Wl,-s", *map(str, sorted(objects)), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"the linker failed: {done.stderr.strip().splitlines()[0][:300]}", "check g++")

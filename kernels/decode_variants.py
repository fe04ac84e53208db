# SPDX-License-Identifier: Apache-2.0
"""Variants of the decode kernels beside the carried ones: a program that needs a GPU and nothing else.

    PYTHONPATH=tools python kernels/decode_variants.py PROGRAM [--architecture sm_90a] [--variant NAME=FOLDER[,FOLDER …]] …
    ./PROGRAM [LAYERS [REPLAYS [NAME …]]]                # on a machine with a GPU of that architecture

What is measured may be named: a kind of kernels; `experts` or `dense`; a number of tokens, or `all` experts at once. `whole` leaves out each of
the experts' two launches by itself, and with `late` no launch begins before the one before it has ended.

A variant is the carried kernels with other headers in place of some of theirs: the *.cuh in its folder, as `moe_rows.cuh` with another
number of warps; of several folders those of the last one that has them. The program runs all of them in turn, or those that are named, and
prints a line for each kind of kernels and number of tokens: microseconds a layer, the share of a copy's bandwidth, and how far what it
computes is from what the first one does, the carried kernels where they are among them (some 3e-3 is what BF16 makes of the same numbers,
added up in another order). One kind alone has the card's power for itself: in long runs of many layers its clock falls, and that of all
others in turn with it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof.compiling import jobs
from stack.proof.compiling.toolkit import Toolkit, find
from stack.store import cache
from stack.validation.kernels import carried_kernels
from stack.validation.numerics import HEADERS

ROOT = Path(__file__).parents[1]
SOURCES = Path(__file__).parent / "variants"
CARRIED = "carried"
_FLAGS = ("-O3", "-std=c++17", "-use_fast_math")
"""As FlashInfer has them."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = frozenset({CARRIED, "mxfp4", "experts", "dense", "all", "whole", "late"})
"""The carried ones; a word of the kernels' own, which becomes another where a variant is compiled; what else the program may be told."""


def headers(folder: Path, beside: Mapping[str, bytes]) -> dict[str, bytes]:
    """A variant's headers by name: those of its folder, and others beside them, the carried ones or another variant's.

    Raises:
        StackError: the folder has no header that the others have.

    """
    own = {path.name: path.read_bytes() for path in folder.glob("*.cuh")}
    if not own.keys() & beside.keys():
        raise StackError(f"{folder} has none of the kernels' headers", f"put some of them there: {', '.join(sorted(beside))}")
    return {**beside, **own}


def laid_out(folders: Sequence[Path], carried: Mapping[str, bytes]) -> dict[str, bytes]:
    """The headers of a variant of several folders, each of which goes before those before it; errors as `headers`."""
    found = dict(carried)
    for folder in folders:
        found = headers(folder, found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the program; 2 where that cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--architecture", default="sm_90a", help="of the GPU (default: %(default)s)")
    about = (
        "also the kernels with the headers of this folder in place of theirs, and with those of more folders in place of these"
    )
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=FOLDER[,FOLDER …]", help=about)
    options = parser.parse_args(arguments)
    folders: dict[str, list[Path]] = {}
    for given in options.variant:
        name, _, listed = given.partition("=")
        named = listed.split(",")
        if not _NAME.fullmatch(name) or name in folders.keys() | _TAKEN or not all(Path(one or "?").is_dir() for one in named):
            parser.error(
                f"{given!r} is no name of its own in small letters, = and a folder with headers, or several with commas"
            )
        folders[name] = [Path(one) for one in named]
    program = options.program.absolute()
    if program.is_dir() or not program.parent.is_dir():
        parser.error(f"{options.program} cannot be written: it is a folder, or its folder is not there")
    try:
        with Stores(load(ROOT), Place(cache.root())) as stores, tempfile.TemporaryDirectory() as work:
            toolkit = find(cache.root())
            carried = carried_kernels(stores)
            variants = {CARRIED: carried, **{name: laid_out(its, carried) for name, its in folders.items()}}
            objects = build(variants, options.architecture, Path(work), toolkit)
            nvcc(toolkit, Path(work), options.architecture, *map(str, objects), "-o", str(program))
    except StackError as cannot:
        print(f"decode_variants: {cannot}", file=sys.stderr)
        return 2
    print(f"{options.program}: {', '.join(variants)}")
    return 0


def build(variants: Mapping[str, Mapping[str, bytes]], architecture: str, work: Path, toolkit: Toolkit) -> list[Path]:
    """Compile the program and every variant, of these headers: what is to be linked, in the folder `work`.

    Raises:
        StackError: nvcc refuses something.

    """
    (work / "variants.inc").write_text("".join(f"VARIANT({name})\n" for name in variants))
    for path in (SOURCES / name for name in ("variant.h", "variant.cu", "bench.cu")):
        (work / path.name).write_bytes(path.read_bytes())
    units: dict[str, tuple[str, ...]] = {"bench.o": ("bench.cu",)}
    for name, found in variants.items():
        lay_out(work / name, found)
        units[f"variant-{name}.o"] = ("variant.cu", f"-DNAME={name}", f"-Dmxfp4={name}_kernels", f"-I{name}")
    compiled = partial(nvcc, toolkit, work, architecture)
    with ThreadPoolExecutor(jobs.that_fit()) as pool:
        for one in [pool.submit(compiled, "-c", "-o", made, *arguments) for made, arguments in units.items()]:
            one.result()
    return [work / made for made in units]


def lay_out(folder: Path, found: Mapping[str, bytes]) -> None:
    """Write headers as FlashInfer has them, to be included from the folder."""
    place = folder / HEADERS.removeprefix("include/")
    place.mkdir(parents=True)
    for name, data in found.items():
        (place / name).write_bytes(data)


def nvcc(toolkit: Toolkit, work: Path, architecture: str, *arguments: str) -> None:
    """Run nvcc in the folder `work`.

    Raises:
        StackError: it refuses something.

    """
    command = [str(toolkit.nvcc), *_FLAGS, f"-arch={architecture}", *arguments]
    done = subprocess.run(
        command, cwd=work, env=toolkit.environment, check=False, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = next(
            (line for line in lines if "error" in line.lower() or "fatal" in line), lines[-1] if lines else "says nothing"
        )
        raise StackError(f"nvcc for {architecture}: {said}", "name another --architecture, or mend the variant")


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Run an example, and read what it printed and left."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.model.stack import Stack

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Example:
    """An example that has ended: its folder, its output and its exit status."""

    place: Path
    printed: str
    errors: str
    status: int

    @property
    def stack(self) -> Stack:
        """The stack that the example made."""
        (pins,) = self.place.glob("*/pins.toml")
        return stacks.load(pins.parent)

    def series(self) -> Mapping[str, list[str]]:
        """Return the patch files of each series, in order."""
        return {series.name: [patch.file for patch in series.patches] for series in self.stack.series}

    def outcomes(self) -> Mapping[str, str]:
        """Return the outcome of each patch in the last rebase that was printed, by the patch's name."""
        table = self.printed.rpartition("$ stack rebase ")[2].partition("\n$ ")[0]
        return dict(re.findall(r"^[^\s/]+/[^\s/]+/(\S+) +([a-z-]+)", table, re.MULTILINE))

    def next_command(self) -> str:
        """Return the command that the last line tells the user to type."""
        return self.printed.splitlines()[-1].removeprefix("next: ")

    def carried(self, upstream: str, path: str) -> list[str]:
        """Return the lines of a file in the carried tree."""
        with Stores(self.stack, Place(self.place / "cache")) as stores:
            objects = stores.objects(upstream)
            entry = objects.entry(objects.tree_of(stores.tip(upstream)), path)
            assert entry is not None
            return objects.read(entry.id).decode().splitlines()


def run(name: str, folder: Path, *, path: str | None = None) -> Example:
    """Run `examples/NAME.sh` with programs of `path` only. It may leave something in `folder/example` only."""
    place = folder / "example"
    searched = f"{Path(sys.executable).parent}{os.pathsep}{path or os.environ['PATH']}"
    environment = os.environ | {"EXAMPLE_DIR": str(place), "PATH": searched}
    done = subprocess.run(
        [str(ROOT / f"examples/{name}.sh")], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert list(folder.iterdir()) == [place]
    return Example(place, done.stdout, done.stderr, done.returncode)

# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process (fast) or in one of its own (as a user does)."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.cli import main
from stack.cli.common import one_line
from stack.cli.progress_lines import _LONG as LONG_STEPS

from .. import forked, json_documents
from ..carry.world import World, home, template, world

__all__ = ["home", "template", "world"]

SCRIPT = "import sys; sys.argv[0] = 'stack'; from stack.cli import main; main()"


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For a command that finds no room on the disk: Python would keep torn byte code of a module that was changed before."""


def unwrapped(text: str) -> str:
    """Return what was printed as one line: sentences are wrapped at the terminal's width."""
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        if self.out.startswith("{") and not self.out.startswith('{\n  "$schema"'):  # not what `stack schema` prints
            json_documents.check(self.out)

    def refused(self) -> str:
        """The one line of an error, which every refusal is; with `--json` the document on stdout says the same."""
        return self.refused_by("stack")

    def refused_by(self, program: str) -> str:
        """The same for a program of another name."""
        assert self.code == 2, self
        if self.out:
            error = json_documents.check(self.out)
            assert (error["schema"], error["exit_code"]) == ("stack/error/1", 2)
            said = ": ".join(filter(None, (error["problem"], error["remedy"])))
            assert self.err == f"{program}: {one_line(said)}\n"
        assert self.err.endswith("\n")
        # In a process of its own, on a busy machine, a step takes long enough for a line.
        [line] = [line for line in self.err.splitlines() if not line.removeprefix(f"{program}: ").startswith(LONG_STEPS)]
        assert line.startswith(f"{program}: ")
        return line.removeprefix(f"{program}: ")


Stack = Callable[..., Ran]


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Run `stack ARGS` on the world, in this process."""

    def run(*args: object, root: Path | None = world.root) -> Ran:
        options = ["--root", str(root)] if root is not None else []
        monkeypatch.setattr(sys, "argv", ["stack", *options, "--cache", str(world.cache), *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, out.getvalue(), err.getvalue())

    return run


def command(world: World, *args: object) -> list[str]:
    """`stack ARGS` on the world, for a process of its own."""
    return [sys.executable, "-c", SCRIPT, "--root", str(world.root), "--cache", str(world.cache), *map(str, args)]


def run_apart(world: World, *args: object, env: Mapping[str, str] | None = None, largest: int | None = None) -> Ran:
    """Run `stack ARGS` on the world in a process of its own; no file that it writes grows beyond `largest` bytes."""
    command = ["--root", world.root, "--cache", world.cache, *args]
    done = forked.run(command, env=os.environ | dict(env or {}), largest=largest)
    return Ran(done.returncode, done.stdout, done.stderr)

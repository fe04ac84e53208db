# SPDX-License-Identifier: Apache-2.0
"""Check style with the upstream's own tools and settings, on the lines that a pull request changes.

The tools run in a folder with the whole tree, as they do upstream: isort finds first-party modules there, for example.
"""

import contextlib
import difflib
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.proof import environment, trees
from stack.upstreaming.change import Change
from stack.upstreaming.linting import precommit
from stack.upstreaming.linting.finding import LintFinding, error, warning
from stack.upstreaming.linting.precommit import Checks, Hook
from stack.upstreaming.rules import Style

_SECONDS = 600
"""Maximal seconds for a tool."""
_SHOWN = 3
"""Lines of a check's output that a finding shows."""
_C = frozenset({"c", "c++", "cuda"})


class Desk:
    """A temporary folder for one tree after the other, and the tools to run there; a context manager."""

    def __init__(self, cache: Path, tell: Progress) -> None:
        self._cache = cache
        self._tell = tell
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="stack-lint-")))
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._exit.close()

    def check(self, style: Style, change: Change) -> Iterator[LintFinding]:
        """Run the upstream's tools on a change, and yield their findings.

        Raises:
            StackError: the configuration cannot be read, or a tool cannot be installed or run.

        """
        config = change.read(style.config) if style.config is not None else None
        checks = precommit.checks(style, config)
        for name in checks.missing:
            yield warning(
                "style", style.config or "", f"upstream has no check {name} any more", "remove it from style.hooks in the rules"
            )
        if not checks.versions and not checks.own:
            return
        python = self._tools(checks)
        tree = self._folder / "tree"
        trees.move(change.objects, change.after, tree)
        runs = _Runs(tree, python, change, checks)
        yield from runs.ruff_check()
        yield from runs.ruff_format()
        yield from runs.clang_format()
        yield from runs.typos()
        for hook in checks.own:
            yield from runs.own(hook)

    def _tools(self, checks: Checks) -> Path:
        wanted = sorted({f"{tool}=={version}" for tool, version in checks.versions.items()})
        wanted += sorted({package for hook in checks.own for package in hook.requires})
        key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
        # Refuse paths, addresses and options such as `-r`: only packages of an index may be installed.
        odd = next((package for package in wanted if not package[:1].isalnum() or "/" in package or "@" in package), None)
        if odd is not None:
            raise StackError(f"a check of upstream requires {odd!r:.80}, which is not a package", "remove it from style.hooks")
        return environment.made(self._cache, f"lint-{key}", {f"installing {', '.join(wanted)}": wanted}, self._tell)


class _Runs:
    """The runs of the tools on one change, in the folder of its tree."""

    def __init__(self, folder: Path, python: Path, change: Change, checks: Checks) -> None:
        self._folder = folder
        self._bin = python.parent
        self._change = change
        self._checks = checks

    def _paths(self, hook: str, kinds: Callable[[str], bool]) -> list[str]:
        if precommit.TOOL[hook] not in self._checks.versions:
            return []
        return [path for path in self._change.added if kinds(path) and self._checks.wants(hook, path)]

    def ruff_check(self) -> Iterator[LintFinding]:
        """Report problems that `ruff check` finds; on unchanged lines they are warnings, as they may be upstream's own."""
        paths = self._paths("ruff-check", precommit.is_python)
        if not paths:
            return
        arguments = ["check", "--no-cache", "--no-fix", "--force-exclude", "--output-format=json", "--", *paths]
        for problem in _json(self._run("ruff", arguments, accept=(0, 1))):
            path = Path(problem["filename"]).resolve().relative_to(self._folder.resolve()).as_posix()
            first, last = problem["location"]["row"], problem["end_location"]["row"]
            make = error if self._is_changed(path, range(first, last + 1)) else warning
            yield make("ruff", f"{path}:{first}", f"{problem['code']} {problem['message']}", "`ruff check` there explains it")

    def ruff_format(self) -> Iterator[LintFinding]:
        """Report changed lines that `ruff format` would change."""
        for path in self._paths("ruff-format", precommit.is_python):
            arguments = ["format", "--no-cache", "--force-exclude", f"--stdin-filename={path}", "-"]
            yield from self._formatted(
                "ruff-format", path, self._run("ruff", arguments, given=self._data(path), accept=(0, 2)), "ruff format"
            )

    def clang_format(self) -> Iterator[LintFinding]:
        """Report changed lines that clang-format would change."""
        paths = self._paths("clang-format", lambda path: precommit.is_of(path, _C))
        if paths and self._change.read(".clang-format") is None:
            yield warning(
                "clang-format", paths[0], "not checked: the tree has no .clang-format", "archives may lack it: --source git"
            )
            return
        for path in paths:
            lines = [f"--lines={first}:{last}" for first, last in _ranges(sorted(self._change.added[path]))]
            if lines:
                arguments = ["--style=file", f"--assume-filename={path}", *lines]
                yield from self._formatted(
                    "clang-format", path, self._run("clang-format", arguments, given=self._data(path)), "clang-format"
                )

    def typos(self) -> Iterator[LintFinding]:
        """Report misspelled words on changed lines."""
        paths = self._paths("typos", lambda _: True)
        if not paths:
            return
        output = self._run("typos", ["--format=json", "--force-exclude", "--", *paths], accept=(0, 2))
        for typo in (json.loads(line) for line in output.decode("utf-8", "replace").splitlines()):
            if typo.get("type") == "typo" and "line_num" in typo:
                path = typo["path"].removeprefix("./")
                if self._is_changed(path, [typo["line_num"]]):
                    yield error(
                        "typos",
                        f"{path}:{typo['line_num']}",
                        f"`{typo['typo']}`",
                        " or ".join(typo["corrections"]) or "spell it otherwise",
                    )

    def own(self, hook: Hook) -> Iterator[LintFinding]:
        """Report the failure of one of the upstream's own checks."""
        paths = [path for path in self._change.added if hook.wants(path)]
        if not paths or not hook.command:
            return
        done = self._start([self._bin / "python", *hook.command[1:], *(paths if hook.passes_names else ())])
        if done.returncode:
            output = [
                line.strip() for line in (done.stdout + done.stderr).decode("utf-8", "replace").splitlines() if line.strip()
            ]
            yield error(
                hook.name,
                paths[0],
                "; ".join(output[:_SHOWN]) or f"ends with {done.returncode}",
                f"`{' '.join(hook.command)}` there",
            )

    def _formatted(self, rule: str, path: str, formatted: bytes, tool: str) -> Iterator[LintFinding]:
        old, new = (data.decode("utf-8", "replace").splitlines() for data in (self._data(path), formatted))
        if not formatted and old:
            return  # `ruff check` has reported the syntax error
        for kind, first, last, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            # An insertion touches the lines before and after it.
            lines = range(first + 1, last + 1) if last > first else range(first, first + 2)
            ours = next((line for line in lines if self._is_changed(path, [line])), None)
            if kind != "equal" and ours is not None:
                wanted = [line.strip() for line in new[start:end]][max(0, ours - 1 - first) :][:1] or ["nothing"]
                yield error(rule, f"{path}:{ours}", f"{tool} writes `{wanted[0][:80]}`", f"run {tool}")
                return

    def _is_changed(self, path: str, lines: Sequence[int]) -> bool:
        added = self._change.added.get(path, {})
        return any(line in added for line in lines)

    def _data(self, path: str) -> bytes:
        return self._change.read(path) or b""

    def _run(self, tool: str, arguments: Sequence[str], *, given: bytes = b"", accept: Sequence[int] = (0,)) -> bytes:
        done = self._start([self._bin / tool, *arguments], given)
        if done.returncode not in accept:
            reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[:1] or ["no message"]
            raise StackError(f"{tool} of upstream's version failed ({reason[0][:200]})", "look at upstream's settings for it")
        return done.stdout

    def _start(self, command: Sequence[str | Path], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        # Ignore the user's own settings and the environment that this process runs in.
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RUFF_", "GIT_", "VIRTUAL_ENV"))
        }
        # The tree is a plain folder here; keep git from finding a repository above it.
        env |= {"PYTHONDONTWRITEBYTECODE": "1", "GIT_CEILING_DIRECTORIES": str(self._folder.parent)}
        try:
            return subprocess.run(
                command, input=given, cwd=self._folder, env=env, capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired as late:
            raise StackError(f"{Path(command[0]).name} takes longer than {_SECONDS} seconds", "look at the change") from late


def _ranges(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Group sorted numbers into runs, each given by its first and last number."""
    start = last = None
    for line in lines:
        if start is None or last is None:
            start = last = line
        elif line == last + 1:
            last = line
        else:
            yield start, last
            start = last = line
    if start is not None and last is not None:
        yield start, last


def _json(output: bytes) -> list[Mapping[str, Any]]:
    return list(json.loads(output or b"[]"))

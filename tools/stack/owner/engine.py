# SPDX-License-Identifier: Apache-2.0
"""The engine that runs the owner's container: docker or podman, by commands that both take."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stack.base import bounded_process
from stack.base.errors import StackError
from stack.base.text import last_line, shortened
from stack.owner.nodes.reach import Node
from stack.owner.state import State

ENGINES = ("docker", "podman")
"""In the order in which they are tried: DGX OS has docker."""
_SHOWN = 300
_LARGEST = 64 * 2**20
"""Bytes of a command's output that are read; descriptions have some thousand. The engine of another node may answer anything."""
_KEPT = 20
"""Last lines of a command's output that an error is looked for in."""
_ASKED = 60.0
"""Seconds that a question to the engine may take; a pull, a start and a stop have no limit."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the engine describes it: whether it runs, how often it was restarted, its image's id, labels and variables.

    `variables` may hold an API key: never print them.
    """

    id: str
    running: bool
    status: str
    restarts: int
    exit_code: int
    image: str
    labels: Mapping[str, str]
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine by the name of its program, on this machine or on another node."""

    name: str
    node: Node | None = None

    def words(self, *arguments: str) -> list[str]:
        """Return the command of this machine that runs a command of the engine."""
        words = (self.name, *arguments)
        return list(words if self.node is None else self.node.shell(shlex.join(words)))

    def container(self, name: str) -> Container | None:
        """Describe a container; None if there is none of that name.

        Raises:
            StackError: The engine does not answer.

        """
        values = self._described("container", name)
        if values is None:
            return None
        state = values["State"]
        return Container(
            values["Id"],
            bool(state["Running"]),
            str(state["Status"]),
            int(values.get("RestartCount", 0)),
            int(state["ExitCode"]),
            _id(values["Image"]),
            values["Config"].get("Labels") or {},
            dict(word.partition("=")[::2] for word in values["Config"].get("Env") or ()),
        )

    def remove_half_made(self, name: str) -> None:
        """Free a container's name that a killed `podman run` has left in podman's storage, where only `ps --external` sees it.

        A container that buildah is working on stays: somebody needs it.

        Raises:
            StackError: The engine does not do it.

        """
        if self.name != "podman":
            return
        listed = json.loads(self.run("ps", "--all", "--external", "--format=json", seconds=_ASKED) or "[]")
        for one in listed:
            if name in (one.get("Names") or ()) and one.get("Command") == ["storage"]:
                self.run("rm", "--force", one["Id"])

    def has_volume(self, name: str) -> bool:
        """Return whether there is a volume of that name.

        Raises:
            StackError: The engine does not answer.

        """
        return self._described("volume", name) is not None

    def image(self, name: str) -> Mapping[str, Any] | None:
        """Describe an image; None if the engine does not have it.

        Raises:
            StackError: The engine does not answer.

        """
        values = self._described("image", name)
        return None if values is None else {**values, "Id": _id(values["Id"])}

    def run(self, *arguments: str, seconds: float | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run a command of the engine, and return its output.

        Raises:
            StackError: It failed; the message has its last line.

        """
        done = self._ran(arguments, seconds, environment)
        if done.returncode:
            verb = next(word for word in arguments if not word.startswith("-"))
            raise StackError(f"{self.name} {verb} failed: {_last(done.stderr)}", _remedy(self.name, done.stderr))
        return done.stdout

    def output(self, *arguments: str) -> bytes:
        """Run a command of the engine, and return all that it prints.

        Raises:
            StackError: It failed.

        """
        done = subprocess.run(
            self.words(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            text = done.stdout.decode("utf-8", "replace")
            raise StackError(f"{self.name} {arguments[0]} failed: {_last(text)}", _remedy(self.name, text))
        return done.stdout

    def lines(self, *arguments: str, each: Callable[[str], None]) -> None:
        """Run a command of the engine, and pass on each line that it prints.

        Raises:
            StackError: It failed; the message has its last line.

        """
        kept: list[str] = []
        with subprocess.Popen(
            self.words(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    kept = [*kept[-_KEPT:], line]
                    each(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            text = "".join(kept)
            raise StackError(f"{self.name} {arguments[0]} failed: {_last(text)}", _remedy(self.name, text))

    def _described(self, kind: str, name: str) -> Mapping[str, Any] | None:
        done = self._ran((kind, "inspect", name), _ASKED, None)
        if done.returncode:
            if "no such" in done.stderr.lower() or "not known" in done.stderr.lower():
                return None
            raise StackError(f"{self.name} {kind} inspect failed: {_last(done.stderr)}", _remedy(self.name, done.stderr))
        try:
            (values,) = json.loads(done.stdout)
        except ValueError as bad:
            raise StackError(
                f"{self.name} describes the {kind} {name} in no form known here", "name another with --engine"
            ) from bad
        found: Mapping[str, Any] = values
        return found

    def _ran(
        self, arguments: Sequence[str], seconds: float | None, environment: Mapping[str, str] | None
    ) -> "subprocess.CompletedProcess[str]":
        words = self.words(*arguments)
        try:
            if self.node is None:  # this machine's own engine is trusted, and Ctrl-C reaches it
                return subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                    timeout=seconds,
                    env=environment,
                )
            done = bounded_process.run(words, seconds=seconds, largest=_LARGEST, environment=environment)
        except FileNotFoundError as missing:
            raise StackError(f"{self.name} is missing", "install it, or name another engine with --engine") from missing
        except (TimeoutError, subprocess.TimeoutExpired) as late:
            raise StackError(f"{self.name} has not answered within {seconds:.0f} s", f"restart it: {self.name} info") from late
        except bounded_process.TooMuchError as endless:
            raise StackError(f"{self.name} {arguments[0]} prints without an end", f"restart it: {self.name} info") from endless
        output, errors = (each.decode("utf-8", "replace") for each in (done.output, done.errors))
        return subprocess.CompletedProcess(words, done.code, output, errors)


def wanted(given: str | None, known: State | None) -> str | None:
    """Return the name of the engine to use: the given one, else that of the server which the state knows; None: the first that answers."""
    return given or (known.engine if known is not None and not known.is_empty else None)


def found(name: str | None = None) -> Engine:
    """Find the engine of a name, or the first one on PATH that answers: docker, then podman.

    Raises:
        StackError: There is none, or none of them answers.

    """
    problems = []
    for candidate in ENGINES if name is None else (name,):
        if shutil.which(candidate) is None:
            problems.append((f"{candidate} is missing", "install docker (DGX OS has it) or podman"))
            continue
        try:
            Engine(candidate).run("version", seconds=_ASKED)
        except StackError as failed:
            problems.append((failed.problem, failed.remedy))
            continue
        return Engine(candidate)
    # An engine that is there and fails says more than one that is missing.
    problem, remedy = next((each for each in problems if "is missing" not in each[0]), problems[0])
    raise StackError(problem if name is not None or "missing" not in problem else "no container engine is here", remedy)


def _id(text: str) -> str:
    """Return an image's id with its algorithm, which podman leaves out."""
    return text if ":" in text else f"sha256:{text}"


def _last(output: str) -> str:
    return shortened(last_line(output), _SHOWN) or "no message"


def _remedy(engine: str, stderr: str) -> str:
    """Say what to do about a failure of the engine."""
    text = stderr.lower()
    if "permission denied" in text and "sock" in text:
        return f"let this user use {engine}: sudo usermod -aG {engine} $USER, then log in again"
    if "cannot connect" in text or "connection refused" in text or "is the docker daemon running" in text:
        return f"start it: sudo systemctl start {engine}"
    if "no space left" in text:
        return "make room on the disk, then run the command again: it goes on where it was"
    return f"see what {engine} says of it, then run the command again"

# SPDX-License-Identifier: Apache-2.0
"""Running a command on one stack after the other until the first bad one is found."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.images.bisecting.between import Step, Way
from stack.images.bisecting.halving import Answer, first_bad
from stack.model import digest
from stack.model import stack as stacks
from stack.model.stack import Stack

SKIP = 125
"""The exit code that says: this one cannot be judged. All of them mean what they do for `git bisect run`."""
_MOST = 124
"""The highest exit code that means bad: 126 and 127 are a shell's that could not run the command, more is a signal."""

Provide = Callable[[Stack], Mapping[str, str]]
"""Builds what a command needs of a stack, and says in variables where it is; StackError where it cannot be built."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One stack and what came of it; `why` where it was skipped."""

    change: str
    answer: Answer
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """A command, what it is given of each stack, and what hears of every trial."""

    command: str
    provide: Provide
    heard: Callable[[Trial], None]

    def check_ends(self, good: Stack, bad: Stack) -> None:
        """See that the good stack is good and the bad one bad, before hours go into what lies between.

        Raises:
            StackError: they are not.

        """
        for name, one, wanted in (("good", good, Answer.GOOD), ("bad", bad, Answer.BAD)):
            trial = self._tried(f"the {name} stack", one)
            if trial.answer is not wanted:
                said = trial.why or f"the command says {trial.answer}"
                raise StackError(
                    f"the {name} stack is not {name}: {said}", "there is nothing to halve: try the command by itself"
                )

    def first_bad(self, way: Way, work: Path) -> tuple[str, ...]:
        """The change that made it bad; several where stacks between could not be judged. The boundary to the patches is asked first.

        Raises:
            StackError: the command cannot be run, or was ended by a signal.

        """

        def ask(number: int) -> Answer:
            return self._made(way.steps[number - 1], work / str(number)).answer

        found = first_bad(len(way.steps), ask, way.pins)
        return tuple(way.steps[number - 1].change for number in found)

    def _made(self, step: Step, folder: Path) -> Trial:
        began = time.monotonic()
        try:
            step.make(folder)
            one = stacks.load(folder)
        except StackError as failed:
            return self._said(Trial(step.change, Answer.SKIPPED, failed.problem, time.monotonic() - began))
        return self._tried(step.change, one)

    def _tried(self, change: str, one: Stack) -> Trial:
        began = time.monotonic()
        try:
            given = self.provide(one)
        except StackError as failed:
            return self._said(Trial(change, Answer.SKIPPED, failed.problem, time.monotonic() - began))
        answer = self._run(one, given)
        return self._said(Trial(change, answer, seconds=time.monotonic() - began))

    def _run(self, one: Stack, given: Mapping[str, str]) -> Answer:
        environment = {**os.environ, "STACK_ROOT": str(one.root), "STACK_DIGEST": digest.of(one), **given}
        code = subprocess.run(
            ["/bin/sh", "-c", self.command], env=environment, stdin=subprocess.DEVNULL, check=False
        ).returncode
        if code == SKIP:
            return Answer.SKIPPED
        if not 0 <= code <= _MOST:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise StackError(f"the command ended with {ended}", "0 means good, 1 to 124 bad, 125 that it cannot be judged")
        return Answer.BAD if code else Answer.GOOD

    def _said(self, trial: Trial) -> Trial:
        self.heard(trial)
        return trial

# SPDX-License-Identifier: Apache-2.0
"""Run a command on the stacks between two until the first bad one is found."""

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
"""The exit code for a stack that cannot be judged. All exit codes mean the same as for `git bisect run`."""
_MOST = 124
"""The highest exit code that means bad: a shell uses 126 and 127 for a command it cannot run, and higher codes for signals."""

Provide = Callable[[Stack], Mapping[str, str]]
"""Builds what the command needs of a stack, and returns variables with its location; raises StackError if it cannot be built."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One tested stack and its result; `why` says why it was skipped."""

    change: str
    answer: Answer
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """A bisection: the command, the provider of what it needs, and a function that is called with each trial."""

    command: str
    provide: Provide
    heard: Callable[[Trial], None]

    def check_ends(self, good: Stack, bad: Stack) -> None:
        """Check that the good stack is good and the bad one is bad, before the long search begins.

        Raises:
            StackError: one of them is not.

        """
        for name, end, wanted in (("good", good, Answer.GOOD), ("bad", bad, Answer.BAD)):
            trial = self._tried(f"the {name} stack", end)
            if trial.answer is not wanted:
                reason = trial.why or f"the command says {trial.answer}"
                raise StackError(
                    f"the {name} stack is not {name}: {reason}", "there is nothing to bisect: run the command directly"
                )

    def first_bad(self, way: Way, work: Path) -> tuple[str, ...]:
        """Return the change that made the stack bad; several if the stacks between them could not be judged.

        The last step that moves pins is tested first.

        Raises:
            StackError: the command cannot be run, or was ended by a signal.

        """

        def ask(number: int) -> Answer:
            return self._made(way.steps[number - 1], work / str(number)).answer

        steps = first_bad(len(way.steps), ask, way.pins)
        return tuple(way.steps[number - 1].change for number in steps)

    def _made(self, step: Step, folder: Path) -> Trial:
        began = time.monotonic()
        try:
            step.make(folder)
            made = stacks.load(folder)
        except StackError as failed:
            return self._said(Trial(step.change, Answer.SKIPPED, failed.problem, time.monotonic() - began))
        return self._tried(step.change, made)

    def _tried(self, change: str, stack: Stack) -> Trial:
        began = time.monotonic()
        try:
            given = self.provide(stack)
        except StackError as failed:
            return self._said(Trial(change, Answer.SKIPPED, failed.problem, time.monotonic() - began))
        answer = self._run(stack, given)
        return self._said(Trial(change, answer, seconds=time.monotonic() - began))

    def _run(self, stack: Stack, given: Mapping[str, str]) -> Answer:
        environment = {**os.environ, "STACK_ROOT": str(stack.root), "STACK_DIGEST": digest.of(stack), **given}
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

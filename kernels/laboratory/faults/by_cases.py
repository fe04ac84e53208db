# SPDX-License-Identifier: Apache-2.0
"""Judge the decode kernels by a case of `stack validate kernels`, as the command runs it."""

import pytest

from laboratory.emulated import Machine
from stack.validation.numerics import EMULATED, running
from stack.validation.numerics.cases import named


def case_judged(name: str, machine: Machine) -> str:
    """Run a case on the kernels of a machine; return why it failed, or nothing."""
    (case,) = named(name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(EMULATED, str(machine.path))
        return str(running.outcome(case)["why"])

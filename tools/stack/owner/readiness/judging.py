# SPDX-License-Identifier: Apache-2.0
"""Run all checks of a machine, in the order in which a person would mend what they find."""

from collections.abc import Callable, Iterable, Iterator

from stack.owner.readiness import engine_checks, machine_checks, room_checks
from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.need import Need
from stack.owner.readiness.remark import Remark

Check = Callable[[MachineFacts, Need], Iterable[Remark]]

CHECKS: tuple[Check, ...] = (
    machine_checks.gpu,
    machine_checks.driver_version,
    engine_checks.engine,
    engine_checks.gpu_access,
    room_checks.left_over,
    room_checks.memory,
    room_checks.desktop,
    room_checks.swap,
    room_checks.disk,
    room_checks.port,
    machine_checks.clock,
    machine_checks.governor,
    machine_checks.kernel,
    machine_checks.kernel_log,
    machine_checks.release,
    machine_checks.firmware,
)


def judge(facts: MachineFacts, need: Need) -> Iterator[Remark]:
    """Yield the remarks of all checks."""
    for check in CHECKS:
        yield from check(facts, need)

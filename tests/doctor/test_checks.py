# SPDX-License-Identifier: Apache-2.0
"""Every check speaks of what is wrong, with its line and its fix, and is quiet where all is well."""

from collections.abc import Mapping
from typing import Any

import pytest

from stack.doctor import logs, machine, running, scripts
from stack.doctor.finding import Check, Severity, run

from . import cases, servers
from .cases import Case

KINDS: Mapping[str, tuple[tuple[Check[Any], ...], Mapping[str, cases.Cases]]] = {
    "machine": (machine.CHECKS, cases.MACHINE),
    "script": (scripts.CHECKS, cases.SCRIPTS),
    "log": (logs.CHECKS, cases.LOGS_CASES),
}
LOUD = [
    pytest.param(kind, name, case, id=f"{kind}-{name}-{place}")
    for kind, (_, found) in KINDS.items()
    for name, each in found.items()
    for place, case in enumerate(each.loud)
]
QUIET = [
    pytest.param(kind, name, each.quiet, id=f"{kind}-{name}")
    for kind, (_, found) in KINDS.items()
    for name, each in found.items()
]


def check(kind: str, name: str) -> Check[Any]:
    (found,) = (one for one in KINDS[kind][0] if one.name == name)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_check_is_without_both(kind: str) -> None:
    checks, found = KINDS[kind]
    assert [one.name for one in checks] == [*found]
    assert all(each.loud for each in found.values())


def test_no_check_of_a_server_is_without_both() -> None:
    assert [one.name for one in running.CHECKS] == [*servers.LOUD]
    assert all(servers.LOUD.values())


@pytest.mark.parametrize(("kind", "name", "case"), LOUD)
def test_it_speaks(kind: str, name: str, case: Case) -> None:
    found = [*run([check(kind, name)], case.subject, "here")]
    fitting = [one for one in found if one.severity is case.severity and case.what in one.found.what]
    assert fitting, [(one.severity, one.found.what) for one in found]
    one = fitting[0]
    assert case.fix in one.found.fix
    assert one.check == name
    if case.severity is Severity.WRONG:
        assert one.found.fix
    if case.line is not None:
        assert (one.found.line, one.place) == (case.line, f"here:{case.line}")


@pytest.mark.parametrize(("kind", "name", "subject"), QUIET)
def test_it_is_quiet(kind: str, name: str, subject: Any) -> None:
    found = [*run([check(kind, name)], subject, "here")]
    assert {one.severity for one in found} == {Severity.FINE}, found
    assert all(one.found.what and not one.found.fix for one in found)

# SPDX-License-Identifier: Apache-2.0
"""The kernel log of the machine itself, as `dmesg` prints it: a script in its place prints what a test needs."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stack.doctor import kernel_log, logs
from stack.doctor.finding import Finding, Severity

NOW = datetime(2026, 11, 27, 18, 0, 0)
XID = "NVRM: Xid (PCI:0000:01:00): 79, pid=1234, GPU has fallen off the bus."
Dmesg = Callable[[str], list[Finding]]


@pytest.fixture(name="dmesg")
def _dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dmesg:
    def look(script: str) -> list[Finding]:
        program = tmp_path / "dmesg"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return [*kernel_log.look(logs.known(), None, NOW)]

    return look


def printing(age: timedelta, text: str) -> str:
    return f"""echo '[{(NOW - age).strftime("%a %b %d %H:%M:%S %Y")}] {text}'; echo 'a line without a time'"""


@pytest.mark.parametrize(
    ("hours", "severity"), [(0.5, Severity.WRONG), (3, Severity.NOTE), (25, Severity.FINE), (24 * 400, Severity.FINE)]
)
def test_a_fault_is_wrong_for_an_hour_and_known_for_a_day(dmesg: Dmesg, hours: float, severity: Severity) -> None:
    (found,) = dmesg(printing(timedelta(hours=hours), XID))
    assert (found.check, found.where, found.severity) == ("kernel-log", kernel_log.WHERE, severity)
    assert ("GPU has fallen off the bus" in found.found.what) is (severity is not Severity.FINE)
    assert found.found.line is None


def test_other_lines_are_no_fault(dmesg: Dmesg) -> None:
    (found,) = dmesg(printing(timedelta(0), "ACPI Error: AE_NOT_FOUND, something failed"))
    assert found.severity is Severity.FINE


@pytest.mark.parametrize(
    "script", ["echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1", "kill -9 $$"]
)
def test_who_may_not_read_it_is_told_what_to_do(dmesg: Dmesg, script: str) -> None:
    (found,) = dmesg(script)
    assert found.severity is Severity.UNKNOWN
    assert "sudo dmesg -T" in found.found.fix


def test_a_machine_without_dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = kernel_log.look(logs.known(), None, NOW)
    assert found.severity is Severity.UNKNOWN
    assert "cannot be run" in found.found.what


KILLED = {
    "earlyoom": 'earlyoom[812]: sending SIGTERM to process 4242 uid 1000 "VLLM::EngineCor": badness 1300, VmRSS 60000 MiB',
    "systemd-oomd": "systemd-oomd[700]: Killed /user.slice/a.scope due to memory pressure for /user.slice being 61.20% > 50.00%",
}


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("readable", [True, False], ids=["dmesg", "no dmesg"])
def test_who_ends_processes_beside_the_kernel_is_read(dmesg: Dmesg, tmp_path: Path, name: str, readable: bool) -> None:
    at = (NOW - timedelta(minutes=5)).timestamp()
    journal = tmp_path / "journalctl"
    journal.write_text(f"#!/bin/sh\necho '{at:.6f} spark-1 {KILLED[name]}'\necho 'no entry'\n")
    journal.chmod(0o755)
    *before, found = dmesg("true" if readable else "exit 1")
    assert len(before) == (not readable)
    assert found.severity is Severity.WRONG
    assert f"{name} ended" in found.found.what


def test_a_journal_that_may_not_be_read_says_nothing(dmesg: Dmesg, tmp_path: Path) -> None:
    journal = tmp_path / "journalctl"
    journal.write_text("#!/bin/sh\nexit 1\n")
    journal.chmod(0o755)
    (found,) = dmesg("true")
    assert found.severity is Severity.FINE

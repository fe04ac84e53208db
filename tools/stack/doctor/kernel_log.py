# SPDX-License-Identifier: Apache-2.0
"""Read this machine's own kernel log, where the system allows it, and find known faults of the last day in it.

earlyoom and systemd-oomd end processes without the kernel: what they wrote into the system's journal is read with it.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from stack.doctor import logs
from stack.doctor.finding import Finding, Severity, fine, unknown
from stack.doctor.knowledge.rule import Rule

WHERE = "this machine's kernel log"
_CHECK = "kernel-log"
_WAIT = 10.0
"""Seconds for `dmesg`."""
_LARGEST = 8 * 2**20
"""Characters of the log's end that are read; the kernel keeps less by default."""
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_KILLERS = ("earlyoom", "systemd-oomd")
"""Programs that end processes for want of memory, as the journal names them."""
_ENTRY = re.compile(r"([0-9]{1,12})\.[0-9]{1,9} \S{1,300} ([a-z-]{1,30})(?:\[[0-9]{1,10}\])?: (.*)")
_STAMP = re.compile(r"\[\w{3} (\w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4})\]")


def look(rules: Iterable[Rule], hardware: frozenset[str] | None, now: datetime | None = None) -> Iterator[Finding]:
    """Find known faults of the last day; those older than an hour are only worth knowing.

    Args:
        rules: the rules that know the faults.
        hardware: names of the machine's hardware.
        now: the time; by default the present.

    """
    now = now or datetime.now()
    text, problem = _read()
    if problem:
        fix = "sudo dmesg -T > dmesg.txt, and stack doctor --dmesg dmesg.txt"
        yield Finding(_CHECK, WHERE, unknown(f"it was not read: {problem}", fix))
    lines = [*text.splitlines(), *_ended()]
    recent = [line for line in lines if (at := _at(line)) is not None and now - at <= _DAY]
    if problem and not recent:
        return
    subject = logs.of("\n".join(recent), rules=rules, hardware=hardware)
    findings = logs.look(subject, WHERE) if recent else ()
    found = [finding.found for finding in findings if finding.severity is not Severity.FINE]
    for each in found or [fine("it has no known fault in the last 24 hours")]:
        at = _at(recent[each.line - 1]) if each.line is not None else None
        is_old = each.severity is Severity.WRONG and at is not None and now - at > _HOUR
        severity = Severity.NOTE if is_old else each.severity
        yield Finding(_CHECK, WHERE, replace(each, severity=severity, line=None, because=()))


def _read() -> tuple[str, str]:
    """Return the kernel's log with readable times, and why it cannot be read."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(["dmesg", "-T"], capture_output=True, check=False, timeout=_WAIT, env=environment)
    except OSError as failed:
        return "", f"dmesg cannot be run ({failed.strerror})"
    except subprocess.TimeoutExpired:
        return "", f"dmesg has not answered for {_WAIT:.0f} seconds"
    if done.returncode:
        return "", "only an administrator may read it"
    return done.stdout.decode("utf-8", "replace")[-_LARGEST:], ""


def _ended() -> Iterator[str]:
    """Yield what earlyoom and systemd-oomd wrote in the last day, as lines of the kernel's log; nothing where it may not be read."""
    command = ["journalctl", "--quiet", "--no-pager", "--output=short-unix", "--since=-24h"]
    command += [f"--identifier={name}" for name in _KILLERS]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_WAIT, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in done.stdout.decode("utf-8", "replace")[-_LARGEST:].splitlines() if done.returncode == 0 else ():
        if entry := _ENTRY.fullmatch(line):
            at = datetime.fromtimestamp(int(entry[1]))
            yield f"[{at:%a %b %d %H:%M:%S %Y}] {entry[2]}: {entry[3]}"


def _at(line: str) -> datetime | None:
    """Return the time of a line."""
    stamp = _STAMP.match(line)
    try:
        return datetime.strptime(stamp[1], "%b %d %H:%M:%S %Y") if stamp else None
    except ValueError:
        return None

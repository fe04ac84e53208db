# SPDX-License-Identifier: Apache-2.0
"""Write a corrected copy of a script, with the reason for each line."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stack.base.errors import StackError
from stack.doctor import fix_check, fix_files, fix_text
from stack.doctor.finding import Found, Severity

_MOST_TRIED = 50
"""Upper bound of the corrections that are tried one by one."""
_MOST_READ = 2**20
"""Upper bound of the characters that are read for it: each trial reads the file again."""
_ROUNDS = 3
"""Most times that a corrected text is checked again: a correction may make another one necessary."""

Check = Callable[[str], Sequence[Found]]
"""Returns what is to be corrected in a text."""


@dataclass(frozen=True, slots=True)
class _Corrected:
    """A corrected text, the reason for each correction, and the findings that could not be corrected, with why."""

    text: str
    reasons: tuple[str, ...]
    refused: tuple[tuple[Found, str], ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """A corrected copy, and what is still wrong in it."""

    file: Path
    left: tuple[Found, ...]


def copy(file: Path, check: Check) -> Copy | None:
    """Write the corrected file beside a script; return None if there is nothing to correct.

    A correction that would change anything else is left out.

    Raises:
        StackError: the script is not a regular file, a file of the copy's name is there already, it cannot be written, no correction
            can be made, or the result would have other faults.

    """
    original = fix_files.read(file)
    text = original.text
    done = _correct(text, check, partial(fix_check.difference, str(file)))
    if not done.reasons:
        if done.refused:
            found, why = done.refused[0]
            raise StackError(f"{_where(file, found)} cannot be corrected: {why}", _by_hand(found))
        return None
    made = _with_reasons(done)
    if _is_shell(text) and _reads(text) and not _reads(made):
        raise StackError(f"{file} cannot be corrected: bash does not read the result", "correct it by hand")
    after = check(made)
    if more := fix_check.new_faults(check(text), after):
        raise StackError(
            f"{file} cannot be corrected: the result would have another fault ({fix_text.plain(more[0].what)})",
            "correct it by hand",
        )
    # A command behind an alias of YAML is found once for each place.
    left = dict.fromkeys(each for each in after if each.severity is Severity.WRONG)
    return Copy(fix_files.write(original, made), tuple(left))


def _where(file: Path, found: Found) -> str:
    return f"{file}:{found.line}: {fix_text.plain(found.what)}:" if found.line else f"{file}: {fix_text.plain(found.what)}:"


def _by_hand(found: Found) -> str:
    return f"correct it by hand: {fix_text.plain(found.fix)}" if found.fix else "correct it by hand"


def _is_shell(text: str) -> bool:
    return re.match(r"#!\S*(?:/| )(?:ba|da|k|z)?sh\b", text) is not None


def _reads(text: str) -> bool:
    """Tell whether bash reads a script to its end; True if bash is not installed. Nothing of the script is run."""
    bash = shutil.which("bash")
    if bash is None:
        return True
    done = subprocess.run([bash, "-n"], input=text.encode(errors="replace"), capture_output=True, check=False, timeout=30)
    return done.returncode == 0


def corrected(text: str, check: Check, compare: fix_check.Compare = fix_check.nothing) -> str:
    """Return a script with everything corrected that can be, and a comment at its top that gives the reason for each line.

    Args:
        text: the script.
        check: finds what is to be corrected in a text.
        compare: says what a correction changes by mistake; such a correction is left out.

    """
    done = _correct(text, check, compare)
    return _with_reasons(done) if done.reasons else text


def _correct(text: str, check: Check, compare: fix_check.Compare) -> _Corrected:
    now, reasons, refused = text, list[str](), list[tuple[Found, str]]()
    for turn in range(_ROUNDS):
        before = "line {line}: " if not turn else "then: "
        mended = [found for found in check(now) if found.edits and found.what not in {each.what for each, _ in refused}]
        made, why = fix_text.once(now, mended, before)
        if _compared(compare, now, made, mended):
            mended, more = _harmless(now, mended, compare)
            refused += more
            made, why = fix_text.once(now, mended, before)
            if _compared(compare, now, made, mended):
                break
        now = made
        reasons += why
        if not why:
            break
    return _Corrected(now, tuple(reasons), tuple(refused))


def _harmless(text: str, findings: Sequence[Found], compare: fix_check.Compare) -> tuple[list[Found], list[tuple[Found, str]]]:
    """Divide findings into those whose correction changes nothing else, each tried by itself, and others, with what it changes."""
    good, bad = list[Found](), list[tuple[Found, str]]()
    most = min(_MOST_TRIED, _MOST_READ // max(len(text), 1))
    for at, found in enumerate(findings):
        why = "too many others cannot be corrected" if at >= most else ""
        why = why or _compared(compare, text, fix_text.once(text, [found], "")[0], [found])
        if why:
            bad.append((found, why))
        else:
            good.append(found)
    return good, bad


def _compared(compare: fix_check.Compare, before: str, after: str, findings: Sequence[Found]) -> str:
    return compare(before, after, [edit for found in findings for edit in found.edits]) if after != before else ""


def _with_reasons(done: _Corrected) -> str:
    lines = done.text.split("\n")
    place = fix_files.top(lines)
    head = [
        "# Corrected by `stack doctor --fix`; the lines are those of the original:",
        *(f"#   {reason}" for reason in done.reasons),
    ]
    return "\n".join((*lines[:place], *head, *lines[place:]))

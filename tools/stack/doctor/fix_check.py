# SPDX-License-Identifier: Apache-2.0
"""Compare a corrected file with its original: only what the corrections name may differ."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from stack.base.errors import StackError
from stack.doctor import script
from stack.doctor.finding import KEPT, Edit, Found, Severity
from stack.doctor.script import Script, Serve

Compare = Callable[[str, str, Iterable[Edit]], str]
"""Says what else differs between a text and a corrected one; empty if nothing does."""


def nothing(before: str, after: str, edits: Iterable[Edit]) -> str:
    """Compare nothing: for texts that belong to no file."""
    del before, after, edits
    return ""


def difference(path: str, before: str, after: str, edits: Iterable[Edit]) -> str:
    """Say what else differs in a corrected text, in a clause; empty if only what the edits name differs.

    Args:
        path: the file's path, whose name tells its format.
        before: the original text.
        after: the corrected text.
        edits: the edits that were applied.

    """
    try:
        old, new = script.parse(path, before), script.parse(path, after)
    except StackError as failed:
        return f"the result could not be read ({failed.problem.removeprefix(path).lstrip(':0123456789 ')})"
    made = tuple(edits)
    taken = {edit.old.replace("_", "-") if edit.old.startswith("--") else edit.old for edit in made}
    added = {pair for edit in made for pair in [_pair(edit)] if pair[0]}
    return _in_commands(old, new, taken, added) or _in_variables(old, new, taken, added)


def _in_commands(old: Script, new: Script, taken: set[str], added: set[tuple[str, str]]) -> str:
    if len(old.serves) != len(new.serves) or len(old.containers) != len(new.containers):
        return "the result would start other servers"
    for before, after in zip(old.serves, new.serves, strict=True):
        if before.model != after.model or before.loose != after.loose:
            return "a value would be left without its flag"
        was, now = _flags(before), _flags(after)
        lost = next((name for name, _ in was - now if name not in taken), None)
        more = next((name for name, value in now - was if (name, value) not in added), None)
        if lost or more:
            return f"{lost or more} would change, too"
    return ""


def _in_variables(old: Script, new: Script, taken: set[str], added: set[tuple[str, str]]) -> str:
    was, now = ({(each.name, each.value) for each in found.settings} for found in (old, new))
    lost = next((name for name, _ in sorted(was - now) if name not in taken), None)
    more = next((name for name, value in sorted(now - was) if (name, value) not in added), None)
    return f"{lost or more} would change, too" if lost or more else ""


def _flags(serve: Serve) -> set[tuple[str, str]]:
    return {(flag.name, flag.value or "") for flag in serve.flags}


def _pair(edit: Edit) -> tuple[str, str]:
    """Return the name and the value that an edit writes; two empty texts if it only takes something out."""
    words = edit.new.removeprefix(KEPT).strip()
    name, _, value = words.partition(" " if " " in words else "=")
    return name, value


def new_faults(before: Iterable[Found], after: Iterable[Found]) -> tuple[Found, ...]:
    """Return the faults that only the corrected text has; numbers in a finding may change with a correction."""
    old = Counter(_words(found) for found in before if found.severity is Severity.WRONG)
    more = list[Found]()
    for found in after:
        if found.severity is not Severity.WRONG:
            continue
        if old[_words(found)] > 0:
            old[_words(found)] -= 1
        else:
            more.append(found)
    return tuple(more)


def _words(found: Found) -> str:
    return found.rule or re.sub(r"\d[\d.,]*", "", found.what)

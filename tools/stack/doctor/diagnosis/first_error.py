# SPDX-License-Identifier: Apache-2.0
"""Find the first error of a log and its traceback's innermost frames."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.base.pattern import Pattern
from stack.deploy.vllm_log import Line
from stack.doctor.diagnosis import order
from stack.doctor.knowledge.match import Patterns

_ERROR = re.compile(
    r"(?:\[rank\d{1,4}\]:? )?(?:[\w.]{1,200}\.)?[A-Z]\w{0,80}(?:Error|Exception|Failure|Interrupt)(?:: |:?$)"
    r"|[\w.]{1,200}\.[a-z]\w{0,80}Error(?:: |:?$)"
    r"|(?:[\w. ]{1,80}: )?error: (?:argument|unrecognized|the following arguments) |Fatal Python error: |terminate called "
)
_SAID = re.compile(r"(?:docker: )?Error response from daemon: |[\w./-]{1,200}: (?:fatal error|FATAL): |FATAL:? ")
"""Errors of programs that start vLLM."""
_TRACEBACK = re.compile(r"\s|$|Traceback |[A-Z]\w* (?:encountered|failed|hit) |Error executing method|Dumping ")
"""Lines of the level ERROR that do not say what is wrong."""
_FRAME = re.compile(r'\s{0,20}File "([^"]{1,400})", line (\d{1,7})(?:, in (.{1,100}))?')
_FRAMES = 3
_ABOVE = 200
"""Most lines of a traceback that are read."""
_OPEN = re.compile(r"\d+ validation errors? for |Traceback \(most recent call last\)")


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a traceback: file, line, function, and its source."""

    file: str
    line: int
    function: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class FirstError:
    """An error, the innermost frames of its traceback (the innermost last), and its place among the lines.

    `is_complete`: false if the next lines say what the error is.
    """

    line: Line
    frames: tuple[Frame, ...]
    place: int
    is_complete: bool = True


def first(lines: Sequence[Line], at: Mapping[int, float], follows: Sequence[Pattern]) -> FirstError | None:
    """Find the first error; `follows`: patterns of errors that are only consequences.

    Of errors at the same time, the engine's comes before the API server's.
    """
    return _first(lines, at, follows, _names_error)


def first_said(lines: Sequence[Line], at: Mapping[int, float], follows: Sequence[Pattern]) -> FirstError | None:
    """Find the first line that says that something is wrong without the name of an exception."""
    return _first(lines, at, follows, _says_error)


def _names_error(line: Line) -> bool:
    if line.level not in ("", "ERROR", "CRITICAL"):
        return False
    text = line.text
    named = (
        "Error" in text
        or "Exception" in text
        or "Failure" in text
        or "Interrupt" in text
        or "error: " in text
        or " called " in text
    )
    return named and _ERROR.match(text.lstrip()) is not None


def _says_error(line: Line) -> bool:
    if line.level in ("ERROR", "CRITICAL"):
        return not _TRACEBACK.match(line.text)
    return not line.level and _SAID.match(line.text) is not None


def _first(
    lines: Sequence[Line], at: Mapping[int, float], follows: Sequence[Pattern], is_error: Callable[[Line], bool]
) -> FirstError | None:
    best: tuple[float, int, int] | None = None
    found: int | None = None
    excluded = Patterns(follows)
    ending = False
    for place, line in enumerate(lines):
        ending = ending or ("[shutdown]" in line.text and "unexpectedly" not in line.text)
        if ending or not is_error(line) or excluded.fit(line):
            continue
        key = (at.get(line.number, 0.0), order.process(line), place)
        if best is None or _is_before(key, best):
            best, found = key, place
    if found is None:
        return None
    text = lines[found].text
    is_complete = not (_OPEN.search(text) or text.rstrip().endswith(":"))
    return FirstError(_with_next(lines, found), _frames(lines, found), found, is_complete)


def _with_next(lines: Sequence[Line], place: int) -> Line:
    """Return an error's line; if the next one says what the error is, with that."""
    line = lines[place]
    following = lines[place + 1] if place + 1 < len(lines) else None
    if (
        following is None
        or not _OPEN.search(line.text)
        or following.process != line.process
        or not following.text.startswith(" ")
    ):
        return line
    return replace(line, text=f"{line.text.rstrip()}: {following.text.strip()}")


def _is_before(key: tuple[float, int, int], best: tuple[float, int, int]) -> bool:
    if abs(key[0] - best[0]) <= order.AT_ONCE and key[1] != best[1]:
        return key[1] < best[1]
    return key[0] < best[0]


def _frames(lines: Sequence[Line], place: int) -> tuple[Frame, ...]:
    """Read the innermost frames above an error: of the same process, up to the beginning of its traceback."""
    own = lines[place].process
    above = [line for line in lines[max(0, place - _ABOVE) : place] if line.process == own]
    found = list[Frame]()
    for at in range(len(above) - 1, -1, -1):
        text = above[at].text
        if "Traceback (most recent call last)" in text or len(found) == _FRAMES:
            break
        if frame := _FRAME.match(text):
            source = above[at + 1].text.strip() if at + 1 < len(above) and not _FRAME.match(above[at + 1].text) else ""
            found.append(Frame(frame[1], int(frame[2]), frame[3] or "?", source[:160]))
    return tuple(reversed(found))

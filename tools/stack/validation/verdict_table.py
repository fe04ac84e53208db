# SPDX-License-Identifier: Apache-2.0
"""Show verdicts as one table: machine, stack, date, the speed of each server, and the cases that passed."""

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from stack.model.verdict import Case, Outcome, Verdict, VerdictFile, Weights
from stack.validation.bench.suite import measured

CONTEXTS = (512, 2048, 8192)
"""Tokens before the answer whose speed has a column."""
_OWN = re.compile(r"bench/([^/]+)/decode/([0-9]{1,9})")
"""A speed of one of the validation's own servers. A comparison of two has the same form of name, and a ratio."""
_NAMES = {
    "upstream": "as released",
    "upstream-qkv-o": "as released, qkv and o in MXFP4",
    "default": "vLLM's own choice",
    "marlin": "Marlin, all dense layers in MXFP4",
    "marlin-padded": "Marlin, padded experts",
    "decode": "decode kernels",
    "spark": "recipe gpt-oss-120b-spark",
    "spark-decode": "recipe gpt-oss-120b-spark-decode",
}
"""Titles of the validation's own servers, by their names."""
_WEIGHTS = {Weights.DUMMY: "random weights", Weights.TINY: "a tiny model"}


@dataclass(frozen=True, slots=True)
class Row:
    """A server of a verdict, or a verdict without one.

    `server`: its name, empty if none was measured; `title`: what it runs, in words. `speeds`: tokens per second of one request, by the
    tokens before the answer. `passed` and `ran`: cases of the server if it has some of its own, else of the whole verdict.
    """

    file: Path
    machine: str
    stack: str
    pins: Mapping[str, str]
    date: str
    server: str
    title: str
    weights: Weights | None
    passed: int
    ran: int
    suites: tuple[str, ...]
    speeds: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def proof(self) -> str:
        """The cases that passed and their number, the suites, and the weights."""
        cases = f"{self.passed} of {self.ran} cases passed"
        more = [", ".join(self.suites), _WEIGHTS.get(self.weights, "") if self.weights is not None else ""]
        return "; ".join([cases, *filter(None, more)])


def rows(files: Iterable[VerdictFile]) -> list[Row]:
    """Return the rows of verdicts: by machine, then the newest first; servers as their verdict has them."""
    found = [row for each in files for row in _rows(each)]
    found.sort(key=lambda row: row.date, reverse=True)
    return sorted(found, key=lambda row: row.machine)


def newest(found: list[Row]) -> list[Row]:
    """Return the newest row of each server on each machine, in the order of the rows."""
    last: dict[tuple[str, str], Row] = {}
    for row in sorted(found, key=lambda row: row.date):
        last[row.machine, row.title] = row
    return [row for row in found if any(row is each for each in last.values())]


def contexts(found: Iterable[Row]) -> tuple[int, ...]:
    """Return the tokens before the answer that some row has a speed for."""
    measured_at = {context for row in found for context in row.speeds}
    return tuple(context for context in CONTEXTS if context in measured_at)


def markdown(found: Iterable[Row]) -> str:
    """Return the table in Markdown, as the README has it."""
    found = list(found)
    columns = contexts(found)
    head = ["machine", "server", "stack", "date", *(f"after {context}" for context in columns), "what it proves"]
    lines = [head, ["---", "---", "---", "---", *("---:" for _ in columns), "---"]]
    for row in found:
        speeds = [f"{row.speeds[context]:.1f}" if context in row.speeds else "" for context in columns]
        lines.append([row.machine, row.title, f"`{row.stack[:8]}`", row.date[:10], *speeds, row.proof])
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _rows(read: VerdictFile) -> Iterator[Row]:
    verdict, servers = read.verdict, _servers(read.verdict)
    if not servers:
        yield _row(read, "", "", {}, verdict.cases)
    for name, speeds in servers.items():
        own = [case for case in verdict.cases if case.name.split("/")[1] == name]
        yield _row(read, name, _title(verdict, name), speeds, own or verdict.cases)


def _row(read: VerdictFile, server: str, title: str, speeds: Mapping[int, float], cases: Iterable[Case]) -> Row:
    verdict, cases = read.verdict, list(cases)
    ran = [case for case in cases if case.outcome is not Outcome.NOT_RUN]
    gpus = [gpu.name for gpu in verdict.machine.gpus]
    counts = {name: gpus.count(name) for name in gpus}
    return Row(
        file=read.file,
        machine=", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items()) or verdict.machine.cpu,
        stack=verdict.stack,
        pins={name: pin.tag or pin.commit[:12] for name, pin in verdict.pins.items()},
        date=verdict.made,
        server=server,
        title=title,
        weights=verdict.weights,
        passed=sum(case.outcome is Outcome.PASSED for case in ran),
        ran=len(ran),
        suites=tuple(dict.fromkeys(case.suite for case in ran)),
        speeds=MappingProxyType(dict(speeds)),
    )


def _title(verdict: Verdict, server: str) -> str:
    tag = verdict.pins["vllm"].tag if "vllm" in verdict.pins else None
    release = f"vLLM {tag.removeprefix('v')} " if tag is not None and _NAMES.get(server, "").startswith("as released") else ""
    return f"{release}{_NAMES.get(server, server)}"


def _servers(verdict: Verdict) -> dict[str, dict[int, float]]:
    """Return the measured servers of a verdict, each with its speeds: of the shortest answers, since later tokens have a longer context."""
    found: dict[str, dict[int, float]] = {}
    sizes: dict[int, tuple[int, float]] = {}
    for case in verdict.cases:
        own, speed = _OWN.fullmatch(case.name), case.measured.get("tok/s")
        if own is not None and isinstance(speed, int | float) and "ratio" not in case.measured:
            found.setdefault(own[1], {})[int(own[2])] = speed
        elif (result := measured(case)) is not None:
            known = sizes.get(result.size.prompt)
            if known is None or result.size.answer < known[0]:
                sizes[result.size.prompt] = (result.size.answer, statistics.fmean(result.decode))
    if sizes:
        found[verdict.recipe or verdict.versions.get("model", "server")] = {
            prompt: speed for prompt, (_, speed) in sizes.items()
        }
    return found

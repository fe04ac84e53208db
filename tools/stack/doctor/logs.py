# SPDX-License-Identifier: Apache-2.0
"""Check a server's log: what runs, and what went wrong."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import removed_settings, vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import PARTS, Line, Named, Reading
from stack.doctor.finding import Check, Finding, Found, fine, note, run, unknown, wrong
from stack.model import document

ERRORS = Path(__file__).with_name("errors.toml")
_LARGEST = 512 * 2**20
_LONGEST = 2000
"""Characters of a line that are searched for errors."""
_NEVER = re.compile(r"TRTLLM|DEEP_?GEMM", re.IGNORECASE)
_WHY = {"TRTLLM": "TRTLLM's kernels are built for SM100 and SM103 only", "DEEP": "DeepGEMM is for SM90 and SM100 only"}
_FOREIGN = "does not support current device"
_SHOWN = 5
_NOT_SAID = "not said"


@dataclass(frozen=True, slots=True)
class Known:
    """A known error. `pattern` matches one line; `source`: the program that writes that line."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    fix: str
    source: str


@dataclass(frozen=True, slots=True)
class LogSubject:
    """A log: its facts, its lines with known errors, the recipe of the server, and the pinned version of vLLM.

    Each error is listed once, with its first line.
    """

    reading: Reading
    errors: tuple[tuple[Known, Line], ...]
    recipe: Recipe | None = None
    pinned: str | None = None


@functools.cache
def known() -> tuple[Known, ...]:
    """Load the known errors."""
    table = document.load(ERRORS)
    errors = []
    for entry in table.tables("error"):
        texts = (entry.text(name) for name in ("name", "pattern", "cause", "fix", "source"))
        name, pattern, cause, fix, source = texts
        errors.append(Known(name, re.compile(pattern), cause, fix, source))
        entry.finish()
    table.finish()
    return tuple(errors)


def read(file: Path, recipe: Recipe | None = None, pinned: str | None = None) -> LogSubject:
    """Read a log from its file.

    Raises:
        StackError: it cannot be read, or is too large.

    """
    try:
        # Read bytes: in text mode a progress bar's carriage returns would end lines. Pipes and devices have no size to check first.
        with file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name the log of a server") from failed
    if len(data) > _LARGEST:
        raise StackError(f"{file} is larger than {_LARGEST // 2**20} MiB", "name the part of it from the server's start on")
    return of(data.decode("utf-8", "replace"), recipe, pinned)


def of(text: str, recipe: Recipe | None = None, pinned: str | None = None) -> LogSubject:
    """Read a log from its text."""
    found: dict[str, tuple[Known, Line]] = {}
    for line in vllm_log.lines(text):
        # INFO and DEBUG lines are not errors, even if they contain one, for example the reason why a backend was not chosen.
        error = _known(line.text[:_LONGEST]) if line.level not in ("DEBUG", "INFO") else None
        if error is not None:
            found.setdefault(error.name, (error, line))
    return LogSubject(vllm_log.read(text), tuple(found.values()), recipe, pinned)


@functools.cache
def _any() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{error.pattern.pattern})" for error in known()))


def _known(text: str) -> Known | None:
    if not _any().search(text):
        return None
    return next(error for error in known() if error.pattern.search(text))


def _errors(subject: LogSubject) -> Iterator[Found]:
    for known_error, line in subject.errors:
        yield wrong(f"{_short(line.text)}: {known_error.cause}", known_error.fix, line.number)
    error = subject.reading.error
    if error is not None and all(line.number > error.number for _, line in subject.errors):
        yield wrong(f"the first error: {_short(error.text)}", "read on from there", error.number)


def look(subject: LogSubject, where: str) -> Iterator[Finding]:
    """Run the checks on a log; without a start of vLLM in it, only those for the start and for errors."""
    return run(CHECKS if _is_vllm(subject.reading) else CHECKS[:2], subject, where)


def _is_vllm(reading: Reading) -> bool:
    return bool(reading.version or reading.model or reading.headless or reading.stage)


def _started(subject: LogSubject) -> Iterator[Found]:
    reading = subject.reading
    if not _is_vllm(reading):
        yield unknown("it contains no start of vLLM", "name a log with the server's output from its start on")
        return
    if reading.starts > 1:
        yield note(f"it has {reading.starts} starts: the findings are about the last one")
    if reading.ready:
        took = reading.seconds("engine")
        yield fine(
            f"vLLM {reading.version or '?'} serves {reading.model or '?'}"
            + (f", the engine was up in {took:.0f} s" if took else "")
        )
    elif reading.headless:
        yield fine(f"vLLM {reading.version or '?'} runs without an API, as one of several nodes")
    elif reading.error is None:
        yield note(
            f"it ends before the server is ready, while {reading.stage or 'starting'}", "wait, or see what ended the server"
        )
    else:
        yield wrong(f"the server did not start; it was {reading.stage or 'starting'}", "see its errors", reading.error.number)


def _version(subject: LogSubject) -> Iterator[Found]:
    version = subject.reading.version
    if version is None or subject.pinned is None:
        return
    if version.partition("+")[0] != subject.pinned:
        yield wrong(
            f"it is of vLLM {version}, the stack stands on {subject.pinned}",
            "stack build wheels vllm, and install what it builds",
        )
    elif "+" not in version:
        yield note(
            f"vLLM {version} is upstream's: the stack's patches are not in it",
            "stack build wheels vllm, and install what it builds",
        )


def _backends(subject: LogSubject) -> Iterator[Found]:
    if not any(map(subject.reading.named, PARTS)):
        yield unknown("which backends run: the log ends before that")
    for part in PARTS:
        named: dict[str, Named] = {}
        for backend in subject.reading.named(part):
            named.setdefault(backend.name, backend)
        for backend in named.values():
            of = f" for {backend.of}" if backend.of and backend.of.lower() != part.lower() else ""
            yield fine(f"{part}: {backend.name}{of}", backend.line)


def _refused(subject: LogSubject) -> Iterator[Found]:
    for refusal in subject.reading.refused:
        problem = f"{refusal.part}: {refusal.name} was not taken ({refusal.why or 'the log gives no reason'})"
        if _NEVER.search(refusal.name):
            yield fine(f"{problem}; {_never_why(refusal.name)}", refusal.line)
        elif subject.reading.named(refusal.part) and _FOREIGN in refusal.why:
            yield fine(problem, refusal.line)
        else:
            yield note(problem, line=refusal.line)


def _never_why(name: str) -> str:
    return f"never runs on SM12x: {next(why for words, why in _WHY.items() if words in name.upper())}"


def _never(subject: LogSubject) -> Iterator[Found]:
    """Find backends that run only on other GPUs, but were chosen for a recipe whose GPU cannot run them."""
    recipe = subject.recipe
    if recipe is None or recipe.hardware is None or "spark" not in recipe.hardware.name:
        return
    for part in PARTS:
        for backend in subject.reading.named(part):
            if _NEVER.search(backend.name):
                problem = f"{part}: {backend.name} was selected, but it {_never_why(backend.name)}"
                yield wrong(problem, f"start it as `stack recipe show {recipe.name}` says", backend.line)


def _expected(subject: LogSubject) -> Iterator[Found]:
    if subject.recipe is None:
        return
    for mismatch in vllm_log.mismatches(subject.reading, subject.recipe.backends):
        if mismatch.found == _NOT_SAID and not subject.reading.ready:
            continue  # the log ends before that
        why = f" ({'; '.join(mismatch.why[:2])})" if mismatch.why else ""
        line = next((named.line for named in (subject.reading.named(mismatch.part) if mismatch.part in PARTS else ())), None)
        yield wrong(
            f"{mismatch.part}: recipe {subject.recipe.name} expects {mismatch.expected}, it is {mismatch.found}{why}",
            f"start it as `stack recipe show {subject.recipe.name}` says",
            subject.reading.graphs.line if mismatch.part == "graphs" else line,
        )


def _graphs(subject: LogSubject) -> Iterator[Found]:
    graphs = subject.reading.graphs
    if subject.reading.version is not None and re.search(r"\bcpu\b", subject.reading.version.replace(".", " ")):
        return  # CPUs have no CUDA graphs
    if graphs.on is False:
        eager = graphs.why is not None and "eager" in graphs.why
        yield wrong(
            f"CUDA graphs are off ({graphs.why or 'the log does not say why'}): 26 tok/s in place of 59 on a Spark",
            "take --enforce-eager out" if eager else "take out what turns them off",
            graphs.line,
        )
    elif graphs.on:
        yield fine(
            f"CUDA graphs: {graphs.mode or 'captured'}" + (f", in {graphs.seconds:.0f} s" if graphs.seconds else ""),
            graphs.line,
        )
    else:
        yield unknown("whether CUDA graphs were captured: it does not say")


def _cache(subject: LogSubject) -> Iterator[Found]:
    cache = subject.reading.cache
    if cache.tokens is None:
        yield unknown("how large the KV cache is: it does not say")
        return
    gib = f", {cache.gib:g} GiB" if cache.gib is not None else ""
    fits = (
        f", {cache.concurrency:g} requests of {cache.longest:,} tokens at once" if cache.concurrency and cache.longest else ""
    )
    yield fine(f"KV cache: {cache.kind or 'type not said'}, {cache.tokens:,} tokens{gib}{fits}")
    if cache.concurrency is not None and cache.concurrency < 1:
        yield wrong(
            "a request of the whole length does not fit into the KV cache",
            "lower --max-model-len, or take --kv-cache-dtype fp8",
        )


def _fallbacks(subject: LogSubject) -> Iterator[Found]:
    for entry in subject.reading.fallbacks[:_SHOWN]:
        yield note(f"a fallback is used instead of the requested setting: {_short(entry.text)}", line=entry.number)
    if (more := len(subject.reading.fallbacks) - _SHOWN) > 0:
        yield note(f"{more} more such lines")


def _variables(subject: LogSubject) -> Iterator[Found]:
    for variable in subject.reading.unknown:
        by = removed_settings.find(variable.name)
        fix = f"take it out; {by.instead}" if by is not None else "take it out, or correct its name"
        yield wrong(f"{variable.name} is set, but vLLM does not read it", fix, variable.line)


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split())).rstrip(":")
    return plain if len(plain) <= 160 else f"{plain[:157]}…"


CHECKS: tuple[Check[LogSubject], ...] = (
    Check("start", "the server started", _started),
    Check("errors", "it has no error that is known", _errors),
    Check("version", "it is of the version that the stack stands on", _version),
    Check("backends", "it names backends", _backends),
    Check("refused", "no backend was refused", _refused),
    Check("never-on-sm12x", "no backend was selected that the recipe's GPU cannot run", _never),
    Check("expected", "what runs is what the recipe expects, or no recipe is named", _expected),
    Check("graphs", "CPUs have no CUDA graphs", _graphs),
    Check("kv-cache", "there is a KV cache", _cache),
    Check("fallbacks", "what was asked for is used", _fallbacks),
    Check("unknown-variables", "vLLM knows all variables", _variables),
)

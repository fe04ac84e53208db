# SPDX-License-Identifier: Apache-2.0
"""What a server's log says of what runs, and of what went wrong."""

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
"""Characters of a line in which errors are looked for."""
_NEVER = re.compile(r"TRTLLM|DEEP_?GEMM", re.IGNORECASE)
_WHY = {"TRTLLM": "TRTLLM's kernels are built for SM100 and SM103 only", "DEEP": "DeepGEMM is for SM90 and SM100 only"}
_FOREIGN = "does not support current device"
_SHOWN = 5
_NOT_SAID = "not said"


@dataclass(frozen=True, slots=True)
class Known:
    """An error that logs show, by its name. `pattern`: over one line; `source`: who writes that line."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    fix: str
    source: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A log: what it says, its lines with a known error, the recipe that its server was started by, and the pinned version of vLLM.

    Of each error the first line counts.
    """

    said: Reading
    errors: tuple[tuple[Known, Line], ...]
    recipe: Recipe | None = None
    pinned: str | None = None


@functools.cache
def known() -> tuple[Known, ...]:
    """The errors that are known."""
    table = document.load(ERRORS)
    found = []
    for one in table.tables("error"):
        texts = (one.text(name) for name in ("name", "pattern", "cause", "fix", "source"))
        name, pattern, cause, fix, source = texts
        found.append(Known(name, re.compile(pattern), cause, fix, source))
        one.finish()
    table.finish()
    return tuple(found)


def read(file: Path, recipe: Recipe | None = None, pinned: str | None = None) -> Subject:
    """A log from its file.

    Raises:
        StackError: it cannot be read.

    """
    try:
        # Not as text: a progress bar's carriage returns end no line. Pipes and devices say nothing of their size.
        with file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name the log of a server") from failed
    if len(data) > _LARGEST:
        raise StackError(f"{file} is larger than {_LARGEST // 2**20} MiB", "name the part of it from the server's start on")
    return of(data.decode("utf-8", "replace"), recipe, pinned)


def of(text: str, recipe: Recipe | None = None, pinned: str | None = None) -> Subject:
    """A log from its text."""
    found: dict[str, tuple[Known, Line]] = {}
    for line in vllm_log.lines(text):
        # What is only told, such as why a backend is no candidate, is no error.
        one = _known(line.text[:_LONGEST]) if line.level not in ("DEBUG", "INFO") else None
        if one is not None:
            found.setdefault(one.name, (one, line))
    return Subject(vllm_log.read(text), tuple(found.values()), recipe, pinned)


@functools.cache
def _any() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one.pattern.pattern})" for one in known()))


def _known(text: str) -> Known | None:
    if not _any().search(text):
        return None
    return next(one for one in known() if one.pattern.search(text))


def _errors(subject: Subject) -> Iterator[Found]:
    for one, line in subject.errors:
        yield wrong(f"{_short(line.text)}: {one.cause}", one.fix, line.number)
    error = subject.said.error
    if error is not None and all(line.number > error.number for _, line in subject.errors):
        yield wrong(f"the first error: {_short(error.text)}", "read on from there", error.number)


def look(subject: Subject, where: str) -> Iterator[Finding]:
    """What checks say of a log; of one that does not come to vLLM's start, its errors only."""
    return run(CHECKS if _is_vllm(subject.said) else CHECKS[:2], subject, where)


def _is_vllm(said: Reading) -> bool:
    return bool(said.version or said.model or said.headless or said.stage)


def _started(subject: Subject) -> Iterator[Found]:
    said = subject.said
    if not _is_vllm(said):
        yield unknown("it has no start of vLLM in it", "name what the server has printed from its start on")
        return
    if said.starts > 1:
        yield note(f"it has {said.starts} starts: what is said here is of the last one")
    if said.ready:
        took = said.seconds("engine")
        yield fine(
            f"vLLM {said.version or '?'} serves {said.model or '?'}" + (f", the engine was up in {took:.0f} s" if took else "")
        )
    elif said.headless:
        yield fine(f"vLLM {said.version or '?'} runs without an API, as one of several nodes")
    elif said.error is None:
        yield note(
            f"it ends before the server is ready, while {said.stage or 'starting'}", "wait, or see what ended the server"
        )
    else:
        yield wrong(f"the server did not start; it was {said.stage or 'starting'}", "see its errors", said.error.number)


def _version(subject: Subject) -> Iterator[Found]:
    version = subject.said.version
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


def _backends(subject: Subject) -> Iterator[Found]:
    if not any(map(subject.said.named, PARTS)):
        yield unknown("which backends run: it does not come so far")
    for part in PARTS:
        named: dict[str, Named] = {}
        for one in subject.said.named(part):
            named.setdefault(one.name, one)
        for one in named.values():
            of = f" for {one.of}" if one.of and one.of.lower() != part.lower() else ""
            yield fine(f"{part}: {one.name}{of}", one.line)


def _refused(subject: Subject) -> Iterator[Found]:
    for one in subject.said.refused:
        said = f"{one.part}: {one.name} was not taken ({one.why or 'the log gives no reason'})"
        if _NEVER.search(one.name):
            yield fine(f"{said}; {_never_why(one.name)}", one.line)
        elif subject.said.named(one.part) and _FOREIGN in one.why:
            yield fine(said, one.line)
        else:
            yield note(said, line=one.line)


def _never_why(name: str) -> str:
    return f"never runs on SM12x: {next(said for words, said in _WHY.items() if words in name.upper())}"


def _never(subject: Subject) -> Iterator[Found]:
    """What runs on other GPUs only, and was taken all the same, for a recipe whose GPU cannot."""
    recipe = subject.recipe
    if recipe is None or recipe.hardware is None or "spark" not in recipe.hardware.name:
        return
    for part in PARTS:
        for one in subject.said.named(part):
            if _NEVER.search(one.name):
                said = f"{part}: {one.name} was selected, and {_never_why(one.name)}"
                yield wrong(said, f"start it as `stack recipe show {recipe.name}` says", one.line)


def _expected(subject: Subject) -> Iterator[Found]:
    if subject.recipe is None:
        return
    for one in vllm_log.mismatches(subject.said, subject.recipe.backends):
        if one.found == _NOT_SAID and not subject.said.ready:
            continue  # it did not come so far
        why = f" ({'; '.join(one.why[:2])})" if one.why else ""
        line = next((named.line for named in (subject.said.named(one.part) if one.part in PARTS else ())), None)
        yield wrong(
            f"{one.part}: recipe {subject.recipe.name} expects {one.expected}, it is {one.found}{why}",
            f"start it as `stack recipe show {subject.recipe.name}` says",
            subject.said.graphs.line if one.part == "graphs" else line,
        )


def _graphs(subject: Subject) -> Iterator[Found]:
    graphs = subject.said.graphs
    if subject.said.version is not None and re.search(r"\bcpu\b", subject.said.version.replace(".", " ")):
        return  # CPUs have no graphs
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


def _cache(subject: Subject) -> Iterator[Found]:
    cache = subject.said.cache
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


def _fallbacks(subject: Subject) -> Iterator[Found]:
    for one in subject.said.fallbacks[:_SHOWN]:
        yield note(f"something else is used than was asked for: {_short(one.text)}", line=one.number)
    if (more := len(subject.said.fallbacks) - _SHOWN) > 0:
        yield note(f"{more} more such lines")


def _variables(subject: Subject) -> Iterator[Found]:
    for one in subject.said.unknown:
        by = removed_settings.find(one.name)
        fix = f"take it out; {by.instead}" if by is not None else "take it out, or correct its name"
        yield wrong(f"{one.name} is set, and vLLM does not read it", fix, one.line)


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split())).rstrip(":")
    return plain if len(plain) <= 160 else f"{plain[:157]}…"


CHECKS: tuple[Check[Subject], ...] = (
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

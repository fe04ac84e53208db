# SPDX-License-Identifier: Apache-2.0
"""Check a server's log: what runs, and what went wrong."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import hardware as hardware_profiles
from stack.deploy import older_settings, vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import PARTS, Line, Named, Reading
from stack.doctor import throughput, yardstick
from stack.doctor.diagnosis import findings, order, report
from stack.doctor.diagnosis.diagnose import Diagnosis, diagnose
from stack.doctor.diagnosis.findings import short as _short
from stack.doctor.diagnosis.order import KERNEL
from stack.doctor.finding import Check, Finding, Found, fine, note, run, unknown, wrong
from stack.doctor.knowledge import advice, load, match
from stack.doctor.knowledge.match import Server
from stack.doctor.knowledge.rule import Rule
from stack.doctor.rules import EAGER_COST, Target

_LARGEST = 512 * 2**20
_AROUND = 600.0
"""Seconds before the start and after the end of a log within which the kernel's messages are about it."""
_NEVER = re.compile(r"TRTLLM|DEEP_?GEMM", re.IGNORECASE)
_WHY = {"TRTLLM": "TRTLLM's kernels are built for SM100 and SM103 only", "DEEP": "DeepGEMM is for SM90 and SM100 only"}
_FOREIGN = "does not support current device"
_SHOWN = 5
_NOT_SAID = "not said"
_OTHERS = (
    ("SGLang", "server_args=ServerArgs("),
    ("TensorRT-LLM", "[TensorRT-LLM] TensorRT"),
    ("llama.cpp", "llama_model_loader:"),
)
_GPT_OSS = re.compile(r"gpt-?oss", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogSubject:
    """A log: its facts, its lines, what went wrong, the recipe of the server, and the pinned version of vLLM."""

    reading: Reading
    lines: tuple[Line, ...]
    server: Server
    diagnosis: Diagnosis
    recipe: Recipe | None = None
    pinned: str | None = None

    @property
    def errors(self) -> tuple[tuple[Rule, Line], ...]:
        """The rules of failures that fit, the root cause first, each with its line."""
        found = self.diagnosis
        known = (found.root, *found.others, *found.along, *found.later, *found.hints)
        return tuple((hit.rule, hit.line) for hit in known if hit is not None)

    @property
    def report(self) -> str:
        """A block for an issue report: the cause, if it is known, the first error that is not, versions, and the lines around."""
        return report.block(self.diagnosis, self.lines, self.server)


def known() -> tuple[Rule, ...]:
    """Return the package's rules about lines of logs."""
    return tuple(rule for rule in load.builtin() if rule.kind == "log")


def text_of(file: Path) -> str:
    """Read a log's text.

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
    return data.decode("utf-8", "replace")


def read(
    file: Path,
    recipe: Recipe | None = None,
    pinned: str | None = None,
    rules: Iterable[Rule] | None = None,
    kernel: str = "",
    hardware: frozenset[str] | None = None,
) -> LogSubject:
    """Read a log from its file.

    Raises:
        StackError: it cannot be read, or is too large.

    """
    return of(text_of(file), recipe, pinned, rules, kernel, hardware)


def of(
    text: str,
    recipe: Recipe | None = None,
    pinned: str | None = None,
    rules: Iterable[Rule] | None = None,
    kernel: str = "",
    hardware: frozenset[str] | None = None,
) -> LogSubject:
    """Read a log from its text; `kernel`: the kernel's log of the same machine."""
    lines = [*vllm_log.lines(text)]
    reading = vllm_log.read_lines(lines, text.count("\n") + 1 if text else 0)
    lines += _kernel(kernel, lines) if kernel else ()
    about = match.server(lines, reading, hardware)
    return LogSubject(
        reading, tuple(lines), about, diagnose([*(known() if rules is None else rules)], lines, about), recipe, pinned
    )


def _kernel(text: str, lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines of a kernel's log that are of the time of a server's log; those without a time count."""
    stamps = [at for at in order.times(lines).values() if at]
    found = [replace(line, number=line.number + KERNEL) for line in vllm_log.lines(text)]
    at = order.times(found)
    for line in found:
        when = at[line.number]
        if not stamps or not when or min(stamps) - _AROUND <= when <= max(stamps) + _AROUND:
            yield line


def _errors(subject: LogSubject) -> Iterator[Found]:
    yield from findings.findings(subject.diagnosis, subject.server.given, ready=subject.reading.ready)


def look(subject: LogSubject, where: str) -> Iterator[Finding]:
    """Run the checks on a log; without a start of vLLM in it, only those for the start and for errors."""
    return run(CHECKS if _is_vllm(subject.reading) else CHECKS[:2], subject, where)


def places(found: Iterable[Finding], kernel: str) -> Iterator[Finding]:
    """Give the findings about lines of the kernel's log their place in that file."""
    for finding in found:
        line = finding.found.line
        if line is not None and line > KERNEL:
            yield replace(finding, where=kernel, found=replace(finding.found, line=line - KERNEL))
        else:
            yield finding


def failed_first(read: Sequence[tuple[str, LogSubject]]) -> Finding | None:
    """Of several logs of one server with several ranks, say whose process failed first; None if the times do not tell."""
    failures = []
    for where, subject in read:
        root = subject.diagnosis.root or (subject.diagnosis.follows and subject) or subject.diagnosis.unknown
        if subject.server.ranks < 2 or not root:
            continue
        at = order.times(subject.lines)
        lines = [line.number for _, line in subject.errors] or [line.number for line in subject.diagnosis.follows]
        if subject.diagnosis.unknown is not None:
            lines.append(subject.diagnosis.unknown.line.number)
        stamps = [at[line] for line in lines if at.get(line)]
        if stamps:
            failures.append((min(stamps), where))
    failures.sort()
    if len(failures) < 2 or failures[0][0] == failures[1][0]:
        return None
    earlier = failures[1][0] - failures[0][0]
    what = f"of these logs it failed first, {earlier:.0f} s before the next: what the others say may follow from it"
    return Finding("errors", failures[0][1], note(what))


def _is_vllm(reading: Reading) -> bool:
    return bool(reading.version or reading.model or reading.headless or reading.stage)


def _started(subject: LogSubject) -> Iterator[Found]:
    reading = subject.reading
    if not _is_vllm(reading):
        yield from _foreign(subject)
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
        did_not = wrong(
            f"the server did not start; it was {reading.stage or 'starting'}", "see its errors", reading.error.number
        )
        yield replace(did_not, within="errors")


def _foreign(subject: LogSubject) -> Iterator[Found]:
    """Say what a log is that has no start of vLLM."""
    other = next((name for line in subject.lines for name, words in _OTHERS if words in line.text), None)
    if subject.diagnosis.root is not None and subject.diagnosis.root.rule.before_start:
        yield fine("its container did not start, so there is no start of vLLM in it")
    elif other is not None:
        yield unknown(f"it is a log of {other}: only errors that are known are looked for")
    elif subject.lines and sum(map(match.is_kernel, subject.lines)) * 2 > len(subject.lines):
        yield fine("it is a log of the kernel")
    else:
        yield unknown("it contains no start of vLLM", "name a log with the server's output from its start on")


def _version(subject: LogSubject) -> Iterator[Found]:
    version = subject.reading.version
    if version is None or subject.pinned is None:
        return
    if version.partition("+")[0] != subject.pinned:
        yield note(
            f"it is of vLLM {version}, the stack stands on {subject.pinned}",
            "if it should be this stack's: stack build wheels vllm, and install what it builds",
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


def _measured(subject: LogSubject) -> Iterator[Found]:
    """Measure a server that did not start by its arguments and the recipe's machine."""
    recipe, given = subject.recipe, subject.server.given
    if recipe is None or recipe.hardware is None or subject.reading.ready or "model" not in given:
        return
    profile = hardware_profiles.load(recipe.hardware.name)
    target = Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
    line = next((line.number for line in subject.lines if advice.names_arguments(line)), 1)
    serve = yardstick.from_log(given, subject.reading.model, line)
    yield from yardstick.look(serve, yardstick.measure_of(serve, target, yardstick.checkpoint_of(serve, recipe)))


def _graphs(subject: LogSubject) -> Iterator[Found]:
    graphs = subject.reading.graphs
    if subject.reading.version is not None and re.search(r"\bcpu\b", subject.reading.version.replace(".", " ")):
        return  # CPUs have no CUDA graphs
    if graphs.on is False:
        eager = graphs.why is not None and "eager" in graphs.why
        slow = f": {EAGER_COST}" if _GPT_OSS.search(subject.reading.model or "") else ": each token is slower"
        yield wrong(
            f"CUDA graphs are off ({graphs.why or 'the log does not say why'}){slow}",
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
        narrow = cache.kind is not None and not cache.kind.startswith(("bfloat", "float", "half"))
        yield wrong(
            "a request of the whole length does not fit into the KV cache",
            "lower --max-model-len" if narrow else "lower --max-model-len, or take --kv-cache-dtype fp8",
        )


def _fallbacks(subject: LogSubject) -> Iterator[Found]:
    for entry in subject.reading.fallbacks[:_SHOWN]:
        yield note(f"a fallback is used instead of the requested setting: {_short(entry.text)}", line=entry.number)
    if (more := len(subject.reading.fallbacks) - _SHOWN) > 0:
        yield note(f"{more} more such lines")


def _variables(subject: LogSubject) -> Iterator[Found]:
    for variable in subject.reading.unknown:
        gone = older_settings.find(variable.name, None)
        what = f"{variable.name} is set, but vLLM does not read it"
        if gone is None:
            # Images set names of their own, such as VLLM_VERSION.
            yield note(what, "if you have set it: take it out, or correct its name", variable.line)
        else:
            yield wrong(what, f"take it out; {gone.advice}", variable.line)


def _slow(subject: LogSubject) -> Iterator[Found]:
    if (found := throughput.slow(subject.lines)) is not None:
        yield note(
            f"one request gets {found.rate:g} tokens a second over {found.count} lines: the machine swaps, is shared, or the log is of "
            "its last moments",
            "free -h and the kernel's log (stack doctor --dmesg FILE) tell whether memory is short or the process was killed",
            found.line,
        )


CHECKS: tuple[Check[LogSubject], ...] = (
    Check("start", "the server started", _started),
    Check("errors", "it has no error that is known", _errors),
    Check("version", "it is of the version that the stack stands on", _version),
    Check("backends", "it names backends", _backends),
    Check("refused", "no backend was refused", _refused),
    Check("never-on-sm12x", "no backend was selected that the recipe's GPU cannot run", _never),
    Check("expected", "what runs is what the recipe expects, or no recipe is named", _expected),
    Check("machine", "its arguments fit the recipe's machine, or no recipe is named", _measured),
    Check("graphs", "CPUs have no CUDA graphs", _graphs),
    Check("kv-cache", "there is a KV cache", _cache),
    Check("fallbacks", "what was asked for is used", _fallbacks),
    Check("throughput", "no request is unusually slow, or the log does not say", _slow),
    Check("unknown-variables", "vLLM knows all variables", _variables),
)

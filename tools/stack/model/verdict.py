# SPDX-License-Identifier: Apache-2.0
"""The verdict: the recorded outcome of one validation on one machine, bound to a stack digest; read strictly.

A verdict comes from another machine, and a release relies on it. It therefore carries a digest of itself, and every deviation
from this format is refused: unknown, missing or repeated keys, NaN and infinity, contradictory cases.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stack.base import files
from stack.base.errors import StackError
from stack.model.document import Table
from stack.model.ids import UPSTREAM, Sha256
from stack.model.inputs import CODE, Input, Selection

SCHEMA = 1
LIMIT = 16 * 1024 * 1024
"""Bytes of the largest verdict that is read, a thousand times the usual size."""

NAME = r"[a-z][a-z0-9-]*(/[A-Za-z0-9][A-Za-z0-9._+=,:@*-]*)+"
"""The name of a case: its suite, then its subject from the general to the particular: `kernels/moe/mxfp4-cpu/m=33`."""
_NEEDS = r"[a-z][a-z0-9_-]*"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9 ._+=@/|()-]*"
_SHA256 = r"[0-9a-f]{64}"
_IMAGE = r"sha256:[0-9a-f]{64}"
_GATE = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
# Texts come from servers and other machines and are shown on terminals, which they must not control. Excluded are control
# characters, line separators, direction overrides, and halves of surrogate pairs, which no file can hold.
_ODD = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_LINE = rf"[^\t\n{_ODD}]*"
_WORDS = rf"[^{_ODD}]*"
_STEERING = re.compile(rf"[{_ODD}]")


class Outcome(StrEnum):
    """The outcome of a case; a case that could not run has not passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"


class Weights(StrEnum):
    """The weights that a server had loaded. Dummy weights have real dimensions: speed and code path are real, text is not."""

    REAL = "real"
    DUMMY = "dummy"
    TINY = "tiny"


@dataclass(frozen=True, slots=True)
class Case:
    """One check with its outcome.

    `why` says what failed or why it did not run; it is empty if the case passed. `needs` lists what a machine must have (`cpu`,
    `avx512_bf16`, `sm90`, `sm121`, …): all of it, but only one of several GPUs. `bar` is the bound that decided, in the unit of
    the measured value. `margins` say how far the good result and the nearest wrong one were from it.

    `inputs` maps each input (an upstream, or the validation's code) to its digest; the verdict lists the inputs themselves.
    `used` is not written to the file: the upstream files that the run was seen to use, by upstream.
    """

    name: str
    outcome: Outcome
    why: str = ""
    needs: tuple[str, ...] = ()
    measured: Mapping[str, float | str] = field(default_factory=lambda: MappingProxyType({}))
    bar: float | None = None
    margins: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    seconds: float = 0.0
    inputs: Mapping[str, Sha256] = field(default_factory=lambda: MappingProxyType({}))
    used: Mapping[str, Selection] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @property
    def suite(self) -> str:
        """The first part of the name: `kernels`, `serve`, `bench`, `quality`."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: `capability` such as 12.1; `memory` in bytes, None if it shares the machine's memory (GB10)."""

    name: str
    capability: str
    memory: int | None
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a validation: `memory` in bytes, CPU `flags` in the kernel's names, `cuda` as the driver reports it."""

    system: str
    architecture: str
    cpu: str
    cores: int
    memory: int
    flags: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    cuda: str | None = None


@dataclass(frozen=True, slots=True)
class Pinned:
    """The pin of an upstream in the validated stack."""

    commit: str
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One validation on one machine. `whole` is false until the last case is recorded: a killed run decides nothing.

    For a validation inside an image, `image` is the digest of its manifest (of this platform, not of an index). `gates` holds the
    digests of the gates at that time, by name: weakening one later does not release the image. `inputs` are those of its cases,
    by digest.
    """

    stack: Sha256
    pins: Mapping[str, Pinned]
    made: str
    machine: Machine
    versions: Mapping[str, str]
    cases: tuple[Case, ...]
    recipe: str | None = None
    weights: Weights | None = None
    whole: bool = True
    image: str | None = None
    gates: Mapping[str, Sha256] = field(default_factory=lambda: MappingProxyType({}))
    inputs: Mapping[Sha256, Input] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class VerdictFile:
    """A verdict as read from a file: errors name `file`, and a signature covers `data`."""

    file: Path
    data: bytes
    verdict: Verdict


def write(verdict: Verdict) -> bytes:
    """Return the bytes of `verdict.json`, with a digest of all other values.

    Raises:
        StackError: The verdict could not be read again.

    """
    data = (json.dumps(as_json(verdict), indent=1, ensure_ascii=False) + "\n").encode()
    read(data, "the verdict")
    return data


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the contents of `verdict.json`, with a digest of all other values."""
    content = _content(verdict)
    return content | {"digest": _digest(content)}


def load(path: Path) -> Verdict:
    """Read a verdict from a file.

    Raises:
        StackError: The file cannot be read, is not a verdict of this schema, or was altered.

    """
    return load_file(path).verdict


def load_file(path: Path) -> VerdictFile:
    """Read a verdict from a file, and keep the file's bytes. Errors are those of `load`."""
    data = bytes_of(path)
    return VerdictFile(path, data, read(data, str(path)))


def load_files(paths: Iterable[Path]) -> tuple[list[VerdictFile], list[str]]:
    """Read verdicts from files; for each file that is not a verdict, return a sentence that says why."""
    loaded, problems = [], []
    for path in paths:
        try:
            loaded.append(load_file(path))
        except StackError as refused:
            problems.append(str(refused))
    return loaded, problems


def bytes_of(path: Path) -> bytes:
    """Read at most LIMIT + 1 bytes of a verdict's file, so that `read` can refuse a larger one.

    Raises:
        StackError: The file cannot be read.

    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            files.check_regular(descriptor, path)
            return file.read(LIMIT + 1)
    except OSError as failed:
        raise StackError(f"{path} cannot be read ({failed.strerror})", "name a verdict's file") from failed


def read(data: bytes, where: str) -> Verdict:
    """Parse a verdict; errors call it `where`.

    Raises:
        StackError: The data is not a verdict of this schema, or was altered.

    """
    content = parse(data, where)
    table = Table(content, file=Path(where))
    table.has_to_give("cases")
    schema = table.whole("schema")
    if schema != SCHEMA:
        raise table.error("schema", f"is {schema}, this stack reads {SCHEMA}", "validate again with this stack")
    if table.text("digest", pattern=_SHA256, meaning="64 hexadecimal digits") != _digest(content):
        raise StackError(f"{where} was altered: its digest does not match", "validate again; verdicts are not edited")
    stack = table.table("stack")
    verdict = Verdict(
        stack=Sha256(stack.text("digest", pattern=_SHA256, meaning="64 hexadecimal digits")),
        pins=_pins(stack.table("pins")),
        made=_time(table, "made"),
        machine=_machine(table.table("machine")),
        versions=_texts(table.table("versions")),
        recipe=_line(table, "recipe") if table.given("recipe") else None,
        weights=_weights(table),
        whole=table.flag("whole"),
        cases=tuple(case(entry) for entry in table.tables("cases")),
        image=table.optional_text("image", pattern=_IMAGE, meaning="a digest: sha256: and 64 hexadecimal digits"),
        gates=_gates(table.optional_table("gates")),
        inputs=_inputs(table.optional_table("inputs")),
    )
    stack.finish()
    table.finish()
    _check_once(verdict.cases, where)
    _check_inputs(verdict, where)
    return verdict


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object from an untrusted source.

    Raises:
        StackError: The data is too large, not JSON, not an object, repeats a key, or has NaN or infinity.

    """
    if len(data) > LIMIT:
        raise StackError(f"{where} is larger than {LIMIT // 2**20} MiB", "name the file of a verdict")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as bad:
        reason = str(bad) if not isinstance(bad, RecursionError) else "nested too deeply"
        raise StackError(f"{where} is not whole, strict JSON ({reason})", "fetch or make it again") from bad
    if not isinstance(value, dict):
        raise StackError(f"{where} is not a JSON object", "fetch or make it again")
    return value


def case(table: Table) -> Case:
    """Parse a case from its JSON form.

    Raises:
        StackError: The case is malformed or contradicts itself.

    """
    table.has_to_give("needs")
    read_case = Case(
        name=table.text("name", pattern=NAME, meaning="like suite/subject/detail"),
        outcome=Outcome(table.text("outcome", pattern="|".join(Outcome), meaning=" or ".join(Outcome))),
        why=table.text("why", pattern=_WORDS, meaning="text without control characters"),
        needs=table.texts("needs"),
        measured=_measured(table.table("measured")),
        bar=table.number("bar") if table.given("bar") else None,
        margins=_numbers(table.table("margins")),
        seconds=table.number("seconds"),
        inputs=_case_inputs(table.optional_table("inputs")),
    )
    table.finish()
    if any(not re.fullmatch(_NEEDS, need) for need in read_case.needs):
        raise table.error("needs", f"is {list(read_case.needs)}", "name what a machine has to have: cpu, sm90, sm121")
    if bool(read_case.why.strip()) == (read_case.outcome is Outcome.PASSED):
        raise table.error(
            "why", f"contradicts the outcome {read_case.outcome}", "it says what failed or was not run, and nothing else"
        )
    if read_case.seconds < 0:
        raise table.error("seconds", f"is {read_case.seconds}", "it has to be 0 or more")
    return read_case


def case_json(case: Case) -> dict[str, Any]:
    """Return the JSON form of a case, which `case` reads.

    Control characters, such as a log's colours, become question marks; NaN and infinity become their names.
    """
    # Left out if empty, as in earlier verdicts.
    inputs = {"inputs": dict(case.inputs)} if case.inputs else {}
    return {
        "name": case.name,
        "outcome": case.outcome.value,
        "why": _STEERING.sub("?", case.why),
        "needs": list(case.needs),
        "measured": {key: _measure(value) for key, value in case.measured.items()},
        "bar": case.bar,
        "margins": dict(case.margins),
        "seconds": round(case.seconds, 3),
        **inputs,
    }


def _measure(value: float | str) -> float | str:
    if isinstance(value, str):
        return _STEERING.sub("?", " ".join(re.split(r"[\t\n\r]+", value)))
    return value if math.isfinite(value) else str(value)


def _content(verdict: Verdict) -> dict[str, Any]:
    machine = verdict.machine
    # Left out if empty: an older stack that does not know these keys can then read the verdict.
    image: dict[str, Any] = {"image": verdict.image} if verdict.image is not None else {}
    gates: dict[str, Any] = {"gates": dict(verdict.gates)} if verdict.gates else {}
    inputs: dict[str, Any] = {"inputs": {name: _input_json(each) for name, each in verdict.inputs.items()}}
    return {
        "schema": SCHEMA,
        "stack": {
            "digest": verdict.stack,
            "pins": {name: {"tag": pin.tag, "commit": pin.commit} for name, pin in verdict.pins.items()},
        },
        "made": verdict.made,
        "whole": verdict.whole,
        "machine": {
            "system": machine.system,
            "architecture": machine.architecture,
            "cpu": machine.cpu,
            "cores": machine.cores,
            "memory": machine.memory,
            "flags": list(machine.flags),
            "gpus": [
                {"name": gpu.name, "capability": gpu.capability, "memory": gpu.memory, "driver": gpu.driver}
                for gpu in machine.gpus
            ],
            "cuda": machine.cuda,
        },
        "versions": dict(verdict.versions),
        "recipe": verdict.recipe,
        "weights": verdict.weights.value if verdict.weights else None,
        "cases": [case_json(case) for case in verdict.cases],
        **image,
        **gates,
        **(inputs if verdict.inputs else {}),
    }


def _digest(content: Mapping[str, Any]) -> Sha256:
    """Hash everything but the digest itself; layout and key order do not matter."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Sha256(hashlib.sha256(canonical.encode("ascii")).hexdigest())


def _time(table: Table, key: str) -> str:
    time = table.text(key, pattern=_TIME, meaning="a time in UTC such as 2026-11-21T21:40:00Z")
    try:
        datetime.fromisoformat(time)
    except ValueError as bad:
        raise table.error(key, f"is {time}", "there is no such time") from bad
    return time


def _machine(table: Table) -> Machine:
    table.has_to_give("flags", "gpus")
    machine = Machine(
        system=_line(table, "system"),
        architecture=_line(table, "architecture"),
        cpu=_line(table, "cpu"),
        cores=table.whole("cores"),
        memory=table.whole("memory"),
        flags=_flags(table),
        gpus=tuple(_gpu(gpu) for gpu in table.tables("gpus")),
        cuda=_line(table, "cuda") if table.given("cuda") else None,
    )
    table.finish()
    return machine


_GPU_WORD = re.compile(r"sm\d{2,}")
"""How `needs` names a GPU. An ARM CPU may have the flags `sm3` and `sm4`."""


def _flags(table: Table) -> tuple[str, ...]:
    flags = table.texts("flags")
    if odd := next((flag for flag in flags if not re.fullmatch(_LINE, flag)), None):
        raise table.error("flags", f"has {odd!r:.60}", "they are words")
    if gpu := next((flag for flag in flags if _GPU_WORD.fullmatch(flag)), None):
        raise table.error("flags", f"has {gpu}, which no CPU has", "a GPU is listed among the gpus")
    return flags


def _gpu(table: Table) -> Gpu:
    capability = table.text("capability", pattern=r"[0-9]+\.[0-9]+", meaning="a compute capability such as 12.1")
    memory = table.whole("memory") if table.given("memory") else None
    gpu = Gpu(_line(table, "name"), capability, memory, _line(table, "driver"))
    table.finish()
    return gpu


def _pins(table: Table) -> Mapping[str, Pinned]:
    pins = {}
    for name in table:
        pin = table.table(name)
        commit = pin.text("commit", pattern=r"[0-9a-f]{7,40}", meaning="a commit")
        pins[_label(table, name)] = Pinned(commit, _line(pin, "tag") if pin.given("tag") else None)
        pin.finish()
    return MappingProxyType(pins)


def _gates(table: Table | None) -> Mapping[str, Sha256]:
    if table is None:
        return MappingProxyType({})
    odd = [name for name in table if not re.fullmatch(_GATE, name)]
    if odd:
        raise table.error(repr(odd[0]), "is not a valid name", "a gate's name has letters, digits, '-' and '_'")
    return MappingProxyType(
        {name: Sha256(table.text(name, pattern=_SHA256, meaning="64 hexadecimal digits")) for name in table}
    )


def _input_json(each: Input) -> dict[str, Any]:
    return {"of": each.of, "files": None if each.files is None else list(each.files), "content": dict(each.content)}


def _inputs(table: Table | None) -> Mapping[Sha256, Input]:
    inputs: dict[Sha256, Input] = {}
    for name in table or ():
        assert table is not None
        entry = table.table(name)
        files = entry.texts("files") if entry.given("files") else None
        content = entry.table("content")
        kept = Input(
            _kind(entry, entry.text("of")),
            files,
            MappingProxyType({_path(content, key): _line(content, key) for key in content}),
        )
        entry.finish()
        if kept.digest != name:
            raise table.error(repr(name[:12]), "is not the digest of this input", "validate again; verdicts are not edited")
        inputs[kept.digest] = kept
    return MappingProxyType(inputs)


def _case_inputs(table: Table | None) -> Mapping[str, Sha256]:
    named = (
        {_kind(table, key): Sha256(table.text(key, pattern=_SHA256, meaning="64 hexadecimal digits")) for key in table}
        if table
        else {}
    )
    return MappingProxyType(named)


def _kind(table: Table, name: str) -> str:
    if name != CODE and not re.fullmatch(UPSTREAM, name):
        raise table.error(f"{name!r:.60}", "is not a kind of input", f"name an upstream, or {CODE}")
    return name


def _path(table: Table, name: str) -> str:
    if not re.fullmatch(_LINE, name):
        raise table.error(f"{name!r:.60}", "is not a path", "a path is one line")
    return name


def _check_inputs(verdict: Verdict, where: str) -> None:
    for case in verdict.cases:
        for kind, name in case.inputs.items():
            if name not in verdict.inputs or verdict.inputs[name].of != kind:
                raise StackError(f"{where}: {case.name} names an input of {kind} that is not listed", "validate again")


def _weights(table: Table) -> Weights | None:
    if not table.given("weights"):
        return None
    return Weights(table.text("weights", pattern="|".join(Weights), meaning=" or ".join(Weights)))


def _line(table: Table, key: str) -> str:
    return table.text(key, pattern=_LINE, meaning="one line of text")


def _texts(table: Table) -> Mapping[str, str]:
    return MappingProxyType({_label(table, key): _line(table, key) for key in table})


def _numbers(table: Table) -> Mapping[str, float]:
    return MappingProxyType({_label(table, key): table.number(key) for key in table})


def _measured(table: Table) -> Mapping[str, float | str]:
    return MappingProxyType(
        {_label(table, key): _line(table, key) if table.is_text(key) else table.number(key) for key in table}
    )


def _label(table: Table, key: str) -> str:
    if not re.fullmatch(_LABEL, key):
        raise table.error(f"{key!r:.60}", "is not a valid name", "use letters, digits and blanks")
    return key


def _check_once(cases: tuple[Case, ...], where: str) -> None:
    names: set[str] = set()
    for case in cases:
        if case.name in names:
            raise StackError(f"{where} has the case {case.name} twice", "validate again")
        names.add(case.name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("an object has a key twice")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")

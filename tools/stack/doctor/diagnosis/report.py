# SPDX-License-Identifier: Apache-2.0
"""Write a block for an issue report about what a log shows: a cause that a rule knows, or an error that none knows."""

import re
from collections.abc import Iterator, Sequence

from stack.deploy.vllm_log import Line
from stack.doctor.diagnosis.diagnose import Diagnosis
from stack.doctor.diagnosis.first_error import FirstError
from stack.doctor.diagnosis.order import KERNEL
from stack.doctor.diagnosis.redact import redacted
from stack.doctor.knowledge.match import Hit, Server

_BEFORE, _AFTER = 6, 4
_VERSIONS = re.compile(
    r"\b(torch|triton|flashinfer(?:-python)?|transformers|nvidia-cutlass-dsl|nccl|ray|driver|cuda|python)"
    r"(?: version)?\s{0,3}(?:==|=|:)\s{0,3}v?(\d[\w.+-]{0,40})",
    re.IGNORECASE,
)


def block(diagnosis: Diagnosis, lines: Sequence[Line], about: Server) -> str:
    """Return the block, with secrets, hosts and paths replaced."""
    return "\n".join([*_server(lines, about), *_causes(diagnosis), *_around(diagnosis, lines)])


def _server(lines: Sequence[Line], about: Server) -> Iterator[str]:
    reading = about.reading
    yield f"vLLM {reading.version or '(version not in the log)'}, model {redacted(reading.model or '(not in the log)')}"
    hardware = ", ".join(sorted(about.hardware)) if about.hardware else "not in the log"
    yield f"hardware: {hardware}; ranks: {about.ranks}; quantization: {reading.quantization or 'none'}"
    backends = [f"{part} {each.name}" for part in ("MoE", "linear", "attention") for each in reading.named(part)]
    yield f"backends: {', '.join(dict.fromkeys(backends)) or 'not in the log'}"
    versions = dict.fromkeys(
        f"{name.lower()} {version}" for line in lines[:4000] for name, version in _VERSIONS.findall(line.text[:2000])
    )
    yield f"other versions: {', '.join([*versions][:8]) or 'not in the log'}"
    yield f"while: {reading.stage or 'starting'}{' (it served before)' if reading.ready else ''}"


def _causes(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the cause by its rule, else the consequence that says most, and the first error that no rule knows."""
    if diagnosis.root is not None:
        yield from _known("cause", diagnosis.root)
    if diagnosis.unknown is not None:
        yield from _unknown(diagnosis.unknown)
    elif diagnosis.root is None and diagnosis.hints:
        yield from _known("only a consequence, the cause is not in the log", diagnosis.hints[0])
    elif diagnosis.root is None:
        yield "error: none in the log"


def _known(what: str, hit: Hit) -> Iterator[str]:
    yield f"{what} (rule {hit.rule.id}, {hit.rule.sure}): {hit.rule.title}"
    yield f"error ({_number(hit.line)}): {redacted(hit.line.text.strip())}"


def _unknown(error: FirstError) -> Iterator[str]:
    yield f"first error ({_number(error.line)}): {redacted(error.line.text.strip())}"
    yield "  no rule knows it"
    for frame in reversed(error.frames):
        source = f": {redacted(frame.source)}" if frame.source else ""
        yield f"  in {redacted(frame.file)}:{frame.line} {redacted(frame.function)}{source}"


def _around(diagnosis: Diagnosis, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the lines around each of the errors, each line once; what is left out between them is marked."""
    hits = [hit for hit in (diagnosis.root, *(diagnosis.hints[:1] if diagnosis.root is None else ())) if hit is not None]
    places = {place for place, line in enumerate(lines) if any(line is hit.line for hit in hits)}
    if diagnosis.unknown is not None:
        places.add(diagnosis.unknown.place)
    shown = sorted({near for at in places for near in range(max(0, at - _BEFORE), min(len(lines), at + _AFTER + 1))})
    if shown:
        yield "lines around it:"
    for before, at in zip([None, *shown], shown, strict=False):
        if before is not None and at > before + 1:
            yield "  …"
        who = f"({lines[at].process}) " if lines[at].process else ""
        yield f"  {_number(lines[at], short=True)}: {who}{redacted(lines[at].text.rstrip())}"


def _number(line: Line, *, short: bool = False) -> str:
    """Return a line's number; one of the kernel's log says so."""
    if line.number > KERNEL:
        return f"kernel {line.number - KERNEL}" if short else f"line {line.number - KERNEL} of the kernel's log"
    return f"{line.number}" if short else f"line {line.number}"

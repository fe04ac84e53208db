# SPDX-License-Identifier: Apache-2.0
"""Write a block for an issue report about an error that no rule knows."""

import re
from collections.abc import Iterator, Sequence

from stack.deploy.vllm_log import Line
from stack.doctor.diagnosis.first_error import FirstError
from stack.doctor.diagnosis.redact import redacted
from stack.doctor.knowledge.match import Server

_BEFORE, _AFTER = 6, 4
_VERSIONS = re.compile(
    r"\b(torch|triton|flashinfer(?:-python)?|transformers|nvidia-cutlass-dsl|nccl|ray|driver|cuda|python)"
    r"(?: version)?\s{0,3}(?:==|=|:)\s{0,3}v?(\d[\w.+-]{0,40})",
    re.IGNORECASE,
)


def block(error: FirstError, lines: Sequence[Line], about: Server) -> str:
    """Return the block, with secrets, hosts and paths replaced."""
    return "\n".join(_lines(error, lines, about))


def _lines(error: FirstError, lines: Sequence[Line], about: Server) -> Iterator[str]:
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
    yield f"first error (line {error.line.number}): {redacted(error.line.text.strip())}"
    for frame in reversed(error.frames):
        source = f": {redacted(frame.source)}" if frame.source else ""
        yield f"  in {redacted(frame.file)}:{frame.line} {redacted(frame.function)}{source}"
    yield "lines around it:"
    for line in lines[max(0, error.place - _BEFORE) : error.place + _AFTER + 1]:
        who = f"({line.process}) " if line.process else ""
        yield f"  {line.number}: {who}{redacted(line.text.rstrip())}"

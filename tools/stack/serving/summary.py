# SPDX-License-Identifier: Apache-2.0
"""Summarize a running server in a line, and as JSON."""

import re
import shlex
from collections.abc import Mapping, Sequence

from stack.deploy.vllm_log import Mismatch, Named, Reading
from stack.serving.demands import KEY
from stack.serving.start import Up
from stack.validation.python_env import Process

_UNNAMED = "not named"


def shell(process: Process, here: Mapping[str, str]) -> str:
    """Write a shell line that starts a process in the environment `here`.

    If the process does not get all of `here`, the line starts from an empty environment. The API key is never written: the line takes
    it from the environment.
    """
    variables = [f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in own(process, here).items()]
    if not _takes_all(process, here):
        key = [f'{KEY}="${KEY}"'] if process.environment.get(KEY) else []
        variables = ["env", "-i", *variables, *key]
    return " ".join((*variables, shlex.join(process.command)))


def own(process: Process, here: Mapping[str, str]) -> dict[str, str]:
    """Return a process's variables that differ from `here`; all of them if it does not get all of `here`. Never the API key."""
    mine = {name: value for name, value in process.environment.items() if name != KEY}
    return {name: value for name, value in mine.items() if here.get(name) != value} if _takes_all(process, here) else mine


def _takes_all(process: Process, here: Mapping[str, str]) -> bool:
    return here.keys() <= process.environment.keys()


def line(up: Up) -> str:
    """Summarize a running server in one line."""
    context = up.reading.context
    return " · ".join(
        (
            kernels(up.reading),
            f"{context} tokens" if context is not None else "tokens not said",
            f"ready in {up.seconds:.0f} s",
            up.url or "no API on this node",
        )
    )


def kernels(reading: Reading) -> str:
    """Summarize which kernels run in a server."""
    return " · ".join(
        (
            f"MoE {_names((*reading.moe, *reading.decode))}",
            f"linear {', '.join(dict.fromkeys(map(_linear, reading.linear))) or _UNNAMED}",
            f"attention {_names(reading.attention)}",
            f"KV {reading.cache.kind or _UNNAMED}",
            f"graphs {_graphs(reading)}",
        )
    )


def mismatch(one: Mismatch) -> str:
    """Describe a part that differs from the recipe, with the log's reasons."""
    why = f" ({'; '.join(one.why)})" if one.why else ""
    return f"{one.part}: expected {one.expected}, runs {one.found}{why}"


def as_json(reading: Reading, mismatches: Sequence[Mismatch]) -> dict[str, object]:
    """Convert a log's facts for `--json`."""
    return {
        "version": reading.version,
        "quantization": reading.quantization,
        "context": reading.context,
        "moe": [entry.name for entry in reading.moe],
        "decode": [entry.name for entry in reading.decode],
        "linear": [entry.name for entry in reading.linear],
        "attention": [entry.name for entry in reading.attention],
        "kv": {
            "type": reading.cache.kind,
            "tokens": reading.cache.tokens,
            "gib": reading.cache.gib,
            "concurrency": reading.cache.concurrency,
        },
        "graphs": {"on": reading.graphs.on, "mode": reading.graphs.mode, "why": reading.graphs.why},
        "compiled": reading.compiled,
        "phases": {entry.name: entry.seconds for entry in reading.phases},
        "refused": [{"part": entry.part, "name": entry.name, "why": entry.why} for entry in reading.refused],
        "fallbacks": [entry.text for entry in reading.fallbacks],
        "unknown": [entry.name for entry in reading.unknown],
        "mismatches": [
            {"part": entry.part, "expected": entry.expected, "found": entry.found, "why": list(entry.why)}
            for entry in mismatches
        ],
    }


def _names(named: Sequence[Named]) -> str:
    return ", ".join(dict.fromkeys(entry.name for entry in named)) or _UNNAMED


def _linear(one: Named) -> str:
    """Shorten a kernel's name: MarlinMxFp4LinearKernel for MXFP4 GEMM becomes Marlin MXFP4."""
    of = one.of.removesuffix(" GEMM").removesuffix(" linear")
    short = re.sub(re.escape(of), "", one.name.removesuffix("Kernel").removesuffix("Linear"), flags=re.IGNORECASE)
    return f"{short} {of}".strip()


def _graphs(reading: Reading) -> str:
    words = {True: "on", False: "off", None: "not said"}
    return words[reading.graphs.on] + (f" ({reading.graphs.why})" if reading.graphs.on is False and reading.graphs.why else "")

# SPDX-License-Identifier: Apache-2.0
"""What runs, in a line and as JSON."""

import re
import shlex
from collections.abc import Mapping, Sequence

from stack.deploy.vllm_log import Mismatch, Named, Reading
from stack.serving.demands import KEY
from stack.serving.start import Up
from stack.validation.python_env import Process

_UNNAMED = "not named"


def shell(process: Process, here: Mapping[str, str]) -> str:
    """A line for a shell that starts a process.

    `here`: the environment that it is for; what of it the process does not get is left out by leaving out all. The API key stands in
    no line: it is taken from the environment.
    """
    variables = [f"{name}={shlex.quote(value)}" for name, value in own(process, here).items()]
    if not _takes_all(process, here):
        key = [f'{KEY}="${KEY}"'] if process.environment.get(KEY) else []
        variables = ["env", "-i", *variables, *key]
    return " ".join((*variables, shlex.join(process.command)))


def own(process: Process, here: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process gets beside those that are `here`; all of them where it does not get these. Never the API key."""
    mine = {name: value for name, value in process.environment.items() if name != KEY}
    return {name: value for name, value in mine.items() if here.get(name) != value} if _takes_all(process, here) else mine


def _takes_all(process: Process, here: Mapping[str, str]) -> bool:
    return here.keys() <= process.environment.keys()


def line(up: Up) -> str:
    """What runs, in one line."""
    told = up.reading
    return " · ".join(
        (
            f"MoE {_names((*told.moe, *told.decode))}",
            f"linear {', '.join(dict.fromkeys(map(_linear, told.linear))) or _UNNAMED}",
            f"attention {_names(told.attention)}",
            f"KV {told.cache.kind or _UNNAMED}",
            f"graphs {_graphs(told)}",
            f"{told.context} tokens" if told.context is not None else "tokens not said",
            f"ready in {up.seconds:.0f} s",
            up.url or "no API on this node",
        )
    )


def mismatch(one: Mismatch) -> str:
    """A part that is not as expected, and what the log says about why."""
    why = f" ({'; '.join(one.why)})" if one.why else ""
    return f"{one.part}: expected {one.expected}, runs {one.found}{why}"


def as_json(told: Reading, mismatches: Sequence[Mismatch]) -> dict[str, object]:
    """What the log says, for `--json`."""
    return {
        "version": told.version,
        "quantization": told.quantization,
        "context": told.context,
        "moe": [one.name for one in told.moe],
        "decode": [one.name for one in told.decode],
        "linear": [one.name for one in told.linear],
        "attention": [one.name for one in told.attention],
        "kv": {
            "type": told.cache.kind,
            "tokens": told.cache.tokens,
            "gib": told.cache.gib,
            "concurrency": told.cache.concurrency,
        },
        "graphs": {"on": told.graphs.on, "mode": told.graphs.mode, "why": told.graphs.why},
        "compiled": told.compiled,
        "phases": {one.name: one.seconds for one in told.phases},
        "refused": [{"part": one.part, "name": one.name, "why": one.why} for one in told.refused],
        "fallbacks": [one.text for one in told.fallbacks],
        "unknown": [one.name for one in told.unknown],
        "mismatches": [
            {"part": one.part, "expected": one.expected, "found": one.found, "why": list(one.why)} for one in mismatches
        ],
    }


def _names(named: Sequence[Named]) -> str:
    return ", ".join(dict.fromkeys(one.name for one in named)) or _UNNAMED


def _linear(one: Named) -> str:
    """MarlinMxFp4LinearKernel for MXFP4 GEMM is Marlin MXFP4."""
    of = one.of.removesuffix(" GEMM").removesuffix(" linear")
    short = re.sub(re.escape(of), "", one.name.removesuffix("Kernel").removesuffix("Linear"), flags=re.IGNORECASE)
    return f"{short} {of}".strip()


def _graphs(told: Reading) -> str:
    words = {True: "on", False: "off", None: "not said"}
    return words[told.graphs.on] + (f" ({told.graphs.why})" if told.graphs.on is False and told.graphs.why else "")

# SPDX-License-Identifier: Apache-2.0
"""Compare the choices of vLLM without the patches and with them: a patch has to mean each difference.

The configurations are those of `choices.py`. For each patch of the series that changes a choice, MEANT has a pattern of its differences,
written as `<configuration>: <without> -> <with>`. A pattern that matches nothing is an error, too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.proof import proof_module
from stack.proof.proof_module import Proof
from stack.proof.runner import Runner

MARK = "choice\t"
ROWS = "rows"
HERE = Path(__file__).parent
BESIDE = "test_sm121_gating.py"
"""The proof that the comparison runs with."""
LEAST = 4000
"""Configurations that the grid has at least."""
MEANT = {
    "refuse-flashinfer-mxfp4-linear-kernel-on-sm12x": (
        r"sm12\d linear \w+ .*: FlashInferMxFp4LinearKernel -> (MarlinMxFp4LinearKernel|\(ValueError\))"
    ),
    "support-xqa-decode-without-access-to-cubins": (
        r"network=False sm(90|120|121) attention (None|FLASHINFER) .* sinks=True .*: .* -> FlashInferBackend"
    ),
    "round-marlin-experts-up-to-its-tiles-only": r"sizes (BATCHED_)?MARLIN .*: \(\d+, \d+\) -> \(\d+, \d+\)",
    "let-flashinfer-cutlass-mean-the-variant-that-runs": (
        r"sm1[0-2]\d moe flashinfer_cutlass None .*: \(ValueError\) -> FLASHINFER_CUTLASS_MXFP4_MXFP8 FlashInferExperts"
    ),
    "accept-fp8-as-the-format-of-a-layer-in-online-quantization": r"(arguments|method) \w+ fp8( .*)?: \(\w+\) -> .*",
    "accept-none-for-layers-left-alone-by-online-quantization": r"(arguments|method) \w+ none( .*)?: \(\w+\) -> .*",
    # The kernel of this name is refused with the reason, where vLLM ran another one in silence.
    "offer-flashinfer-mxfp4-gemm-for-sm12x-by-name": r"sm\d+ linear flashinfer_b12x .*: \w+ -> \(ValueError\)",
    "refuse-e5m2-kv-caches-where-flashinfer-decodes-with-xqa": (
        r"sm(90|120|121) attention (None|FLASHINFER) fp8_e5m2 (64|128) .*: FlashInferBackend -> .*"
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of configurations, the differences of each patch, and those that no patch means."""

    configurations: int
    meant: Mapping[str, int]
    unmeant: tuple[str, ...]


def compare(runner: Runner, python: Path) -> Outcome:
    """Make the table on vLLM's bare tree and on the patched one."""
    stores = runner.stores
    trees = stores.objects("vllm").tree_of(stores.base("vllm")), proof_module.tree(stores, "vllm")
    table = Proof(HERE / "choices.py", "sm121-gating", "vllm", {}, (), (), ())
    before, after = (_table(runner, table, python, tree) for tree in trees)
    assert len(before) >= LEAST, len(before)
    assert {*before} <= {*after}, {*before} - {*after}
    differences = [f"{key}: {was} -> {after[key]}" for key, was in before.items() if was != after[key]]
    meant = {patch: sum(bool(_match(pattern, each)) for each in differences) for patch, pattern in MEANT.items()}
    unmeant = tuple(each for each in differences if not any(_match(pattern, each) for pattern in MEANT.values()))
    return Outcome(len(before), meant, unmeant)


def _match(pattern: str, difference: str) -> re.Match[str] | None:
    return re.fullmatch(pattern if pattern.startswith("network=") else rf"network=\w+ {pattern}", difference)


def _table(runner: Runner, table: Proof, python: Path, tree: proof_module.TreeId) -> dict[str, str]:
    run = runner.run(table, python, tree)
    assert run.good, run.output[-6000:]
    lines = (line.removeprefix(MARK) for line in run.output.splitlines() if line.startswith(MARK))
    table = {key: value for key, _, value in (line.partition("\t") for line in lines)}
    told = [int(table.pop(key)) for key in [*table] if key.endswith(f" {ROWS}")]
    assert len(table) == sum(told) > 0, f"{len(table)} rows of {told}: a part of what was printed is missing"
    return table

# SPDX-License-Identifier: Apache-2.0
"""Checks of kernels' numerics: formats, references in float64, kernels under test. Needs numpy, and torch for some kernels.

Nothing here imports the rest of the project: it also runs in the kernels' environment, and on machines without the other packages.
"""

OPERATORS = "VALIDATION_VLLM_OPERATORS"
"""The variable with the folder of vLLM's compiled operators (`_C.abi3.so`, …), or the reason why there is none."""

EMULATED = "VALIDATION_EMULATED_KERNELS"
"""The variable with the library of FlashInfer's kernels built for CPUs (`emulated.building`), or the reason why there is none."""

KINDS = tuple(f"kernels/{kind}/" for kind in ("attention", "formats", "grouped", "linear", "moe", "quantizer", "sanitizer"))
"""Beginnings of the cases' names, known without numpy."""

ON_CPU = "-emulated/"
"""Part of the name of each case that runs FlashInfer's kernels on the CPU."""

# SPDX-License-Identifier: Apache-2.0
"""Numerics that can fail: formats, references in float64, kernels under test. Runs with numpy, and torch where a kernel needs it.

Nothing here imports the rest of the project: it runs in the environment of the kernels, and on machines that have nothing else.
"""

OPERATORS = "VALIDATION_VLLM_OPERATORS"
"""The variable that names the folder with vLLM's compiled operators (`_C.abi3.so`, …), or says why there are none."""

EMULATED = "VALIDATION_EMULATED_KERNELS"
"""The variable that names the library with FlashInfer's kernels built for CPUs (`emulated.building`), or says why there is none."""

KINDS = tuple(f"kernels/{kind}/" for kind in ("attention", "formats", "grouped", "linear", "moe", "quantizer", "sanitizer"))
"""How the names of cases begin: known without numpy."""

ON_CPU = "-emulated/"
"""What the names of their cases have."""

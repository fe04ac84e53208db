# SPDX-License-Identifier: Apache-2.0
"""Checks of kernels' numerics: formats, references in float64, kernels under test. Needs numpy, and torch for some kernels.

Nothing here imports the rest of the project: it also runs in the kernels' environment, and on machines without the other packages.
"""

OPERATORS = "VALIDATION_VLLM_OPERATORS"
"""The variable with the folder of vLLM's compiled operators (`_C.abi3.so`, …), or the reason why there is none."""

EMULATED = "VALIDATION_EMULATED_KERNELS"
"""The variable with the library of FlashInfer's kernels built for CPUs by the laboratory, or the reason why there is none."""

SM120_ON_SM90 = "VALIDATION_SM120_ON_SM90"
"""The variable with FlashInfer's kernels for SM120, compiled for SM90, or the reason why there are none. If it is unset, the cases are not
requested."""

HEADERS = "flashinfer/experimental/mxfp4_decode/include/flashinfer/mxfp4"
"""The folder of the carried MXFP4 kernels in FlashInfer."""

KINDS = tuple(f"kernels/{kind}/" for kind in ("attention", "formats", "grouped", "linear", "moe", "quantizer", "sanitizer"))
"""Beginnings of the cases' names, known without numpy."""

ON_CPU = "-emulated/"
"""Part of the name of each case that runs FlashInfer's kernels on the CPU."""

NOT_COMPILED = "not compiled"
"""The measurement of such a case that says what of the kernels it does not see."""

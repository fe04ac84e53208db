# SPDX-License-Identifier: Apache-2.0
"""The plug-in for vLLM, FlashInfer and CUTLASS, found by its entry point. No other part of the package imports it."""

from stack.vllm_project.project import VllmProject

project = VllmProject()

__all__ = ["VllmProject", "project"]

# SPDX-License-Identifier: Apache-2.0
"""Measure the MXFP4 experts for many tokens on SM90, beside triton_kernels, without vLLM or FlashInfer."""

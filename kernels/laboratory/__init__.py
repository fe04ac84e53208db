# SPDX-License-Identifier: Apache-2.0
"""The laboratory of this fork's CUDA kernels: a CPU that runs them, SM90 in place of SM120, and a benchmark.

It is not installed with `stack`. `stack validate` imports it from the folder `kernels/` of the stack that it validates.
"""

# SPDX-License-Identifier: Apache-2.0
"""Compiling for SM121 without one: the JIT units that a patch touches, by nvcc, and the instructions that come of it."""

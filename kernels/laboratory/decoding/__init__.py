# SPDX-License-Identifier: Apache-2.0
"""Measure decode kernels: the bytes that a step must read, the time that it took, and whether it reached its goals."""

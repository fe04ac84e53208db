# SPDX-License-Identifier: Apache-2.0
"""How fast kernels decode: what a step has to read, what it took, and whether that is as good as it was meant to be."""

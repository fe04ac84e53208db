# SPDX-License-Identifier: Apache-2.0
"""Compile for SM121 without such a GPU: build the JIT units that a patch touches with nvcc and inspect their instructions."""

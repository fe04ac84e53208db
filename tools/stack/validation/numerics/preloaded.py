# SPDX-License-Identifier: Apache-2.0
"""Modules to import once in the server from which each case's process is forked."""

import contextlib

with contextlib.suppress(ImportError):
    import compressed_tensors  # noqa: F401  (takes seconds)
    import torch  # noqa: F401

import stack.validation.numerics.cases  # noqa: F401

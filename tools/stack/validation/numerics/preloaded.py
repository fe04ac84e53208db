# SPDX-License-Identifier: Apache-2.0
"""What every case's process starts with, so that it need not be imported for each."""

import contextlib

with contextlib.suppress(ImportError):
    import compressed_tensors  # noqa: F401  (takes seconds)
    import torch  # noqa: F401

import stack.validation.numerics.cases  # noqa: F401

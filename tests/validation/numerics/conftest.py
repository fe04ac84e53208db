# SPDX-License-Identifier: Apache-2.0
"""BLAS with one thread a process, as the suite has it: with more of them than processors they wait for each other."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

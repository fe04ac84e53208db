# SPDX-License-Identifier: Apache-2.0
"""Each module `test_*.py` here is a proof: it imports an upstream from a real source tree, with our patches in it or not.

It runs in an environment of its own, with the upstream's torch. The project's own pytest collects it as `proving` says.
"""

import os

if "STACK_PROOF_TREE" not in os.environ:
    from proving import pytest_pycollect_makemodule

    __all__ = ["pytest_pycollect_makemodule"]

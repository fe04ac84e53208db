# SPDX-License-Identifier: Apache-2.0
"""Each module `test_*.py` here is a proof: it imports an upstream from a real source tree, with our patches in it or not.

It runs in an environment of its own (requirements.txt), started by `stack`; without a tree under test there is nothing to run.
"""

import os

if "STACK_PROOF_TREE" not in os.environ:
    collect_ignore_glob = ["test_*.py"]

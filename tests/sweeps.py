# SPDX-License-Identifier: Apache-2.0
"""Kill a command at many moments: a sample in every run, all of them in `make test-images`.

A kill at each step costs a copy of the state, a command and a recovery, and most steps leave equal states. The quick run takes
steps that are spread evenly over the whole command, its first and its last ones among them.
"""

from typing import Any

import pytest


def sweep(name: str, some: Any, whole: Any) -> pytest.MarkDecorator:
    """Parametrise a test by how many moments it tries: `some` in the quick run, `whole` in a test of `make test-images`."""
    return pytest.mark.parametrize(
        name, [pytest.param(some, id="some"), pytest.param(whole, id="whole", marks=pytest.mark.images)]
    )

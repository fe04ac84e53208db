# SPDX-License-Identifier: Apache-2.0
"""Turn Python's garbage collector off where it only costs time."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off while the block makes many objects that stay, such as modules or syntax trees."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

# SPDX-License-Identifier: Apache-2.0
"""Patches edited by hand."""

import re
from pathlib import Path


def edit(patch: Path, old: str, new: str) -> None:
    """Replace a text that stands once in a patch; the blob ids of its results go with it, since they would be untrue."""
    text = patch.read_text()
    assert text.count(old) == 1
    patch.write_text(re.sub(r"^index .*\n", "", text.replace(old, new), flags=re.MULTILINE))

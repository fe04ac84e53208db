# SPDX-License-Identifier: Apache-2.0
"""From which module a file imports a name, read from its text."""

import pytest

from stack.carry.drift import reexports


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from a.b import name\n", (0, "a.b")),
        ("import os\nfrom . import name", (1, "")),
        ("from ..a import (\n    other,\n    name,  # why\n)\n", (2, "a")),
        ("from a import (name as name)\n", (0, "a")),
        ("from a import other; from b import name\n", (0, "a")),
        ("from a import other, name # as\n", (0, "a")),
        ("from a import name as other\n", None),
        ("from a import named, rename\n", None),
        ("from a import name\nfrom b import name\n", None),
        ("from a import (name,\nfrom b import name)\n", (0, "a")),
        ("from a import (other,\nfrom b import c), name\n", (0, "b")),
        ("try:\n    from a import name\n", None),
        ("from a importname\n", None),
        ("from a import (other)(name)\n", None),
        ("", None),
    ],
)
def test_the_single_import_of_a_name(text: str, expected: tuple[int, str] | None) -> None:
    found = reexports.single(reexports.imports(text.encode()), b"name")
    assert (None if found is None else (found.level, found.module)) == expected

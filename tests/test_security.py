# SPDX-License-Identifier: Apache-2.0
"""Each line of SECURITY.md names a test that there is."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if re.match(r"\| (?!they try to)\S", line)]


def test_each_line_names_a_test_that_there_is() -> None:
    assert len(LINES) > 15
    for line in LINES:
        file, name = re.search(r"`(tests/\S+\.py)::(\w+)` \|$", line).groups()  # type: ignore[union-attr]
        functions = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
        assert name in functions, line

# SPDX-License-Identifier: Apache-2.0
"""The reference pages that are made from the code are those that it makes now."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def generator() -> ModuleType:
    """Import docs/site/reference.py, which is a script in no package."""
    path = ROOT / "docs/site/reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    return module


PAGES = generator().PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "make reference"

# SPDX-License-Identifier: Apache-2.0
"""Scripts of the project that stand outside of its package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def loaded(path: str) -> ModuleType:
    """Run a script's top level, by its path in the repository, and return it as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

# SPDX-License-Identifier: Apache-2.0
"""The demo on the real sources: it leaves the checkout as it was, prints the same twice, and the README shows it."""

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def transcript() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transcript", ROOT / "examples/transcript.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stack_files() -> dict[Path, str]:
    files = [ROOT / "pins.toml", ROOT / "pyproject.toml", *(path for path in (ROOT / "stacks").rglob("*") if path.is_file())]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_readme_shows_what_the_demo_prints() -> None:
    before = stack_files()
    module = transcript()
    first = module.printed("demo")
    assert first == module.quoted("demo"), "python examples/transcript.py --write"
    assert module.printed("demo") == first
    assert stack_files() == before


def test_the_readme_shows_the_plan_of_our_stack() -> None:
    before = stack_files()
    module = transcript()
    assert module.printed("plan") == module.quoted("plan"), "python examples/transcript.py --write"
    assert stack_files() == before

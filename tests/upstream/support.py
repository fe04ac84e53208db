# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder need to import upstream sources on a machine without GPU and compiled extensions.

Importing this module, before vllm or flashinfer, prepares the process and those that it starts. It is a pytest plugin
too: `-p support` does the same for the upstreams' own tests.

Only packages that are compiled for CUDA, or drag its parts in, are stubbed, and only where they are not installed.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from preload import ENVIRONMENT

# Left out of requirements.txt: xgrammar depends on triton, which brings CUDA's assembler and headers (1 GB).
ABSENT = ("xgrammar",)

# What upstream code keeps on disk goes to a folder of this process, not to the user's caches.
CACHES = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "FLASHINFER_WORKSPACE_BASE", "TORCHINDUCTOR_CACHE_DIR")

# vLLM's list of models.
REGISTRY = "vllm.model_executor.models.registry"

# Upstream test modules that call no CUDA, yet skip themselves on other platforms.
AS_CUDA = ("test_use_trtllm_attention.py",)

# Upstream test modules that import FlashInfer's names without calling them.
WITH_FLASHINFER = ("test_flashinfer_q_scale.py", "test_flashinfer_xqa_kv_cache_dtype.py")

# A package whose modules exist, whatever their name, and have every class that they are asked for, made of anything.
STUB = """
import importlib.machinery
import sys
import types


class Stub(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        members = {"__module__": self.__name__, "__init__": lambda self, *args, **kwargs: None}
        setattr(self, name, type(name, (), members))
        return self.__dict__[name]


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, cls, is_package=True) if name.startswith(__name__ + ".") else None

    @staticmethod
    def create_module(spec):
        return Stub(spec.name)

    @staticmethod
    def exec_module(module):
        pass


sys.meta_path.append(Finder)
sys.modules[__name__].__class__ = Stub
"""

_folder = tempfile.TemporaryDirectory(prefix="upstream-", ignore_cleanup_errors=True)


def _write_stubs(names: tuple[str, ...]) -> Path | None:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    stubs = Path(_folder.name, "stubs", "-".join(absent))
    for name in absent:
        (stubs / name).mkdir(parents=True, exist_ok=True)
        (stubs / name / "__init__.py").write_text(STUB)
    return stubs if absent else None


def prepare() -> None:
    """Set the environment and stub what is left out, for this process and those that it starts."""
    os.environ.update(ENVIRONMENT)
    for name in CACHES:
        os.environ[name] = _folder.name
    if stubs := _write_stubs(ABSENT):
        sys.path.append(str(stubs))
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(stubs)])


@contextmanager
def stubbed(*names: str) -> Iterator[None]:
    """Let imports of these packages succeed in the block, where they are not installed."""
    stubs = _write_stubs(names)
    if stubs is None:
        yield
        return
    sys.path.append(str(stubs))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(stubs))
        for name in [name for name in sys.modules if name.split(".")[0] in names]:
            del sys.modules[name]


def fake_gpu(monkeypatch: pytest.MonkeyPatch, major: int, minor: int) -> None:
    """Make vLLM's platform a CUDA one of this compute capability, for what asks it without calling CUDA."""
    platforms = importlib.import_module("vllm.platforms")
    platform = type(platforms.current_platform)
    capability = platforms.interface.DeviceCapability(major, minor)
    monkeypatch.setattr(platform, "_enum", platforms.PlatformEnum.CUDA)
    monkeypatch.setattr(platform, "get_device_capability", classmethod(lambda cls, device_id=0: capability))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Collect the upstream modules in AS_CUDA as if the platform was CUDA, those in WITH_FLASHINFER as if it was installed."""
    if collector.path.name in WITH_FLASHINFER:
        with quiet(), stubbed("flashinfer"):
            return (yield)
    if collector.path.name not in AS_CUDA:
        return (yield)
    with quiet(), pytest.MonkeyPatch.context() as monkeypatch:
        platforms = importlib.import_module("vllm.platforms")
        monkeypatch.setattr(type(platforms.current_platform), "_enum", platforms.PlatformEnum.CUDA)
        return (yield)


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collections.

    What proofs are started from has frozen it; vLLM's conftest unfreezes it and collects after every test, half a second each.
    """
    vars(gc)["unfreeze"] = lambda: None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let vLLM look at a model's class in this process.

    It would start another one, which imports vLLM once more, to keep CUDA out of this one; there is no CUDA here.
    """
    if registry := sys.modules.get(REGISTRY):
        vars(registry)["_run_in_subprocess"] = lambda inspect: inspect()


@contextmanager
def quiet() -> Iterator[None]:
    """Import upstream code, which warns of much, in a session whose warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


prepare()

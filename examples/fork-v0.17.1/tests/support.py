# SPDX-License-Identifier: Apache-2.0
"""What the proofs of this folder need to import upstream sources on a machine without GPU and compiled extensions.

Importing this module, before vllm or flashinfer, prepares the process. Only packages that are compiled for CUDA, or drag
its parts in, are stubbed, and only where they are not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TREE = Path(os.environ["STACK_PROOF_TREE"])
"""The upstream tree under test."""

# Left out of requirements.txt: xgrammar depends on triton, which brings CUDA's assembler and headers (1 GB).
ABSENT = ("xgrammar",)

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GLOO_SOCKET_IFNAME": "lo",
    "FLASHINFER_CUDA_ARCH_LIST": "12.1a",
}
# What upstream code keeps on disk goes to a folder of this process, not to the user's caches.
CACHES = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "FLASHINFER_WORKSPACE_BASE", "TORCHINDUCTOR_CACHE_DIR")

# A package whose modules exist, whatever their name, and have every class that they are asked for.
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

# One torch serves all releases. 2.10, which this vLLM names, has the first name; without an accelerator there is nothing to
# empty, which v0.33.0 asks for and 2.13 refuses.
OTHER_TORCH = """
import torch

if not hasattr(torch._C._cpu, "_is_avx512_supported"):
    torch._C._cpu._is_avx512_supported = lambda: False
if not torch.accelerator.is_available():
    torch.accelerator.empty_cache = lambda: None
"""

_folder = tempfile.TemporaryDirectory(prefix="upstream-", ignore_cleanup_errors=True)


def _write_stubs(names: tuple[str, ...]) -> Path | None:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    stubs = Path(_folder.name, "stubs", "-".join(absent))
    for name in absent:
        (stubs / name).mkdir(parents=True, exist_ok=True)
        (stubs / name / "__init__.py").write_text(STUB)
    return stubs if absent else None


def _write_cpu_build() -> Path:
    """A folder that says that vLLM is installed, and built for the CPU: this is how vLLM finds its platform."""
    (folder := Path(_folder.name, "build")).mkdir()
    (metadata := folder / "vllm-0+cpu.dist-info").mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0+cpu\n")
    (folder / "sitecustomize.py").write_text(OTHER_TORCH)
    return folder


def folder() -> str:
    """An empty folder of this process."""
    (made := Path(_folder.name, "empty")).mkdir(exist_ok=True)
    return str(made)


def prepare() -> None:
    """Set the environment and stub what is left out, for this process and those that it starts."""
    os.environ.update(ENVIRONMENT)
    for name in CACHES:
        os.environ[name] = _folder.name
    build, stubs = _write_cpu_build(), _write_stubs(ABSENT)
    sys.path[:] = [str(build), *sys.path, *([str(stubs)] if stubs else [])]
    exec(OTHER_TORCH)
    path = [str(build), os.environ.get("PYTHONPATH"), str(stubs) if stubs else None]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


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


@contextmanager
def quiet() -> Iterator[None]:
    """Import upstream code, which warns of much, in a session whose warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


prepare()

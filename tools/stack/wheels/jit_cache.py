# SPDX-License-Identifier: Apache-2.0
"""Modules of FlashInfer, compiled ahead of time: the package in which FlashInfer looks for them before it compiles.

FlashInfer 0.7 asks for providers, earlier releases for a folder. The modules are those of one build of FlashInfer, and are not
offered to another: its kernels may be others.
"""

import importlib
import json
import logging
from pathlib import Path
from types import SimpleNamespace

_HERE = Path(__file__).resolve().parent
_ABOUT = json.loads((_HERE / "about.json").read_text(encoding="utf-8"))
__version__ = str(_ABOUT["version"])
jit_cache_dir = _HERE / "jit_cache"


def _fits() -> bool:
    """Whether the FlashInfer that is installed is the build that the modules are of."""
    build = importlib.import_module("flashinfer.version").__version__
    if build != __version__:
        logging.getLogger(__name__).warning(
            "flashinfer-jit-cache is of FlashInfer %s, and not used by %s: install both from one build", __version__, build
        )
    return bool(build == __version__)


def get_jit_cache_dir() -> str:
    """The folder of the modules; one that is not there where they do not fit."""
    return str(jit_cache_dir if _fits() else _HERE / "nothing-fits")


def get_jit_cache_providers() -> "tuple[SimpleNamespace, ...]":
    """What is provided, as FlashInfer asks for it; nothing where it does not fit."""
    if not _fits():
        return ()
    return (
        SimpleNamespace(
            provider_id=_ABOUT["provider"],
            distribution="flashinfer-jit-cache",
            version=__version__,
            jit_cache_dir=jit_cache_dir,
            cuda_architectures=frozenset(_ABOUT["architectures"]),
            modules=frozenset(_ABOUT["modules"]),
        ),
    )

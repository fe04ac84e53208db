# SPDX-License-Identifier: Apache-2.0
"""Options of every container of a server: those of compose files, and those of `spark-stack up`."""

from collections.abc import Mapping

INSIDE = "0.0.0.0"  # noqa: S104 - of the container's own network; the published port determines who can reach it
HOME = "/home/stack"
"""The home of the image's user. Its `.cache` is worth a volume: kernels are compiled into it."""
SHARED = "1gb"
"""Size of /dev/shm: a server's processes share memory, and the usual 64 MB do not suffice."""
NO_CAPABILITY = "ALL"
"""The capabilities to drop: a server needs none."""
NO_NEW_PRIVILEGES = "no-new-privileges"
_CACHES = {"TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "nv"}
"""Folders below the cache's folder. By default they are outside of it, and are lost with the container."""


def cache(home: str = HOME) -> str:
    """Return the folder of what is compiled, below the home of the image's user."""
    return f"{home}/.cache"


def environment(recipe: Mapping[str, str], home: str = HOME) -> dict[str, str]:
    """Return the variables of a container: those of a recipe, and those that keep what is compiled in the cache's volume."""
    return {**recipe, **{name: f"{cache(home)}/{folder}" for name, folder in _CACHES.items()}}

# SPDX-License-Identifier: Apache-2.0
"""Options of every container of a server: those of compose files, and those of `spark-stack up`."""

INSIDE = "0.0.0.0"  # noqa: S104 - of the container's own network; the published port determines who can reach it
HOME = "/home/stack"
"""The home of the image's user. Its `.cache` is worth a volume: kernels are compiled into it."""
SHARED = "1gb"
"""Size of /dev/shm: a server's processes share memory, and the usual 64 MB do not suffice."""
NO_CAPABILITY = "ALL"
"""The capabilities to drop: a server needs none."""
NO_NEW_PRIVILEGES = "no-new-privileges"
RECIPE = "STACK_RECIPE"
"""The variable with the recipe's name: the image's entry point compares its memory with what is free."""
UNCHECKED = "STACK_UNCHECKED"
"""The variable that lets the image's entry point serve although the doctor finds something wrong."""
KEEP_FREE = "STACK_KEEP_FREE"
"""The variable with the GB of memory that the image's entry point keeps free: it kills the server before the machine freezes."""
GUARDED = "stack.keep-free"
"""The label of an image whose entry point reads that variable."""
_CACHES = {"TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "nv", "HF_MODULES_CACHE": "modules", "HF_TOKEN_PATH": "token"}
"""Below the cache's folder. By default the first two are outside of it, and are lost with the container. The others would be in the folder of
models, which the image's user may not write, or whose token it may not read, if it is the owner's own."""


def cache(home: str = HOME) -> str:
    """Return the folder of what is compiled, below the home of the image's user."""
    return f"{home}/.cache"


def folders(home: str = HOME) -> dict[str, str]:
    """Return the variables that keep what is compiled in the cache's volume."""
    return {name: f"{cache(home)}/{folder}" for name, folder in _CACHES.items()}

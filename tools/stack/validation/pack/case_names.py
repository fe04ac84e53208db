# SPDX-License-Identifier: Apache-2.0
"""The names of the cases that an archive's validation has on a GPU machine."""

from stack.validation.pack.recipes import Comparison, Recipe

CONTEXTS = (512, 2048)
"""Tokens before those whose speed of decoding is measured."""
PROMPTS = (512, 2048, 8192)
"""Tokens of the prompts whose speed is measured."""
KERNELS = "bench/kernels"
BANDWIDTH = "bench/bandwidth"
"""How fast the GPU's memory is read and copied: what a speed of decoding is held against."""


def of_goal(name: str) -> str:
    """Name the case of a goal."""
    plain = name.replace(", ", "/").replace(" = ", "=").replace(" ", "-").replace("'", "")
    return f"{KERNELS}/{plain}"


def of_recipe(recipe: Recipe) -> tuple[str, ...]:
    """Name the cases of a recipe."""
    serve = ("starts", "backends", "version", "models", "chat", "echoes")
    bench = (*(f"decode/{context}" for context in CONTEXTS), *(f"prefill/{length}" for length in PROMPTS))
    profile = (f"profile/{CONTEXTS[0]}",) if recipe.profiled else ()
    return (*(f"serve/{recipe.name}/{name}" for name in serve), *(f"bench/{recipe.name}/{name}" for name in (*bench, *profile)))


def of_comparison(comparison: Comparison, kind: str) -> tuple[str, ...]:
    """Name the cases in which two recipes are compared by their speed of a kind: `decode` or `prefill`."""
    sizes = CONTEXTS if kind == "decode" else PROMPTS
    return tuple(f"bench/{comparison.name}/{kind}/{size}" for size in sizes)

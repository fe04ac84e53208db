# SPDX-License-Identifier: Apache-2.0
"""Provide the server of `stack serve`: the user's own vLLM, this stack's wheel, or an image."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import counted
from stack.carry.upstream_stores import Place
from stack.cli.common import Options
from stack.cli.validating import served
from stack.deploy.recipes import Recipe
from stack.images import container_env, image, pulling, reference
from stack.images import engine as engines
from stack.images.engine import Engine
from stack.serving.command import Command
from stack.serving.demands import KEY
from stack.store import cache
from stack.validation import machine
from stack.validation.python_env import Interpreter, Process
from stack.validation.serve import fixture_cache
from stack.validation.serve.fixture_cache import Material

_GPUS = "nvidia.com/gpu=all"
"""All GPUs of a machine, as the container device interface (CDI) names them."""
_PURPOSE = "serve"


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request: a recipe, a function from the model's folder (None: the published one) to the command, and the options."""

    recipe: Recipe
    command: Callable[[Path | None], Command]
    model: Path | None
    image: str | None
    python: Path | None
    dry: bool


@dataclass(frozen=True, slots=True)
class Made:
    """The server process, its working folder, and the commands to run before it (already run unless it is a dry run)."""

    process: Process
    folder: Path
    before: tuple[tuple[str, ...], ...] = ()


@contextlib.contextmanager
def made(options: Options, asked: ServerRequest, tell: Progress) -> Iterator[Made]:
    """Yield a server ready to start; its temporary files are removed when the block ends.

    Raises:
        StackError: vLLM or the model is not available.

    """

    with tempfile.TemporaryDirectory(prefix="stack-serve-") as folder:
        work, here = Path(folder), Path.cwd()
        kitchen = _Kitchen(options, asked, work, tell)
        if asked.image is not None:
            with kitchen.in_image(asked.image) as server:
                yield server
        elif asked.python is not None:
            command = asked.command(kitchen.model())
            yield Made(Interpreter(asked.python).server(command.arguments[1:], command.environment, work), here)
        elif asked.recipe.is_ours:
            yield Made(kitchen.own(), work, (("mkdir", "-p", str(work)),))
        else:
            command = asked.command(kitchen.model())
            program = "vllm" if asked.dry else _program()
            yield Made(Process((program, *command.arguments[1:]), {**os.environ, **command.environment}), here)


def _program() -> str:
    program = shutil.which("vllm")
    if program is None:
        raise StackError("no vllm is on PATH", "name an interpreter that has it with --python, or an image with --image")
    return program


@dataclass(frozen=True, slots=True)
class _Kitchen:
    """Prepares a server from the stack at hand."""

    options: Options
    asked: ServerRequest
    work: Path
    tell: Progress

    def model(self) -> Path | None:
        """Return the folder of the model; None for a published one."""
        if self.asked.model is not None:
            return self.asked.model.absolute()
        return self._material().model(self.asked.recipe.model) if self.asked.recipe.is_ours else None

    def own(self) -> Process:
        """Return a server with this stack's wheel and the validation's environment."""

        self.tell("building the stack's wheel")
        wheel = served.wheel(self.options.load(), Place(cache.root(self.options.cache)), self.work)
        model = self.model()
        assert model is not None
        command = self.asked.command(model)
        key = {KEY: os.environ[KEY]} if os.environ.get(KEY) else {}
        return self._material().installed(wheel).server(command.arguments[1:], {**command.environment, **key}, self.work)

    @contextlib.contextmanager
    def in_image(self, named: str) -> Iterator[Made]:
        """Yield a server in a container of an image, whose only network is this machine's own."""

        model = self.model()
        if model is None:
            raise StackError("an image is served without network", "name the folder of the checkpoint with --model")
        where = reference.parse(named)
        if not where.layout and self.asked.dry:
            raise StackError(f"{where.shown} is not here yet", "name an image that is, as oci:DIR, or leave --dry-run out")
        if not where.layout:
            self.tell(f"fetching {where.shown}")
            where = pulling.pull(where, self.work / "image")
        found = image.read(where)
        if len(found.platforms) != 1:
            raise StackError(f"{where.shown} is of {counted(len(found.platforms), 'platform')}", "name the image of one")
        (platform,) = found.platforms
        engine, place = self._engine(named), cache.root(self.options.cache)
        devices = (_GPUS,) if machine.here().gpus else ()
        command = self.asked.command(model)
        arguments, variables = command.arguments[1:], command.environment
        if self.asked.dry:
            planned = container_env.planned(engine, platform, place, devices, _PURPOSE)
            before = (
                engine.loading(str(where), planned.container.image, platform.name),
                engine.creating(planned.container),
            )
            yield Made(Process(planned.serving(arguments, variables, [model]), dict(os.environ)), self.work, before)
            return
        with container_env.entered(engine, where, platform, place, devices, self.tell, _PURPOSE) as container:
            yield Made(container.server(arguments, variables, self.work, [model]), self.work)

    def _engine(self, named: str) -> Engine:
        """Return an engine that starts a container from a layout; docker, which cannot, is named if it is the only one."""
        try:
            return engines.found()
        except StackError as none:
            if shutil.which("docker") is None:
                raise
            raise StackError(
                "--image needs buildah or podman, and only docker is here",
                f"use it: spark-stack up {self.asked.recipe.name} --image {named}; or apt-get install buildah runc",
            ) from none

    def _material(self) -> Material:

        return fixture_cache.prepare(cache.root(self.options.cache), self.tell)

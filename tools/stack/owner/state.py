# SPDX-License-Identifier: Apache-2.0
"""The one file that says what the owner's server is: what runs, what ran before, and what is being changed.

It holds no secret. A step is written before it begins, so that the next call can go on after a kill.
"""

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy.recipes import RANK
from stack.model import document
from stack.model.document import Table
from stack.store import cache

SCHEMA = 1
CONTAINER = "stack-server"
_LARGEST = 2**20
_PATIENCE = 3.0
"""Seconds to wait for the lock: what a killed command was just starting holds it until it has begun."""


class Step(StrEnum):
    """The steps of `up`, `update` and `rollback`, in order; `BACK` undoes the start of a server that does not do."""

    IMAGE = "image"
    MODEL = "model"
    START = "start"
    ANSWER = "answer"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: the name that the user gave, its digest, and its id in the engine, by which it is run.

    `key`: the file of the public key that its attestations were verified with; None: they were not.
    """

    name: str
    digest: str
    id: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this machine: its folder, and for a published one its repository and revision.

    `checked`: a digest over names, sizes and times of the files whose hashes were checked; None if there is nothing to check.
    """

    folder: str
    repository: str | None = None
    revision: str | None = None
    checked: str | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that decides how a server is started: a rollback takes the whole of it back.

    `opened`: other machines can reach it. `fallback`: it may run with other kernels than the recipe expects.
    """

    recipe: str
    image: Image
    model: Model
    port: int
    opened: bool = False
    fallback: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    extra: tuple[str, ...] = ()

    @property
    def spread(self) -> bool:
        """Whether this is one of several nodes that serve together."""
        return RANK in self.variables

    @property
    def url(self) -> str:
        """The address at which this machine reaches it."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Work:
    """Work that is not finished, because a verb is doing it or was killed: verb, step, recipe, and the name of the image."""

    verb: str
    step: Step
    recipe: str
    image: str

    @property
    def command(self) -> str:
        """The command that goes on with this work.

        Until `up` has the image and the model, only the command line holds its options, so that the recipe and the image are named.
        """
        if self.verb == "up" and self.step in {Step.IMAGE, Step.MODEL}:
            return shlex.join(("spark-stack", "up", self.recipe, "--image", self.image))
        return f"spark-stack {self.verb}"


@dataclass(frozen=True, slots=True)
class State:
    """The owner's server.

    `now`: the server that has answered last; None before the first one. `before`: the one before it, for a rollback. `target`: the one
    that is being started in its place. `work`: what is not finished.
    """

    engine: str
    container: str = CONTAINER
    now: Setup | None = None
    before: Setup | None = None
    target: Setup | None = None
    work: Work | None = None


def path() -> Path:
    """Return the file's path: `server.json` in the user's state folder."""
    import platformdirs  # noqa: PLC0415

    return platformdirs.user_state_path("stack") / "server.json"


def read(file: Path) -> State | None:
    """Read the state; None if there is none yet.

    Raises:
        StackError: The file is damaged, or a newer version wrote it.

    """
    if not file.exists():
        return None
    remedy = f"move it away; then `spark-stack up` begins anew, and what runs is kept: {file}"
    try:
        values = json.loads(document.read_text(file, largest=_LARGEST))
    except (ValueError, RecursionError) as bad:
        raise StackError("the state of the server is not valid JSON", remedy) from bad
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise StackError(f"the state of the server is not of version {SCHEMA}", remedy)
    table = Table(values, file=file)
    table.whole("schema")
    made = State(
        table.text("engine", pattern="docker|podman", meaning="docker or podman"),
        table.text("container", pattern=r"[a-zA-Z0-9][\w.-]*", meaning="a container's name"),
        _setup(table, "now"),
        _setup(table, "before"),
        _setup(table, "target"),
        _work(table.table("work")) if table.given("work") else None,
    )
    table.finish()
    return made


def write(file: Path, state: State) -> None:
    """Write the state, whole and on disk, readable by its user only.

    Raises:
        StackError: It cannot be written.

    """
    text = json.dumps({"schema": SCHEMA, **asdict(_plain(state))}, indent=2) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with cache.appearing(file, 0o600) as opened:
            opened.write(text.encode())
    except OSError as failed:
        raise StackError(
            f"{file} cannot be written ({failed.strerror})", "make room or check its rights, then run the command again"
        ) from failed


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of the state while the block runs; the system frees it if the process dies.

    Raises:
        StackError: Another process holds it.

    """
    with cache.lock_if_free(file, _PATIENCE) as held:
        if not held:
            raise StackError("another spark-stack is changing the server", "wait for it, or end it: it goes on where it was")
        yield


def _plain(state: State) -> State:
    """Return the state with plain dicts: `asdict` cannot copy others."""
    setups = {name: getattr(state, name) for name in ("now", "before", "target")}
    return replace(
        state, **{name: replace(one, variables=dict(one.variables)) for name, one in setups.items() if one is not None}
    )


def _setup(top: Table, key: str) -> Setup | None:
    if not top.given(key):
        return None
    table = top.table(key)
    made = Setup(
        table.text("recipe"),
        _image(table.table("image")),
        _model(table.table("model")),
        table.whole("port"),
        table.flag("opened"),
        table.flag("fallback"),
        _variables(table.table("variables")),
        table.texts("extra", unique=False),
    )
    table.finish()
    return made


def _image(table: Table) -> Image:
    made = Image(
        table.text("name"),
        table.text("digest", pattern="sha256:[0-9a-f]{64}", meaning="a digest"),
        table.text("id", pattern="sha256:[0-9a-f]{64}", meaning="an image's id"),
        table.text("key") if table.given("key") else None,
    )
    table.finish()
    return made


def _model(table: Table) -> Model:
    optional = {key: table.text(key) for key in ("repository", "revision", "checked") if table.given(key)}
    made = Model(table.text("folder"), **optional)
    table.finish()
    return made


def _variables(table: Table) -> Mapping[str, str]:
    made = {key: table.text(key) for key in table}
    return MappingProxyType(made)


def _work(table: Table) -> Work:
    steps = "|".join(Step)
    made = Work(
        table.text("verb"),
        Step(table.text("step", pattern=steps, meaning=f"one of {steps}")),
        table.text("recipe"),
        table.text("image"),
    )
    table.finish()
    return made

# SPDX-License-Identifier: Apache-2.0
"""The one file that says what the owner's server is: what runs, what ran before, and what is being changed.

It holds no secret. A step is written before it begins, so that the next call can go on after a kill.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from stack.deploy.recipes import RANK

CONTAINER = "stack-server"


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

    `key`: the file of the public key that its attestations were verified with; None: they were not. `cache`: the volume for the code that
    it compiles; None: one of an older version of this program.
    """

    name: str
    digest: str
    id: str
    key: str | None
    cache: str | None = None


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
class Wanted:
    """A server that the owner wants: a recipe, the name of an image, and the options of `up`.

    `image`: None: the one of the server that ran last. `key`: the file of the public key that has to have signed it. `model`: a folder;
    None: the recipe's published model. `keep_free`: GB of memory below which the server is killed; 0: it never is.
    """

    recipe: str
    image: str | None
    key: Path | None
    model: Path | None
    port: int
    opened: bool = False
    fallback: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    extra: tuple[str, ...] = ()
    keep_free: float = 0.0


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that decides how a server is started: a rollback takes the whole of it back.

    `opened`: other machines can reach it. `fallback`: it may run with other kernels than the recipe expects. `keep_free`: see `Wanted`.
    """

    recipe: str
    image: Image
    model: Model
    port: int
    opened: bool = False
    fallback: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    extra: tuple[str, ...] = ()
    keep_free: float = 0.0

    @property
    def wanted(self) -> Wanted:
        """What its owner has asked for to get it."""
        return Wanted(
            recipe=self.recipe,
            image=self.image.name,
            key=Path(self.image.key) if self.image.key else None,
            model=None if self.model.repository else Path(self.model.folder),
            port=self.port,
            opened=self.opened,
            fallback=self.fallback,
            variables=self.variables,
            extra=self.extra,
            keep_free=self.keep_free,
        )

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
    """Work that is not finished, because a verb is doing it or was killed: verb, step, and the server that it is to bring."""

    verb: str
    step: Step
    wanted: Wanted

    @property
    def command(self) -> str:
        """The command that goes on with this work: the state has its options."""
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

    @property
    def is_empty(self) -> bool:
        """Whether nothing ran, runs or is being started."""
        return not any((self.now, self.before, self.target, self.work))


def path() -> Path:
    """Return the file's path: `server.json` in the user's state folder."""
    import platformdirs  # noqa: PLC0415

    return platformdirs.user_state_path("stack") / "server.json"

# SPDX-License-Identifier: Apache-2.0
"""Read, write and lock the file with the state of the owner's server."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.model import document
from stack.model.document import Table
from stack.owner.state import Image, Model, Setup, State, Step, Wanted, Work
from stack.store import cache

SCHEMA = 1
_LARGEST = 2**20
_PATIENCE = 3.0
"""Seconds to wait for the lock: what a killed command was just starting holds it until it has begun."""


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
    text = json.dumps({"schema": SCHEMA, **asdict(_plain(state))}, indent=2, default=str) + "\n"
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
    plain = {name: replace(one, variables=dict(one.variables)) for name, one in setups.items() if one is not None}
    work = state.work
    if work is not None:
        plain["work"] = replace(work, wanted=replace(work.wanted, variables=dict(work.wanted.variables)))
    return replace(state, **plain)


def _setup(top: Table, key: str) -> Setup | None:
    if not top.given(key):
        return None
    table = top.table(key)
    made = Setup(
        table.text("recipe"),
        _image(table.table("image")),
        _model(table.table("model")),
        *_options(table),
    )
    table.finish()
    return made


def _options(table: Table) -> tuple[int, bool, bool, Mapping[str, str], tuple[str, ...], float]:
    return (
        table.whole("port"),
        table.flag("opened"),
        table.flag("fallback"),
        _variables(table.table("variables")),
        table.texts("extra", unique=False),
        table.number("keep_free") if table.given("keep_free") else 0.0,
    )


def _image(table: Table) -> Image:
    made = Image(
        table.text("name"),
        table.text("digest", pattern="sha256:[0-9a-f]{64}", meaning="a digest"),
        table.text("id", pattern="sha256:[0-9a-f]{64}", meaning="an image's id"),
        table.text("key") if table.given("key") else None,
        table.text("cache", pattern=r"[a-z0-9][a-z0-9-]*", meaning="a volume's name") if table.given("cache") else None,
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


def _work(table: Table) -> Work | None:
    """Read what is not finished; None if an older version of this program wrote it, without the options."""
    if not table.given("wanted"):
        return None
    steps = "|".join(Step)
    made = Work(
        table.text("verb", pattern="up|update|rollback", meaning="up, update or rollback"),
        Step(table.text("step", pattern=steps, meaning=f"one of {steps}")),
        _wanted(table.table("wanted")),
    )
    table.finish()
    return made


def _wanted(table: Table) -> Wanted:
    made = Wanted(
        table.text("recipe"),
        table.text("image") if table.given("image") else None,
        Path(table.text("key")) if table.given("key") else None,
        Path(table.text("model")) if table.given("model") else None,
        *_options(table),
    )
    table.finish()
    return made

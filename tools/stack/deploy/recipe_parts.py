# SPDX-License-Identifier: Apache-2.0
"""Parts of a recipe: hardware, expected backends, measured speeds, and the bar for answers; and how each is read."""

import re
from dataclasses import dataclass

from stack.deploy import hardware
from stack.model.document import Table


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar for the differences of log-probabilities from the reference, by `measure` (`largest` or `rms` of all differences).

    `blind`: faults that are smaller than this server's rounding errors. All other faults must differ by more than `at`.
    """

    measure: str
    at: float
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of a recipe: a machine of `hardware.toml`, the number of nodes, and 10^9 bytes that the server takes on each."""

    name: str
    nodes: int
    memory: float


@dataclass(frozen=True, slots=True)
class Backends:
    """The expected backends of a server, in the words of its log; None if any is accepted.

    `decode`: the kernel for experts of few tokens, if it is not their backend's; `kv`: the type of the cache's values.
    """

    moe: str | None = None
    decode: str | None = None
    linear: str | None = None
    attention: str | None = None
    kv: str | None = None
    graphs: bool | None = None


MOST_NODES = 64
"""Most nodes of a recipe: commands and compose files are written for each of them."""
NO_BACKENDS = Backends()
"""Any backends."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second that `requests` requests at once decode together after prompts of `context` tokens, and their source.

    `by`: who measured it, in a word or two; by default the source up to its first comma.
    """

    context: int
    decode: float
    source: str
    requests: int = 1
    by: str = ""


def read_hardware(table: Table) -> Hardware:
    """Read the hardware of a recipe.

    Raises:
        StackError: it is invalid.

    """
    names = hardware.known()
    made = Hardware(
        table.text("name", pattern="|".join(map(re.escape, names)), meaning=f"one of {', '.join(names)}"),
        table.whole("nodes"),
        table.number("memory"),
    )
    table.finish()
    if made.nodes < 1 or made.memory <= 0:
        raise table.error(
            "nodes", f"are {made.nodes} with {made.memory} GB", "write how many nodes and how much memory it takes"
        )
    if made.nodes > MOST_NODES:
        raise table.error("nodes", f"are {made.nodes!s:.20}", f"write at most {MOST_NODES}")
    return made


def read_backends(table: Table) -> Backends:
    """Read the expected backends of a recipe.

    Raises:
        StackError: they are invalid.

    """
    made = Backends(
        moe=table.optional_text("moe"),
        decode=table.optional_text("decode"),
        linear=table.optional_text("linear"),
        attention=table.optional_text("attention"),
        kv=table.optional_text("kv"),
        graphs=table.flag("graphs") if table.given("graphs") else None,
    )
    table.finish()
    return made


def read_speed(table: Table) -> Speed:
    """Read one measured speed of a recipe.

    Raises:
        StackError: it is invalid.

    """
    source = table.text("source")
    made = Speed(
        table.whole("context"),
        table.number("decode"),
        source,
        table.whole("requests") if table.given("requests") else 1,
        table.optional_text("by") or source.partition(",")[0],
    )
    table.finish()
    if made.decode <= 0:
        raise table.error("decode", f"is {made.decode}", "write tokens per second")
    if made.requests < 1:
        raise table.error("requests", "is 0", "write how many requests were served at once")
    return made


def read_bar(table: Table) -> Bar:
    """Read the bar for the answers of a recipe's server.

    Raises:
        StackError: it is invalid.

    """
    bar = Bar(table.text("measure", pattern="largest|rms", meaning="largest or rms"), table.number("at"), table.texts("blind"))
    table.finish()
    if bar.at <= 0:
        raise table.error("at", f"is {bar.at}", "set it above 0: no two computations agree exactly")
    return bar

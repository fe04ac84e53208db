# SPDX-License-Identifier: Apache-2.0
"""Make a recipe of ours of settings that were read elsewhere: its arguments, variables, nodes and memory, and its file's text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy import checkpoints, hardware, import_rules
from stack.deploy.node_settings import BETWEEN, NODES, ON_NODES
from stack.deploy.recipe_parts import MOST_NODES
from stack.deploy.recipes import RANK, REPOSITORY

_STARTER = frozenset({"--host", "--port", "--model", "--headless"})
"""Flags that `stack serve` gives by itself."""
_RANKS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
_USED = re.compile(r"\$\{(\w{1,60})\}|\$(\w{1,60})")
_FILE = re.compile(r"(?!https?:)[^{\s]*\.(?:jinja2?|py|json|txt|yaml|yml|model)")
_FOREIGN = (
    "the server runs Python code of the model's repository, which may do all that you may: try without it, since vLLM has most models "
    "itself, or read that code and name its revision with --revision"
)
_COMPUTED = "has a value that a shell would have to compute"
_MOST = 300
"""Most flags, and most variables; recipes have some twenty."""
_UTILIZATION = 0.92
"""vLLM's default of --gpu-memory-utilization (vllm/config/cache.py, 0.32)."""


@dataclass(frozen=True, slots=True)
class Said:
    """Something to know of a setting. `needs_person`: the server is another one until a person has looked."""

    setting: str
    what: str
    needs_person: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A recipe that was made: `arguments` are flags with their values, `memory` 10^9 bytes of each node; `said`: what was not carried over."""

    title: str
    model: str
    revision: str | None
    arguments: tuple[tuple[str, ...], ...]
    environment: Mapping[str, str]
    variables: Mapping[str, str]
    machine: str
    nodes: int
    memory: int
    share: float
    said: tuple[Said, ...] = field(default=())


def draft(
    *,
    title: str,
    model: str | None,
    revision: str | None,
    flags: Iterable[tuple[str, str | None]],
    environment: Mapping[str, str],
    machine: str,
    least: int = 1,
    most: int | None = None,
) -> Draft:
    """Make a recipe for a machine of `hardware.toml`.

    Args:
        title: what it serves, in a line.
        model: the repository of its checkpoint.
        revision: the revision of the model, 40 hex digits, if one was named.
        flags: flags of `vllm serve` with their values, in order.
        environment: the server's variables.
        machine: the name of the machine.
        least: nodes that it asks for at least.
        most: nodes that it asks for at most.

    Raises:
        StackError: the model is no repository, the machine is unknown, or a text has control characters.

    """
    given = tuple(flags)
    if len(given) > _MOST or len(environment) > _MOST:
        raise StackError(f"it has more than {_MOST} flags or variables", "import a recipe that somebody wrote by hand")
    _demand_plain({"title": title, **environment}.items())
    _demand_plain((name, value or "") for name, value in given)
    if model is None or not re.fullmatch(REPOSITORY, model):
        raise StackError(f"the model is {model or 'not named'!r:.100}, no repository", "name one with --model OWNER/NAME")
    kept, said, found = _arguments(
        given, is_known=any(checkpoints.load(name).repository == model for name in checkpoints.known())
    )
    profile = hardware.load(machine)
    nodes, about = _nodes(kept, unified=profile.unified, least=least, most=most)
    variables: dict[str, str] = {}
    own = _environment(environment, said, variables, nodes)
    arguments = [_words(flag, said, variables) for flag in kept]
    if nodes > 1:
        place = next((at + 1 for at, words in enumerate(arguments) if words[:1] == _RANKS[:1]), 0)
        arguments[place:place] = [
            ("--nnodes", str(nodes)),
            ("--node-rank", f"${{{RANK}}}"),
            ("--master-addr", "${HEAD_ADDRESS}"),
        ]
        own |= ON_NODES
        variables = {**NODES, **variables}
    shares = [float(value) for name, value in kept if name == "--gpu-memory-utilization" and value and _is_share(value)]
    share = shares[-1] if shares else _UTILIZATION
    name, pinned = _named(model, found or revision, said)
    return Draft(
        title=title,
        model=name,
        revision=pinned,
        arguments=tuple(filter(None, arguments)),
        environment=MappingProxyType(own),
        variables=MappingProxyType(variables),
        machine=machine,
        nodes=nodes,
        memory=round(share * profile.memory),
        share=share,
        said=(*said, *about),
    )


def _demand_plain(settings: Iterable[tuple[str, str]]) -> None:
    for name, value in settings:
        if not name.isprintable() or not value.isprintable():
            raise StackError(f"{name!r:.60} has control characters", "take them out of the file")


def _arguments(
    flags: Sequence[tuple[str, str | None]], *, is_known: bool
) -> tuple[list[tuple[str, str | None]], list[Said], str | None]:
    """Return the flags that are kept, what is to be said of others, and the revision that a flag names.

    `is_known`: the model is one of ours, whose kind vLLM and transformers have themselves.
    """
    kept, said, revision = list[tuple[str, str | None]](), list[Said](), None
    for name, value in flags:
        if name in _STARTER or name in BETWEEN:
            continue
        if (why := import_rules.flag(name, value)) is not None:
            said.append(Said(name, f"is left out: {why}", True))
        elif name == "--trust-remote-code" and is_known and value in (None, "true", "True"):
            said.append(
                Said(name, "is left out: vLLM has this model itself, and needs no code of the model's repository", False)
            )
        elif name == "--distributed-executor-backend" and value == "ray":
            said.append(Said(name, "nodes start without Ray here, by vLLM's own --nnodes", False))
        elif name == "--revision" and value and re.fullmatch("[0-9a-f]{40}", value):
            revision = value
        else:
            kept.append((name, value))
            if name == "--trust-remote-code":
                said.append(Said(name, _FOREIGN, True))
            elif value is not None and _FILE.fullmatch(value):
                said.append(Said(name, f"names the file {value}, which has to be where the server starts", True))
    return kept, said, revision


def _nodes(
    flags: Sequence[tuple[str, str | None]], *, unified: bool, least: int, most: int | None
) -> tuple[int, tuple[Said, ...]]:
    """Count the nodes: a machine with unified memory has one GPU, so each rank is a node."""
    world, odd = 1, list[Said]()
    last = dict(flags)
    for name in _RANKS:
        value = last.get(name, "1") or "1"
        if re.fullmatch(r"[1-9]\d{0,2}", value):
            world *= int(value)
        else:
            odd.append(Said(name, f"is {value!r:.40}, so the number of nodes is not known: it is taken to be 1", True))
    if world > 1 and not unified:
        return 1, (*odd, Said("nodes", f"its command uses {world} GPUs of one machine", True))
    if world > MOST_NODES:
        why = f"its command uses {world} GPUs, and a recipe has at most {MOST_NODES} nodes: they are taken to be 1"
        return 1, (*odd, Said("nodes", why, True))
    if least > world:
        odd.append(Said("nodes", f"it asks for {least} nodes, and its command uses {world}", True))
    if most is not None and most < world:
        odd.append(
            Said("nodes", f"it asks for at most {most} {'node' if most == 1 else 'nodes'}, and its command uses {world}", True)
        )
    return world, tuple(odd)


def _environment(given: Mapping[str, str], said: list[Said], variables: dict[str, str], nodes: int) -> dict[str, str]:
    own = dict[str, str]()
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z_]\w{0,99}", name, re.ASCII):
            said.append(Said(f"{name:.60}", "is no name of a variable", True))
        elif import_rules.is_secret(name):
            said.append(Said(name, "is a secret: set it where the server starts", False))
        elif nodes > 1 and name in ON_NODES:
            said.append(Said(name, "each node sets it by variables", False))
        elif not value.strip():
            said.append(Said(name, "has no value", False))
        elif (why := import_rules.variable(name, value)) is not None:
            said.append(Said(name, f"is left out: {why}. If the server needs it, set it where the server starts", True))
        elif (text := _filled(value, variables)) is None:
            said.append(Said(name, _COMPUTED, True))
        else:
            own[name] = text
    return own


def _words(flag: tuple[str, str | None], said: list[Said], variables: dict[str, str]) -> tuple[str, ...]:
    """Return a flag with its value; nothing if its value cannot be kept."""
    name, value = flag
    if value is None:
        return (name,)
    text = _filled(value, variables)
    if text:
        return (name, text)
    said.append(Said(name, _COMPUTED if value else "has an empty value", True))
    return ()


def _filled(text: str, variables: dict[str, str]) -> str | None:
    """Write variables of a shell as those of a recipe; None if a shell would have to compute the text."""

    def put(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).upper()
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            return match[0]
        variables.setdefault(name, NODES.get(name, "left open by the file that this recipe was imported from"))
        return f"\0{name}\1"

    filled = _USED.sub(put, text)
    return None if "$" in filled else filled.replace("\0", "${").replace("\1", "}")


def _is_share(value: str) -> bool:
    return re.fullmatch(r"0?\.\d{1,4}|1(?:\.0)?", value) is not None


def _named(model: str, revision: str | None, said: list[Said]) -> tuple[str, str | None]:
    """Return a known checkpoint's name instead of its repository, and the revision of any other."""
    if revision is not None and not re.fullmatch("[0-9a-f]{40}", revision):
        said.append(Said("model_revision", f"{revision!r:.60} is not the full id of a commit", True))
        revision = None
    for name in checkpoints.known():
        known = checkpoints.load(name)
        if known.repository == model and revision in (None, known.revision):
            return name, None
    return model, revision

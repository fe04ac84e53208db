# SPDX-License-Identifier: Apache-2.0
"""Read a recipe of the Spark community (eugr/spark-vllm-docker, spark-arena, sparkrun): its command, its variables, and all else it asks for.

The file comes from a stranger: it is small, nothing of it is run, and aliases are never expanded.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from stack.base.errors import StackError
from stack.doctor import nodes, script
from stack.doctor.knowledge import settings
from stack.doctor.script import Flag, Script, Serve

_LARGEST = 2**16
"""Most characters of a recipe; the longest known one has 6,000."""
_SHOWN = 200
_MOST = 40
"""Most keys and words that are listed as not carried over."""
_WORKS = {
    "mods": "patches of its container",
    "build_args": "how its container is built",
    "pre_exec": "commands that run in its container before the server starts",
    "post_exec": "commands that run in its container",
    "post_commands": "commands that run beside it",
    "builder": "how its container is built",
    "builder_config": "how its container is built",
}
"""Keys that change what serves, or what else runs: a person has to look."""
_ASIDE = {
    "container": "`stack serve --image` and `stack recipe compose` take this stack's image",
    "pull_image": "it is about the container",
    "executor_config": "it is about the container",
    "runtime_config": "it is about the container",
    "stop_after_post": "it is about commands that are not carried over",
    "benchmark": "`stack validate bench` measures",
}
"""Keys without which the server is the same."""
_NAMES = {
    "mods": re.compile(r"[\w./-]{1,100}"),
    "build_args": re.compile(r"--?[A-Za-z][\w-]{0,60}"),
    "builder": re.compile(r"[\w./-]{1,60}"),
    "container": re.compile(r"[\w./:-]{1,150}(?:@sha256:[0-9a-f]{64})?"),
}
"""Keys whose values are repeated, if they are names. Commands and anything else may hold a secret."""
_READ = frozenset(
    {
        "recipe_version", "name", "description", "model", "model_revision", "runtime", "runtime_version", "min_nodes", "max_nodes",
        "mode", "solo_only", "cluster_only", "defaults", "env", "command", "metadata",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key of the file that is not carried over, with its line and the reason. `needs_person`: the server is another one without it."""

    key: str
    line: int
    what: str
    needs_person: bool


@dataclass(frozen=True, slots=True)
class SharedRecipe:
    """A recipe of the community. `revision`: of the model; `hardware`: a name that our own export writes; None where it says nothing.

    `least`, `most`: nodes that it asks for. `name` and `title` may be empty.
    """

    path: str
    name: str
    title: str
    revision: str | None
    hardware: str | None
    least: int
    most: int | None
    script: Script
    serve: Serve
    left_out: tuple[LeftOut, ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The flags of its command with their long names."""
        return tuple(Flag(_spelt(settings.flag_names(flag)), flag.value, flag.line) for flag in self.serve.flags)


def read(file: Path) -> SharedRecipe:
    """Read a recipe from a file.

    Raises:
        StackError: it cannot be read, is too large, or is no recipe that starts vLLM.

    """
    return parse(str(file), script.text_of(file))


def parse(path: str, text: str) -> SharedRecipe:
    """Read a recipe from its text.

    Raises:
        StackError: it is too large, or is no recipe that starts vLLM.

    """
    if len(text) > _LARGEST:
        raise StackError(f"{path} is larger than {_LARGEST // 2**10} KiB", "name a recipe: they have some thousand characters")
    top = _top(path, text)
    # The parser of scripts chooses the format by the file's suffix.
    found = script.parse(path if path.endswith((".yaml", ".yml")) else f"{path}.yaml", text)
    if found.others:
        server, line = found.others[0]
        raise StackError(f"{path}:{line} serves with {server}", "import a recipe of vLLM")
    if not found.serves:
        raise StackError(f"{path} has no command that starts vLLM", "name a recipe with `vllm serve` in its command")
    get = {key: nodes.text(value) for key, value in nodes.items(top)}
    metadata = nodes.value(top, "metadata")
    described = get.get("description") or nodes.text(nodes.value(metadata, "description"))
    alone = get.get("solo_only") == "true" or get.get("mode") == "solo"
    several = get.get("cluster_only") == "true" or get.get("mode") == "cluster"
    return SharedRecipe(
        path=path,
        name=_line(get.get("name", "")),
        title=_line(described or get.get("name", "")),
        revision=get.get("model_revision") or None,
        hardware=nodes.text(nodes.value(metadata, "hardware")) or None,
        least=max(_count(get.get("min_nodes")) or 1, 2 if several else 1),
        most=1 if alone else _count(get.get("max_nodes")),
        script=found,
        serve=found.serves[0],
        left_out=_bounded((*_left_out(top), *_unread(found))),
    )


def _top(path: str, text: str) -> yaml.MappingNode:
    """Return the file's mapping.

    Raises:
        StackError: it is not valid YAML, or no recipe.

    """
    try:
        documents = [*yaml.compose_all(text, Loader=yaml.SafeLoader)]
    except (yaml.YAMLError, RecursionError) as failed:
        mark = getattr(failed, "problem_mark", None)
        raise StackError(f"{path}{f':{mark.line + 1}' if mark else ''} is not valid YAML", "correct it") from failed
    top = documents[0] if len(documents) == 1 else None
    nodes.demand_bounded(top)
    keys = {key for key, _ in nodes.items(top)}
    if not isinstance(top, yaml.MappingNode) or keys & {"apiVersion", "services"} or not keys & {"command", "defaults"}:
        raise StackError(f"{path} is no recipe of this form", "name a file with `model`, `defaults` and `command`")
    return top


def _left_out(top: yaml.MappingNode) -> Iterator[LeftOut]:
    for key, value in nodes.items(top):
        if key in _READ or not _holds(value):
            continue
        what = _WORKS.get(key) or _ASIDE.get(key) or "this key is not known here"
        texts = [nodes.text(item) for item in nodes.sequence(value)] or [nodes.text(value)]
        names = _NAMES.get(key)
        given = ", ".join(text for text in texts if text and names and names.fullmatch(text))
        yield LeftOut(
            _line(key), nodes.line(value), f"not carried over{f' ({_line(given)})' if given else ''}: {what}", key in _WORKS
        )


def _holds(value: yaml.Node) -> bool:
    """Tell whether a value is more than nothing: `[]`, `{}`, `false` and an empty one are nothing."""
    return bool(value.value) and nodes.text(value) not in ("false", "null", "~")


def _unread(found: Script) -> Iterator[LeftOut]:
    """Report commands beside the one that is carried over, and words of it that belong to no flag."""
    for serve in found.serves[1:]:
        yield LeftOut("command", serve.line, "it starts a second server, which needs a recipe of its own", needs_person=True)
    for command in found.commands:
        words = [word.text for word in command]
        if "serve" not in words:
            if not all(re.fullmatch(r"export|[A-Za-z_]\w*=.*", word, re.DOTALL) for word in words):
                yield LeftOut("command", command[0].line, f"it runs {_program(words)}, too", needs_person=True)
            continue
        after = words[words.index("serve") + 1 :]
        loose = [
            place
            for place, word in enumerate(after)
            if not _is_flag(word) and (place == 0 or not _is_flag(after[place - 1]) or "=" in after[place - 1])
        ]
        for place in loose[1:] if loose[:1] == [0] else loose:
            if after[place] != found.serves[0].model:
                what = f"{_place(after, place)} belongs to no flag, or to a flag with several values"
                yield LeftOut("command", command[0].line, what, needs_person=True)


def _program(words: Sequence[str]) -> str:
    """Name the program that a command runs, without its arguments and variables, which may hold secrets."""
    name = next((word for word in words if not re.match(r"[A-Za-z_]\w*=", word)), "")
    return name if re.fullmatch(r"[\w./-]{1,60}", name) else "something else"


def _place(words: Sequence[str], place: int) -> str:
    """Say where a word stands, without the word, which may be a secret."""
    before = next((at for at in range(place - 1, -1, -1) if _is_flag(words[at])), None)
    if before is None:
        return f"word {place + 1} behind the model"
    return f"word {place - before} behind {_line(words[before].partition('=')[0])}"


def _bounded(left_out: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
    """Shorten a list that nobody would read."""
    if len(left_out) <= _MOST:
        return left_out
    rest = left_out[_MOST:]
    more = LeftOut("more", rest[0].line, f"{len(rest)} more like these", any(each.needs_person for each in rest))
    return (*left_out[:_MOST], more)


def _is_flag(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _spelt(name: str) -> str:
    """Return a flag as vLLM reads it: behind the first dot are keys of a configuration, which have underscores."""
    flag, dot, key = name.partition(".")
    return f"{flag}{dot}{key.replace('-', '_')}"


def _count(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,4}", text) else None


def _line(text: str) -> str:
    """Return a text in one line without control characters, shortened."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 2 * _SHOWN]).split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def where(shared: SharedRecipe) -> Mapping[str, int]:
    """Return the lines of the settings of a recipe, by name; of a setting that is given twice, the last one."""
    return {flag.name: flag.line for flag in shared.flags} | {each.name: each.line for each in shared.script.settings}

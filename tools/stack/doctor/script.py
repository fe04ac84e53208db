# SPDX-License-Identifier: Apache-2.0
"""Parse a serve script, a compose file, a Dockerfile or an .env file: variables, commands that serve, containers."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from stack.base.errors import StackError
from stack.doctor import shell
from stack.doctor.shell import Command, Word

_LARGEST = 2**19
"""Most bytes of a script; those that people write have some thousands."""
_SERVES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
_NESTED = re.compile(r"\bvllm\s+serve\b|" + "|".join(map(re.escape, _SERVES)))
_INSTRUCTION = re.compile(r"^[ \t]*([A-Za-z]+)[ \t]+((?:[^\\\n]|\\[\s\S])*)", re.MULTILINE)
_MORE = re.compile(r"\$[@*]|\$\{\w+\[[@*]\]\}")
"""Words that stand for flags given elsewhere."""
_DEPTH = 5
# Options of docker run without a value.
_SWITCHES = frozenset(
    {"-P", "--detach", "--rm", "--init", "--privileged", "--tty", "--interactive", "--read-only", "--publish-all"}
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that is set, its line, and whether programs see it."""

    name: str
    value: str
    line: int
    exported: bool = True


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of `vllm serve` as written; `value` is None if it has none."""

    name: str
    value: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container that is started. `published`: ports as written; `volumes`: mount points.

    `is_started`: false for an image's own command, since the file does not say how the image will be started.
    """

    line: int
    privileged: int | None = None
    host_network: bool = False
    published: tuple[Word, ...] = ()
    volumes: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    is_started: bool = True


@dataclass(frozen=True, slots=True)
class Serve:
    """A command that serves, and its container. `is_whole`: whether the file has all of its flags."""

    line: int
    model: str | None
    flags: tuple[Flag, ...]
    container: Container | None = None
    is_whole: bool = True

    def flag(self, *names: str) -> Flag | None:
        """Return the last flag with one of these names, which is the one that counts."""
        return next((flag for flag in reversed(self.flags) if flag.name in names), None)


@dataclass(frozen=True, slots=True)
class Script:
    """The content of a file. `commands`: all commands, for checks of other ones; `sources`: files whose variables it loads."""

    path: str
    settings: tuple[Setting, ...]
    serves: tuple[Serve, ...]
    containers: tuple[Container, ...]
    commands: tuple[Command, ...]
    sources: tuple[str, ...] = ()

    def setting(self, name: str) -> Setting | None:
        """Return the last value of a variable."""
        return next((setting for setting in reversed(self.settings) if setting.name == name), None)


def read(file: Path) -> Script:
    """Parse a file.

    Raises:
        StackError: it cannot be read, or is not such a file.

    """
    try:
        with file.open("rb") as opened:  # devices are endless: limit the read
            data = opened.read(_LARGEST + 1)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a script, or a compose file") from failed
    if b"\0" in data:
        raise StackError(f"{file} is not a script", "name a text file")
    if len(data) > _LARGEST:
        raise StackError(f"{file} is larger than {_LARGEST // 2**10} KiB", "name a script, or a compose file")
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return parse(str(file), text)


def parse(path: str, text: str) -> Script:
    """Parse a text that is in a file of that name."""
    found, name = _Collector(), Path(path).name
    if name.endswith((".yaml", ".yml")):
        _compose(found, path, text)
    elif re.match(r"(Dockerfile|Containerfile)", name) or name.endswith(".Dockerfile"):
        _dockerfile(found, text)
    else:
        _shell(found, shell.commands(text), None)
    handed = found.exported | ({"*"} if re.search(r"(^|\.)env(\.|$)", name) else set())
    settings = (replace(each, exported=each.exported or not handed.isdisjoint((each.name, "*"))) for each in found.settings)
    return Script(
        path, tuple(settings), tuple(found.serves), tuple(found.containers), tuple(found.commands), tuple(found.sources)
    )


class _Collector:
    """The content that was found so far."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.serves: list[Serve] = []
        self.containers: list[Container] = []
        self.commands: list[Command] = []
        self.lists: dict[str, Command] = {}
        self.exported: set[str] = set()
        self.sources: list[str] = []


def _shell(found: _Collector, commands: Iterator[Command], container: Container | None, depth: int = _DEPTH) -> None:
    for command in commands:
        if command[0].text.endswith("=("):
            name = command[0].text.removesuffix("(").removesuffix("=")
            before = found.lists.get(name.removesuffix("+"), ()) if name.endswith("+") else ()
            found.lists[name.removesuffix("+")] = (*before, *_listed(found, command[1:]))
            continue
        _command(found, _listed(found, command), container, depth)


def _listed(found: _Collector, command: Command) -> Command:
    """Expand the lists that a command names: "${NAME[@]}"."""
    words: list[Word] = []
    for word in command:
        named = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.text)
        words += found.lists.get(named[1], ()) if named else (word,)
    return tuple(words)


def _command(found: _Collector, command: Command, container: Container | None, depth: int) -> None:
    if not command:
        return
    found.commands.append(command)
    at = {word.text: place for place, word in enumerate(command)}
    if command[0].text in ("source", "."):
        # A virtual environment's script sets no API key.
        found.sources += [word.text for word in command[1:2] if Path(word.text).name != "activate"]
    found.sources += [word.text.partition("=")[2] for word in command if word.text.startswith("--env-file=")]
    found.sources += [word.text for word in command[at.get("--env-file", len(command)) + 1 :][:1]]
    found.settings += [Setting(name, word.text, word.line, seen) for name, word, seen in shell.assignments(command)]
    found.exported |= shell.exported(command)
    started = _container(command)
    if started is not None:
        container, image, command, is_own = started
        found.containers.append(container)
        found.settings += container.settings
        if is_own and command and command[0].text.startswith("-") and "vllm" in image:
            # The published image has `vllm serve` as its entry point.
            found.serves.append(_served(command, command[0].line, container))
            return
    serve = _serve(command, container)
    if serve is not None:
        found.serves.append(serve)
    elif depth:
        # bash -c "vllm serve …"
        for word in command:
            if " " in word.text and _NESTED.search(word.text):
                _shell(found, shell.commands(word.text, word.line), container, depth - 1)


def _container(command: Command) -> tuple[Container, str, Command, bool] | None:
    """Parse `docker run …` and the like: the container, its image, the words after it, and whether the image's entry point gets them."""
    names = [Path(word.text).name for word in command]
    engine = next((at for at, name in enumerate(names) if name in ("docker", "podman", "nerdctl")), None)
    if engine is None or not {"run", "create"} & {*names[engine + 1 : engine + 3]}:
        return None
    start = next(at for at, name in enumerate(names) if at > engine and name in ("run", "create"))
    options, rest = _options(command[start + 1 :])

    def given(*named: str) -> list[Word]:
        return [value for name, value in options if name in named]

    privileged = next((word.line for word in given("--privileged") if word.text != "false"), None)
    mounts = [target for word in given("--mount") for target in re.findall(r"(?:target|destination|dst)=([^,]+)", word.text)]
    made = Container(
        command[engine].line,
        privileged,
        any(word.text == "host" for word in given("--network", "--net")),
        tuple(given("-p", "--publish")),
        (*(word.text.split(":")[1] if ":" in word.text else word.text for word in given("-v", "--volume")), *mounts),
        tuple(_variable(word.text, word.line) for word in given("-e", "--env")),
    )
    return made, rest[0].text if rest else "", rest[1:], not given("--entrypoint")


def _variable(text: str, line: int) -> Setting:
    """Parse a container's variable; one without a value gets that of the environment that starts the container."""
    name, equals, value = text.partition("=")
    return Setting(name, value if equals else f"${name}", line)


def _options(words: Command) -> tuple[list[tuple[str, Word]], Command]:
    """Split the arguments of `docker run`: its options with their values, and the rest, the image and its command."""
    found, place = list[tuple[str, Word]](), 0
    while place < len(words) and words[place].text.startswith("-"):
        word = words[place]
        name, equals, value = word.text.partition("=")
        switch = name in _SWITCHES or re.fullmatch(r"-[dit]+", name)
        alone = bool(equals or switch or place + 1 == len(words))
        found.append((name, Word(value, word.line) if alone else words[place + 1]))
        place += 1 if alone else 2
    return found, words[place:]


def _serve(command: Command, container: Container | None) -> Serve | None:
    """Parse the command if it serves."""
    for place, word in enumerate(command):
        after = command[place + 1].text if place + 1 < len(command) else ""
        if Path(word.text).name == "vllm" and after == "serve":
            return _served(command[place + 2 :], word.line, container)
        if word.text in _SERVES:
            return _served(command[place + (2 if after == "serve" else 1) :], word.line, container)
    return None


def _served(words: Command, line: int, container: Container | None) -> Serve:
    flags, model = list[Flag](), None
    rest = [word for word in words if not _MORE.fullmatch(word.text)]
    is_whole = len(rest) == len(words)
    while rest:
        word = rest.pop(0)
        if re.match(r"--?[A-Za-z]", word.text):
            name, equals, value = word.text.partition("=")
            takes = not equals and rest and not re.match(r"--?[A-Za-z]", rest[0].text)
            name = name.replace("_", "-") if name.startswith("--") else name
            flags.append(Flag(name, rest.pop(0).text.replace("\\\n", "") if takes else value if equals else None, word.line))
        elif model is None:
            model = word.text
    named = next((flag.value for flag in flags if flag.name == "--model"), None)
    model = named or model or _swallowed(flags)
    # Without a model, arguments come from elsewhere: given to an image's command, or from a configuration file.
    return Serve(line, model, tuple(flags), container, is_whole and model is not None)


def _swallowed(flags: Sequence[Flag]) -> str | None:
    """Find a model that seems to be the value of the switch before it."""
    return next((flag.value for flag in flags if flag.value and re.fullmatch(r"[\w.-]+/[\w.-]+|/[\w./-]+", flag.value)), None)


def _dockerfile(found: _Collector, text: str) -> None:
    container = Container(1, is_started=False)
    for instruction in _INSTRUCTION.finditer(text):
        name, rest = instruction[1].upper(), instruction[2]
        line = text.count("\n", 0, instruction.start(2)) + 1
        if name in ("ENV", "ARG"):
            words = next(shell.commands(rest, line), ())
            if words and "=" not in words[0].text:
                words = (Word(f"{words[0].text}={' '.join(word.text for word in words[1:])}", words[0].line),)
            found.settings += [
                Setting(word.text.partition("=")[0], word.text.partition("=")[2], word.line)
                for word in words
                if "=" in word.text
            ]
        elif name in ("CMD", "ENTRYPOINT"):
            listed = _json(rest, line) if rest.lstrip().startswith("[") else None
            _shell(found, iter((listed,)) if listed else shell.commands(rest, line), container)


def _json(text: str, line: int) -> Command | None:
    try:
        values = json.loads(re.sub(r"\\\n", " \n", text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        return None
    words, at = [], 0
    for value in values:
        at = max(at, text.find(json.dumps(value), at))
        words.append(Word(value, line + text.count("\n", 0, at)))
    return tuple(words)


def _compose(found: _Collector, path: str, text: str) -> None:
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as failed:
        mark = getattr(failed, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        raise StackError(f"{where} is not valid YAML", "correct it") from failed
    for _, service in _items(_value(top, "services") or top):
        _service(found, service)


def _service(found: _Collector, service: yaml.Node) -> None:
    settings = [*_environment(_value(service, "environment"))]
    privileged = _value(service, "privileged")
    network = _value(service, "network_mode")
    container = Container(
        service.start_mark.line + 1,
        privileged.start_mark.line + 1 if privileged is not None and _text(privileged) == "true" else None,
        network is not None and _text(network) == "host",
        tuple(_ports(_value(service, "ports"))),
        tuple(_mounts(_value(service, "volumes"))),
        tuple(settings),
    )
    found.containers.append(container)
    found.settings += settings
    if (files := _value(service, "env_file")) is not None:
        found.sources += [
            _text(_value(file, "path") or file) for file in (files.value if isinstance(files, yaml.SequenceNode) else [files])
        ]
    parts = [part for name in ("entrypoint", "command") if (part := _value(service, name)) is not None]
    if not parts:
        return
    words = tuple(word for part in parts for word in _words(part))
    _shell(found, iter((words,) if words else ()), container)
    # The published image of vLLM has `vllm serve` as its entry point, so its command consists of flags.
    image = _value(service, "image")
    served = any(serve.container is container for serve in found.serves)
    if not served and words and (words[0].text.startswith("--") or (image is not None and "vllm" in _text(image))):
        found.serves.append(_served(words[words[0].text == "serve" :], words[0].line, container))


def _words(node: yaml.Node) -> Iterator[Word]:
    """Split a command, given as a list or as a text. Compose splits a text without a shell, so lines do not end commands."""
    if isinstance(node, yaml.SequenceNode):
        yield from (Word(shell.filled(_text(item), {}), _line(item)) for item in node.value)
    elif isinstance(node, yaml.ScalarNode):
        # A folded block's value has lost its line breaks.
        text = _written(node) if node.style == ">" else str(node.value)
        yield from (word for command in shell.commands(text, _line(node)) for word in command)


def _line(node: yaml.Node) -> int:
    """Return the line where a node's text begins: for a block, the line after its sign."""
    return node.start_mark.line + 1 + (isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"))


def _written(node: yaml.ScalarNode) -> str:
    """Return the text of a block as written."""
    buffer = node.start_mark.buffer
    return str(node.value) if buffer is None else buffer[node.start_mark.pointer : node.end_mark.pointer].partition("\n")[2]


def _environment(node: yaml.Node | None) -> Iterator[Setting]:
    for name, value in _items(node):
        yield Setting(name, _text(value), _line(value))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield _variable(_text(item), _line(item))


def _ports(node: yaml.Node | None) -> Iterator[Word]:
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(item, yaml.MappingNode):
            parts = {name: _text(value) for name, value in _items(item)}
            text = f"{parts.get('host_ip', '')}:{parts.get('published', '')}:{parts.get('target', '')}".lstrip(":")
        else:
            text = _text(item)
        yield Word(shell.filled(text, {}), item.start_mark.line + 1)


def _mounts(node: yaml.Node | None) -> Iterator[str]:
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(item, yaml.MappingNode):
            yield next((_text(value) for name, value in _items(item) if name == "target"), "")
        else:
            parts = _text(item).split(":")
            yield parts[1] if len(parts) > 1 else parts[0]


def _items(node: yaml.Node | None) -> Iterable[tuple[str, yaml.Node]]:
    """Return keys and values of a mapping, with those that are merged into it (`<<`)."""
    return _merged(node).items()


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    return _merged(node).get(key)


def _merged(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """Merge a mapping: own keys count before merged ones, and earlier ones before later ones. Each mapping is merged once, to end cycles."""
    found: dict[str, yaml.Node] = {}
    seen, left = set[int](), [node]
    while left:
        mapping = left.pop()
        if not isinstance(mapping, yaml.MappingNode) or id(mapping) in seen:
            continue
        seen.add(id(mapping))
        merged = [value for key, value in mapping.value if _text(key) == "<<"]
        found = {_text(key): value for key, value in mapping.value if _text(key) != "<<"} | found
        left += reversed(
            [each for value in merged for each in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
        )
    return found


def _text(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

# SPDX-License-Identifier: Apache-2.0
"""Parse shell commands: variables, commands that serve, containers that are started."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.doctor import shell
from stack.doctor.shell import Command, Word

_SERVES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.api_server")
_NESTED = re.compile(r"\bvllm\s+serve\b|" + "|".join(map(re.escape, _SERVES)))
_MORE = re.compile(r"\$[@*]|\$\{\w+\[[@*]\]\}")
"""Words that stand for flags given elsewhere."""
_SERVE = "serve"
_DEPTH = 5
_MOST_LISTED = 100_000
"""Most words that the lists of a file may add to its commands: a list that holds itself twice doubles with each line."""
_MOST_WORDS = 1_000_000
_MOST_CHARACTERS = 8 * 2**20
"""Most words, and characters, of all commands of a file together; a file without expansions has at most 2^19 characters."""
# Options of docker run without a value.
_SWITCHES = frozenset(
    {"-P", "--detach", "--rm", "--init", "--privileged", "--tty", "--interactive", "--read-only", "--publish-all"}
)
_OTHERS = (
    ("SGLang", re.compile(r"sglang(?:\.launch_server)?|sglang_router.*")),
    ("TensorRT-LLM", re.compile(r"trtllm-serve|tritonserver")),
    ("llama.cpp", re.compile(r"llama-server|llama_cpp\.server")),
    ("Ollama", re.compile(r"ollama")),
    ("LMDeploy", re.compile(r"lmdeploy")),
    ("Text Generation Inference", re.compile(r"text-generation-launcher")),
    ("Aphrodite", re.compile(r"aphrodite(?:\.endpoints.*)?")),
    ("MLC-LLM", re.compile(r"mlc_llm")),
    ("Atlas", re.compile(r"atlas-serve|atlas")),
)
"""Other servers, by the word that starts them."""
_OWN_IMAGE = re.compile(r"(?:(?:docker\.io|registry-1\.docker\.io)/)?vllm/vllm-openai(?:-rocm|-cpu)?(?:[:@]|$)")
_MODEL = re.compile(r"[\w.-]+/[\w.-]+|/[\w./-]*[\w-]")
"""A model: owner/name, or a path."""
_STARTS = frozenset({"serve", "run", "start", "launch_server"})


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

    `is_started`: false for an image's own command, since the file does not say how the image will be started. `shared`: whether it has
    more of /dev/shm than the 64 MB that containers get. `image`: its name; None if it is not in the file. `lacks_gpu`: whether the file
    gives it no GPU. `binds`: folders of the machine, and where the container has them.
    """

    line: int
    privileged: int | None = None
    host_network: bool = False
    published: tuple[Word, ...] = ()
    volumes: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    is_started: bool = True
    shared: bool = False
    image: Word | None = None
    lacks_gpu: bool = False
    binds: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Serve:
    """A command that serves, and its container.

    `is_whole`: whether the file has all of its flags. `repeated`: what its image does itself and the command says again, `vllm serve` or
    `serve`. `loose`: words that are neither the model nor of a flag. `is_beside`: whether it goes on while later commands run.
    """

    line: int
    model: str | None
    flags: tuple[Flag, ...]
    container: Container | None = None
    is_whole: bool = True
    repeated: str = ""
    loose: tuple[str, ...] = ()
    is_beside: bool = False

    @property
    def is_repeated(self) -> bool:
        """Whether the image starts `vllm serve` itself, and its command says so again."""
        return bool(self.repeated)

    def flag(self, *names: str) -> Flag | None:
        """Return the last flag with one of these names, which is the one that counts."""
        return next((flag for flag in reversed(self.flags) if flag.name in names), None)


@dataclass(frozen=True, slots=True)
class Script:
    """The content of a file.

    `built`: files from which images of containers are built, whose command is not in this file, with their lines.
    `commands`: all commands, for checks of other ones; `sources`: files whose variables it loads; `others`: other servers that it
    starts, with their lines; `is_spark`: whether it names what only a DGX Spark has; `has_branches`: whether it chooses what it runs.
    """

    path: str
    settings: tuple[Setting, ...]
    serves: tuple[Serve, ...]
    containers: tuple[Container, ...]
    commands: tuple[Command, ...]
    sources: tuple[str, ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    is_spark: bool = False
    built: tuple[tuple[str, int], ...] = ()
    has_branches: bool = False

    def setting(self, name: str) -> Setting | None:
        """Return the last value of a variable."""
        return next((setting for setting in reversed(self.settings) if setting.name == name), None)


class Collector:
    """The content that was found so far."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.serves: list[Serve] = []
        self.containers: list[Container] = []
        self.commands: list[Command] = []
        self.lists: dict[str, list[Word]] = {}
        self.exported: set[str] = set()
        self.sources: list[str] = []
        self.others: list[tuple[str, int]] = []
        self.is_spark = False
        self.built: list[tuple[str, int]] = []
        self.listed = self.words = self.characters = 0

    def count(self, command: Command) -> None:
        """Count a command's words and characters.

        Raises:
            StackError: the file's commands have too many.

        """
        self.words += len(command)
        if self.words > _MOST_WORDS:
            raise shell.too_long(_MOST_WORDS, "words")
        self.characters += sum(len(word.text) for word in command)
        if self.characters > _MOST_CHARACTERS:
            raise shell.too_long(_MOST_CHARACTERS, "characters")


def shell_commands(found: Collector, commands: Iterator[Command], container: Container | None, depth: int = _DEPTH) -> None:
    """Collect what shell commands set, start and serve; `container`: the one in which they run.

    Raises:
        StackError: its variables and lists stand for too many words or characters.

    """
    for command in commands:
        if command[0].text.endswith("=("):
            name, listed = command[0].text.removesuffix("=("), _listed(found, command[1:])
            if name.endswith("+"):
                found.lists.setdefault(name.removesuffix("+"), []).extend(listed)
            else:
                found.lists[name] = [*listed]
            continue
        _command(found, _listed(found, command), container, depth)


def _listed(found: Collector, command: Command) -> Command:
    """Expand the lists that a command names: "${NAME[@]}"."""
    words: list[Word] = []
    for word in command:
        named = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.text)
        listed = found.lists.get(named[1], ()) if named else ()
        found.listed += len(listed)
        if found.listed > _MOST_LISTED:
            raise shell.too_long(_MOST_LISTED, "words")
        words.extend(listed if named else (word,))
    return tuple(words)


def _command(found: Collector, command: Command, container: Container | None, depth: int) -> None:
    if not command:
        return
    found.count(command)
    found.commands.append(command)
    at = {word.text: place for place, word in enumerate(command)}
    if command[0].text in ("source", "."):
        # A virtual environment's script sets no API key.
        found.sources += [word.text for word in command[1:2] if Path(word.text).name != "activate"]
    found.sources += [word.text.partition("=")[2] for word in command if word.text.startswith("--env-file=")]
    found.sources += [word.text for word in command[at.get("--env-file", len(command)) + 1 :][:1]]
    found.settings += [Setting(name, word.text, word.line, seen) for name, word, seen in shell.assignments(command)]
    found.exported |= shell.exported(command)
    is_beside = command[-1].is_before_and
    started = _container(command)
    repeated = ""
    if started is not None:
        is_beside |= any(re.fullmatch(r"-[it]*d[it]*|--detach(?:=true)?", word.text) for word in command)
        container, image, command, is_own = started
        found.containers.append(container)
        found.settings += container.settings
        repeated = says_again(image, command) if is_own else ""
        if is_own and command and (takes_arguments(image, command[0].text) or repeated == _SERVE):
            own = served(command[repeated == _SERVE :], command[0].line, container)
            found.serves.append(replace(own, repeated=repeated, is_beside=is_beside))
            return
    serve = _serve(command, container)
    if serve is not None:
        found.serves.append(replace(serve, repeated=repeated, is_beside=is_beside))
    elif (other := _other(command)) is not None:
        found.others.append(other)
    elif depth:
        # bash -c "vllm serve …"
        for word in command:
            if " " in word.text and _NESTED.search(word.text):
                shell_commands(found, shell.commands(word.text, word.line), container, depth - 1)


def starts_itself(image: str) -> bool:
    """Tell whether an image is one of vLLM's own, whose entry point is `vllm serve`."""
    return _OWN_IMAGE.match(image) is not None


def says_again(image: str, command: Sequence[Word]) -> str:
    """Return the first words of a command that its image's entry point has already; empty if there are none."""
    if not starts_itself(image) or len(command) < 2:
        return ""
    if Path(command[0].text).name == "vllm" and command[1].text == _SERVE:
        return f"vllm {_SERVE}"
    return _SERVE if command[0].text == _SERVE else ""


def takes_arguments(image: str, first: str) -> bool:
    """Tell whether a container's command consists of arguments of `vllm serve`, by its image and its first word."""
    if starts_itself(image):
        return first.startswith("-") or _MODEL.fullmatch(first) is not None
    return first.startswith("-") and "vllm" in image.lower()


def _container(command: Command) -> tuple[Container, str, Command, bool] | None:
    """Parse `docker run …` and the like: the container, its image, its command, and whether the image's entry point gets that."""
    names = [Path(word.text).name for word in command]
    engine = next((at for at, name in enumerate(names) if name in ("docker", "podman", "nerdctl")), None)
    if engine is None or not {"run", "create"} & {*names[engine + 1 : engine + 3]}:
        return None
    start = next(at for at, name in enumerate(names) if at > engine and name in ("run", "create"))
    options, rest = _options(command[start + 1 :])

    def given(*named: str) -> list[Word]:
        return [value for name, value in options if name in named]

    privileged = next((word.line for word in given("--privileged") if word.text != "false"), None)
    volumes = given("-v", "--volume")
    mounts = [target for word in given("--mount") for target in re.findall(r"(?:target|destination|dst)=([^,]+)", word.text)]
    made = Container(
        command[engine].line,
        privileged,
        any(word.text == "host" for word in given("--network", "--net")),
        tuple(given("-p", "--publish")),
        (*(word.text.split(":")[1] if ":" in word.text else word.text for word in volumes), *mounts),
        tuple(variable(word.text, word.line) for word in given("-e", "--env")),
        shared=bool(given("--shm-size")) or any(word.text == "host" for word in given("--ipc")),
        image=rest[0] if rest else None,
        binds=tuple(bind for word in volumes if (bind := bound(word.text)) is not None),
    )
    entry = next(reversed(given("--entrypoint")), None)
    program = (entry,) if entry is not None and entry.text else ()
    return made, rest[0].text if rest else "", (*program, *rest[1:]), entry is None


def bound(text: str) -> tuple[str, str] | None:
    """Return the folder of the machine in a short volume, and where the container has it; None for a volume with a name."""
    source, colon, rest = text.partition(":")
    return (source, rest.partition(":")[0]) if colon and source.startswith(("/", ".", "~", "$HOME/", "${HOME}/")) else None


def variable(text: str, line: int) -> Setting:
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
            return served(command[place + 2 :], word.line, container)
        if word.text in _SERVES:
            return served(command[place + (2 if after == "serve" else 1) :], word.line, container)
    return None


def _other(command: Command) -> tuple[str, int] | None:
    """Name another server that a command starts, with its line."""
    for place, word in enumerate(command):
        name = Path(word.text).name
        for server, words in _OTHERS:
            after = command[place + 1].text if place + 1 < len(command) else ""
            if words.fullmatch(name) and (
                name not in ("sglang", "ollama", "lmdeploy", "atlas", "aphrodite", "mlc_llm") or after in _STARTS
            ):
                return server, word.line
    return None


def served(words: Command, line: int, container: Container | None) -> Serve:
    """Parse the arguments of `vllm serve`."""
    flags, loose, model = list[Flag](), list[str](), None
    rest = deque(word for word in words if not _MORE.fullmatch(word.text))
    is_whole = len(rest) == len(words)
    while rest:
        word = rest.popleft()
        if re.match(r"--?[A-Za-z]", word.text):
            name, equals, value = word.text.partition("=")
            takes = not equals and rest and not re.match(r"--?[A-Za-z]", rest[0].text)
            name = name.replace("_", "-") if name.startswith("--") else name
            flags.append(Flag(name, rest.popleft().text.replace("\\\n", "") if takes else value if equals else None, word.line))
        elif model is None:
            model = word.text
        else:
            loose.append(word.text)
    named = next((flag.value for flag in flags if flag.name == "--model"), None)
    model = named or model or _swallowed(flags)
    # Without a model, arguments come from elsewhere: given to an image's command, or from a configuration file.
    return Serve(line, model, tuple(flags), container, is_whole and model is not None, loose=tuple(loose))


def _swallowed(flags: Sequence[Flag]) -> str | None:
    """Find a model that seems to be the value of the switch before it."""
    return next((flag.value for flag in flags if flag.value and re.fullmatch(r"[\w.-]+/[\w.-]+|/[\w./-]+", flag.value)), None)

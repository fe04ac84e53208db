# SPDX-License-Identifier: Apache-2.0
"""Parse YAML files that start servers: compose, recipes of the Spark community, Kubernetes and Helm values, llama-swap."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import yaml

from stack.base.errors import StackError
from stack.doctor import nodes, shell
from stack.doctor.commands import (
    Collector,
    Container,
    Flag,
    Serve,
    Setting,
    bound,
    says_again,
    served,
    shell_commands,
    variable,
)
from stack.doctor.shell import Word

_MOST_FILLED = 1 << 20
_MOST_SERVICES = 200
_PLACEHOLDER = re.compile(r"\{(\w{1,60})\}")
_MACRO = re.compile(r"\$\{(\w{1,60})\}")
_SHM = "/dev/shm"  # noqa: S108 - it is what is looked for
_VLLM = re.compile(r"vllm", re.IGNORECASE)
_ENGINES = {"vllm": _VLLM, "SGLang": re.compile(r"sglang"), "TensorRT-LLM": re.compile(r"tensorrt-?llm|tritonserver")}
_OURS = frozenset(
    (
        "--model",
        "--served-model-name",
        "--max-model-len",
        "--max-num-seqs",
        "--gpu-memory-utilization",
        "--tensor-parallel-size",
        "--quantization",
        "--enforce-eager",
        "--kv-cache-dtype",
    )
)
"""Flags of vLLM by which a command is known that names no program."""
_RECIPE_FLAGS = {
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "data_parallel": "--data-parallel-size",
}
"""Names of a recipe's defaults that are not those of flags."""
_PRODUCTION = {
    "maxModelLen": "--max-model-len",
    "tensorParallelSize": "--tensor-parallel-size",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxNumSeqs": "--max-num-seqs",
    "dtype": "--dtype",
}
"""Settings of vLLM's production stack with the flags that its chart makes of them."""


def parse(found: Collector, path: str, text: str) -> None:
    """Parse a YAML file of any of these kinds, which its content tells.

    Raises:
        StackError: it is not valid YAML, or too large.

    """
    try:
        documents: list[yaml.Node | None] = [*yaml.compose_all(text, Loader=yaml.SafeLoader)]
    except (yaml.YAMLError, RecursionError) as failed:
        mark = getattr(failed, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        raise StackError(f"{where} is not valid YAML", "correct it") from failed
    for top in documents:
        nodes.demand_bounded(top)
    if any(nodes.value(top, "apiVersion") is not None for top in documents):
        _kubernetes(found, documents)
        return
    for top in documents:
        _document(found, top)


def is_valid(text: str) -> bool:
    """Tell whether a text is YAML."""
    try:
        return all(isinstance(top, yaml.MappingNode) for top in yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return False


def _document(found: Collector, top: yaml.Node | None) -> None:
    command = nodes.value(top, "command")
    if nodes.value(top, "services") is None and _is_recipe(top, command):
        _recipe(found, top, command)
    elif any(nodes.value(model, "cmd") is not None for _, model in nodes.items(nodes.value(top, "models"))):
        _llama_swap(found, top)
    elif nodes.value(top, "services") is None and _is_helm(top):
        _helm(found, top)
    else:
        services = [service for _, service in nodes.items(nodes.value(top, "services") or top)]
        if len(services) > _MOST_SERVICES:
            # Each may be an alias of a long one.
            raise StackError(f"the file has {len(services)} services", f"name a file with at most {_MOST_SERVICES}")
        for service in services:
            _service(found, service)


def _is_recipe(top: yaml.Node | None, command: yaml.Node | None) -> bool:
    """Tell whether it is a recipe of eugr/spark-vllm-docker or of sparkrun."""
    if isinstance(command, yaml.ScalarNode) and not nodes.value(top, "image"):
        return True
    names = ("recipe_version", "runtime", "defaults")
    return sum(nodes.value(top, name) is not None for name in names) > 1


def _recipe(found: Collector, top: yaml.Node | None, command: yaml.Node | None) -> None:
    """Parse a recipe: its command with the defaults in place of placeholders, and its variables."""
    defaults = {name: nodes.text(given) for name, given in nodes.items(nodes.value(top, "defaults"))}
    defaults = {"model": nodes.text(nodes.value(top, "model")), **defaults}
    settings = [Setting(name, nodes.text(given), nodes.line(given)) for name, given in nodes.items(nodes.value(top, "env"))]
    # Its runner starts the container with the host's network and memory, and with volumes for caches.
    container = Container(
        (top.start_mark.line + 1) if top else 1, host_network=True, volumes=("/root/.cache",), shared=True, is_started=False
    )
    found.settings += settings
    found.containers.append(container)
    found.is_spark = True
    runtime = nodes.text(nodes.value(top, "runtime"))
    if command is not None:
        content = (
            nodes.written(command)
            if isinstance(command, yaml.ScalarNode) and command.style in ("|", ">")
            else nodes.text(command)
        )
        shell_commands(found, shell.commands(_filled(content, defaults), nodes.line(command)), container)
    elif runtime.startswith("vllm"):
        found.serves.append(_from_defaults(top, defaults, container))
    elif runtime:
        found.others.append((runtime, 1))


def _filled(text: str, defaults: Mapping[str, str]) -> str:
    """Fill a recipe's placeholders; one without a default stays unknown, like a variable. Doubled braces are braces."""

    def filled(match: re.Match[str]) -> str:
        return defaults.get(match[1], f"${match[1]}")

    held = text.replace("{{", "\0").replace("}}", "\1")
    return _substituted(_PLACEHOLDER, held, filled).replace("\0", "{").replace("\1", "}")


def _substituted(pattern: re.Pattern[str], text: str, value: Callable[[re.Match[str]], str]) -> str:
    """Put values in the place of matches.

    Raises:
        StackError: the values are longer than any command: a small file can name a long value thousands of times.

    """
    room = _MOST_FILLED

    def put(match: re.Match[str]) -> str:
        nonlocal room
        given = value(match)
        room -= len(given)
        if room < 0:
            raise StackError(f"a command has more than {_MOST_FILLED} characters of values", "shorten the values that it names")
        return given

    return pattern.sub(put, text)


def _from_defaults(top: yaml.Node | None, defaults: Mapping[str, str], container: Container) -> Serve:
    """Return the command that a runner makes of a recipe without one."""
    lines = {name: nodes.line(given) for name, given in nodes.items(nodes.value(top, "defaults"))}
    flags = [
        Flag(_RECIPE_FLAGS.get(name, f"--{name.replace('_', '-')}"), None if given == "true" else given, lines[name])
        for name, given in defaults.items()
        if name in lines and given != "false"
    ]
    model = defaults.get("model") or None
    return Serve((top.start_mark.line + 1) if top else 1, model, tuple(flags), container, is_whole=False)


def _service(found: Collector, service: yaml.Node) -> None:
    """Parse a service of a compose file."""
    settings = [*_environment(nodes.value(service, "environment"))]
    privileged = nodes.value(service, "privileged")
    shm = nodes.value(service, "shm_size") is not None or nodes.text(nodes.value(service, "ipc")) == "host"
    container = Container(
        service.start_mark.line + 1,
        privileged.start_mark.line + 1 if privileged is not None and nodes.text(privileged) == "true" else None,
        nodes.text(nodes.value(service, "network_mode")) == "host",
        tuple(_ports(nodes.value(service, "ports"))),
        tuple(_mounts(nodes.value(service, "volumes"))),
        tuple(settings),
        shared=shm or any(mounted == _SHM for mounted in _mounts(nodes.value(service, "volumes"))),
        image=_word(nodes.value(service, "image")),
        lacks_gpu=_lacks_gpu(service),
        binds=tuple(_binds(nodes.value(service, "volumes"))),
    )
    found.containers.append(container)
    found.settings += settings
    if (listed := nodes.value(service, "env_file")) is not None:
        found.sources += [nodes.text(nodes.value(file, "path") or file) for file in nodes.sequence(listed) or [listed]]
    parts = [part for name in ("entrypoint", "command") if (part := nodes.value(service, name)) is not None]
    words = [word for part in parts if not nodes.is_null(part) for word in nodes.words(part)]
    entry = nodes.value(service, "entrypoint")
    is_own = entry is None or nodes.is_null(entry)
    serves = len(found.serves)
    _image_command(found, words, nodes.text(nodes.value(service, "image")), container, is_own=is_own)
    if nodes.value(service, "profiles") is None:
        found.serves[serves:] = [replace(serve, is_beside=True) for serve in found.serves[serves:]]
    build = nodes.value(service, "build")
    if (
        build is not None
        and nodes.text(build) not in ("null", "~")
        and not any(serve.container is container for serve in found.serves)
    ):
        folder = nodes.text(nodes.value(build, "context")) or nodes.text(build) or "."
        file = nodes.text(nodes.value(build, "dockerfile")) or "Dockerfile"
        found.built.append((f"{folder.removesuffix('/')}/{file}".removeprefix("./"), nodes.line(build)))


def _lacks_gpu(service: yaml.Node) -> bool:
    """Tell whether a service gets no GPU: nothing of it names devices, a runtime, or a service with more settings."""
    given = ("runtime", "gpus", "devices", "device_cgroup_rules", "extends", "privileged")
    reserved = nodes.value(service, "deploy")
    for name in ("resources", "reservations", "devices"):
        reserved = nodes.value(reserved, name)
    visible = any(setting.name.startswith("NVIDIA_VISIBLE") for setting in _environment(nodes.value(service, "environment")))
    return reserved is None and not visible and all(nodes.value(service, name) is None for name in given)


def _word(node: yaml.Node | None) -> Word | None:
    """Return a text with its line, variables filled by their defaults; None for anything else."""
    text = nodes.text(node)
    return Word(shell.filled(text, {}), nodes.line(node)) if node is not None and text else None


def _image_command(found: Collector, words: list[Word], image: str, container: Container, *, is_own: bool = True) -> None:
    """Parse the command of a container; `is_own`: whether the image's entry point gets it.

    The published image of vLLM has `vllm serve` as its entry point, so its command may consist of arguments.
    """
    if not words:
        _note_other(found, image, container.line)
        return
    serves, others = len(found.serves), len(found.others)
    shell_commands(found, iter((tuple(words),)), container)
    repeated = says_again(image, words) if is_own else ""
    found.serves[serves:] = [replace(serve, repeated=repeated) for serve in found.serves[serves:]]
    if len(found.serves) > serves or len(found.others) > others:
        return
    # The flags tell whose they are where the image's name does not.
    is_ours = any(word.text.partition("=")[0].replace("_", "-") in _OURS for word in words)
    if (words[0].text.startswith("--") and is_ours) or _VLLM.search(image):
        if _note_other(found, image, container.line):
            return
        serve = served(tuple(words[words[0].text == "serve" :]), words[0].line, container)
        found.serves.append(replace(serve, repeated=repeated))


def _note_other(found: Collector, image: str, line: int) -> bool:
    """Note a container of another server's image; return whether it is one."""
    other = next((name for name, words in _ENGINES.items() if name != "vllm" and words.search(image)), None)
    if other is not None:
        found.others.append((other, line))
    return other is not None


def _environment(node: yaml.Node | None) -> Iterator[Setting]:
    for name, given in nodes.items(node):
        yield Setting(name, nodes.text(given), nodes.line(given))
    for item in nodes.sequence(node):
        if isinstance(item, yaml.MappingNode):
            # Kubernetes; a value from a secret or a map is not in the file.
            name, stated = nodes.text(nodes.value(item, "name")), nodes.value(item, "value")
            yield Setting(name, nodes.text(stated) if stated is not None else f"${name}", nodes.line(item))
        else:
            yield variable(nodes.text(item), nodes.line(item))


def _ports(node: yaml.Node | None) -> Iterator[Word]:
    for item in nodes.sequence(node):
        if isinstance(item, yaml.MappingNode):
            parts = {name: nodes.text(given) for name, given in nodes.items(item)}
            text = f"{parts.get('host_ip', '')}:{parts.get('published', '')}:{parts.get('target', '')}".lstrip(":")
        else:
            text = nodes.text(item)
        yield Word(shell.filled(text, {}), item.start_mark.line + 1)


def _mounts(node: yaml.Node | None) -> Iterator[str]:
    for item in nodes.sequence(node):
        if isinstance(item, yaml.MappingNode):
            yield next((nodes.text(given) for name, given in nodes.items(item) if name in ("target", "mountPath")), "")
        else:
            parts = nodes.text(item).split(":")
            yield parts[1] if len(parts) > 1 else parts[0]


def _binds(node: yaml.Node | None) -> Iterator[tuple[str, str]]:
    """Yield the folders of the machine among the volumes of a service, and where the container has them."""
    for item in nodes.sequence(node):
        if isinstance(item, yaml.MappingNode):
            given = {name: nodes.text(value) for name, value in nodes.items(item)}
            found = bound(f"{given.get('source', '')}:{given['target']}") if "target" in given else None
        else:
            found = bound(nodes.text(item))
        if found is not None:
            yield found


def _kubernetes(found: Collector, documents: Sequence[yaml.Node | None]) -> None:
    """Parse manifests: all containers in them, and whether a service opens them to the network."""
    opened = [
        Word("", nodes.line(kind))
        for top in documents
        if nodes.text(nodes.value(top, "kind")) == "Service"
        and (kind := nodes.value(nodes.value(top, "spec"), "type")) is not None
        and nodes.text(kind) in ("NodePort", "LoadBalancer")
    ]
    for document in documents:
        for mapping in nodes.walk(document):
            if nodes.value(mapping, "containers") is not None:
                host = nodes.text(nodes.value(mapping, "hostNetwork")) == "true"
                for each in nodes.sequence(nodes.value(mapping, "containers")):
                    _pod_container(found, each, host_network=host, opened=tuple(opened))
            elif nodes.value(mapping, "modelFormat") is not None and nodes.value(mapping, "args") is not None:
                _pod_container(found, mapping, host_network=False, opened=tuple(opened))


def _pod_container(found: Collector, node: yaml.Node, *, host_network: bool, opened: tuple[Word, ...]) -> None:
    settings = [*_environment(nodes.value(node, "env"))]
    host_ports = [
        port for item in nodes.sequence(nodes.value(node, "ports")) if (port := nodes.value(item, "hostPort")) is not None
    ]
    privileged = nodes.value(nodes.value(node, "securityContext"), "privileged")
    mounts = tuple(_mounts(nodes.value(node, "volumeMounts")))
    container = Container(
        node.start_mark.line + 1,
        nodes.line(privileged) if privileged is not None and nodes.text(privileged) == "true" else None,
        host_network,
        (*(Word("", nodes.line(port)) for port in host_ports), *opened),
        mounts,
        tuple(settings),
        shared=_SHM in mounts,
        image=_word(nodes.value(node, "image")),
    )
    found.containers.append(container)
    found.settings += settings
    if nodes.value(node, "envFrom") is not None:
        found.sources.append("envFrom")
    words = [word for name in ("command", "args") for word in nodes.words(nodes.value(node, name))]
    is_own = nodes.value(node, "command") is None
    _image_command(found, words, _image(nodes.value(node, "image")), container, is_own=is_own)


def _image(node: yaml.Node | None) -> str:
    """Return an image's name: a text, or a chart's repository."""
    return nodes.text(node) or nodes.text(nodes.value(node, "repository"))


def _is_helm(top: yaml.Node | None) -> bool:
    return any(
        nodes.value(each, "vllmConfig") is not None
        or (
            isinstance(nodes.value(each, "image"), yaml.MappingNode)
            and any(nodes.value(each, name) is not None for name in _ARGUMENTS)
        )
        for each in nodes.walk(top)
    )


_ARGUMENTS = ("args", "extraArgs", "command", "serverArgs")


def _helm(found: Collector, top: yaml.Node | None) -> None:
    """Parse values of a chart: its containers, and the models of vLLM's production stack."""
    for mapping in nodes.walk(top):
        config = nodes.value(mapping, "vllmConfig")
        settings = [*_environment(nodes.value(mapping, "env"))]
        container = Container(mapping.start_mark.line + 1, settings=tuple(settings), is_started=False, shared=True)
        words = [word for name in _ARGUMENTS for word in nodes.words(nodes.value(mapping, name))]
        if config is not None:
            found.containers.append(container)
            found.settings += settings
            flags = [
                Flag(flag, nodes.text(given), nodes.line(given))
                for name, given in nodes.items(config)
                if (flag := _PRODUCTION.get(name))
            ]
            more = served(tuple(nodes.words(nodes.value(config, "extraArgs"))), mapping.start_mark.line + 1, container)
            model = nodes.text(nodes.value(mapping, "modelURL")) or None
            found.serves.append(Serve(container.line, model, (*flags, *more.flags), container, is_whole=False))
        elif words and isinstance(nodes.value(mapping, "image"), yaml.MappingNode):
            found.containers.append(container)
            found.settings += settings
            _image_command(found, words, _image(nodes.value(mapping, "image")), container)


def _llama_swap(found: Collector, top: yaml.Node | None) -> None:
    """Parse a configuration of llama-swap: a command for each model."""
    macros = {name: nodes.text(given) for name, given in nodes.items(nodes.value(top, "macros"))}
    for name, model in nodes.items(nodes.value(top, "models")):
        command = nodes.value(model, "cmd")
        if not isinstance(command, yaml.ScalarNode):
            continue
        settings = [variable(nodes.text(item), nodes.line(item)) for item in nodes.sequence(nodes.value(model, "env"))]
        found.settings += settings
        own = {**macros, "MODEL_ID": name}
        content = nodes.written(command) if command.style in ("|", ">") else nodes.text(command)
        # Lines of a block are one command, as llama-swap joins them.
        joined = re.sub(r"(?<!\\)\n(?=[ \t]*\S)", " \\\n", content.rstrip("\n"))
        filled = _substituted(_MACRO, joined, lambda match, own=own: own.get(match[1], match[0]))  # type: ignore[misc]
        shell_commands(found, shell.commands(filled, nodes.line(command)), None)

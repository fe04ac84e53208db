# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a serve script or a compose file."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stack.carry.drift.settings import Unknown
from stack.carry.drift.variables import OWNERS
from stack.deploy import removed_settings
from stack.doctor import rules
from stack.doctor.finding import Check, Finding, Found, Severity, note, run, unknown, wrong
from stack.doctor.rules import Target
from stack.doctor.script import Container, Flag, Script, Serve
from stack.model.pins import FILE

_CACHES = re.compile(
    r"(?:\.cache(?:/(?:\*|flashinfer|vllm|torch|triton|\{)|/?$)|\.triton|torchinductor|flashinfer|torch_compile_cache)"
)
_FORCED = re.compile(r"-\w*[rR]\w*|--recursive")
_NO_GRAPHS = re.compile(r"""cudagraph_mode["']?\s*[:=]\s*["']?NONE""")
_HARMONY = "openai_gptoss"
_EMPTY = re.compile(r"|\$\{\w+:?-\}")
_HIGH = 0.85


@dataclass(frozen=True, slots=True)
class Subject:
    """A script; what of its names the pinned sources do not know (None: they cannot be had); the machine it is for, if that is known.

    `flashinfer`: its pinned version. `pinned`: the upstreams whose sources were looked into.
    """

    script: Script
    unknown: Mapping[str, Unknown] | None
    target: Target | None = None
    flashinfer: str | None = None
    pinned: frozenset[str] = frozenset(OWNERS.values())


def names(script: Script) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables of upstreams and the flags of `vllm serve` that a script names."""
    variables = {one.name: None for one in script.settings if one.exported and one.name.startswith(tuple(OWNERS))}
    flags = {flag.name: None for serve in script.serves for flag in serve.flags}
    return tuple(variables), tuple(flags)


def look(subject: Subject) -> Iterator[Finding]:
    """What checks say of a script; of one in which nothing was recognised not that it is fine."""
    known = subject.script.serves or subject.script.settings
    found = run(CHECKS, subject, subject.script.path)
    return (one for one in found if known or one.severity is not Severity.FINE)


def _serves(subject: Subject) -> Iterator[Found]:
    if not subject.script.serves and not subject.script.settings:
        yield unknown("no `vllm serve` was found in it", "name the file that starts the server")


def _variables(subject: Subject) -> Iterator[Found]:
    wanted, _ = names(subject.script)
    for one in subject.script.settings:
        if one.name not in wanted or not one.exported:
            continue
        if gone_by := removed_settings.find(one.name):
            yield wrong(f"{one.name} is read by nothing: {gone_by.when}", f"take it out; {gone_by.instead}", one.line)
        elif subject.unknown is not None and (lost := subject.unknown.get(one.name)):
            fix = f"write {lost.near}, or take it out" if lost.near else "take it out"
            yield wrong(f"{one.name} is read by nothing at the pins: {_hint(lost)}", fix, one.line)
    if subject.unknown is None and wanted:
        yield unknown("whether anything reads its variables: the pinned sources cannot be had", "stack fetch")
    lacking = {
        owner
        for prefix, owner in OWNERS.items()
        if owner not in subject.pinned and any(name.startswith(prefix) for name in wanted)
    }
    for owner in sorted(lacking):
        yield unknown(f"whether anything reads its variables of {owner}, which is not pinned", f"pin {owner} in {FILE}")


def _flags(subject: Subject) -> Iterator[Found]:
    flags = [flag for serve in subject.script.serves for flag in serve.flags]
    for flag in flags:
        if gone_by := removed_settings.find(flag.name):
            yield wrong(f"{flag.name}: `vllm serve` does not start with it, {gone_by.when}", gone_by.instead, flag.line)
        elif subject.unknown is not None and (lost := subject.unknown.get(flag.name)):
            fix = f"write {lost.near}, or take it out" if lost.near else "take it out"
            yield wrong(f"`vllm serve` has no flag {flag.name} at the pins, it does not start: {_hint(lost)}", fix, flag.line)
    if subject.unknown is None and flags:
        yield unknown("whether `vllm serve` has its flags: the pinned sources cannot be had", "stack fetch")
    if flags and "vllm" not in subject.pinned:
        yield unknown("whether `vllm serve` has its flags: vllm is not pinned", f"pin vllm in {FILE}")


def _hint(lost: Unknown) -> str:
    return f"the nearest is {lost.near}" if lost.near else "nothing there is named like it"


def _eager(subject: Subject) -> Iterator[Found]:
    if any(one.name.startswith("VLLM_CPU_") for one in subject.script.settings):
        return  # CPUs have no graphs
    for flag in _every_flag(subject):
        if flag.name in ("--enforce-eager", "-enforce-eager") and (flag.value or "").lower() != "false":
            yield wrong(
                "--enforce-eager turns CUDA graphs and torch.compile off: 26 tok/s in place of 59 on a Spark",
                "take it out",
                flag.line,
            )
        elif flag.name == "-O0" or (flag.name in ("-O", "--optimization-level") and flag.value == "0"):
            yield wrong("optimization level 0 turns CUDA graphs and torch.compile off", "take it out", flag.line)
        elif _NO_GRAPHS.search(f"{flag.name}={flag.value}"):
            yield wrong(f"{flag.name} turns CUDA graphs off", "take cudagraph_mode out of it", flag.line)


def _every_flag(subject: Subject) -> Iterator[Flag]:
    for serve in subject.script.serves:
        yield from serve.flags


def _parser(subject: Subject) -> Iterator[Found]:
    for serve in subject.script.serves:
        flag = serve.flag("--reasoning-parser")
        if flag is None or flag.value is None or serve.model is None:
            continue
        is_harmony = re.search(r"gpt-?oss", serve.model, re.IGNORECASE) is not None
        if is_harmony and flag.value != _HARMONY:
            yield wrong(
                f"--reasoning-parser {flag.value} is not gpt-oss's: all of an answer goes to `reasoning`, `content` stays null, or vLLM "
                "refuses (harmony requires its own)",
                f"--reasoning-parser {_HARMONY}, or none: vLLM chooses it for gpt-oss",
                flag.line,
            )
        elif not is_harmony and flag.value == _HARMONY:
            yield wrong(
                f"--reasoning-parser {_HARMONY} reads harmony, which {serve.model} does not write: every answer is an error",
                "take it out, or name the parser of that model",
                flag.line,
            )


def _deleted(subject: Subject) -> Iterator[Found]:
    for command in subject.script.commands:
        place = next((at for at, word in enumerate(command) if word.text.rpartition("/")[2] in ("rm", "find")), None)
        if place is None:
            continue
        words = command[place:]
        forced = any(_FORCED.fullmatch(word.text) or word.text == "-delete" for word in words)
        found = next((word for word in words[1:] if _CACHES.search(word.text) and not word.text.startswith("-")), None)
        if forced and found is not None:
            yield wrong(
                f"{found.text} is deleted at each start: kernels are compiled for 30 to 60 minutes, and torch.compile starts over",
                "take it out; where a kernel was patched, `stack doctor` names the modules that changed",
                found.line,
            )


def _kept(subject: Subject) -> Iterator[Found]:
    for serve in subject.script.serves:
        container = serve.container
        if container is not None and container.is_started and not any(map(_holds_cache, container.volumes)):
            yield note(
                "the container has no volume for ~/.cache: what FlashInfer and torch.compile make is gone with it",
                "mount a volume at /root/.cache",
                container.line,
            )


def _holds_cache(mounted: str) -> bool:
    return re.search(r"/\.cache/?$|^/(root|home/\w+)/?$|flashinfer|^/$", mounted.rstrip("/") or "/") is not None


def _memory(subject: Subject) -> Iterator[Found]:
    target = subject.target
    for serve in subject.script.serves:
        flag = serve.flag("--gpu-memory-utilization", "--gpu-mem-util")
        if serve.flag("--kv-cache-memory-bytes", "--kv-cache-memory") or (flag is None and not serve.is_whole):
            continue  # then the share does not count, or may stand elsewhere
        share = _share(flag)
        line = flag.line if flag is not None else serve.line
        if share is None:
            assert flag is not None
            yield unknown(f"--gpu-memory-utilization {flag.value}: what it will be", "write the number there")
        elif target is not None and target.unified:
            yield from rules.utilization(share, target.memory, target.available, line)
        elif target is None and flag is not None and share > _HIGH:
            yield note(
                f"--gpu-memory-utilization {share:g} is too high where CPU and GPU share the memory, as on a DGX Spark",
                "say for which machine it is with --recipe, or write 0.7 there",
                line,
            )


def _share(flag: Flag | None) -> float | None:
    if flag is None:
        return rules.DEFAULT
    try:
        return float(flag.value or "")
    except ValueError:
        return None


def _privileged(subject: Subject) -> Iterator[Found]:
    for one in subject.script.containers:
        if one.privileged is not None:
            yield wrong(
                "a privileged container has the whole machine, and a GPU needs no such thing",
                "take it out; docker run --gpus all, or a reservation of devices in a compose file",
                one.privileged,
            )


def _exposed(subject: Subject) -> Iterator[Found]:
    has_key = any(one.name == "VLLM_API_KEY" and not _EMPTY.fullmatch(one.value) for one in subject.script.settings)
    for serve in subject.script.serves:
        key = serve.flag("--api-key")
        if key is not None and key.value and not key.value.startswith("$"):
            yield note(
                "--api-key is seen by everyone who lists processes, and in this file",
                "set VLLM_API_KEY in the environment",
                key.line,
            )
        line = _open_line(serve)
        if line is not None and not has_key and key is None and subject.script.sources:
            yield unknown(
                f"whether a key is wanted of everyone on the network: VLLM_API_KEY may stand in {subject.script.sources[0]}",
                "see that it does, or --host 127.0.0.1 (in a container: publish 127.0.0.1:8000:8000)",
                line,
            )
        elif line is not None and not has_key and key is None:
            yield wrong(
                "everyone on the network can ask the server: it listens on all interfaces and wants no key",
                "--host 127.0.0.1 (in a container: publish 127.0.0.1:8000:8000), or set VLLM_API_KEY",
                line,
            )


def _open_line(serve: Serve) -> int | None:
    """The line that lets the network in; None where none does."""
    host = serve.flag("--host")
    if serve.flag("--uds"):
        return None
    if host is not None and host.value is not None and _is_local(host.value):
        return None
    if serve.container is not None and not serve.container.host_network:
        return _published(serve.container)
    # Without --host vLLM listens everywhere.
    return host.line if host is not None else serve.line if serve.is_whole else None


def _published(container: Container) -> int | None:
    for port in container.published:
        address = port.text.rpartition(":")[0].rpartition(":")[0].strip("[]")
        if not _is_local(address):
            return port.line
    return None


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _architectures(subject: Subject) -> Iterator[Found]:
    one = subject.script.setting("FLASHINFER_CUDA_ARCH_LIST")
    if one is not None and not one.value.startswith("$"):
        capability = subject.target.capability if subject.target is not None else None
        yield from rules.architectures(one.value, capability, subject.flashinfer, one.line)


def _jobs(subject: Subject) -> Iterator[Found]:
    one = subject.script.setting("MAX_JOBS")
    if one is None or one.value.startswith("$"):
        return
    if subject.target is not None:
        free, memory = subject.target.available, subject.target.memory
        yield from rules.jobs(one.value, free or memory, 0, one.line, has="are free" if free else "are there at all")
    elif one.value.isdigit() and int(one.value) > rules.MOST_JOBS:
        yield note(
            f"MAX_JOBS={one.value} may take {int(one.value) * 5}-{int(one.value) * 10} GB: a CUTLASS kernel takes 5-10 GB to compile",
            f"MAX_JOBS={rules.MOST_JOBS}, or less",
            one.line,
        )


CHECKS: tuple[Check[Subject], ...] = (
    Check("serves", "it says how to serve", _serves),
    Check("variables", "something reads each of its variables", _variables),
    Check("flags", "`vllm serve` has all of its flags", _flags),
    Check("eager", "CUDA graphs are on", _eager),
    Check("reasoning-parser", "the reasoning parser is the model's", _parser),
    Check("caches-deleted", "it deletes no caches", _deleted),
    Check("caches-kept", "caches outlive the containers", _kept),
    Check("memory", "enough memory is left", _memory),
    Check("privileged", "no container is privileged", _privileged),
    Check("exposed", "only this machine can ask the server, or a key is wanted", _exposed),
    Check("architectures", "FLASHINFER_CUDA_ARCH_LIST is right, or not set", _architectures),
    Check("jobs", "MAX_JOBS fits the memory, or is not set", _jobs),
)

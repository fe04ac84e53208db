# SPDX-License-Identifier: Apache-2.0
"""Check a serve script or a compose file."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from stack.deploy import hardware, older_settings
from stack.deploy.older_settings import Replacement
from stack.deploy.removed_settings import for_shell
from stack.doctor import images, rules, yardstick
from stack.doctor.finding import KEPT, Check, Edit, Finding, Found, Severity, note, run, unknown, wrong
from stack.doctor.knowledge import load, settings
from stack.doctor.knowledge.rule import Origin, Rule, of_capability
from stack.doctor.knowledge.values import whole
from stack.doctor.rules import Target
from stack.doctor.script import Container, Flag, Script, Serve
from stack.doctor.yardstick import Measure
from stack.model.pins import FILE
from stack.projects import Unknown
from stack.projects import known as projects

_CACHES = re.compile(
    r"(?:\.cache(?:/(?:\*|flashinfer|vllm|torch|triton|\{)|/?$)|\.triton|torchinductor|flashinfer|torch_compile_cache)"
)
_FORCED = re.compile(r"-\w*[rR]\w*|--recursive")
_NO_GRAPHS = re.compile(r"""cudagraph_mode["']?\s*[:=]\s*["']?NONE""")
_HARMONY = "openai_gptoss"
_MARLIN = "--moe-backend=marlin"
_SM90_ONLY = "--moe-backend=flashinfer_cutlass"
"""In upstream's releases, for MXFP4 experts: its BF16 variant."""
_OTHER_DEVICES = re.compile(r"rocm|cpu|xpu|tpu|hpu|gaudi|neuron|ascend", re.IGNORECASE)
_EMPTY = re.compile(r"|\$\{\w+:?-\}")


@dataclass(frozen=True, slots=True)
class ScriptSubject:
    """A script, its names that the pinned sources do not know (None without sources), and the machine that it is for, if known.

    `flashinfer`: its pinned version. `pinned`: the upstreams whose sources were searched. `rules`: those about scripts count. `values`:
    flags with a value that the pinned sources do not know. `measures`: what each command is measured by. `to_have_sources`: how the
    user gets the sources where `unknown` is None.
    """

    script: Script
    unknown: Mapping[str, Unknown] | None
    target: Target | None = None
    flashinfer: str | None = None
    pinned: frozenset[str] = field(default_factory=lambda: frozenset(owner.upstream for owner in projects.owners()))
    rules: tuple[Rule, ...] = field(default_factory=load.builtin)
    values: Mapping[tuple[str, str], Unknown] = field(default_factory=dict)
    measures: tuple[Measure | None, ...] = ()
    to_have_sources: str = "stack fetch"

    @property
    def machine(self) -> Target | None:
        """The machine that the script is for: the one that is named, else a DGX Spark if the script names what only that has."""
        if self.target is not None or not self.script.is_spark:
            return self.target
        profile = hardware.load("spark")
        return Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)

    @property
    def hardware(self) -> frozenset[str] | None:
        """Names of the machine's hardware, for rules; several ranks on one node mean a machine with GPUs of their own."""
        if self.machine is not None:
            return of_capability(self.machine.capability, unified=self.machine.unified)
        return frozenset({"discrete"}) if any(map(_has_several_gpus, self.script.serves)) else None


def outside(subject: ScriptSubject) -> ScriptSubject:
    """Return the same script as it is judged outside of a stack, where nothing is pinned."""
    everything = frozenset(owner.upstream for owner in projects.owners())
    return replace(
        subject,
        unknown=None,
        pinned=everything,
        to_have_sources="run it in a clone of a stack, or name one: stack --root DIR doctor",
    )


def names(script: Script) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """List the variables of upstreams, and the flags of `vllm serve`, in a script."""
    prefixes = tuple(owner.prefix for owner in projects.owners())
    variables = {each.name: None for each in script.settings if each.exported and each.name.startswith(prefixes)}
    flags = {flag.name: None for serve in script.serves for flag in serve.flags}
    return tuple(variables), tuple(flags)


def look(subject: ScriptSubject) -> Iterator[Finding]:
    """Run the checks on a script. If nothing in it was recognized, leave out the checks that found nothing."""
    known = subject.script.serves or (subject.script.settings and not subject.script.others)
    found = run(CHECKS, subject, subject.script.path)
    return (finding for finding in found if known or finding.severity is not Severity.FINE)


def _serves(subject: ScriptSubject) -> Iterator[Found]:
    for server, line in subject.script.others:
        yield unknown(f"it serves with {server}, which is not judged here", line=line)
    for serve in subject.script.serves:
        if serve.is_repeated:
            yield wrong(
                f"the image starts `vllm serve` itself, and its command says so again: vLLM takes `{serve.repeated.split()[0]}` for the "
                "model and refuses the rest",
                f"leave `{serve.repeated}` out of the command, or replace the entry point (docker run --entrypoint, compose: entrypoint, "
                "Kubernetes: command)",
                serve.line,
            )
    if subject.script.serves:
        return
    for file, line in subject.script.built:
        yield unknown(
            f"what the container starts stands in {file}, from which its image is built", f"--script {file}, too", line
        )
    if not subject.script.others and not subject.script.built and not _is_environment(subject.script):
        yield unknown("no `vllm serve` was found in it", "name the file that starts the server")


def _images(subject: ScriptSubject) -> Iterator[Found]:
    for container in subject.script.containers:
        if container.image is not None:
            yield from images.check(container.image)


def _is_environment(script: Script) -> bool:
    """Tell whether a file only sets variables, or builds an image: then another file starts the server."""
    only_sets = all(
        all("=" in word.text or word.text in ("export", "set", "-a") for word in command) for command in script.commands
    )
    return bool(script.settings) and (only_sets or bool(re.search(r"(Dockerfile|Containerfile|\.env)", script.path)))


def values(script: Script) -> tuple[tuple[str, str], ...]:
    """List the flags of `vllm serve` with a value, in a script."""
    given = [(settings.flag_names(flag), flag.value) for serve in script.serves for flag in serve.flags]
    return tuple(dict.fromkeys((name, value) for name, value in given if value and not value.startswith("$")))


def _has_several_gpus(serve: Serve) -> bool:
    """Tell whether a command uses several GPUs of one machine."""
    ranks = [
        flag.value for flag in serve.flags if settings.flag_names(flag) in ("--tensor-parallel-size", "--data-parallel-size")
    ]
    ray = serve.flag("--distributed-executor-backend")
    return (
        any((whole(value) or 0) > 1 for value in ranks)
        and not settings.several_nodes(serve)
        and (ray is None or ray.value != "ray")
    )


def _variables(subject: ScriptSubject) -> Iterator[Found]:
    wanted, _ = names(subject.script)
    for setting in subject.script.settings:
        if setting.name not in wanted or not setting.exported:
            continue
        if gone := older_settings.find(setting.name, setting.value):
            edits = _instead(subject, setting.name, setting.line, gone)
            yield wrong(
                f"{setting.name} is read by nothing: {gone.when}",
                f"take it out{_successor(subject, gone)}",
                setting.line,
                edits,
            )
        elif subject.unknown is not None and (lost := subject.unknown.get(setting.name)):
            fix = f"write {lost.near}, or take it out" if lost.near else "take it out"
            edits = (Edit(setting.line, setting.name, f"{lost.near}={setting.value}" if lost.near else ""),)
            yield wrong(f"{setting.name} is read by nothing at the pins: {_hint(lost)}", fix, setting.line, edits)
    if subject.unknown is None and wanted:
        yield unknown("whether anything reads its variables: the pinned sources cannot be had", subject.to_have_sources)
    lacking = {
        owner.upstream
        for owner in projects.owners()
        if owner.upstream not in subject.pinned and any(name.startswith(owner.prefix) for name in wanted)
    }
    for owner in sorted(lacking):
        yield unknown(f"whether anything reads its variables of {owner}, which is not pinned", f"pin {owner} in {FILE}")


def _flags(subject: ScriptSubject) -> Iterator[Found]:
    flags = [flag for serve in subject.script.serves for flag in serve.flags]
    for flag in flags:
        pair = (settings.flag_names(flag), flag.value or "")
        if (words := flag.name.split(None, 1)) and len(words) > 1:
            yield wrong(
                f"`vllm serve` gets {flag.name!r:.60} as one word, as written in a list, and does not know it",
                f"write two items, or {words[0]}={words[1]}",
                flag.line,
            )
        elif gone := older_settings.find(flag.name, flag.value):
            edits = _instead(subject, flag.name, flag.line, gone)
            successor = _successor(subject, gone)
            fix = successor.removeprefix("; ") if gone.by and not _is_given(subject, gone) else f"take it out{successor}"
            yield wrong(f"{flag.name}: `vllm serve` does not start with it, {gone.when}", fix, flag.line, edits)
        elif subject.unknown is not None and (lost := subject.unknown.get(flag.name)):
            fix = f"write {lost.near}, or take it out" if lost.near else "take it out"
            edits = (Edit(flag.line, flag.name, f"{lost.near} {flag.value or ''}".strip() if lost.near else ""),)
            yield wrong(
                f"`vllm serve` has no flag {flag.name} at the pins, it does not start: {_hint(lost)}", fix, flag.line, edits
            )
        elif (odd := subject.values.get(pair)) and not odd.is_certain:
            yield note(odd.problem, "", flag.line)
        elif odd:
            fix = f"{flag.name} {odd.near}" if odd.near else "write a value that it takes, or leave the flag out"
            yield wrong(f"`vllm serve` does not start: {odd.problem}", fix, flag.line)
    if subject.unknown is None and flags:
        yield unknown("whether `vllm serve` has its flags: the pinned sources cannot be had", subject.to_have_sources)
    if flags and "vllm" not in subject.pinned:
        yield unknown("whether `vllm serve` has its flags: vllm is not pinned", f"pin vllm in {FILE}")


def _successor(subject: ScriptSubject, gone: Replacement) -> str:
    """Return the advice about what replaces a setting: of its alternatives, those that run on the machine, if none is given yet."""
    if _is_given(subject, gone):
        return f"; {gone.by[0].partition('=')[0]} is given already"
    runs = _that_run(subject, gone)
    if runs == gone.by:
        return f"; {gone.advice}"
    names = " and ".join(dict.fromkeys(_maker(each) for each in gone.by if each not in runs))
    return f"; use {' or '.join(map(for_shell, runs))} ({names} kernels do not run on SM12x)"


def _maker(argument: str) -> str:
    return "TRTLLM's" if "trtllm" in argument else "CUTLASS's BF16"


def _that_run(subject: ScriptSubject, gone: Replacement) -> tuple[str, ...]:
    """Return the replacements that run on the machine; without a known machine, all of them.

    On SM12x, `flashinfer_cutlass` starts gpt-oss with the series mxfp4-moe only, and Marlin with every release.
    """
    hardware = subject.hardware
    if hardware is None or "sm12x" not in hardware:
        return gone.by
    is_harmony = any(map(_is_gpt_oss, subject.script.serves))
    runs = [each for each in gone.by if "trtllm" not in each and not (is_harmony and each == _SM90_ONLY)]
    return gone.by if len(runs) == len(gone.by) else tuple(runs) or (_MARLIN,)


def _instead(subject: ScriptSubject, name: str, line: int, gone: Replacement) -> tuple[Edit, ...]:
    """Return the edit that takes a setting out, with the flag in its place that does the same, if a command has room for one."""
    by = next(iter(_that_run(subject, gone)), "")
    if name.startswith("-"):
        new = by.replace("=", " ", 1)
        if new and "=" not in by:
            value = next((flag.value for flag in _every_flag(subject) if flag.name == name and flag.line == line), None)
            new = f"{new} {value or ''}".strip()
        return (Edit(line, name, "" if _is_given(subject, gone) else new),)
    edits = [Edit(line, name)]
    if by and len(subject.script.serves) == 1 and not _is_given(subject, gone):
        edits += _appended(subject.script.serves[0], by.replace("=", " ", 1))
    return tuple(edits)


def _is_given(subject: ScriptSubject, gone: Replacement) -> bool:
    """Tell whether a replacement's flag is given already."""
    names = {argument.partition("=")[0] for argument in gone.by}
    return any(settings.flag_names(flag) in names for flag in _every_flag(subject))


def _appended(serve: Serve, text: str) -> tuple[Edit, ...]:
    """Return the edit that adds a flag behind the last one of a command."""
    last = serve.flags[-1] if serve.flags else None
    return (Edit(last.line, last.name, f"{KEPT} {text}"),) if last is not None else ()


def _hint(lost: Unknown) -> str:
    return f"the nearest is {lost.near}" if lost.near else "it has no similar name"


def _eager(subject: ScriptSubject) -> Iterator[Found]:
    if any(setting.name.startswith("VLLM_CPU_") for setting in subject.script.settings):
        return  # CPUs have no CUDA graphs
    is_harmony = any(_is_gpt_oss(serve) for serve in subject.script.serves)
    cost = rules.EAGER_COST if is_harmony else "each token takes longer"
    for flag in _every_flag(subject):
        if flag.name in ("--enforce-eager", "-enforce-eager") and (flag.value or "").lower() != "false":
            what = f"--enforce-eager turns CUDA graphs and torch.compile off: {cost}"
            yield wrong(what, "take it out", flag.line, (Edit(flag.line, flag.name),))
        elif flag.name == "-O0" or (flag.name in ("-O", "--optimization-level") and flag.value == "0"):
            what = "optimization level 0 turns CUDA graphs and torch.compile off"
            yield wrong(what, "take it out", flag.line, (Edit(flag.line, flag.name),))
        elif _NO_GRAPHS.search(f"{flag.name}={flag.value}"):
            yield wrong(f"{flag.name} turns CUDA graphs off", "take cudagraph_mode out of it", flag.line)


def _every_flag(subject: ScriptSubject) -> Iterator[Flag]:
    for serve in subject.script.serves:
        yield from serve.flags


def _parser(subject: ScriptSubject) -> Iterator[Found]:
    for serve in subject.script.serves:
        flag = serve.flag("--reasoning-parser")
        if flag is None or flag.value is None or serve.model is None:
            continue
        is_harmony = _is_gpt_oss(serve)
        if is_harmony and flag.value != _HARMONY:
            yield wrong(
                f"--reasoning-parser {flag.value} is not gpt-oss's: all of an answer goes to `reasoning`, `content` stays null, or vLLM "
                "refuses (harmony requires its own)",
                f"--reasoning-parser {_HARMONY}, or none: vLLM chooses it for gpt-oss",
                flag.line,
                (Edit(flag.line, flag.name, f"--reasoning-parser {_HARMONY}"),),
            )
        elif (
            not is_harmony
            and flag.value == _HARMONY
            and "/" in serve.model
            and not serve.model.startswith(("/", "$", ".", "~"))
        ):
            yield wrong(
                f"--reasoning-parser {_HARMONY} reads harmony, which {serve.model} does not write: every answer is an error",
                "take it out, or name the parser of that model",
                flag.line,
            )


def _is_gpt_oss(serve: Serve) -> bool:
    names = [serve.model, *(flag.value for flag in serve.flags if flag.name == "--served-model-name")]
    return any(name is not None and re.search(r"gpt-?oss", name, re.IGNORECASE) for name in names)


def _deleted(subject: ScriptSubject) -> Iterator[Found]:
    for command in subject.script.commands:
        place = next((at for at, word in enumerate(command) if word.text.rpartition("/")[2] in ("rm", "find")), None)
        if place is None:
            continue
        words = command[place:]
        forced = any(_FORCED.fullmatch(word.text) or word.text == "-delete" for word in words)
        found = next((word for word in words[1:] if _CACHES.search(word.text) and not word.text.startswith("-")), None)
        if forced and found is not None:
            yield wrong(
                f"{found.text} is deleted at each start: kernels are compiled again ({rules.COMPILED}), and torch.compile starts over",
                "take it out; where a kernel was patched, `stack doctor` names the modules that changed",
                found.line,
                (Edit(found.line, ""),),
            )


def _gpus(subject: ScriptSubject) -> Iterator[Found]:
    for serve in subject.script.serves:
        container = serve.container
        image = container.image.text if container is not None and container.image is not None else ""
        if container is not None and container.lacks_gpu and not _OTHER_DEVICES.search(image):
            yield note(
                "the service names no GPU: unless Docker gives every container one, vLLM finds none and does not start",
                "compose: gpus: all, or deploy.resources.reservations.devices with `capabilities: [gpu]`",
                container.line,
            )


def _kept(subject: ScriptSubject) -> Iterator[Found]:
    for serve in subject.script.serves:
        container = serve.container
        if container is not None and container.is_started and not any(map(_holds_cache, container.volumes)):
            yield note(
                "the container has no volume for ~/.cache: what FlashInfer and torch.compile make is gone with it",
                "mount a volume at /root/.cache",
                container.line,
            )


def _shared(subject: ScriptSubject) -> Iterator[Found]:
    unified = subject.machine is not None and subject.machine.unified
    for serve in subject.script.serves:
        container = serve.container
        if container is None or not container.is_started or container.shared:
            continue
        several = _has_several_gpus(serve) or settings.several_nodes(serve)
        if several or unified:
            why = "several ranks exchange data there" if several else "NVIDIA's own lines for a DGX Spark share the host's"
            yield note(
                f"the container has 64 MB of /dev/shm: {why}",
                "docker run --ipc=host, or --shm-size=16g (compose: ipc: host; Kubernetes: an emptyDir with medium Memory)",
                container.line,
            )


def _rules(subject: ScriptSubject) -> Iterator[Found]:
    for fit in settings.fits(subject.rules, subject.script, subject.hardware):
        rule = fit.rule
        own = f" (a rule of {rule.file}{_writes(rule)})" if rule.origin is not Origin.PACKAGE else ""
        name = f"{fit.given.name}: " if fit.given is not None and fit.given.name not in rule.title else ""
        what = f"{name}{rule.title}; {rule.means}{own}"
        edits = _mended(fit)
        yield Found(rule.severity, what, rule.fix, fit.line, rule.id, str(rule.sure), (), rule.evidence, edits)


def _writes(rule: Rule) -> str:
    """Say what `--fix` writes by a rule: the sentences of a stranger's rule need not say it."""
    wanted = rule.settings
    if wanted is None:
        return ""
    new = [f"writes {text:.100}" for text in (*wanted.replace, *wanted.append)]
    done = (*new, *(f"takes out {name:.100}" for name in wanted.remove))
    return f"; --fix {', '.join(done)}" if done else ""


def _mended(fit: settings.Fit) -> tuple[Edit, ...]:
    """Return the edits that a rule names."""
    wanted = fit.rule.settings
    edits: list[Edit] = []
    for text in wanted.replace if wanted is not None else ():
        name = text.partition(" ")[0].partition("=")[0]
        edits += [Edit(flag.line, flag.name, text) for flag in fit.serve.flags if settings.flag_names(flag) == name]
    for name in wanted.remove if wanted is not None else ():
        edits += [Edit(flag.line, flag.name) for flag in fit.serve.flags if settings.flag_names(flag) == name]
        if fit.given is not None and fit.given.name == name and not name.startswith("-"):
            edits.append(Edit(fit.line, name))
    for text in wanted.append if wanted is not None else ():
        edits += _appended(fit.serve, text)
    return tuple(edits)


def _holds_cache(mounted: str) -> bool:
    return re.search(r"/\.cache/?$|^/(root|home/\w+)/?$|flashinfer|^/$", mounted.rstrip("/") or "/") is not None


def _memory(subject: ScriptSubject) -> Iterator[Found]:
    target = subject.machine
    if target is not None and target.unified:
        yield from _together(subject)
    for serve in subject.script.serves:
        flag = serve.flag("--gpu-memory-utilization", "--gpu-mem-util")
        if serve.flag("--kv-cache-memory-bytes", "--kv-cache-memory") or (flag is None and not serve.is_whole):
            continue  # then the share has no effect, or may be set elsewhere
        share = _share(flag)
        line = flag.line if flag is not None else serve.line
        if share is None:
            assert flag is not None
            yield unknown(f"--gpu-memory-utilization {flag.value}: what it will be", "write the number there")
        elif target is not None and target.unified:
            for found in rules.utilization(share, target.memory, target.available, line):
                value = found.fix.removeprefix("--gpu-memory-utilization ")
                mends = flag is not None and value != found.fix
                yield replace(found, edits=(Edit(line, flag.name, f"{flag.name} {value}"),)) if mends and flag else found
        elif target is None and flag is not None and share > rules.DEFAULT and not _has_several_gpus(serve):
            yield note(
                f"--gpu-memory-utilization {share:g} is too high where CPU and GPU share the memory, as on a DGX Spark",
                f"say for which machine it is with --recipe, or write {rules.UNIFIED:g} there",
                line,
            )


def _together(subject: ScriptSubject) -> Iterator[Found]:
    """Check the servers of a file that run at once: each at a port of its own, and no branch chooses among them."""
    if subject.script.has_branches:
        return
    shares = dict[str, tuple[float, int]]()
    for at, serve in enumerate(subject.script.serves):
        flag = serve.flag("--gpu-memory-utilization", "--gpu-mem-util")
        share, port = _share(flag), _port(serve)
        is_last = at == len(subject.script.serves) - 1
        if serve.flag("--kv-cache-memory-bytes", "--kv-cache-memory") or not serve.is_whole or settings.several_nodes(serve):
            continue
        if share is None or port is None or port in shares or not (serve.is_beside or is_last):
            continue
        shares[port] = share, flag.line if flag is not None else serve.line
    total = sum(share for share, _ in shares.values())
    if len(shares) > 1 and total > 1:
        lines = [line for _, line in shares.values()]
        yield wrong(
            f"{len(shares)} servers want {' + '.join(f'{share:g}' for share, _ in shares.values())} of one memory "
            f"(lines {', '.join(map(str, lines))}): the last one does not start",
            f"write shares of at most {rules.UNIFIED:g} together, or start one after the other has ended",
            lines[-1],
        )


def _port(serve: Serve) -> str | None:
    """Return the port at which clients ask a server; None if the file does not say it."""
    flag = serve.flag("--port")
    if serve.container is not None and not serve.container.host_network:
        found = [port.text.rpartition(":")[0].rpartition(":")[2] for port in serve.container.published]
        return found[0] if len(found) == 1 and found[0].isdigit() else None
    port = flag.value if flag is not None else "8000"
    return port if port is not None and port.isdigit() else None


def _share(flag: Flag | None) -> float | None:
    if flag is None:
        return rules.DEFAULT
    try:
        return float(flag.value or "")
    except ValueError:
        return None


def _measured(subject: ScriptSubject) -> Iterator[Found]:
    fits = settings.fits(subject.rules, subject.script, subject.hardware)
    told = {
        flag.name for fit in fits for flag in (fit.given,) if isinstance(flag, Flag) and fit.rule.severity is Severity.WRONG
    }
    for serve, measure in zip(subject.script.serves, subject.measures, strict=False):
        if measure is not None:
            yield from yardstick.look(serve, measure, frozenset(told))


def _privileged(subject: ScriptSubject) -> Iterator[Found]:
    for container in subject.script.containers:
        if container.privileged is not None:
            yield wrong(
                "a privileged container has the whole machine, and a GPU needs no such thing",
                "take it out; docker run --gpus all, or a reservation of devices in a compose file",
                container.privileged,
            )


def _exposed(subject: ScriptSubject) -> Iterator[Found]:
    has_key = any(setting.name == "VLLM_API_KEY" and not _EMPTY.fullmatch(setting.value) for setting in subject.script.settings)
    for serve in subject.script.serves:
        key = serve.flag("--api-key")
        if key is not None and key.value and not key.value.startswith("$"):
            yield note(
                "--api-key is seen by everyone who lists processes, and in this file",
                "set VLLM_API_KEY in the environment",
                key.line,
            )
        line = _open_line(serve)
        host = serve.flag("--host")
        edits = (Edit(host.line, "--host", "--host 127.0.0.1"),) if host is not None and host.line == line else ()
        if line is not None and not has_key and key is None and subject.script.sources:
            yield unknown(
                f"whether clients in the network need a key: VLLM_API_KEY may stand in {subject.script.sources[0]}",
                "see that it does, or --host 127.0.0.1 (in a container: publish 127.0.0.1:8000:8000)",
                line,
            )
        elif line is not None and not has_key and key is None:
            yield wrong(
                "everyone on the network can ask the server: it listens on all interfaces and wants no key",
                "--host 127.0.0.1 (in a container: publish 127.0.0.1:8000:8000), or set VLLM_API_KEY",
                line,
                edits,
            )


def _open_line(serve: Serve) -> int | None:
    """Return the line that opens the server to the network; None if there is none."""
    host = serve.flag("--host")
    if serve.flag("--uds", "--headless"):
        return None
    if host is not None and host.value is not None and _is_local(host.value):
        return None
    if serve.container is not None and not serve.container.host_network:
        return _published(serve.container)
    # By default vLLM listens on all interfaces.
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


def _architectures(subject: ScriptSubject) -> Iterator[Found]:
    setting = subject.script.setting("FLASHINFER_CUDA_ARCH_LIST")
    if setting is not None and not setting.value.startswith("$"):
        capability = subject.machine.capability if subject.machine is not None else None
        for found in rules.architectures(setting.value, capability, subject.flashinfer, setting.line):
            mends = found.fix.startswith("FLASHINFER_CUDA_ARCH_LIST=") and " " not in found.fix
            yield replace(found, edits=(Edit(setting.line, setting.name, found.fix),)) if mends else found


def _jobs(subject: ScriptSubject) -> Iterator[Found]:
    setting = subject.script.setting("MAX_JOBS")
    if setting is None or setting.value.startswith("$"):
        return
    if subject.machine is not None:
        free, memory = subject.machine.available, subject.machine.memory
        yield from rules.jobs(setting.value, free or memory, 0, setting.line, has="are free" if free else "are there at all")
    elif (count := whole(setting.value) or 0) > rules.MOST_JOBS:
        yield note(
            f"MAX_JOBS={count} may take {count * 5}-{count * 10} GB: a CUTLASS kernel takes 5-10 GB to compile",
            rules.jobs_advice(),
            setting.line,
        )


CHECKS: tuple[Check[ScriptSubject], ...] = (
    Check("serves", "it says how to serve", _serves),
    Check("image", "images have names that Docker accepts, or none are named", _images),
    Check("variables", "something reads each of its variables", _variables),
    Check("flags", "`vllm serve` has all of its flags", _flags),
    Check("eager", "CUDA graphs are on", _eager),
    Check("reasoning-parser", "the reasoning parser is the model's", _parser),
    Check("caches-deleted", "it deletes no caches", _deleted),
    Check("gpu", "its services have GPUs, or it has none", _gpus),
    Check("caches-kept", "caches outlive the containers", _kept),
    Check("shared-memory", "the container has enough of /dev/shm, or there is none", _shared),
    Check("memory", "enough memory is left", _memory),
    Check("machine", "nothing in it cannot work on the machine, or none is known", _measured),
    Check("privileged", "no container is privileged", _privileged),
    Check("exposed", "only this machine can ask the server, or a key is wanted", _exposed),
    Check("architectures", "FLASHINFER_CUDA_ARCH_LIST is right, or not set", _architectures),
    Check("jobs", "MAX_JOBS fits the memory, or is not set", _jobs),
    Check("settings", "no rule about settings fits", _rules),
)

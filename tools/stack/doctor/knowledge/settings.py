# SPDX-License-Identifier: Apache-2.0
"""Match rules with the commands that serve in a script."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stack.doctor.knowledge import values
from stack.doctor.knowledge.rule import Condition, Rule, is_like
from stack.doctor.script import Flag, Script, Serve, Setting

_ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-ac": "--attention-config",
    "--gpu-mem-util": "--gpu-memory-utilization",
}
"""Short forms of flags (vllm/engine/arg_utils.py, 0.32)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A rule that fits a command, and the flag or variable that makes it fit; None if it fits for what is missing."""

    rule: Rule
    serve: Serve
    given: Flag | Setting | None

    @property
    def line(self) -> int:
        """The line that it is about."""
        return self.given.line if self.given is not None else self.serve.line


def fits(rules: Iterable[Rule], script: Script, hardware: frozenset[str] | None) -> Iterator[Fit]:
    """Yield the rules that fit the commands of a script.

    A rule for certain hardware fits only if the hardware is known; a rule about what is missing only if the file has all flags.
    """
    for serve in script.serves:
        for rule in rules:
            if rule.settings is None or not _is_on(rule, hardware) or not _is_about(rule, serve):
                continue
            fit = _fit(rule, serve, script)
            if fit is not None:
                yield fit


def flag_names(flag: Flag) -> str:
    """Return a flag's long name."""
    return _ALIASES.get(flag.name, flag.name)


def several_nodes(serve: Serve) -> bool:
    """Tell whether a command serves on several nodes."""
    nodes = _value(serve, "--nnodes")
    return (nodes is not None and (values.number(nodes) or 0) > 1) or _value(serve, "--node-rank") is not None


def is_first_node(serve: Serve) -> bool | None:
    """Tell whether a command is that of the first node; None if its rank is only known when it starts."""
    rank = _value(serve, "--node-rank")
    if rank is None:
        return True
    number = values.whole(rank)
    return number == 0 if number is not None else None


def _is_on(rule: Rule, hardware: frozenset[str] | None) -> bool:
    return not rule.hardware or (hardware is not None and rule.is_on(hardware))


def _is_about(rule: Rule, serve: Serve) -> bool:
    if rule.when.model is None:
        return True
    names = [serve.model, *(flag.value for flag in serve.flags if flag.name == "--served-model-name")]
    if rule.when.model.startswith("!"):
        # A folder's name, or one given to clients, does not say which model is in it.
        known = [name for name in names if name]
        return (
            bool(serve.model)
            and re.fullmatch(r"[\w.-]+/[\w.-]+", serve.model or "") is not None
            and all(is_like(name, rule.when.model) for name in known)
        )
    return any(is_like(name, rule.when.model) for name in names)


def _fit(rule: Rule, serve: Serve, script: Script) -> Fit | None:
    wanted = rule.settings
    assert wanted is not None
    flags = {flag_names(flag): flag for flag in serve.flags}
    variables = {setting.name: setting for setting in script.settings}
    if wanted.several_nodes is not None and wanted.several_nodes is not several_nodes(serve):
        return None
    if wanted.rank is not None and is_first_node(serve) is not (wanted.rank == "first"):
        return None
    if any(name in flags or name in variables for name in wanted.absent) or (wanted.absent and not serve.is_whole):
        return None
    if wanted.absent and script.sources and any(not name.startswith("-") for name in wanted.absent):
        return None  # a variable may be set in a file that the script loads
    given_flags = {name: flag.value if flag.value is not None else "true" for name, flag in flags.items()}
    if not _all(wanted.flags, given_flags) or not _all(
        wanted.variables, {name: each.value for name, each in variables.items()}
    ):
        return None
    first = [flags[condition.name] for condition in wanted.flags] + [
        variables[condition.name] for condition in wanted.variables
    ]
    return Fit(rule, serve, first[0] if first else None)


def _all(conditions: Iterable[Condition], given: Mapping[str, str]) -> bool:
    return all(_is_known(given.get(condition.name)) and values.holds(condition, given) for condition in conditions)


def _is_known(value: str | None) -> bool:
    """Tell whether a value stands in the file; one that is a variable or a placeholder does not."""
    return value is not None and not value.startswith(("$", "{{"))


def _value(serve: Serve, name: str) -> str | None:
    return next((flag.value for flag in reversed(serve.flags) if flag_names(flag) == name), None)

# SPDX-License-Identifier: Apache-2.0
"""Choose a rule's advice for a server: what its log shows to be set already is not advised."""

import re
from collections.abc import Iterable, Mapping

from stack.deploy.vllm_log import Line, Reading
from stack.doctor.knowledge.rule import Rule

_READ = 20_000
"""Characters of a line with arguments that are read."""
# entrypoints/utils.py; until 0.10 all arguments are in a line.
_NON_DEFAULT, _NAMESPACE = "non-default args: {", "args: Namespace("
_ARGUMENT = re.compile(r"'?\b([a-z][a-z0-9_]{1,60})'?(?:: |=)(?:'([^']{0,400})'|([\w.+-]{1,60}))(?=[,})])")
_FLAG = re.compile(r"(--[a-z][a-z0-9-]{1,60})(?:[ =]([a-zA-Z0-9][\w.+-]{0,60}))?(?![\w-])")
_RAISE = re.compile(r"raise --([a-z][a-z0-9-]{1,60}) \([^()]{0,60}?(\d{1,9}(?:\.\d{1,9})?) at most\)")
_ALONE = re.compile(r"(?:add |use |set |take |with )?(--[a-z][a-z0-9-]{1,60})")


def given(lines: Iterable[Line], reading: Reading) -> Mapping[str, str]:
    """Return the settings that a log names: arguments by their names with hyphens, and the type of the KV cache."""
    found = dict[str, str]()
    for line in lines:
        if names_arguments(line):
            found |= {name.replace("_", "-"): text or word for name, text, word in _ARGUMENT.findall(line.text[:_READ])}
    if reading.cache.kind is not None:
        found["kv-cache-dtype"] = reading.cache.kind
    return found


def names_arguments(line: Line) -> bool:
    """Tell whether a line names the server's arguments."""
    return _NON_DEFAULT in line.text or _NAMESPACE in line.text


def advice(rule: Rule, settings: Mapping[str, str]) -> str:
    """Return what to do, without the ways that are set already or at their bound; all of them if nothing else is left."""
    left = [way for way in rule.ways if not (_is_set(way, settings) or _is_at_bound(way, settings))]
    return "; or ".join(left or rule.ways)


def _is_set(way: str, settings: Mapping[str, str]) -> bool:
    """Tell whether a way consists of flags that are given, with their values or more precise ones (`fp8_e4m3` for `fp8`)."""
    alone = _ALONE.fullmatch(way)
    if alone is not None:
        return settings.get(alone[1].removeprefix("--")) == "True"
    named = [(flag.removeprefix("--"), value) for flag, value in _FLAG.findall(way) if value]
    return bool(named) and all(_is_like(settings.get(name), value) for name, value in named)


def _is_at_bound(way: str, settings: Mapping[str, str]) -> bool:
    """Tell whether a way raises a flag that has the value already up to which the way raises it, or a higher one."""
    found = _RAISE.match(way)
    try:
        return found is not None and float(settings.get(found[1], "nan")) >= float(found[2])
    except ValueError:
        return False


def _is_like(has: str | None, wanted: str) -> bool:
    return has is not None and (has.lower() == wanted.lower() or has.lower().startswith(f"{wanted.lower()}_"))

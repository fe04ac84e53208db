# SPDX-License-Identifier: Apache-2.0
"""Load rules from TOML files: those of the package, of a stack (`doctor/rules/`), and of the user's configuration folder.

Rules are data only. The rules of a stack came with a checkout: files are bounded in size and number, and no link is followed.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs
from packaging.version import InvalidVersion, Version

from stack.base import files, pattern
from stack.base.errors import StackError
from stack.base.pattern import Pattern
from stack.deploy import import_rules
from stack.doctor.finding import Edit, Severity
from stack.doctor.knowledge.rule import HARDWARE, Condition, Origin, Rule, Settings, Sure, When
from stack.model import document
from stack.model.document import Table

FOLDER = Path(__file__).with_name("rules")
BELOW = "doctor/rules"
"""The folder of a stack's rules, and of the user's below the configuration folder."""
_LARGEST, _FILES, _RULES = 2**18, 64, 2000
_TEXT = 1200
_WINDOW = 60
_ID = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_EVIDENCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|[\w./ ,:()*-]{3,200}")
_CONDITION = re.compile(r"([\w.-]+)(?:\s*(=|!=|>=|<=|>|<)\s*(.+))?")


@functools.cache
def builtin() -> tuple[Rule, ...]:
    """Load the package's rules."""
    return tuple(_unique(_folder(FOLDER, Origin.PACKAGE)))


def load(root: Path | None) -> tuple[Rule, ...]:
    """Load the package's rules, the user's, and those of the stack in `root`.

    Raises:
        StackError: a rule is invalid, or an id is used twice.

    """
    own = Path(platformdirs.user_config_dir("stack")) / BELOW
    found = [*builtin(), *_folder(own, Origin.USER)]
    if root is not None:
        found += _folder(root / BELOW, Origin.STACK)
    return tuple(_unique(found))


def _unique(found: Iterable[Rule]) -> Iterator[Rule]:
    seen = dict[str, Rule]()
    for rule in found:
        if rule.id in seen:
            raise StackError(f"{rule.file}: the rule {rule.id} is in {seen[rule.id].file}, too", "give it another id")
        seen[rule.id] = rule
        yield rule


def _folder(folder: Path, origin: Origin) -> Iterator[Rule]:
    if not folder.is_dir():
        return
    files.check_tree(folder)
    named = sorted(folder.glob("*.toml"))
    if len(named) > _FILES:
        raise StackError(f"{folder} has more than {_FILES} files", "put several rules into one file")
    for file in named:
        yield from read(file, origin)


def read(file: Path, origin: Origin) -> Iterator[Rule]:
    """Read the rules of one file.

    Raises:
        StackError: it is not a file of rules, or one of them is invalid.

    """
    return of(document.load(file, largest=_LARGEST), origin, file)


def of(table: Table, origin: Origin, file: Path) -> Iterator[Rule]:
    """Read the rules of a table, which is the content of a file.

    Raises:
        StackError: it has other things, or one of the rules is invalid.

    """
    entries = table.tables("rule")
    table.finish()
    if len(entries) > _RULES:
        raise StackError(f"{file} has more than {_RULES} rules", "remove some")
    return (_rule(entry, origin, str(file) if origin is not Origin.PACKAGE else file.name) for entry in entries)


def _rule(entry: Table, origin: Origin, file: str) -> Rule:
    settings, when = entry.optional_table("settings"), entry.optional_table("when")
    made = Rule(
        id=entry.text("id", pattern=_ID, meaning="lower-case words with hyphens"),
        title=_text(entry, "title"),
        means=_text(entry, "means"),
        ways=_ways(entry),
        severity=_severity(entry),
        sure=_sure(entry),
        follows=_flag(entry, "follows"),
        general=_flag(entry, "general"),
        before_start=_flag(entry, "before_start"),
        lines=_patterns(entry, "lines"),
        any=_patterns(entry, "any"),
        dmesg=_patterns(entry, "dmesg"),
        unless=_patterns(entry, "unless"),
        window=entry.whole("window") if entry.given("window") else _WINDOW,
        told=_flag(entry, "told"),
        when=_when(when) if when is not None else When(),
        facts=_conditions(entry, "facts"),
        settings=_settings(settings, origin) if settings is not None else None,
        since=_version(entry, "since"),
        until=_version(entry, "until"),
        hardware=_hardware(entry),
        evidence=_evidence(entry),
        matches=_examples(entry, "matches"),
        misses=_examples(entry, "misses"),
        origin=origin,
        file=file,
    )
    entry.finish()
    kinds = [bool(made.lines or made.any or made.dmesg), bool(made.facts), made.settings is not None]
    if sum(kinds) != 1:
        raise entry.error("any", "or lines, dmesg, facts or settings: a rule looks at one kind", "split it")
    return made


def _text(entry: Table, key: str) -> str:
    value = entry.text(key)
    if not value.isprintable() or len(value) > _TEXT:
        raise entry.error(key, f"has a line break, a control character, or more than {_TEXT} characters", "write one line")
    return value


def _ways(entry: Table) -> tuple[str, ...]:
    """Read what to do: a text, or a list of alternatives."""
    if entry.is_text("fix") or not entry.given("fix"):
        return (_text(entry, "fix"),)
    ways = entry.texts("fix")
    if not ways or not all(way.isprintable() and len(way) <= _TEXT for way in ways):
        raise entry.error(
            "fix", f"is empty, or has a line break or more than {_TEXT} characters", "write one line for each way"
        )
    return ways


def _flag(entry: Table, key: str) -> bool:
    return entry.flag(key) if entry.given(key) else False


def _severity(entry: Table) -> Severity:
    names = {"wrong": Severity.WRONG, "worth knowing": Severity.NOTE}
    return names[entry.optional_text("severity", pattern="|".join(names), meaning=" or ".join(names)) or "wrong"]


def _sure(entry: Table) -> Sure:
    return Sure(entry.optional_text("sure", pattern="|".join(Sure), meaning=" or ".join(Sure)) or "likely")


def _patterns(entry: Table, key: str) -> tuple[Pattern, ...]:
    found = []
    for text in entry.texts(key):
        try:
            found.append(pattern.parse(text))
        except ValueError as bad:
            raise entry.error(key, f"{text!r} {bad}", "see docs/doctor.md") from bad
    return tuple(found)


def _conditions(entry: Table, key: str) -> tuple[Condition, ...]:
    found = []
    for text in entry.texts(key):
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise entry.error(key, f"{text!r} is not a condition", "write NAME, NAME = VALUE or NAME > VALUE")
        found.append(Condition(match[1], match[2] or "", (match[3] or "").strip()))
    return tuple(found)


def _settings(entry: Table, origin: Origin) -> Settings:
    made = Settings(
        _conditions(entry, "flags"),
        _conditions(entry, "variables"),
        entry.texts("absent"),
        entry.flag("several_nodes") if entry.given("several_nodes") else None,
        entry.optional_text("rank", pattern="first|other", meaning="first or other"),
        entry.texts("replace"),
        entry.texts("remove"),
        entry.texts("append"),
    )
    entry.finish()
    for key, edits in (("replace", made.replace), ("append", made.append)):
        if odd := next((text for text in edits if not text.startswith("-") or not Edit(0, "", text).is_plain), None):
            raise entry.error(
                key, f"has {odd!r}", "it has to be a flag, with a value that means the same with quotes and without"
            )
    if odd := next((name for name in made.remove if not re.fullmatch(r"--?[\w-]+|\w+", name, re.ASCII)), None):
        raise entry.error("remove", f"has {odd!r}", "it has to be the name of a flag or a variable")
    if origin is not Origin.PACKAGE:
        _demand_harmless(entry, made)
    return made


def _demand_harmless(entry: Table, made: Settings) -> None:
    """Refuse corrections that load code or open the server: the rules of a stack came with a checkout, and --fix applies them."""
    reasons = [
        *(("replace", text, import_rules.correction(text)) for text in made.replace),
        *(("append", text, import_rules.correction(text)) for text in made.append),
        *(("remove", name, import_rules.removal(name)) for name in made.remove),
    ]
    for key, text, why in reasons:
        if why is not None:
            raise entry.error(key, f"has {text!r:.100}: {why}", "say in `fix` what to do, and leave it to a person")


def _when(entry: Table) -> When:
    made = When(
        entry.optional_text("model"),
        entry.optional_text("quantization"),
        entry.optional_text("moe"),
        entry.optional_text("attention"),
        entry.flag("ready") if entry.given("ready") else None,
        entry.whole("ranks") if entry.given("ranks") else None,
    )
    entry.finish()
    return made


def _version(entry: Table, key: str) -> str | None:
    value = entry.optional_text(key)
    try:
        if value is not None:
            Version(value)
    except InvalidVersion as bad:
        raise entry.error(key, f"is {value!r}", "it has to be a version") from bad
    return value


def _hardware(entry: Table) -> tuple[str, ...]:
    named = entry.texts("hardware")
    if odd := [name for name in named if name not in HARDWARE]:
        raise entry.error("hardware", f"names {odd[0]!r}", f"known: {', '.join(HARDWARE)}")
    return named


def _evidence(entry: Table) -> tuple[str, ...]:
    named = entry.texts("evidence")
    if not named or not all(_EVIDENCE.fullmatch(each) for each in named):
        raise entry.error("evidence", "names no source", "write owner/repository#number, or a source file")
    return named


def _examples(entry: Table, key: str) -> tuple[str, ...]:
    found = entry.texts(key)
    if not found:
        raise entry.error(key, "is missing", "give an example that it matches, and a near miss that it must not match")
    return found

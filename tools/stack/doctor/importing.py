# SPDX-License-Identifier: Apache-2.0
"""Judge a recipe of the community that is imported: what the doctor says of its settings, as it stands or corrected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from stack.deploy import hardware, imported_recipes
from stack.deploy.imported_recipes import Draft
from stack.doctor import community, fix_check, fixing, script, scripts
from stack.doctor.community import SharedRecipe
from stack.doctor.finding import Finding, Found, Severity
from stack.doctor.knowledge import settings
from stack.doctor.knowledge.rule import Rule
from stack.doctor.rules import Target
from stack.doctor.script import Flag, Script, Setting
from stack.doctor.scripts import ScriptSubject

_ABOUT = frozenset({"variables", "flags", "eager", "reasoning-parser", "memory", "architectures", "jobs", "settings"})
"""The checks of scripts that are about settings: how a container is started does not come over."""
_RULES = "settings"
"""The check that runs the rules."""
MACHINE = "spark"
"""The machine of a recipe that names none: the community's are for DGX Sparks."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A recipe that was read, and what was made of it.

    `findings`: of the doctor; `mended`: those that are corrected in the draft; `lines`: of the file's settings, by name.
    """

    shared: SharedRecipe
    draft: Draft
    findings: tuple[Found, ...]
    mended: tuple[Found, ...]
    lines: Mapping[str, int]

    @property
    def to_look_at(self) -> tuple[str, ...]:
        """Everything that needs a person, in sentences for the recipe's file."""
        return (
            *(each.what for each in self.findings if each.severity is Severity.WRONG),
            *(f"{each.setting}: {each.what}" for each in self.draft.said if each.needs_person),
            *(f"{each.key}: {each.what}" for each in self.shared.left_out if each.needs_person),
        )


def read(
    file: Path, rules: Sequence[Rule], *, machine: str | None = None, model: str | None = None, fix: bool = False
) -> Imported:
    """Read a recipe, and make a draft of it.

    Args:
        file: the recipe.
        rules: the doctor's rules.
        machine: the machine that it is for; by default the one that it names, or a DGX Spark.
        model: the repository to serve instead of the one that it names.
        fix: correct what the doctor knows a correction for.

    Raises:
        StackError: the file is no recipe that starts vLLM, or names no repository.

    """
    shared = community.read(file)
    named = machine or (shared.hardware if shared.hardware in hardware.known() else MACHINE)
    drafted = partial(_draft, title=shared.title or file.stem, model=model, machine=named)
    lines = community.where(shared)
    draft = drafted(shared)
    judged = _Judge(tuple(rules), named)
    found = judged.findings(shared, draft)
    mended: tuple[Found, ...] = ()
    if fix:

        def check(text: str) -> tuple[Found, ...]:
            recipe = community.parse(str(file), text)
            return judged.findings(recipe, drafted(recipe))

        # The parser of scripts chooses the format by the file's suffix.
        compare = partial(fix_check.difference, f"{file}.yaml")
        again = community.parse(str(file), fixing.corrected(script.text_of(file), check, compare))
        draft = drafted(again)
        left = {each.what: each for each in judged.findings(again, draft)}
        mended = tuple(each for each in found if each.edits and each.what not in left)
        were = {each.what: each.line for each in found}
        # A correction may make another one necessary, whose line is not one of the file.
        found = tuple(replace(each, line=were.get(each.what)) for each in left.values())
        shared = replace(again, left_out=shared.left_out)
    return Imported(shared, draft, found, mended, lines)


def _draft(shared: SharedRecipe, *, title: str, model: str | None, machine: str) -> Draft:
    return imported_recipes.draft(
        title=title,
        model=model or shared.serve.model,
        revision=shared.revision,
        flags=[(flag.name, flag.value) for flag in shared.flags],
        environment={each.name: each.value for each in shared.script.settings if each.exported},
        machine=machine,
        least=shared.least,
        most=shared.most,
    )


@dataclass(frozen=True, slots=True)
class _Judge:
    """The doctor's rules, and the machine that a recipe is for."""

    rules: tuple[Rule, ...]
    machine: str

    def findings(self, shared: SharedRecipe, draft: Draft) -> tuple[Found, ...]:
        """Run the doctor's checks of settings, without the pinned sources; rules are about the command that the draft has."""
        profile = hardware.load(self.machine)
        target = Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
        subject = ScriptSubject(shared.script, {}, target, rules=())
        carried = replace(subject, script=_carried(shared, draft), rules=self.rules)
        known = {fit.rule.id for fit in settings.fits(self.rules, shared.script, subject.hardware)}
        of_rules = (each.found for each in scripts.look(carried) if each.check == _RULES and _counts(each))
        return (
            *(each.found for each in scripts.look(subject) if _counts(each)),
            *(_of_file(each, shared) for each in of_rules if each.line or each.rule in known),
        )


def _carried(shared: SharedRecipe, draft: Draft) -> Script:
    """Return the file's script with the settings that the draft has; those that the draft adds are on line 0."""
    words = [(argument[0], argument[1] if len(argument) > 1 else None) for argument in draft.arguments]
    kept = {name for name, _ in words}
    given = {flag.name for flag in shared.flags}
    flags = (
        *(old for old, flag in zip(shared.serve.flags, shared.flags, strict=True) if flag.name in kept),
        *(Flag(name, value, 0) for name, value in words if name not in given),
    )
    variables = [each for each in shared.script.settings if each.name in draft.environment]
    added = draft.environment.keys() - {each.name for each in variables}
    settings = (*variables, *(Setting(name, draft.environment[name], 0) for name in sorted(added)))
    return replace(shared.script, serves=(replace(shared.serve, line=0, flags=flags),), settings=settings)


def _of_file(found: Found, shared: SharedRecipe) -> Found:
    """Return a finding about a draft as one about the file: what the draft adds is not in it."""
    edits = tuple(edit for edit in found.edits if edit.line)
    return replace(found, line=found.line or shared.serve.line, edits=edits)


def _counts(finding: Finding) -> bool:
    return finding.check in _ABOUT and finding.severity in (Severity.WRONG, Severity.NOTE)

# SPDX-License-Identifier: Apache-2.0
"""Judge a recipe of the community that is imported: what the doctor says of its settings, as it stands or corrected."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.deploy import hardware, imported_recipes
from stack.deploy.imported_recipes import Draft
from stack.doctor import community, fixing, script, scripts
from stack.doctor.community import SharedRecipe
from stack.doctor.finding import Finding, Found, Severity
from stack.doctor.knowledge.rule import Rule
from stack.doctor.rules import Target
from stack.doctor.scripts import ScriptSubject

_ABOUT = frozenset({"variables", "flags", "eager", "reasoning-parser", "memory", "architectures", "jobs", "settings"})
"""The checks of scripts that are about settings: how a container is started does not come over."""
MACHINE = "spark"
"""The machine of a recipe that names none: the community's are for DGX Sparks."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A recipe that was read, and what was made of it. `findings`: of the doctor; `mended`: those that are corrected in the draft."""

    shared: SharedRecipe
    draft: Draft
    findings: tuple[Found, ...]
    mended: tuple[Found, ...]

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
    profile = hardware.load(named)
    target = Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
    found = _findings(shared, rules, target)
    mended: tuple[Found, ...] = ()
    if fix:
        corrected = fixing.corrected(
            script.text_of(file), lambda text: _findings(community.parse(str(file), text), rules, target)
        )
        again = community.parse(str(file), corrected)
        left = {each.what: each for each in _findings(again, rules, target)}
        mended = tuple(each for each in found if each.edits and each.what not in left)
        lines = {each.what: each.line for each in found}
        # A correction may make another one necessary, whose line is not one of the file.
        found = tuple(replace(each, line=lines.get(each.what)) for each in left.values())
        shared = replace(again, left_out=shared.left_out)
    draft = imported_recipes.draft(
        title=shared.title or file.stem,
        model=model or shared.serve.model,
        revision=shared.revision,
        flags=[(flag.name, flag.value) for flag in shared.flags],
        environment={each.name: each.value for each in shared.script.settings if each.exported},
        machine=named,
        least=shared.least,
        most=shared.most,
    )
    return Imported(shared, draft, found, mended)


def _findings(shared: SharedRecipe, rules: Sequence[Rule], target: Target) -> tuple[Found, ...]:
    """Run the doctor's checks of settings, without the pinned sources."""
    subject = ScriptSubject(shared.script, {}, target, rules=tuple(rules))
    return tuple(each.found for each in scripts.look(subject) if _counts(each))


def _counts(finding: Finding) -> bool:
    return finding.check in _ABOUT and finding.severity in (Severity.WRONG, Severity.NOTE)

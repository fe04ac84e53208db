# SPDX-License-Identifier: Apache-2.0
"""`stack doctor rules`: list, show and test the rules behind the findings."""

from pathlib import Path

import click

from stack.base.did_you_mean import unknown_name
from stack.base.text import counted
from stack.cli.common import Options, json_option, one_line, print_json, print_table
from stack.cli.sentences import fact, say
from stack.doctor.knowledge import check, load
from stack.doctor.knowledge.rule import Origin, Rule


@click.group("rules")
def rules() -> None:
    """List, show and test the rules behind the findings."""


def load_rules(options: Options) -> tuple[Rule, ...]:
    """Load all rules; without a stack here, those of the package and the user."""

    return load.load(options.root_if_any())


@rules.command("list")
@json_option
@click.pass_obj
def list_rules(options: Options, as_json: bool) -> None:
    """List the rules: those of the package, yours, and the stack's."""

    found = load_rules(options)
    if as_json:
        print_json({"rules": [_json(rule) for rule in found]})
        return
    print_table(
        ("rule", "about", "from", "cause"), [(rule.id, rule.kind, str(rule.origin), one_line(rule.title)) for rule in found]
    )
    say(f"{counted(len(found), 'rule')}. `stack doctor rules show RULE` shows one.")


@rules.command()
@click.argument("name", metavar="RULE")
@json_option
@click.pass_obj
def show(options: Options, name: str, as_json: bool) -> None:
    """Show a rule: what it matches, what that means, and what to do."""

    found = {rule.id: rule for rule in load_rules(options)}
    if name not in found:
        raise unknown_name("rule", name[:100], found)
    rule = found[name]
    if as_json:
        print_json(_json(rule))
        return
    click.secho(rule.id, bold=True)
    for label, values in _described(rule):
        for value in values:
            fact(f"{label:<10} {one_line(value)}", indent="  ", below=" " * 11)


def _described(rule: Rule) -> list[tuple[str, tuple[str, ...]]]:
    """Return what is shown of a rule: labels with their lines."""

    settings = rule.settings
    versions = " to ".join(filter(None, (rule.since and f"from {rule.since}", rule.until)))
    return [
        ("cause", (rule.title,)),
        ("means", (rule.means,)),
        ("fix", rule.ways),
        ("severity", (f"{rule.severity}, {rule.sure}",)),
        ("lines", tuple(pattern.text for pattern in rule.lines)),
        ("any of", tuple(pattern.text for pattern in rule.any)),
        ("kernel", tuple(pattern.text for pattern in rule.dmesg)),
        ("unless", tuple(pattern.text for pattern in rule.unless)),
        ("facts", tuple(map(str, rule.facts))),
        ("flags", tuple(map(str, settings.flags)) if settings else ()),
        ("variables", tuple(map(str, settings.variables)) if settings else ()),
        ("absent", settings.absent if settings else ()),
        ("model", (rule.when.model,) if rule.when.model else ()),
        ("hardware", (", ".join(rule.hardware),) if rule.hardware else ()),
        ("versions", (versions,) if versions else ()),
        ("seen in", (", ".join(rule.evidence),)),
        ("file", (f"{rule.file} ({rule.origin})",)),
    ]


@rules.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@json_option
@click.pass_context
def test(context: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Check each rule by its own examples, and time its patterns on a line of 1 MB.

    FILES are rules that need not be installed; without any, all rules are tested. Exit code 1 if an example does not come out as its
    rule says.
    """

    given = tuple(rule for file in files for rule in load.read(file, Origin.USER)) if files else load_rules(context.obj)
    failed, worst = [*check.failures(given)], check.slowest(given)
    examples = sum(len(rule.matches) + len(rule.misses) for rule in given)
    milliseconds = round(worst[0] * 1000, 1) if worst is not None else None
    if as_json:
        failures = [{"rule": each.rule.id, "example": each.example, "wanted": each.wanted} for each in failed]
        slowest = None if worst is None else {"rule": worst[1].id, "milliseconds": milliseconds}
        print_json({"passed": not failed, "count": len(given), "examples": examples, "failures": failures, "slowest": slowest})
    else:
        for each in failed:
            wanted = "should match and does not" if each.wanted else "should not match and does"
            click.echo(f"{click.style('✗', fg='red')} {each.rule.id}: {wanted}: {one_line(each.example)}")
        slow = f" The slowest pattern takes {milliseconds} ms on a line of 1 MB ({worst[1].id})." if worst is not None else ""
        say(f"{counted(len(given), 'rule')}, {counted(examples, 'example')}, {counted(len(failed), 'failure')}.{slow}")
    context.exit(1 if failed else 0)


def _json(rule: Rule) -> dict[str, object]:
    settings = rule.settings
    return {
        "id": rule.id,
        "about": rule.kind,
        "cause": rule.title,
        "means": rule.means,
        "fix": rule.fix,
        "severity": str(rule.severity),
        "sure": str(rule.sure),
        "lines": [pattern.text for pattern in rule.lines],
        "any": [pattern.text for pattern in rule.any],
        "dmesg": [pattern.text for pattern in rule.dmesg],
        "unless": [pattern.text for pattern in rule.unless],
        "facts": [*map(str, rule.facts)],
        "flags": [*map(str, settings.flags)] if settings else [],
        "variables": [*map(str, settings.variables)] if settings else [],
        "absent": [*settings.absent] if settings else [],
        "model": rule.when.model,
        "hardware": [*rule.hardware],
        "since": rule.since,
        "until": rule.until,
        "evidence": [*rule.evidence],
        "origin": str(rule.origin),
        "file": rule.file,
    }

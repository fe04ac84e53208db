# SPDX-License-Identifier: Apache-2.0
"""`stack doctor`: find problems of a machine, scripts, logs and a running server, and say how to fix them."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.drift import check_settings, check_use, check_values
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, one_line, print_json, progress
from stack.cli.completing import complete_recipes
from stack.cli.doctor_rules import load_rules
from stack.cli.doctor_rules import rules as rules_command
from stack.cli.rendering import terminal
from stack.cli.seconds import Seconds
from stack.cli.sentences import fact, say
from stack.deploy import hardware, recipes
from stack.deploy.recipes import Recipe
from stack.doctor import facts, fix_files, fixing, here, inputs, kernel_log, logs, rules, running, script, scripts, yardstick
from stack.doctor.finding import Finding, Found, run
from stack.doctor.fixing import Copy
from stack.doctor.knowledge.rule import of_capability
from stack.doctor.machine import CHECKS
from stack.doctor.rules import Target
from stack.doctor.script import Script, Serve
from stack.doctor.server.context import LONG, SHORT
from stack.doctor.server.interview import Asked
from stack.doctor.server.purse import MOST
from stack.doctor.yardstick import Measure
from stack.model.ids import TreeId
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.projects import Unknown
from stack.proof.compiling import jobs
from stack.serving import roofline
from stack.store.objects import Objects
from stack.validation import endpoint, machine

_COLOURS = {"wrong": "red", "worth knowing": "yellow", "fine": "green", "could not tell": "magenta"}
_SIGNS = {"wrong": "✗", "worth knowing": "!", "fine": "✓", "could not tell": "?"}
_CONTEXTS = {"none": 0, "8k": SHORT, "64k": LONG}
"""Tokens of the longest request by the words of `--context`."""
Trees = tuple[tuple[Objects, TreeId], ...]
"""The patched trees of the pinned upstreams, each with the repository that holds it."""
_SPEED_AT = 128
"""Approximate context length at which speed is measured: a limit holds for one context length."""


@click.group("doctor", invoke_without_command=True)
@click.option(
    "--machine", is_flag=True, help="Check this machine, too; without --log, --script and --url only the machine is checked."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="The interpreter that runs the server. Default: that of the `vllm` on PATH.",
)
@click.option(
    "--script",
    "scripts",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A serve script, compose file, recipe, unit, manifest or .env file; repeatable.",
)
@click.option("--log", "logs", multiple=True, type=click.Path(path_type=Path), help="A server's log; repeatable.")
@click.option(
    "--dmesg",
    type=click.Path(path_type=Path),
    help="The kernel's log of the server's machine: the output of `dmesg -T`. It is read beside --log.",
)
@click.option(
    "--facts",
    "fact_files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Output of commands on the server's machine: /proc/meminfo, nvidia-smi, uname -a, df /dev/shm, ulimit -a, docker inspect, "
    "ibv_devinfo; repeatable.",
)
@click.option("--fix", is_flag=True, help="Write each --script corrected beside it, with a reason for each line.")
@click.option(
    "--report",
    is_flag=True,
    help="Print a block for an issue report about each log: the cause, if a rule knows it, versions and the lines around it.",
)
@click.option(
    "--url",
    help="A running server, such as http://127.0.0.1:8000, to ask what a user would: it generates at most 2,000 tokens. VLLM_API_KEY is "
    "sent to it if it is set.",
)
@click.option("--model", help="The server's model to check. Default: the only one.")
@click.option("--recipe", "name", help="The recipe that should run: see `stack recipe list`.", shell_complete=complete_recipes)
@click.option(
    "--timeout", type=Seconds(), default=180, show_default=True, help="Seconds for all of the server's answers together."
)
@click.option(
    "--context",
    "longest_prompt",
    type=click.Choice([*_CONTEXTS]),
    default="64k",
    show_default=True,
    help="The longest prompts that --url sends, in tokens. Those of 64k are left out if time does not allow them.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show checks without problems, too.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    machine: bool,
    python: Path | None,
    scripts: tuple[Path, ...],
    logs: tuple[Path, ...],
    dmesg: Path | None,
    fact_files: tuple[Path, ...],
    fix: bool,
    report: bool,
    url: str | None,
    model: str | None,
    name: str | None,
    timeout: float,
    longest_prompt: str,
    verbose: bool,
    as_json: bool,
) -> None:
    """Find problems of a machine, scripts, a server's log or a running server.

    Each finding has its place, down to the line, and the fix. Nothing is changed, except that --fix writes corrected copies. Exit code 1
    if something is wrong; findings that are only worth knowing, and failed checks, do not count.

    Outside of a stack nothing is compared with pins and their sources. `stack doctor rules` shows the rules behind the findings.
    """

    if context.invoked_subcommand is not None:
        # A --json before `rules` is meant for the subcommand.
        context.default_map = {"rules": {each: {"as_json": as_json} for each in rules_command.commands}}
        return
    if fix and not scripts:
        raise StackError("--fix needs a script", "name one with --script")
    options: Options = context.obj
    recipe = recipes.load(name, options.root_if_any()) if name is not None else None
    findings: list[Finding] = []
    asked: list[Asked] = []
    blocks: list[str] = []
    written: dict[str, Copy] = {}
    if machine or not (scripts or logs or url or dmesg or fact_files):
        findings += _machine(options, python, recipe)
    if scripts:
        findings += _scripts(options, scripts, recipe, written if fix else None)
    if logs or dmesg is not None:
        read = _logs(options, logs, dmesg, recipe)
        findings += [finding for found, _ in read for finding in found]
        blocks += [block for _, block in read]
    if fact_files:
        findings += _facts(options, fact_files, recipe)
    if url is not None:
        asked = _server(url, model, recipe, timeout, longest_prompt)
        findings += [finding for question in asked for finding in question.findings]
    if as_json:
        print_json(
            {
                **_json(findings),
                "questions": _questions_json(asked),
                "report": "\n\n".join(blocks) or None,
                "fixed": {source: str(copy.file) for source, copy in written.items()},
            }
        )
    else:
        _print(findings, verbose)
        for source, copy in written.items():
            _print_copy(source, copy)
        for block in blocks if report else ():
            click.echo(f"\n```\n{block}\n```")
        if asked:
            say(f"The server generated {sum(each.tokens for each in asked)} tokens for this, of at most {MOST}.")
    context.exit(1 if any(finding.severity == "wrong" for finding in findings) else 0)


command.add_command(rules_command)


def _hardware(recipe: Recipe | None) -> frozenset[str] | None:
    """Return the names of the hardware that a recipe is for; None if no recipe says so."""

    if recipe is None or recipe.hardware is None:
        return None
    profile = hardware.load(recipe.hardware.name)
    return of_capability(profile.capability, unified=profile.unified)


def _pins(options: Options) -> Sequence[Pin]:
    """Return the pins of the stack; none outside of one."""
    return tuple(options.load().pins) if options.root_if_any() is not None else ()


def _machine(options: Options, python: Path | None, recipe: Recipe | None) -> Iterator[Finding]:

    gathered = facts.gather(python or facts.interpreter(), _pins(options), _utilization(recipe))
    yield from run(CHECKS, gathered, "this machine")
    names = (
        of_capability(gathered.capability, unified=gathered.is_unified) if gathered.capability is not None else frozenset[str]()
    )
    known = load_rules(options)
    yield from inputs.look(known, here.gather(), names, "this machine")
    yield from kernel_log.look(known, names)


def _facts(options: Options, files: Sequence[Path], recipe: Recipe | None) -> Iterator[Finding]:

    for file in files:
        given = inputs.read(file)
        yield from inputs.look(load_rules(options), given, inputs.hardware(given) or _hardware(recipe), str(file))


def _utilization(recipe: Recipe | None) -> float | None:
    """Return the share of the GPU's memory that a recipe takes."""

    if recipe is None or recipe.hardware is None:
        return None
    return rules.share(recipe.arguments, recipe.name)


def _scripts(
    options: Options, files: Sequence[Path], recipe: Recipe | None, written: dict[str, Copy] | None
) -> Iterator[Finding]:
    """Check scripts; with `written`, write corrected copies, and note their files there.

    Outside of a stack they are checked by the rules alone.
    """

    files = fix_files.distinct(files)
    if written is not None:
        fix_files.check(files)
    read = [script.read(file) for file in files]
    pinned = {pin.upstream: pin.archive for pin in _pins(options)}
    archive = pinned.get("flashinfer")
    flashinfer = archive.version if archive is not None else None
    target, known = _target(recipe), load_rules(options)
    with contextlib.ExitStack() as held:
        trees = _patched(options, held) if any(any(scripts.names(script_file)) for script_file in read) else ()
        unknown, values = _unknown(trees, read)
        asked = trees if trees is not None and unknown is not None else ()
        for file, script_file in zip(files, read, strict=True):
            subject = scripts.ScriptSubject(script_file, unknown, target, flashinfer, frozenset(pinned), known, values)
            subject = subject if options.root_if_any() is not None else scripts.outside(subject)
            subject = replace(subject, measures=tuple(_measures(asked, subject, recipe)))
            yield from scripts.look(subject)
            again = partial(_again, asked, subject, recipe, {})
            if written is not None and (made := fixing.copy(file, again)) is not None:
                written[str(file)] = made


def _patched(options: Options, held: contextlib.ExitStack) -> Trees | None:
    """Return the patched trees at the pins, which are open until `held` is closed; None if they are not available."""

    if options.root_if_any() is None:
        return None
    stack: Stack = options.load()
    try:
        stores = held.enter_context(Stores(stack, held.enter_context(options.place())))
        upstreams = [pin.upstream for pin in stack.pins if pin.within is None]
        return tuple((stores.objects(name), stores.objects(name).tree_of(stores.tip(name))) for name in upstreams)
    except StackError:
        return None


def _measures(trees: Trees, subject: scripts.ScriptSubject, recipe: Recipe | None) -> Iterator[Measure | None]:
    """Yield what each command of a script is measured by; the pinned sources are asked if they are there."""

    for serve in subject.script.serves:
        target = subject.machine
        if target is None:
            yield None
            continue
        found = yardstick.checkpoint_of(serve, recipe)
        use = yardstick.use_of(serve, target, found)
        asks = not use.flags.keys().isdisjoint(yardstick.ASKED)
        unfit = (each for objects, tree in trees if asks for each in check_use(objects, tree, use))
        yield yardstick.measure_of(serve, target, found, tuple(unfit), subject.script.path)


def _again(
    trees: Trees,
    subject: scripts.ScriptSubject,
    recipe: Recipe | None,
    measured: dict[tuple[Serve, ...], tuple[Measure | None, ...]],
    text: str,
) -> list[Found]:
    """Check a text in place of the script that it corrects; commands that are in `measured` are not measured again."""

    other = replace(subject, script=script.parse(subject.script.path, text))
    serves = other.script.serves
    if serves not in measured:
        measured[serves] = subject.measures if serves == subject.script.serves else tuple(_measures(trees, other, recipe))
    other = replace(other, measures=measured[serves])
    return [finding.found for finding in scripts.look(other)]


def _unknown(trees: Trees | None, read: Sequence[Script]) -> tuple[dict[str, Unknown] | None, dict[tuple[str, str], Unknown]]:
    """Return the settings in scripts that the patched trees do not know (None: the trees are not available), and values."""

    if trees is None:
        return None, {}
    variables = {name for script_file in read for name in scripts.names(script_file)[0]}
    flags = {name for script_file in read for name in scripts.names(script_file)[1]}
    given = [pair for script_file in read for pair in scripts.values(script_file)]
    unknown: dict[str, Unknown] = {}
    values: dict[tuple[str, str], Unknown] = {}
    try:
        for objects, tree in trees:
            unknown |= {setting.name: setting for setting in check_settings(objects, tree, variables, flags)}
            values |= check_values(objects, tree, given)
    except StackError:
        return None, {}
    return unknown, values


def _target(recipe: Recipe | None) -> Target | None:
    """Return the machine that scripts are for: the recipe's, else this one if it has a GPU."""

    if recipe is not None and recipe.hardware is not None:
        profile = hardware.load(recipe.hardware.name)
        return Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
    here = machine.here()
    if not here.gpus:
        return None
    gpu = here.gpus[0]
    return Target(gpu.name, gpu.capability, gpu.memory or here.memory, gpu.memory is None, jobs.available_memory())


def _logs(
    options: Options, files: Sequence[Path], dmesg: Path | None, recipe: Recipe | None
) -> list[tuple[list[Finding], str]]:
    """Read logs, each beside the kernel's, or the kernel's alone; return their findings, and blocks for reports.

    Outside of a stack nothing is compared with its pins.
    """

    archive = next((pin.archive for pin in _pins(options) if pin.upstream == "vllm"), None)
    pinned = archive.version if archive is not None else None
    known, hardware = load_rules(options), _hardware(recipe)
    kernel = logs.text_of(dmesg) if dmesg is not None else ""
    read = [(file, logs.read(file, recipe, pinned, known, kernel, hardware)) for file in files]
    if dmesg is not None and not files:
        read = [(dmesg, logs.of(kernel, recipe, pinned, known, hardware=hardware))]
    found = [([*logs.places(logs.look(subject, str(file)), str(dmesg))], subject.report) for file, subject in read]
    if (first := logs.failed_first([(str(file), subject) for file, subject in read])) is not None:
        found[0][0].append(first)
    return found


def _server(url: str, model: str | None, recipe: Recipe | None, longest: float, prompts: str) -> list[Asked]:

    base = endpoint.at(url).url.removesuffix("/v1")
    key, limit = os.environ.get("VLLM_API_KEY"), _limit(recipe)
    with progress(lines=True) as tell:
        return [*running.interview(base, model, recipe, limit, key=key, longest=longest, context=_CONTEXTS[prompts], tell=tell)]


def _limit(recipe: Recipe | None) -> float | None:
    """Return the most tokens per second that the memory of the recipe's hardware allows; None if that is not modelled."""

    if recipe is None or recipe.hardware is None:
        return None
    try:
        return roofline.limit(recipe, hardware.load(recipe.hardware.name), _SPEED_AT)
    except StackError:
        return None


def _print(findings: Sequence[Finding], verbose: bool) -> None:
    """Print findings by place, worst first, each with its fix; without `verbose`, passed checks are only counted."""
    order, width = [*_SIGNS], terminal.prose_columns()
    counts = Counter[str]()
    for where in dict.fromkeys(finding.where for finding in findings):
        here = [finding for finding in findings if finding.where == where]
        shown = sorted(
            (finding for finding in here if verbose or finding.severity != "fine"),
            key=lambda finding: (order.index(finding.severity), finding.check == "version", finding.found.line or 0),
        )
        click.secho(one_line(where), bold=True)
        merged = _merged(shown)
        counts.update(str(finding.severity) for finding in merged)
        for finding in merged:
            sign, colour = _SIGNS[finding.severity], _COLOURS[finding.severity]
            line = f"{finding.place}: " if finding.found.line else ""
            what = finding.found.title or finding.found.what
            fact(f"{sign} {one_line(line + what)} [{finding.check}]", indent="  ", width=width, mark=sign, fg=colour, bold=True)
            if finding.found.quote:
                fact(one_line(finding.found.quote), indent="      ", below="", width=width)
            if finding.found.means:
                fact(one_line(finding.found.means), indent="    ", below="", width=width)
            if finding.found.fix:
                fact(f"fix: {one_line(finding.found.fix)}", indent="    ", width=width, mark="fix:", bold=True)
            if finding.found.rule or finding.found.evidence:
                fact(_behind(finding.found), indent="    ", width=width, dim=True)
        folded = len(here) - len(shown)
        counts["fine"] += folded
        if folded:
            click.echo(f"  {click.style('✓', fg='green')} {folded} {'check is' if folded == 1 else 'checks are'} fine")
        click.echo()
    click.echo(
        ", ".join(click.style(f"{counts[name]} {name}", fg=_COLOURS[name], bold=True) for name in _SIGNS if counts[name])
    )


def _print_copy(source: str, copy: Copy) -> None:
    """Print that a corrected copy was written, and what is still wrong in it."""
    click.echo(f"{one_line(source)}: corrected in {one_line(str(copy.file))}")
    if not copy.left:
        click.echo("  nothing that is known here is wrong in it")
        return
    click.echo(f"  {counted(len(copy.left), 'thing')} still wrong in it:")
    for found in copy.left:
        line = f"line {found.line}: " if found.line else ""
        fact(f"✗ {one_line(line + found.what)}", indent="    ", width=terminal.prose_columns(), mark="✗", fg=_COLOURS["wrong"])
        if found.fix:
            fact(f"fix: {one_line(found.fix)}", indent="      ", width=terminal.prose_columns(), mark="fix:", bold=True)


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Join equal findings of several checks into one with all of their names, and faults that others tell with those."""
    findings = [*_within(findings)]
    names: dict[Found, list[str]] = {}
    for finding in findings:
        names.setdefault(finding.found, []).append(finding.check)
    where = findings[0].where if findings else ""
    return [Finding(", ".join(dict.fromkeys(checks)), where, found) for found, checks in names.items()]


def _within(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings; one that another check's first fault tells, too, is a sentence of that one."""
    told = {finding.found.within: finding.found.what for finding in findings if finding.found.within}
    causes = {finding.check for finding in findings if finding.severity == "wrong"}
    for finding in findings:
        found = finding.found
        if found.within in causes:
            continue
        if finding.severity == "wrong" and (what := told.pop(finding.check, "")):
            sentence = f"{what[0].upper()}{what[1:]}."
            means = f"{found.means.rstrip('.')}. {sentence}" if found.means else sentence
            yield replace(finding, found=replace(found, means=means))
        else:
            yield finding


def _behind(found: Found) -> str:
    """Return the line about the rule behind a finding: its id, how sure it is, the lines that speak for it, and reports."""
    lines = [str(line) for line in found.because if line != found.line]
    because = (
        f"; lines {', '.join(lines)} speak for it, too"
        if len(lines) > 1
        else f"; line {lines[0]} speaks for it, too"
        if lines
        else ""
    )
    reports = f"; seen in {', '.join(found.evidence[:3])}" if found.evidence else ""
    if not found.rule:
        return one_line(reports.removeprefix("; "))
    return one_line(f"rule {found.rule} ({found.sure or 'a consequence'}){because}{reports}")


def _json(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "healthy": not any(finding.severity == "wrong" for finding in findings),
        "counts": {name: sum(finding.severity == name for finding in findings) for name in _SIGNS},
        "findings": [
            {
                "check": finding.check,
                "severity": str(finding.severity),
                "where": finding.where,
                "line": finding.found.line,
                "what": finding.found.what,
                "fix": finding.found.fix or None,
                "rule": finding.found.rule or None,
                "sure": finding.found.sure or None,
                "because": list(finding.found.because),
                "evidence": list(finding.found.evidence),
                "title": finding.found.title or None,
                "quote": finding.found.quote or None,
                "means": finding.found.means or None,
            }
            for finding in findings
        ],
    }


def _questions_json(asked: Sequence[Asked]) -> list[dict[str, object]]:
    """Return what a server was asked as JSON."""

    return [
        {
            "question": each.question.name,
            "about": each.question.about,
            "outcome": each.outcome,
            "generated_tokens": each.tokens,
            "seconds": round(each.seconds, 3),
        }
        for each in asked
    ]

# SPDX-License-Identifier: Apache-2.0
"""`stack recipe import` and `export`: recipes of the Spark community, and ours in their form."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, one_line, print_json, write_or_print
from stack.cli.completing import complete_recipes
from stack.cli.doctor_rules import load_rules
from stack.cli.sentences import fact, say
from stack.deploy import own_recipes, recipe_text, recipes
from stack.deploy.recipes import OWN, Recipe
from stack.doctor import importing
from stack.doctor.importing import Imported
from stack.serving import checking, sparkrun


@dataclass(frozen=True, slots=True)
class _Remark:
    """A remark on a setting or a key of the file: `corrected` in the recipe, or whether it `needs_person`."""

    setting: str
    line: int | None
    what: str
    fix: str | None
    corrected: bool
    needs_person: bool


@click.command("import", short_help="Make a recipe of a file of another project.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="The recipe's name. Default: made of the name in the file.")
@click.option("--model", metavar="OWNER/NAME", help="The repository to serve instead of the one in the file.")
@click.option("--hardware", metavar="NAME", help="The machine that it is for. Default: the one in the file, or spark.")
@click.option("--fix", is_flag=True, help="Correct the settings that the doctor has a correction for.")
@click.option("--force", is_flag=True, help="Replace a recipe of that name.")
@json_option
@click.pass_context
def import_(
    context: click.Context,
    file: Path,
    name: str | None,
    model: str | None,
    hardware: str | None,
    fix: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Make a recipe of FILE, a recipe of eugr/spark-vllm-docker, spark-arena or sparkrun.

    It is written into the stack's folder validation/recipes, marked as unproven. Each setting that is gone or wrong at the pins is
    named, and whatever the recipe cannot hold, such as mods and build_args. Nothing of FILE is run. Exit code 1 if something needs a
    person.
    """

    options: Options = context.obj
    root = options.find_root(writes=True)
    made = importing.read(file, load_rules(options), machine=hardware, model=model, fix=fix)
    chosen = name or own_recipes.named(made.shared.name or file.stem)
    source = file.name if file.name.isprintable() else "a file"
    draft = own_recipes.read(root, chosen, recipe_text.text(made.draft, source), force=force)
    checked = tuple(_checked(options, made, draft))
    found = (f"{each.setting}: {each.what}" if each.setting else each.what for each in checked)
    recipe = own_recipes.write(root, chosen, recipe_text.text(made.draft, source, (*made.to_look_at, *found)), force=force)
    remarks = sorted((*_remarks(made), *checked), key=lambda each: (not each.needs_person, each.line or 0))
    people = sum(each.needs_person for each in remarks)
    if as_json:
        print_json(
            {
                "recipe": chosen,
                "file": str(OWN / f"{chosen}.toml"),
                "clean": not people,
                "remarks": [asdict(each) for each in remarks],
            }
        )
    else:
        _print(file, recipe, remarks, people)
    context.exit(1 if people else 0)


@click.command("export")
@click.argument("name", shell_complete=complete_recipes)
@click.option(
    "--sparkrun", "is_sparkrun", is_flag=True, required=True, help="Write the form of sparkrun and eugr/spark-vllm-docker."
)
@click.option("--container", metavar="IMAGE", help="The image to name in it.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@json_option
@click.pass_obj
def export(
    options: Options, name: str, is_sparkrun: bool, container: str | None, output: Path | None, as_json: bool
) -> None:  # --sparkrun is required until there is another form
    """Write a recipe as YAML for sparkrun and eugr/spark-vllm-docker."""

    assert is_sparkrun
    text = sparkrun.export(recipes.load(name, options.root_if_any()), container)
    write_or_print(text, output, as_json=as_json)


def _remarks(made: Imported) -> Iterator[_Remark]:
    """Yield what was found without the pinned sources."""

    lines = made.lines
    for found in made.findings:
        yield _Remark("", found.line, one_line(found.what), one_line(found.fix) or None, False, found.severity == "wrong")
    for found in made.mended:
        yield _Remark("", found.line, one_line(found.what), one_line(found.fix) or None, True, False)
    for said in made.draft.said:
        yield _Remark(said.setting, lines.get(said.setting), one_line(said.what), None, False, said.needs_person)
    for left in made.shared.left_out:
        yield _Remark(left.key, left.line, one_line(left.what), None, False, left.needs_person)


def _checked(options: Options, made: Imported, recipe: Recipe) -> Iterator[_Remark]:
    """Yield what the pinned sources do not know, unless the doctor has said so already."""

    lines = made.lines
    try:
        with options.place() as place, Stores(options.load(), place) as stores:
            unknown = checking.check(stores, [recipe])
    except StackError as failed:
        yield _Remark(
            "",
            None,
            f"its settings could not be checked against the pinned sources: {one_line(str(failed))}",
            None,
            False,
            True,
        )
        return
    for each in dict.fromkeys(unknown):
        if not any(each.setting in found.what for found in made.findings):
            yield _Remark(each.setting, lines.get(each.setting), one_line(each.problem), None, False, True)


def _print(file: Path, recipe: Recipe, remarks: list[_Remark], people: int) -> None:
    """Print the remarks, those that need a person first, and what was written."""

    for each in remarks:
        mark = "✗" if each.needs_person else "✓" if each.corrected else "!"
        place = f"{one_line(str(file))}:{each.line}: " if each.line else ""
        setting = f"{each.setting}: " if each.setting and not each.what.startswith(each.setting) else ""
        fact(f"{mark} {place}{setting}{each.what}{' (corrected)' if each.corrected else ''}", mark=mark, bold=True)
        if each.fix:
            fact(f"fix: {each.fix}", indent="  ", mark="fix:", bold=True)
    machine = recipe.hardware
    where = (
        f"{machine.nodes} x {machine.name}, {machine.memory:g} GB{' of each' if machine.nodes > 1 else ''}"
        if machine
        else "any"
    )
    need = f"{counted(people, 'thing')} above {'needs' if people == 1 else 'need'} you" if people else "nothing in it needs you"
    say(f"wrote {OWN / recipe.name}.toml ({where}, unproven): {need}. See it:", f"stack recipe show {recipe.name}")

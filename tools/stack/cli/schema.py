# SPDX-License-Identifier: Apache-2.0
"""`stack schema`: print the JSON Schema of a document, or list all."""

import json

import click

from stack.cli import schemas
from stack.cli.common import json_option, print_json, print_table
from stack.cli.completing import complete_schemas
from stack.cli.rendering import text


@click.command("schema")
@click.argument("name", required=False, shell_complete=complete_schemas)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema of what a command prints with `--json`; without NAME, list all.

    NAME is a command (`pins-show`, or in quotes "pins show"), or what a document says of its schema (`stack/pins-show/1`). The schema
    is of JSON Schema 2020-12 and refers to no other file. With --json, a document lists the schemas; with NAME it has that one.
    """

    listed = schemas.names() if name is None else (schemas.find(name),)
    if as_json:
        print_json({"schemas": [_as_json(each, whole=name is not None) for each in listed]})
    elif name is not None:
        text.echo(json.dumps(schemas.whole(listed[0]), indent=2, ensure_ascii=False))
    else:
        print_table(("name", "printed by"), [(each, f"{schemas.described(each)[1]} --json") for each in listed])


def _as_json(name: str, *, whole: bool) -> dict[str, object]:
    schema, title, description = schemas.described(name)
    shown = {"name": name, "schema": schema, "command": title, "description": description}
    return {**shown, "json_schema": schemas.whole(name) if whole else None}

# SPDX-License-Identifier: Apache-2.0
"""`stack schema`: print the JSON Schema of a document or of a file, or list all."""

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
    """Print the JSON Schema of what a command prints with `--json`, or of a file; without NAME, list all.

    NAME is a command (`pins-show`, or in quotes "pins show"), what a document says of its schema (`stack/pins-show/1`), or a file of a
    stack (`series.toml`). Editors that know JSON Schema complete and check such files with it. The schema is of JSON Schema 2020-12 and
    refers to no other file. With --json, a document lists the schemas; with NAME it has that one.
    """

    listed = (*schemas.files(), *schemas.names()) if name is None else (schemas.find(name),)
    if as_json:
        print_json({"schemas": [_as_json(each, whole=name is not None) for each in listed]})
    elif name is not None:
        text.echo(json.dumps(schemas.whole(listed[0]), indent=2, ensure_ascii=False))
    else:
        rows = [(each, *schemas.described(each)[:2]) for each in listed]
        print_table(
            ("name", "describes"), [(name, title if schema is None else f"{title} --json") for name, schema, title in rows]
        )


def _as_json(name: str, *, whole: bool) -> dict[str, object]:
    schema, title, description = schemas.described(name)
    shown = {"name": name, "schema": schema, "of": title, "description": description}
    return {**shown, "json_schema": schemas.whole(name) if whole else None}

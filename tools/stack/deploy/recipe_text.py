# SPDX-License-Identifier: Apache-2.0
"""Write the file of a recipe that was imported, with where it comes from, and what was not carried over."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stack.deploy import hardware
from stack.deploy.imported_recipes import Draft

_WIDTH = 140


def text(made: Draft, source: str, to_look_at: Sequence[str] = ()) -> str:
    """Write a draft as the text of a recipe.

    Args:
        made: the draft.
        source: the name of the file that it was read from.
        to_look_at: sentences about what a person has to look at.

    """
    return "\n".join((*_head(source, to_look_at), *_body(made), *_machine(made))) + "\n"


def _head(source: str, to_look_at: Sequence[str]) -> Iterator[str]:
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield from _comment(f"Unproven: nobody has run this recipe. Imported from {source} by `stack recipe import`.")
    if to_look_at:
        yield "# Look at:"
        for sentence in to_look_at:
            yield from _comment(f"- {''.join(letter if letter.isprintable() else ' ' for letter in sentence)}", below="  ")


def _body(made: Draft) -> Iterator[str]:
    yield f"title     = {_string(made.title)}"
    yield f"model     = {_string(made.model)}"
    if made.revision is not None:
        yield f"revision  = {_string(made.revision)}"
    yield "arguments = ["
    yield from _rows(made.arguments)
    yield "]"
    yield from _pairs("environment", made.environment)
    if made.variables:
        yield from _pairs("variables", made.variables)


def _machine(made: Draft) -> Iterator[str]:
    whole = hardware.load(made.machine).memory
    yield ""
    yield from _comment(
        f"{made.share:g} of the {whole:g} * 10^9 bytes of {'each node' if made.nodes > 1 else 'the machine'}, as its arguments say. What "
        "weights and KV cache take of it has not been counted."
    )
    yield "[hardware]"
    yield f"name   = {_string(made.machine)}"
    yield f"nodes  = {made.nodes}"
    yield f"memory = {made.memory}"


def _rows(arguments: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield lines of a list, with as many flags as fit; a flag and its value stay together."""
    row = ""
    for words in arguments:
        group = "".join(f"{_string(word)}, " for word in words)
        if row and len(row) + len(group) > _WIDTH - 4:
            yield f"    {row.rstrip()}"
            row = ""
        row += group
    if row:
        yield f"    {row.rstrip()}"


def _pairs(name: str, values: Mapping[str, str]) -> Iterator[str]:
    yield ""
    yield f"[{name}]"
    width = max((len(_key(key)) for key in values), default=0)
    for key, value in values.items():
        yield f"{_key(key):{width}} = {_string(value)}"


def _key(text: str) -> str:
    return text if text.isascii() and text.replace("_", "").replace("-", "").isalnum() else json.dumps(text)


def _string(text: str) -> str:
    """Quote a printable text as a string of TOML."""
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text, ensure_ascii=False)


def _comment(sentence: str, below: str = "") -> list[str]:
    return textwrap.wrap(
        sentence, _WIDTH, initial_indent="# ", subsequent_indent=f"# {below}", break_long_words=False, break_on_hyphens=False
    )

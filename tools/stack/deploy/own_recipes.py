# SPDX-License-Identifier: Apache-2.0
"""Write a recipe into a stack's own folder, `validation/recipes`: whole or not at all, and never through a link."""

import re
import tempfile
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.deploy import recipes
from stack.deploy.recipes import NAME, OWN, Recipe

_TAKEN = "the recipe {name} exists already"


def named(text: str) -> str:
    """Make a recipe's name of a title or a file's name.

    Raises:
        StackError: it has no letter.

    """
    name = re.sub(r"[^a-z0-9]+", "-", text[:200].lower()).strip("-")[:60].strip("-")
    if not re.fullmatch(NAME, name):
        raise StackError(f"{text[:60]!r} makes no name of a recipe", "give it one with --name")
    return name


def read(root: Path, name: str, text: str, *, force: bool = False) -> Recipe:
    """Read the text of a recipe that is to be written into a stack; nothing is written.

    Args:
        root: the stack's folder.
        name: the recipe's name.
        text: the file's text.
        force: the recipe may replace one of that name.

    Raises:
        StackError: the name is invalid or taken, or the text is no recipe.

    """
    if not re.fullmatch(NAME, name):
        raise StackError(f"{name[:60]!r} is not a valid name of a recipe", "use lower-case letters, digits and dashes")
    if not force and name in recipes.known(root):
        raise StackError(_TAKEN.format(name=name), "give it another name with --name, or replace it with --force")
    with tempfile.TemporaryDirectory() as aside:
        draft = Path(aside, f"{name}.toml")
        draft.write_text(text, encoding="utf-8")
        return recipes.read(draft)


def write(root: Path, name: str, text: str, *, force: bool = False) -> Recipe:
    """Write a recipe of a stack, and return it as it is read; the arguments are those of `read`.

    Raises:
        StackError: `read` refuses it, a link is in the way, or the file cannot be written.

    """
    read(root, name, text, force=force)
    try:
        with files.opened(root) as opened, opened.below(*OWN.parts, create=True) as folder:
            # A new name first: a reader sees the old recipe or the new one, never half of it.
            folder.write(f".{name}.new", text.encode())
            folder.move(f".{name}.new", folder, f"{name}.toml")
            folder.sync()
    except OSError as failed:
        raise StackError(f"{root / OWN} cannot be written ({failed.strerror})", "check the folder's rights") from failed
    return recipes.load(name, root)

# SPDX-License-Identifier: Apache-2.0
"""Names that a shell completes: upstreams, series, patches, tags and recipes, as the stack and the cache have them.

A completion runs at every press of a key, so it reads lists, no patch files, and asks no server. Whatever is wrong with the
stack is no completion's business: there are no names then, and the command itself says what is wrong.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.base.errors import StackError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stack.model.releases import Releases

_Names = Callable[[click.Context], Iterable[str]]
_Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completer(names: _Names) -> _Completer:
    """Make click's completer of a function that lists names."""

    @functools.wraps(names)
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell asks

        try:
            return [CompletionItem(name) for name in names(context) if name.startswith(incomplete)]
        except (StackError, OSError, ValueError):
            return []

    return complete


@_completer
def complete_upstreams(context: click.Context) -> Iterable[str]:
    """Name the upstreams of the stack."""
    from stack.model import pins  # noqa: PLC0415

    return pins.load(_root(context) / pins.FILE).names()


@_completer
def complete_series(context: click.Context) -> Iterable[str]:
    """Name the series of the stack, in their order."""
    return _series(context)


@_completer
def complete_patches(context: click.Context) -> Iterable[str]:
    """Name the patches of the stack by their paths below `stacks/`."""
    from stack.model import series as model  # noqa: PLC0415
    from stack.model import stack  # noqa: PLC0415

    folder = _root(context) / stack.FOLDER
    return [ref.path for name in _series(context) for ref in model.load(folder / name).patches]


@_completer
def complete_tags(context: click.Context) -> Iterable[str]:
    """Name the releases that were listed last of the upstream on the command line, or of all if none stands there yet.

    The newest come first.
    """
    from stack.model import pins  # noqa: PLC0415
    from stack.store import cache, listed_tags  # noqa: PLC0415

    home = cache.root(context.find_root().params.get("cache"))
    named = context.params.get("upstream")
    asked = [pin for pin in pins.load(_root(context) / pins.FILE) if named in (None, pin.upstream)]
    listed = ((pin.releases, listed_tags.names(cache.upstream_store(home, pin.upstream))) for pin in asked)
    return [tag for releases, tags in listed for tag in reversed(_ordered(releases, tags))]


def _ordered(releases: "Releases", tags: tuple[str, ...]) -> Sequence[str]:
    """Put tags in order; those of an expression stay as they were listed, since somebody may have written it to take for ever."""
    return releases.ordered(tags, early=True) if releases.star is not None else tags


@_completer
def complete_recipes(context: click.Context) -> Iterable[str]:
    """Name the recipes: those of the package, and those of the stack."""
    from stack.deploy import recipes as known  # noqa: PLC0415

    try:
        return known.known(_root(context))
    except StackError:
        return known.known()


@_completer
def complete_schemas(_context: click.Context) -> Iterable[str]:
    """Name the schemas of JSON documents and of files."""
    from stack.cli import schemas  # noqa: PLC0415

    return (*schemas.names(), *schemas.files())


def _series(context: click.Context) -> Iterable[str]:
    from stack.model import document, stack  # noqa: PLC0415

    return document.load(_root(context) / stack.FOLDER / stack.FILE).texts("series")


def _root(context: click.Context) -> Path:
    """Find the stack's folder as the verb will: `--root`, else here or above."""
    from stack.model import stack  # noqa: PLC0415

    root = context.find_root().params.get("root")
    return stack.find_root(Path.cwd()) if root is None else Path(root)

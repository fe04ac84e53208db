# SPDX-License-Identifier: Apache-2.0
"""The search for duplicates, before anything of ours is seen by others."""

from collections.abc import Callable, Sequence

import click

from stack.cli.common import one_line, print_table
from stack.cli.exporting import Work
from stack.upstreaming import duplicate_search, forge
from stack.upstreaming.duplicate_search import Search
from stack.upstreaming.github import GitHub
from stack.upstreaming.proposal import Proposal


def searched(work: Work, proposals: Sequence[Proposal], client: Callable[[str], GitHub]) -> dict[str, Search]:
    """Search for what does the same as some proposals, by their names, and keep the record of each search.

    Raises:
        StackError: an upstream is on no forge, or that cannot be asked.

    """

    stack = work.stores.stack
    searchers: dict[str, duplicate_search.Searcher] = {}
    found: dict[str, Search] = {}
    for place, one in enumerate(proposals):
        if work.stores.place.progress is not None:
            work.stores.place.progress("searching for duplicates", place, len(proposals))
        if one.upstream not in searchers:
            repository = forge.repository(stack.pins.get(one.upstream).git)
            searchers[one.upstream] = duplicate_search.Searcher(client(repository.host), repository)
        earlier = duplicate_search.kept(stack.root, one)
        despite = {*work.asked.despite, *(earlier.despite if earlier is not None else ())}
        objects = work.stores.objects(one.upstream)
        found[one.name] = searchers[one.upstream].search(one, stack.get(one.series), objects, despite)
        duplicate_search.keep(stack.root, one, found[one.name])
    return found


def show(found: dict[str, Search]) -> None:
    """Print what may be a duplicate, with the lines that both have."""
    rows = []
    for name, search in found.items():
        for one in search.duplicates:
            rows.append((name, one.address, f"{one.score:.2f}", one_line(one.title)))
            rows += [("", "", "", f"+{one_line(line)}") for line in one.lines]
            name = ""  # noqa: PLW2901 (said once)
    if rows:
        print_table(("pull request", "alike", "score", ""), rows)
        click.echo("look at each: where it is something else, --despite ADDRESS says so, and the description with it")


def as_json(search: Search) -> dict[str, object]:
    """A search, as `--json` prints it."""
    return {
        "made": search.made,
        "repository": search.repository,
        "queries": list(search.queries),
        "found": [
            {
                "number": one.number,
                "address": one.address,
                "title": one.title,
                "score": one.score,
                "duplicate": one.duplicate,
                "lines": list(one.lines),
                "paths": list(one.paths),
                "whole": one.whole,
            }
            for one in search.found
        ],
        "unread": search.unread,
        "despite": list(search.despite),
    }

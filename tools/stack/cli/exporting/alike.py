# SPDX-License-Identifier: Apache-2.0
"""Search for duplicates before other people can see our pull request."""

from collections.abc import Callable, Sequence

from stack.cli.common import one_line, print_table
from stack.cli.exporting import Work
from stack.cli.sentences import say
from stack.forge import repositories
from stack.forge.github import GitHub
from stack.upstreaming import duplicate_search
from stack.upstreaming.duplicate_search import Search
from stack.upstreaming.proposal import Proposal


def searched(work: Work, proposals: Sequence[Proposal], client: Callable[[str], GitHub]) -> dict[str, Search]:
    """Search for duplicates of some proposals, keep a record of each search, and return the searches by proposal.

    Raises:
        StackError: an upstream is not on a forge, or the forge cannot be asked.

    """

    stack = work.stores.stack
    searchers: dict[str, duplicate_search.Searcher] = {}
    searches: dict[str, Search] = {}
    for place, proposal in enumerate(proposals):
        work.stores.tell("searching for duplicates", place, len(proposals))
        if proposal.upstream not in searchers:
            repository = repositories.repository(stack.pins.get(proposal.upstream).git)
            searchers[proposal.upstream] = duplicate_search.Searcher(client(repository.host), repository)
        earlier = duplicate_search.kept(stack.root, proposal)
        despite = {*work.options.despite, *(earlier.despite if earlier is not None else ())}
        objects = work.stores.objects(proposal.upstream)
        searches[proposal.name] = searchers[proposal.upstream].search(proposal, stack.get(proposal.series), objects, despite)
        duplicate_search.keep(stack.root, proposal, searches[proposal.name])
    return searches


def show(searches: dict[str, Search]) -> None:
    """Print possible duplicates, with the lines that both have."""
    rows = []
    for name, search in searches.items():
        for similar in search.duplicates:
            rows.append((name, similar.address, f"{similar.score:.2f}", one_line(similar.title)))
            rows += [("", "", "", f"+{one_line(line)}") for line in similar.lines]
            name = ""  # noqa: PLW2901 (shown in the first row only)
    if rows:
        print_table(("pull request", "alike", "score", ""), rows)
        say("look at each: if it is something else, name it with --despite ADDRESS; the description then says so")


def as_json(search: Search) -> dict[str, object]:
    """Convert a search to its form in `--json`."""
    return {
        "made": search.made,
        "repository": search.repository,
        "queries": list(search.queries),
        "found": [
            {
                "number": similar.number,
                "address": similar.address,
                "title": similar.title,
                "score": similar.score,
                "duplicate": similar.duplicate,
                "lines": list(similar.lines),
                "paths": list(similar.paths),
                "whole": similar.whole,
            }
            for similar in search.found
        ],
        "unread": search.unread,
        "despite": list(search.despite),
    }

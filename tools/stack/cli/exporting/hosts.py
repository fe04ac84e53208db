# SPDX-License-Identifier: Apache-2.0
"""The clients of the forges that a call asks, one each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from stack.cli.exporting import Work
from stack.upstreaming.github import GitHub


@contextmanager
def clients(work: Work) -> Iterator[Callable[[str], GitHub]]:
    """The client of a host, made when it is first asked for; all are closed at the end."""

    with ExitStack() as opened:
        made: dict[str, GitHub] = {}

        def client(host: str) -> GitHub:
            if host not in made:
                made[host] = GitHub(host, work.stores.place.progress)
                opened.callback(made[host].close)
            return made[host]

        yield client

# SPDX-License-Identifier: Apache-2.0
"""The clients for the forges of a call."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from stack.cli.exporting import Work
from stack.forge.github import GitHub


@contextmanager
def clients(work: Work) -> Iterator[Callable[[str], GitHub]]:
    """Provide a function that returns the client for a host, made on its first use; all clients are closed at the end."""

    with ExitStack() as opened:
        made: dict[str, GitHub] = {}

        def client(host: str) -> GitHub:
            if host not in made:
                made[host] = GitHub(host, work.stores.place.progress)
                opened.callback(made[host].close)
            return made[host]

        yield client

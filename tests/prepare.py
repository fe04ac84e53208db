# SPDX-License-Identifier: Apache-2.0
"""Download what the tests of a target need into the cache, before they run: `python -m tests.prepare TARGET`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import environment, series_proofs
from stack.proof.compiling import toolkit
from stack.store import cache
from stack.validation.bench import benchy
from stack.validation.serve import fixture_cache

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "tests/upstream/requirements.txt"

Step = Callable[[], object]


def tell(line: str) -> None:
    """Print a step at once."""
    print(line, flush=True)


def sources(stores: Stores) -> None:
    """Import the pinned sources, and the releases on which merged proofs have to fail."""
    for pin in stores.stack.pins:
        if pin.within is None:
            tell(f"sources of {pin.upstream} {pin.tag}")
            stores.obtain(pin.upstream)
    for proof in series_proofs.proofs(stores, ()):
        for release in dict.fromkeys(one.fails_on for one in proof.merged):
            tell(f"sources of {proof.upstream} {release}")
            stores.obtain(proof.upstream, release)


def steps(target: str, stores: Stores, home: Path) -> Iterator[Step]:
    """List the downloads of a target that are not sources."""
    match target:
        case "proofs":
            base = environment.of_tree(stores.objects("vllm"), stores.obtain("vllm").tree)
            yield lambda: environment.python(base, REQUIREMENTS, home, tell)
        case "kernels":
            yield lambda: toolkit.find(home, tell=tell)
        case "images":
            yield lambda: fixture_cache.prepare(home, tell)
            yield lambda: benchy.python(home, tell)


def main() -> int:
    """Prepare the cache, a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=("sources", "proofs", "kernels", "images"))
    target = parser.parse_args().target
    home = cache.root()
    tell(f"cache: {home}")
    try:
        with Stores(load(ROOT), Place(home)) as stores:
            sources(stores)
            # pip unpacks with one processor: two environments are made at once.
            with ThreadPoolExecutor(2) as workers:
                for made in [workers.submit(step) for step in steps(target, stores, home)]:
                    made.result()
    except StackError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

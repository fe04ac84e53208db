# SPDX-License-Identifier: Apache-2.0
"""Brings what the proofs need into the cache: upstream sources, the environment with torch, the compiler. `make test` says how much."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stack.carry.bases import Place, Stores
from stack.model.errors import StackError
from stack.model.stack import load
from stack.proof import environment, proving
from stack.proof.compiling import toolkit
from stack.store import cache
from validation.bench import benchy
from validation.serve import material

ROOT = Path(__file__).parents[2]


def tell(line: str) -> None:
    """A step, at once."""
    print(line, flush=True)


def main() -> int:
    """Prepare the cache, a line a step."""
    home = cache.root()
    print(f"cache: {home}")
    try:
        with Stores(load(ROOT), Place(home)) as stores:
            for pin in stores.stack.pins:
                if pin.within is None:
                    print(f"sources of {pin.upstream} {pin.tag}", flush=True)
                    stores.obtain(pin.upstream)
            for proof in proving.proofs(stores, ()):
                for release in dict.fromkeys(one.fails_on for one in proof.merged):
                    print(f"sources of {proof.upstream} {release}", flush=True)
                    stores.obtain(proof.upstream, release)
            torch = environment.torch_version(stores.objects("vllm"), stores.obtain("vllm").tree)
            requirements = Path(__file__).with_name("requirements.txt")
            # pip unpacks with one processor: two environments are made at once.
            with ThreadPoolExecutor(2) as workers:
                made = [
                    workers.submit(environment.python, torch, requirements, home, tell),
                    workers.submit(material.prepare, home, tell),
                    workers.submit(toolkit.find, home, tell=tell),
                    workers.submit(benchy.python, home, tell),
                ]
                for one in made:
                    one.result()
    except StackError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

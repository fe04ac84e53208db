# SPDX-License-Identifier: Apache-2.0
"""`python -m stack.validation.numerics list | run | touch | versions [NAME]...`: JSON lines; `run` prints each case as it ends.

`touch` runs the kernels of cases in this very process and judges nothing: for what watches a process.
"""

import argparse
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from stack.validation.numerics import running
from stack.validation.numerics.cases import AnyCase, named

_PACKAGES = ("torch", "numpy", "ml_dtypes", "compressed-tensors", "transformers", "vllm", "flashinfer-python", "triton")


def main() -> int:
    """Run the command line. Exit code 2 for a name that no case has."""
    parser = argparse.ArgumentParser(prog="python -m stack.validation.numerics", description=__doc__)
    parser.add_argument("verb", choices=["list", "run", "touch", "versions"])
    parser.add_argument("name", nargs="*", help="a case, with * for any text; all cases where none is named")
    parser.add_argument("--attached", action="store_true", help="end this process group when what started it ends")
    asked = parser.parse_args()
    if asked.attached:
        running.attach()
    cases = named(*asked.name)
    if not cases:
        parser.error(f"no case is named {' or '.join(asked.name)}")
    # Kernels and the libraries around them print what they like: it goes where errors go.
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        for line in _lines(asked.verb, cases):
            print(json.dumps(line, allow_nan=False), file=answer, flush=True)
    return 0


def _lines(verb: str, cases: tuple[AnyCase, ...]) -> Iterable[Mapping[str, Any]]:
    if verb == "run":
        return running.run(cases)
    if verb == "touch":
        running.touch(cases)
        return []
    if verb == "versions":
        return [dict(versions())]
    return [{"name": one.name, "needs": list(one.needs)} for one in cases]


def versions() -> Iterable[tuple[str, str]]:
    """What is installed of what the kernels come from."""
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


if __name__ == "__main__":
    sys.exit(main())

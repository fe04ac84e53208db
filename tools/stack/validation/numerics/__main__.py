# SPDX-License-Identifier: Apache-2.0
"""`python -m stack.validation.numerics list | run | touch | versions [NAME]...`: JSON lines; `run` prints each case as it ends.

`touch` runs the kernels of cases in this process and judges nothing: for tools that watch a process.
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
    """Run the command line. Returns 2 for a name that no case has."""
    parser = argparse.ArgumentParser(prog="python -m stack.validation.numerics", description=__doc__)
    parser.add_argument("verb", choices=["list", "run", "touch", "versions"])
    parser.add_argument("name", nargs="*", help="name of a case, where * matches any text (default: all cases)")
    parser.add_argument("--attached", action="store_true", help="end this process group when the parent process ends")
    options = parser.parse_args()
    if options.attached:
        running.attach()
    cases = named(*options.name)
    if not cases:
        parser.error(f"no case is named {' or '.join(options.name)}")
    # Kernels and their libraries may print to stdout: redirect it to stderr, and keep the original for the answer.
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        for line in _lines(options.verb, cases):
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
    return [{"name": case.name, "needs": list(case.needs)} for case in cases]


def versions() -> Iterable[tuple[str, str]]:
    """List the versions of the installed packages that provide or need kernels."""
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Which series are in a server, file by file, and a stack without one of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from types import MappingProxyType

from stack.carry.upstream_stores import Stores
from stack.model import diff
from stack.model.series import Series
from stack.model.stack import Stack
from stack.validation import python_env
from stack.validation.python_env import Packages
from stack.validation.serve.client import Wrong

SERVED = "vllm"
"""The upstream whose packages a CPU server has loaded."""
_HASH = """
import hashlib, importlib.util, json, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0]).parent
files = json.load(sys.stdin)
paths = {name: folder / name for name in files}
json.dump({name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for name, path in paths.items()}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a series changes in the package that is served: SHA-256 of each carried file, and of what it was upstream."""

    carried: Mapping[str, str]
    upstream: Mapping[str, str]


def delivery(stores: Stores, series: Series) -> Delivery:
    """The files of the package that a series' patches change, as the whole stack leaves them.

    Raises:
        StackError: a source cannot be had, or a patch does not fit.

    """
    objects = stores.objects(SERVED)
    base, tip = objects.tree_of(stores.base(SERVED)), objects.tree_of(stores.tip(SERVED))
    own = {file.path for ref in series.patches if ref.upstream == SERVED for file in diff.parse(stores.stack.patches[ref].diff)}
    carried, upstream = {}, {}
    for path, was, now in objects.difference(base, tip):
        if path in own and PurePosixPath(path).parts[0] == SERVED and now is not None:
            carried[path] = sha256(objects.read(now.id)).hexdigest()
            upstream[path] = sha256(objects.read(was.id)).hexdigest() if was is not None else ""
    return Delivery(MappingProxyType(carried), MappingProxyType(upstream))


def check(served: Packages, wanted: Delivery) -> None:
    """Ask the packages of a server for the hashes of their files.

    Raises:
        Wrong: a file is another, or not there.

    """
    done = python_env.run(served, _HASH, SERVED, given=json.dumps(sorted(wanted.carried)))
    if done.returncode:
        raise Wrong("the server's environment cannot be asked", answer=done.stderr[-600:])
    try:
        found = python_env.answer(done)
    except ValueError as odd:
        raise Wrong("the server's environment says no hashes", answer=done.stdout[-600:]) from odd
    for path, expected in wanted.carried.items():
        there = found.get(path, "")
        if there != expected:
            how = "as upstream has it" if there == wanted.upstream[path] else "another"
            raise Wrong(f"{path} is {how if there else 'not there'}", answer=there, expected=expected)


def without(stack: Stack, name: str) -> Stack:
    """The stack without a series. What needs it, or stands on it, may not fit then."""
    series = tuple(one for one in stack.series if one.name != name)
    kept = {ref: patch for ref, patch in stack.patches.items() if ref.series != name}
    return replace(stack, series=series, patches=MappingProxyType(kept))

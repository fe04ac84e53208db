# SPDX-License-Identifier: Apache-2.0
"""Check which series are in a server, file by file; and remove a series from a stack."""

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
"""The upstream whose packages a CPU server loads."""
_HASH = """
import hashlib, importlib.util, json, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0]).parent
files = json.load(sys.stdin)
paths = {name: folder / name for name in files}
json.dump({name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for name, path in paths.items()}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The files of the served package that a series changes: SHA-256 with the stack's patches, and of upstream's version."""

    carried: Mapping[str, str]
    upstream: Mapping[str, str]


def delivery(stores: Stores, series: Series) -> Delivery:
    """Hash the files of the package that a series' patches change, in the tree with the whole stack.

    Raises:
        StackError: a source is not available, or a patch does not apply.

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
    """Compare the files in a server's packages with the expected hashes.

    Raises:
        Wrong: a file differs, or is missing.

    """
    done = python_env.run(served, _HASH, SERVED, given=json.dumps(sorted(wanted.carried)))
    if done.returncode:
        raise Wrong("Python does not run in the server's environment", answer=done.stderr[-600:])
    try:
        hashes = python_env.answer(done)
    except ValueError as odd:
        raise Wrong("the server's environment prints something else than hashes", answer=done.stdout[-600:]) from odd
    for path, expected in wanted.carried.items():
        installed = hashes.get(path, "")
        if installed != expected:
            how = "upstream's version" if installed == wanted.upstream[path] else "another version"
            raise Wrong(f"{path} is {how if installed else 'missing'}", answer=installed, expected=expected)


def without(stack: Stack, name: str) -> Stack:
    """Return the stack without a series. Series that need it, or whose patches build on it, may then not apply."""
    series = tuple(each for each in stack.series if each.name != name)
    kept = {ref: patch for ref, patch in stack.patches.items() if ref.series != name}
    return replace(stack, series=series, patches=MappingProxyType(kept))

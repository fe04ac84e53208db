# SPDX-License-Identifier: Apache-2.0
"""A proof that is a command: it succeeds in the carried tree, and fails without one of its patches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stack.model.document import Table
from stack.model.ids import PATH, UPSTREAM

_PYTHON = r"3\.[0-9]{1,2}"
LONGEST = 3600
"""Seconds that a command may take unless `seconds` says otherwise."""


@dataclass(frozen=True, slots=True)
class ProofCommand:
    """A shell command, and what its outcome depends on beside the tree.

    `patches` are the files of the patches that it proves, all of one upstream; some may have landed. `paths` are files and folders
    below the stack's root that it reads. `requirements` is a list of Python packages, `python` the version of an interpreter.
    """

    run: str
    upstream: str
    patches: tuple[str, ...]
    paths: tuple[str, ...] = ()
    requirements: str | None = None
    python: str | None = None
    seconds: int = LONGEST


def read(table: Table, patches: Sequence[str]) -> ProofCommand:
    """Read a command from `proves` of a series that has, or had, these `patches`.

    Raises:
        StackError: A key is unknown, missing or malformed, or the command proves patches of several upstreams.

    """
    upstream = table.optional_text("upstream", pattern=UPSTREAM, meaning="the name of an upstream")
    proved = table.texts("patches") or tuple(file for file in patches if upstream in (None, _upstream(file)))
    command = ProofCommand(
        run=table.text("run", pattern=r"[^\0\n]*\S[^\0\n]*", meaning="a shell command in one line"),
        upstream=upstream or (_upstream(proved[0]) if proved else ""),
        patches=proved,
        paths=table.texts("paths"),
        requirements=table.optional_text("requirements", pattern=PATH, meaning="the path of a file of the stack"),
        python=table.optional_text("python", pattern=_PYTHON, meaning="a version of Python, such as 3.12"),
        seconds=table.whole("seconds") if table.given("seconds") else LONGEST,
    )
    table.finish()
    for path in command.paths:
        if not re.fullmatch(PATH, path):
            raise table.error("paths", f"names {path!r}", "it has to be a path below the stack's folder")
    unknown = [file for file in proved if file not in patches]
    if unknown:
        raise table.error("patches", f"names {unknown[0]!r}", f"the series has {', '.join(patches) or 'no patch'}")
    if upstream is not None and not proved:
        raise table.error("upstream", f"is {upstream!r}", f"the series has {', '.join(patches) or 'no patch'}")
    if len({command.upstream, *map(_upstream, proved)}) > 1:
        raise table.error("upstream", "is not clear", "a command runs in the tree of one upstream: name it, or its patches")
    return command


def _upstream(file: str) -> str:
    return file.partition("/")[0]

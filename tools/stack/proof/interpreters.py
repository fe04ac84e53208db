# SPDX-License-Identifier: Apache-2.0
"""Asking another interpreter what its environment holds."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.model.errors import StackError

_VERSIONS = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
_CUDA = "import json, torch; print(json.dumps(torch.version.cuda))"
_FORGED = """
import importlib.util, json, marshal, sys
def differs(path, source):
    with open(path, "rb") as file:
        head, data = file.read(16), file.read()
    if head[:4] != importlib.util.MAGIC_NUMBER:
        return False  # of another release: never run
    with open(source, "rb") as file:
        text = file.read()
    level = path.rpartition(".opt-")[2].partition(".")[0] if ".opt-" in path else "0"
    try:
        return marshal.loads(data) != compile(text, source, "exec", dont_inherit=True, optimize=int(level))
    except (EOFError, SyntaxError, TypeError, ValueError):
        return True
print(json.dumps([path for path, source in json.load(sys.stdin).items() if differs(path, source)]))
"""
_PATHS = "import json, sys; print(json.dumps(sys.path))"


def versions(python: Path, names: Sequence[str]) -> Mapping[str, str | None]:
    """The installed versions of packages.

    Raises:
        StackError: it does not answer.

    """
    return dict(_asked(python, _VERSIONS, *names))


def cuda(python: Path) -> str | None:
    """The version of CUDA that its torch is built for.

    Raises:
        StackError: it does not answer.

    """
    found = _asked(python, _CUDA)
    return None if found is None else str(found)


def paths(python: Path) -> list[str]:
    """Where it looks for modules.

    Raises:
        StackError: it does not answer.

    """
    return [str(path) for path in _asked(python, _PATHS)]


def forged(python: Path, compiled: Mapping[str, str]) -> list[str]:
    """Those of some compiled files (path: its source) that are not what the interpreter makes of the source.

    Raises:
        StackError: it does not answer.

    """
    return [str(path) for path in _asked(python, _FORGED, given=json.dumps(compiled))]


def _asked(python: Path, script: str, *arguments: str, given: str = "") -> Any:
    if python.is_dir():
        raise StackError(f"{python} is a folder", f"name its interpreter, such as {python / 'bin/python'}")
    try:
        command = [str(python), "-I", "-W", "ignore", "-c", script, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except OSError as error:
        raise StackError(f"{python} cannot be run ({error.strerror})", "name an interpreter") from error
    try:
        return json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError as bad:
        raise StackError(f"{python} does not answer as a Python", "name an interpreter") from bad

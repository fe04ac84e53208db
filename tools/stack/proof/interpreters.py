# SPDX-License-Identifier: Apache-2.0
"""Query another Python interpreter about its environment."""

import contextlib
import functools
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stack.base.errors import StackError

_VERSIONS = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
_FORGED = """
import importlib.util, json, marshal, resource, sys
# A few forged bytes can make marshal allocate any amount of memory.
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, resource.getrlimit(resource.RLIMIT_AS)[1]))
def differs(path, source):
    try:
        with open(path, "rb") as file:
            head, data = file.read(16), file.read()
        if head[:4] != importlib.util.MAGIC_NUMBER:
            return False  # of another release: never run
        with open(source, "rb") as file:
            text = file.read()
        level = path.rpartition(".opt-")[2].partition(".")[0] if ".opt-" in path else "0"
        return marshal.loads(data) != compile(text, source, "exec", dont_inherit=True, optimize=int(level))
    except Exception:
        return True
print(json.dumps([path for path, source in json.load(sys.stdin).items() if differs(path, source)]))
"""
_INSTALLED = """
import importlib.metadata, json, sys
packages, editable = [], []
for one in importlib.metadata.distributions():
    packages.append((one.metadata["Name"], one.version))
    try:
        origin = json.loads(one.read_text("direct_url.json") or "{}")
    except ValueError:
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        editable.append(origin["url"])
print(json.dumps({"python": sys.version, "packages": sorted(packages), "editable": sorted(editable)}))
"""
_PATHS = "import json, sys; print(json.dumps(sys.path))"
_SECONDS = 600
"""Time limit of a query: compiling vLLM's files takes half a minute, importing torch from a cold disk a minute."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment: its Python version, its packages with versions, and the folders of editable packages."""

    python: str
    packages: tuple[tuple[str, str], ...]
    editable: tuple[Path, ...]


def found(python: Path) -> Path:
    """Return the absolute path of an interpreter, since steps run in other folders. Links stay, as a venv's must.

    Raises:
        StackError: The path is not an executable file.

    """
    if python.is_dir():
        raise StackError(f"{python} is a folder", f"name its interpreter, such as {python / 'bin/python'}")
    path = shutil.which(python)
    if path is None:
        why = "Permission denied" if python.exists() else "No such file or directory"
        raise StackError(f"{python} cannot be run ({why})", "name an interpreter")
    return Path(path).absolute()


def versions(python: Path, names: Sequence[str]) -> Mapping[str, str | None]:
    """Return the installed versions of packages; None for a missing one.

    Raises:
        StackError: The interpreter does not answer.

    """
    return dict(_asked(python, dict, _VERSIONS, *names))


@functools.cache
def installed(python: Path) -> Installed:
    """Return an interpreter's environment; it is queried once per process.

    Raises:
        StackError: The interpreter does not answer.

    """
    answer = _asked(python, dict, _INSTALLED)
    packages = tuple((str(name), str(version)) for name, version in answer["packages"])
    editable = tuple(Path(unquote(urlsplit(str(address)).path)) for address in answer["editable"])
    return Installed(str(answer["python"]), packages, editable)


def printed(python: Path, code: str) -> object:
    """Return what Python code prints as JSON on its last line.

    Raises:
        StackError: The interpreter does not answer.

    """
    return _asked(python, object, code)


def paths(python: Path) -> list[str]:
    """Return its module search path.

    Raises:
        StackError: The interpreter does not answer.

    """
    return [str(path) for path in _asked(python, list, _PATHS)]


def forged(python: Path, compiled: Mapping[str, str]) -> list[str]:
    """Return the compiled files that differ from what the interpreter makes of their source; `compiled` maps file to source.

    Raises:
        StackError: The interpreter does not answer.

    """
    return [str(path) for path in _asked(python, list, _FORGED, given=json.dumps(compiled))]


def _asked(python: Path, kind: type, script: str, *arguments: str, given: str = "") -> Any:
    try:
        command = [str(python), "-I", "-W", "ignore", "-c", script, *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=_SECONDS
        )
    except OSError as error:
        raise StackError(f"{python} cannot be run ({error.strerror})", "name an interpreter") from error
    except subprocess.TimeoutExpired as late:
        raise StackError(f"{python} has not answered for {_SECONDS} seconds", "name an interpreter") from late
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
        if isinstance(answer, kind):
            return answer
    raise StackError(f"{python} does not answer as a Python", "name an interpreter")

# SPDX-License-Identifier: Apache-2.0
"""Build a wheel from the carried source tree with the upstream's own backend, without a compiler and without network."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import counted
from stack.projects import PlainBuild
from stack.proof import environment

TOOLS = ("packaging==25.0", "setuptools==80.9.0", "wheel==0.45.1")
"""The tools that backends run with; other versions write other bytes."""
EPOCH = "315532800"
"""1980-01-01, the first day in a ZIP file: a tree has no time of its own."""
_MARKED = ("ERROR", "error:", "RuntimeError", "ModuleNotFoundError")


def tools(cache: Path, tell: Progress) -> Path:
    """Return the interpreter of the build environment, which is made on the first call.

    Raises:
        StackError: pip could not install a package.

    """
    name = f"build-{sys.version_info[0]}.{sys.version_info[1]}-{'-'.join(TOOLS).replace('==', '-')}"
    return environment.made(cache, name, {"installing the build tools": TOOLS}, tell)


def tool_versions() -> dict[str, str]:
    """Return the versions of the build tools by name."""
    return dict(tool.split("==") for tool in TOOLS)


def build(recipe: PlainBuild, files: Callable[[Path], None], version: Version, python: Path, out: Path) -> Path:
    """Build a wheel into the folder `out`; `files` fills a folder with the carried tree.

    Raises:
        StackError: the version is not where the recipe expects it, or the backend failed.

    """
    with tempfile.TemporaryDirectory(prefix="stack-build-") as place:
        tree = Path(place) / "source"
        with _umask():  # file permissions go into the wheel
            tree.mkdir()
            files(tree)
        _set_version(tree / recipe.version_file, recipe.version_line, version)
        # Exclude indexes, the user's settings, and everything that depends on place and time.
        home = Path(place) / "home"
        home.mkdir()
        env = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if key in os.environ} | dict(
            recipe.environment
        )
        env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"SOURCE_DATE_EPOCH": EPOCH, "PIP_CONFIG_FILE": os.devnull, "PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}
        command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        with _umask():
            _run([*command, "--wheel-dir", str(out), str(tree)], env)
    made = sorted(out.glob("*.whl"))
    if len(made) != 1:
        raise StackError(
            f"the upstream's build made {counted(len(made), 'wheel')}", "this is a defect of the recipe: please report it"
        )
    return made[0]


@contextlib.contextmanager
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _set_version(file: Path, line: str, version: Version) -> None:
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    start, end = line.split("{}")
    changed, count = re.subn(f"(?m)^{re.escape(start)}[^\"']*{re.escape(end)}$", line.format(version), text)
    if count != 1:
        raise StackError(
            f"{file.name} does not contain the version as expected", "the upstream's build has changed: see its backend"
        )
    file.write_text(changed, encoding="utf-8")


def _run(command: list[str], env: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        error = next((line for line in lines if any(mark in line for mark in _MARKED)), lines[-1] if lines else "no message")
        raise StackError(f"the upstream's build failed: {error[:300]}", "check the network and disk space, and the patches")

# SPDX-License-Identifier: Apache-2.0
"""What is installed into an image beside the stack's wheels: resolved once, locked with hashes, downloaded before the build."""

import hashlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stack.base.errors import StackError
from stack.images import tools
from stack.store import cache as places
from stack.store import indexes
from stack.store.indexes import Index

_OLDEST = 5
"""The manylinux tags begin with glibc 2.5."""
_LEAST = Version("3.11")
"""The Python that this tool needs."""
_ALWAYS = ("pip",)
"""What installs the others."""
_ASK = "import json, platform; print(json.dumps([platform.python_version(), platform.machine(), platform.libc_ver()]))"


@dataclass(frozen=True, slots=True)
class Python:
    """An image's interpreter: its version, the machine and the version of its C library."""

    version: Version
    machine: str
    libc: Version

    @property
    def short(self) -> str:
        """`3.12`."""
        return f"{self.version.major}.{self.version.minor}"


def python(ask: Callable[..., str]) -> Python:
    """The interpreter of an image; `ask` runs a command in it.

    Raises:
        StackError: there is none, or none that fits.

    """
    version, machine, (libc, number) = json.loads(ask("python3", "-c", _ASK))
    if libc != "glibc":
        raise StackError(
            f"the base image has the C library {libc or 'of a kind that is unknown'}",
            "wheels need glibc: take a Debian or Ubuntu",
        )
    if Version(version) < _LEAST:
        raise StackError(f"the base image has Python {version}", f"{_LEAST} or newer is needed: take a newer base")
    return Python(Version(version), machine, Version(number))


def locked(wheels: Sequence[Path], target: Python, place: Path, tell: Callable[[str], None], given: Path | None = None) -> str:
    """Requirements with hashes of all that some wheels need beside each other; resolved once for the same needs.

    Args:
        wheels: what is to be installed.
        target: the interpreter.
        place: the cache folder.
        tell: gets a line a step.
        given: an earlier lock to take in place of resolving.

    Raises:
        StackError: there is no solution, or the index cannot be asked; the given lock is none.

    """
    own = {canonicalize_name(name) for name, _ in _named(wheels)}
    if given is not None:
        return _without(given.read_text(encoding="utf-8"), own)
    needs = [sorted(own), sorted(line for path in wheels for line in _needs(path)), str(target)]
    key = hashlib.sha256(json.dumps(needs).encode()).hexdigest()[:16]
    lock = place / "images" / "locks" / f"{key}.txt"
    with places.lock(lock):
        if not lock.is_file():
            tell("resolving requirements")
            asked = lock.with_suffix(".in")
            asked.write_text("\n".join([*(f"{name}=={version}" for name, version in _named(wheels)), *_ALWAYS, ""]))
            places.put(lock, _without(_resolved(asked, wheels, target, place, tell), own).encode())
    return lock.read_text(encoding="utf-8")


def _needs(wheel: Path) -> list[str]:
    """The requirements that a wheel names."""
    with zipfile.ZipFile(wheel) as archive:
        [about] = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return [line for line in archive.read(about).decode().partition("\n\n")[0].splitlines() if line.startswith("Requires-")]


def _resolved(asked: Path, wheels: Sequence[Path], target: Python, place: Path, tell: Callable[[str], None]) -> str:
    folders = sorted({str(path.parent) for path in wheels})
    return tools.run(
        tools.folder(place, tell) / "uv",
        *("pip", "compile", "--quiet", "--no-config", "--no-python-downloads", f"--python={sys.executable}"),
        *(
            f"--python-version={target.short}",
            f"--python-platform={target.machine}-manylinux_{target.libc.major}_{target.libc.minor}",
        ),
        *(
            "--generate-hashes",
            "--only-binary=:all:",
            "--no-header",
            "--no-annotate",
            "--no-emit-index-url",
            "--no-emit-find-links",
        ),
        # As pip does: the best version of all indexes.
        *("--index-strategy=unsafe-best-match", "--no-cache"),
        str(asked),
        env=_environment(folders),
    )


def _environment(folders: Sequence[str]) -> dict[str, str]:
    """The user's indexes and some folders in uv's words: in variables, as addresses may hold passwords."""
    found = indexes.settings()
    first, *others = (_with_password(one) for one in found.indexes)
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    env |= {"UV_DEFAULT_INDEX": first, "UV_INDEX": " ".join(others), "UV_FIND_LINKS": ",".join([*folders, *found.find_links])}
    env |= {"UV_INSECURE_HOST": " ".join(sorted(found.trusted_hosts))}
    if found.certificates is not None:
        env["SSL_CERT_FILE"] = str(found.certificates)
    if found.proxy is not None:
        env |= {"ALL_PROXY": found.proxy, "HTTPS_PROXY": found.proxy, "HTTP_PROXY": found.proxy}
    return {name: value for name, value in env.items() if value}


def _with_password(index: Index) -> str:
    if index.user is None:
        return index.url
    parts = urlsplit(index.url)
    who = f"{quote(index.user, safe='')}:{quote(index.password or '', safe='')}"
    return urlunsplit((parts.scheme, f"{who}@{parts.netloc}", parts.path, parts.query, ""))


def downloaded(lock: str, target: Python, place: Path, tell: Callable[[str], None]) -> tuple[Path, ...]:
    """The files of a lock in the cache, each compared with its hash.

    Raises:
        StackError: one cannot be had, or is another file.

    """
    folder = place / "images" / "packages" / hashlib.sha256(f"{lock}{target}".encode()).hexdigest()[:16]
    with places.lock(folder):
        if not folder.is_dir():
            tell("downloading requirements")
            part = folder.with_name(f"{folder.name}{places.PART}")
            part.mkdir(parents=True, exist_ok=True)
            asked = part / "requirements.txt"
            asked.write_text(lock)
            _download(asked, target, part)
            asked.unlink()
            part.rename(folder)
    return tuple(sorted(folder.glob("*.whl")))


def _download(asked: Path, target: Python, folder: Path) -> None:
    pairs = [f"manylinux_2_{minor}_{target.machine}" for minor in range(_OLDEST, target.libc.minor + 1)]
    old = [f"manylinux{name}_{target.machine}" for name in ("1", "2010", "2014")]
    tools.run(
        Path(sys.executable),
        *("-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", f"--dest={folder}"),
        *(f"--python-version={target.short}", *(f"--platform={one}" for one in (*pairs, *old, f"linux_{target.machine}"))),
        *("--requirement", str(asked)),
    )


def exact(files: Sequence[Path]) -> str:
    """Requirements that allow these very files and no others, in the order of their names."""
    rows = {canonicalize_name(name): (version, path) for (name, version), path in zip(_named(files), files, strict=True)}
    return "".join(
        f"{name}=={version} --hash=sha256:{places.hash_of(path)}\n" for name, (version, path) in sorted(rows.items())
    )


def _named(wheels: Sequence[Path]) -> Iterator[tuple[str, Version]]:
    for path in wheels:
        name, version, *_ = parse_wheel_filename(path.name)
        yield name, version


def _without(lock: str, names: Set[str]) -> str:
    """A lock without some projects, a line a requirement."""
    lines = [line for line in re.sub(r"\s*\\\n\s*", " ", lock).splitlines() if line.strip() and not line.startswith("#")]
    kept = []
    for line in lines:
        found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==\S+ --hash=", line)
        if found is None:
            raise StackError(
                f"the lock has a line that is none of its own: {line[:100]!r}", "write NAME==VERSION --hash=sha256:…"
            )
        if canonicalize_name(found[1]) not in names:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)

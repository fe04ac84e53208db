# SPDX-License-Identifier: Apache-2.0
"""Resolve the requirements of the stack's wheels once, lock them with hashes, and download them before the build."""

import hashlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.images import tools
from stack.images.system import Python
from stack.store import cache as places
from stack.store import indexes
from stack.store.indexes import Index

_OLDEST = 5
"""The oldest manylinux tag is for glibc 2.5."""
_ALWAYS = ("pip",)
"""People look with it at what is installed."""


def locked(
    wheels: Sequence[Path],
    target: Python,
    place: Path,
    tell: Progress,
    given: Path | None = None,
    further: Sequence[str] = (),
) -> str:
    """Lock everything that some wheels need besides each other, with hashes; equal needs are resolved only once.

    Args:
        wheels: the wheels to be installed.
        target: the interpreter.
        place: the cache folder.
        tell: called with a line for each step.
        given: an earlier lock that replaces resolving.
        further: requirements beside those of the wheels.

    Raises:
        StackError: there is no solution, the index cannot be reached, or the given lock is invalid.

    """
    own = {canonicalize_name(name) for name, _ in _named(wheels)}
    if given is not None:
        return _without(given.read_text(encoding="utf-8"), own)
    needs = [sorted(own), sorted(line for path in wheels for line in _needs(path)), str(target), *further]
    key = hashlib.sha256(json.dumps(needs).encode()).hexdigest()[:16]
    lock = place / "images" / "locks" / f"{key}.txt"
    with places.lock(lock):
        if not lock.is_file():
            tell("resolving requirements")
            source = lock.with_suffix(".in")
            source.write_text("\n".join([*(f"{name}=={version}" for name, version in _named(wheels)), *_ALWAYS, *further, ""]))
            places.put(lock, _without(_resolved(source, wheels, target, place, tell), own).encode())
    return lock.read_text(encoding="utf-8")


def _needs(wheel: Path) -> list[str]:
    """Return the requirements in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        [about] = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return [line for line in archive.read(about).decode().partition("\n\n")[0].splitlines() if line.startswith("Requires-")]


def _resolved(source: Path, wheels: Sequence[Path], target: Python, place: Path, tell: Progress) -> str:
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
        # Like pip, take the best version of all indexes.
        *("--index-strategy=unsafe-best-match", "--no-cache"),
        str(source),
        env=_environment(folders),
    )


def _environment(folders: Sequence[str]) -> dict[str, str]:
    """Pass the user's indexes and some folders to uv, in environment variables because addresses may contain passwords."""
    user = indexes.settings()
    first, *others = (_with_password(index) for index in user.indexes)
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    env |= {"UV_DEFAULT_INDEX": first, "UV_INDEX": " ".join(others), "UV_FIND_LINKS": ",".join([*folders, *user.find_links])}
    env |= {"UV_INSECURE_HOST": " ".join(sorted(user.trusted_hosts))}
    if user.certificates is not None:
        env["SSL_CERT_FILE"] = str(user.certificates)
    if user.proxy is not None:
        env |= {"ALL_PROXY": user.proxy, "HTTPS_PROXY": user.proxy, "HTTP_PROXY": user.proxy}
    return {name: value for name, value in env.items() if value}


def _with_password(index: Index) -> str:
    if index.user is None:
        return index.url
    parts = urlsplit(index.url)
    who = f"{quote(index.user, safe='')}:{quote(index.password or '', safe='')}"
    return urlunsplit((parts.scheme, f"{who}@{parts.netloc}", parts.path, parts.query, ""))


def downloaded(lock: str, target: Python, place: Path, tell: Progress) -> tuple[Path, ...]:
    """Download the files of a lock into the cache, and return them; pip compares each with its hash.

    Raises:
        StackError: a file cannot be obtained, or has another hash.

    """
    folder = place / "images" / "packages" / hashlib.sha256(f"{lock}{target}".encode()).hexdigest()[:16]
    with places.lock(folder):
        if not folder.is_dir():
            tell("downloading requirements")
            part = folder.with_name(f"{folder.name}{places.PART}")
            part.mkdir(parents=True, exist_ok=True)
            source = part / "requirements.txt"
            source.write_text(lock)
            _download(source, target, part)
            source.unlink()
            part.rename(folder)
    return tuple(sorted(folder.glob("*.whl")))


def _download(source: Path, target: Python, folder: Path) -> None:
    pairs = [f"manylinux_2_{minor}_{target.machine}" for minor in range(_OLDEST, target.libc.minor + 1)]
    old = [f"manylinux{name}_{target.machine}" for name in ("1", "2010", "2014")]
    tools.run(
        Path(sys.executable),
        *("-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", f"--dest={folder}"),
        *(
            f"--python-version={target.short}",
            *(f"--platform={platform}" for platform in (*pairs, *old, f"linux_{target.machine}")),
        ),
        *("--requirement", str(source)),
    )


def exact(files: Sequence[Path]) -> str:
    """Write requirements that allow exactly these files, ordered by name."""
    rows = {canonicalize_name(name): (version, path) for (name, version), path in zip(_named(files), files, strict=True)}
    return "".join(
        f"{name}=={version} --hash=sha256:{places.hash_of(path)}\n" for name, (version, path) in sorted(rows.items())
    )


def _named(wheels: Sequence[Path]) -> Iterator[tuple[str, Version]]:
    for path in wheels:
        name, version, *_ = parse_wheel_filename(path.name)
        yield name, version


def _without(lock: str, names: Set[str]) -> str:
    """Remove some projects from a lock, and write each requirement on one line."""
    lines = [line for line in re.sub(r"\s*\\\n\s*", " ", lock).splitlines() if line.strip() and not line.startswith("#")]
    kept = []
    for line in lines:
        match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==\S+ --hash=", line)
        if match is None:
            raise StackError(f"the lock has an invalid line: {line[:100]!r}", "write NAME==VERSION --hash=sha256:…")
        if canonicalize_name(match[1]) not in names:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)

# SPDX-License-Identifier: Apache-2.0
"""Find and download a release's source archive and wheels on the package indexes that the user configured."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import requests
import urllib3
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.base.progress import Count
from stack.model.ids import Sha256
from stack.store import cache, http, index_page
from stack.store.index_page import Offer
from stack.store.indexes import Index, Settings, settings

MAX_SIZE = 2 << 30
"""Bytes; forty times the largest known release."""

_DIGITS = 20
"""Digits of the largest length that is parsed: `MAX_SIZE` has ten."""
_SUFFIX = ".tar.gz"
_CHUNK = 1 << 18
_SHOWN = 5
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.tar\.gz")

"""Called with the bytes that are done, and the total if it is known."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A source archive or wheel that an index offers."""

    filename: str
    url: str
    sha256: Sha256 | None
    size: int | None


def find(package: str, version: str, *, sha256: Sha256 | None = None, using: Settings | None = None) -> Candidate:
    """Find the source archive of a release on the first index that has it; with `sha256`, exactly that file.

    Raises:
        StackError: No index has the archive, or none can be reached.

    """
    wanted = _version(version)
    unfit: list[str] = []
    offers, failures = _ask(package, "sdist", using or settings())
    for offer in offers:
        if _parsed(offer) != wanted:
            continue
        stated = offer.sha256
        if not _FILENAME.fullmatch(offer.filename):
            unfit.append(offer.filename)
        elif sha256 is not None and stated is not None and stated != sha256:
            unfit.append(f"{offer.filename} with SHA-256 {stated}")
        else:
            return Candidate(offer.filename, offer.url, stated, offer.size)
    if unfit:
        expected = f"a {_SUFFIX}" + (f" with SHA-256 {sha256}" if sha256 else "")
        problem = f"the index has no fitting source archive of {package} {version}, only {', '.join(unfit)}"
        raise StackError(problem, f"expected {expected}: check the pin, or use --source git")
    if failures:
        raise failures[0]
    raise _missing(package, wanted, {known for offer in offers if (known := _parsed(offer))})


def wheels(package: str, version: str, *, using: Settings | None = None) -> tuple[Candidate, ...]:
    """Find the wheels of a release, each on the first index that has it, sorted by name.

    Raises:
        StackError: There are none, or no index can be reached.

    """
    wanted = _version(version)
    offers, failures = _ask(package, "wheel", using or settings())
    candidates: dict[str, Candidate] = {}
    for offer in offers:
        if _parsed(offer) == wanted and _is_wheel(offer.filename):
            candidates.setdefault(offer.filename, Candidate(offer.filename, offer.url, offer.sha256, offer.size))
    if not candidates:
        if failures:
            raise failures[0]
        raise StackError(
            f"the index has no wheel of {package} {wanted}", "check the version, and the platforms it is built for"
        )
    return tuple(candidates[name] for name in sorted(candidates))


def _is_wheel(filename: str) -> bool:
    try:
        parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    return not {"/", "\\", "\0"} & set(filename)


def versions(package: str, *, stable: bool = True, using: Settings | None = None) -> list[Version]:
    """List the versions with a source archive that were not yanked, sorted; pre-releases only if `stable` is false.

    Raises:
        StackError: No index has the project, or none can be reached.

    """
    offers, failures = _ask(package, "sdist", using or settings())
    released = {version for offer in offers if not offer.is_yanked and (version := _parsed(offer))}
    if not released:
        raise failures[0] if failures else _missing(package, None, released)
    return sorted(version for version in released if not (stable and version.is_prerelease))


def download(
    candidate: Candidate,
    target_dir: Path,
    progress: Count | None = None,
    expected_sha256: Sha256 | None = None,
    *,
    using: Settings | None = None,
) -> Path:
    """Download the candidate into the folder unless it is there; the file appears when it is complete and verified.

    Args:
        candidate: A result of `find`.
        target_dir: Created if missing.
        progress: Called with the bytes done and the total.
        expected_sha256: The required hash; by default the one that the index states.
        using: How to reach the index; by default the user's configuration.

    Raises:
        StackError: The file cannot be fetched or written, or its hash is wrong.

    """
    target = target_dir / candidate.filename
    expected = expected_sha256 or candidate.sha256
    with cache.lock(target):
        if expected is not None and target.is_file() and cache.hash_of(target) == expected:
            return target
        for abandoned in target_dir.glob(f".{candidate.filename}.*{cache.PART}"):
            abandoned.unlink(missing_ok=True)
        chunks = _chunks(candidate, using or settings(), progress)
        try:
            _write(target, chunks, expected)
        except OSError as error:
            raise cache.unwritable(target, error) from error
    return target


def _write(target: Path, chunks: Iterator[bytes], expected: Sha256 | None) -> None:
    """Write the file and check its hash; it appears only if it is complete and right."""
    with cache.appearing(target, rights=0o600) as file:
        actual = _copy(chunks, file)
        if expected is not None and actual != expected:
            raise StackError(
                f"{target.name} came with the SHA-256 {actual}, expected {expected}",
                "the index gave another file: check the index and the pin",
            )


def _copy(chunks: Iterator[bytes], file: IO[bytes]) -> Sha256:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        file.write(chunk)
    return Sha256(digest.hexdigest())


def _chunks(candidate: Candidate, using: Settings, progress: Count | None) -> Iterator[bytes]:
    """Yield the file's bytes as the server stores them, at most `MAX_SIZE`."""
    done = 0
    try:
        # identity: compression in transit would change the bytes that the hash covers.
        with (
            http.session(using) as session,
            session.get(candidate.url, stream=True, timeout=using.timeout, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            _demand_same_kind(candidate.url, response)
            total = _length(candidate, response) or candidate.size
            if (total or 0) > MAX_SIZE:
                raise _too_large(candidate)
            for chunk in _raw(response):
                done += len(chunk)
                if done > MAX_SIZE:
                    raise _too_large(candidate)
                if progress is not None:
                    progress(done, total)
                yield chunk
    except (OSError, urllib3.exceptions.HTTPError) as error:
        if done:
            raise StackError(
                f"the download of {candidate.filename} broke off after {done} bytes", "run the command again"
            ) from error
        raise http.failure(candidate.url, error) from error


def _raw(response: requests.Response) -> Iterator[bytes]:
    if hasattr(response.raw, "stream"):
        yield from response.raw.stream(_CHUNK, decode_content=False)
    else:  # a file:// address
        while chunk := response.raw.read(_CHUNK):
            yield chunk


def _demand_same_kind(url: str, response: requests.Response) -> None:
    """Refuse a redirect from a server to a file of this machine."""
    if response.url.startswith("file:") != url.startswith("file:"):
        raise StackError(f"{redacted(url)} points at a local file", "check the configured index")


def _length(candidate: Candidate, response: requests.Response) -> int | None:
    """Return the length that the server states, if it states a number; Python parses no number of thousands of digits."""
    stated = response.headers.get("Content-Length", "")
    if not stated.isdecimal():
        return None
    if len(stated) > _DIGITS:
        raise _too_large(candidate)
    return int(stated)


def _too_large(candidate: Candidate) -> StackError:
    return StackError(f"{candidate.filename} is larger than {MAX_SIZE} bytes", "check the index, or use --source git")


def _ask(package: str, kind: str, using: Settings) -> tuple[list[Offer], list[StackError]]:
    """List a project's files of a kind (`sdist`, `wheel`) on all indexes, in their order, and the failures."""
    # It brings an HTML parser: a fifth of a second, which only a question to an index needs.
    from pypi_simple import UnsupportedRepoVersionError  # noqa: PLC0415

    offers: list[Offer] = []
    failures: list[StackError] = []
    for index in using.indexes:
        if refusal := http.insecure(index, using):
            failures.append(refusal)
            continue
        try:
            listed = _listed(index, package, using)
        except StackError as refused:
            failures.append(refused)
        except requests.exceptions.JSONDecodeError:
            failures.append(_garbled(index.url))
        except OSError as error:  # the errors of requests, and those that it passes through
            failures.append(http.failure(index.url, error))
        except (ValueError, TypeError, LookupError, RecursionError, UnsupportedRepoVersionError):
            failures.append(_garbled(index.url))
        else:
            local = index.url.startswith("file:")
            offers += [offer for offer in listed if offer.kind == kind and (local or not offer.url.startswith("file:"))]
    return offers, failures


def _listed(index: Index, package: str, using: Settings) -> list[Offer]:
    """List a project's files on one index; none if the index has no such project."""
    page = f"{index.url.rstrip('/')}/{canonicalize_name(package)}/"
    with http.session(using) as session:
        response = session.get(page, timeout=using.timeout, headers={"Accept": index_page.ACCEPTED})
    if response.status_code == requests.codes.not_found:
        return []
    response.raise_for_status()
    return index_page.offers(response, package)


def _garbled(url: str) -> StackError:
    return StackError(f"{redacted(url)} does not answer as a package index", "check the configured index")


def _missing(package: str, wanted: Version | None, known: set[Version]) -> StackError:
    if not known:
        return StackError(f"no source archive of {package}", "check the package's name and the configured index")
    stable = sorted((version for version in known if not version.is_prerelease), reverse=True) or sorted(known, reverse=True)
    text = f"no source archive of {package} {wanted}; newest: {', '.join(map(str, stable[:_SHOWN]))}"
    if wanted is not None and wanted < stable[0]:
        below = [version for version in stable if version < wanted][:2]
        above = [version for version in reversed(stable) if version > wanted][:2]
        text += f"; nearest: {', '.join(map(str, [*reversed(below), *above]))}"
    return StackError(text, "name one of these")


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise StackError(f"{text!r} is not a version", "name a release such as 0.7.2.post1") from error


def _parsed(offer: Offer) -> Version | None:
    with suppress(InvalidVersion):
        return Version(offer.version or "")
    return None

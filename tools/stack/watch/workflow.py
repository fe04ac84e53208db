# SPDX-License-Identifier: Apache-2.0
"""Write the files with which a forge runs `stack watch run` every night."""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack import __version__
from stack.base.errors import StackError
from stack.forge.services import Kind
from stack.store import repository_files
from stack.watch import actions_workflow, gitlab_pipeline
from stack.watch.workflow_parts import NAME, Nightly

__all__ = ["NAME", "Kind", "Written", "nightly", "texts", "write"]

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.post|\.dev)[0-9]+)?")
_WHEEL = re.compile(r"https://[A-Za-z0-9._:/%+~-]+\.whl#sha256=[0-9a-f]{64}")
_COMMIT = re.compile(r"git\+(?:https|ssh)://(?:git@)?[A-Za-z0-9._:/%+~-]+@[0-9a-f]{40}")
_FILE = re.compile(r"(?:[A-Za-z0-9._-]+/)*[A-Za-z0-9._-]+\.txt")
_RUNNERS = {Kind.GITHUB: ("ubuntu-24.04",), Kind.FORGEJO: ("docker",), Kind.GITLAB: ()}
"""The labels of the runner by default."""


@dataclass(frozen=True, slots=True)
class Written:
    """The file that runs it, whether a file is new or differs from what was there, and what the user has to include by hand.

    `beside` are the other files that were written.
    """

    path: Path
    changed: bool
    include: str = ""
    beside: tuple[Path, ...] = ()


def nightly(
    folder: str,
    seed: str,
    *,
    kind: Kind = Kind.GITHUB,
    runner: tuple[str, ...] = (),
    install: str | None = None,
    image: str | None = None,
    prove: bool = False,
) -> Nightly:
    """Check the values that a workflow is made of.

    Args:
        folder: the stack's folder in its repository, with a slash at its end; empty for the repository itself.
        seed: decides the minute of the night, so that not everybody's workflow starts at once.
        kind: the kind of forge.
        runner: the labels of the runner; none: the usual ones.
        install: what pip installs: a version, the address of a wheel with its hash, an address of git with a commit, a file of
            the repository with requirements and their hashes, or a dot for the repository itself; None: this version.
        image: the image for the jobs, by its digest; GitLab only.
        prove: let a job of its own run the proofs.

    Raises:
        StackError: a value cannot stand in a workflow, or does not name one thing for ever.

    """
    for label in runner:
        if not _LABEL.fullmatch(label):
            raise StackError(
                f"--runner {label!r} is not a label of a runner", "write labels as letters, digits, dots and dashes"
            )
    repository_files.check_folder(folder)
    if image is not None and kind is not Kind.GITLAB:
        raise StackError("--image goes with --gitlab", "elsewhere the runner's label decides about the image")
    if image is not None and not _IMAGE.fullmatch(image):
        raise StackError(f"--image {image!r} has no digest, so it can change", "write it as NAME:TAG@sha256:DIGEST")
    moment = int(hashlib.sha256(seed.encode("utf-8", "surrogateescape")).hexdigest(), 16) % 180
    return Nightly(
        folder=folder,
        runner=runner or _RUNNERS[kind],
        minute=moment % 60,
        hour=2 + moment // 60,
        install=_requirement(install or __version__),
        image=image,
        prove=prove,
    )


def _requirement(install: str) -> str:
    """Return pip's arguments for what is to be installed."""
    if install == ".":  # the commit that the job checked out
        return "."
    if _VERSION.fullmatch(install):
        return f"'git-carry=={install}'"
    if _WHEEL.fullmatch(install) or _COMMIT.fullmatch(install):
        return f"'git-carry @ {install}'"
    if _FILE.fullmatch(install) and ".." not in install.split("/"):
        return f"--require-hashes --requirement './{install}'"
    raise StackError(
        f"--install {install!r} does not name one thing for ever",
        "name a version, https://….whl#sha256=HASH, git+https://…@COMMIT, or a .txt file of the repository with hashes",
    )


def texts(kind: Kind, made: Nightly) -> dict[str, str]:
    """Return the files by their paths in the repository, first the one that the nightly run is in."""
    match kind:
        case Kind.GITHUB:
            return {f".github/workflows/{NAME}": actions_workflow.github(made)}
        case Kind.FORGEJO:
            return {f".forgejo/workflows/{NAME}": actions_workflow.forgejo(made)}
        case Kind.GITLAB:
            return {gitlab_pipeline.PLACE: gitlab_pipeline.text(made), gitlab_pipeline.MAIN: gitlab_pipeline.INCLUDE}


def write(
    root: Path,
    kind: Kind,
    *,
    runner: tuple[str, ...] = (),
    install: str | None = None,
    image: str | None = None,
    prove: bool = False,
    force: bool = False,
) -> Written:
    """Write the files into the repository of a stack; see `nightly`.

    Raises:
        StackError: the stack is not in a git repository, a value cannot stand in the file, or the file is there and differs and
            `force` is not set.

    """
    top, folder = repository_files.place(root)
    made = nightly(folder, top.name, kind=kind, runner=runner, install=install, image=image, prove=prove)
    _check_file(top, install)
    (main, text), *others = texts(kind, made).items()
    changed = repository_files.write(top, main, text, force=force)
    include, beside = "", []
    for path, content in others:
        if os.path.lexists(top / path):
            include = "" if main in (top / path).read_text("utf-8", "replace") else content.partition("\n\n")[2] or content
        elif repository_files.write(top, path, content, force=force):
            beside.append(top / path)
    return Written(top / main, changed or bool(beside), include, tuple(beside))


def _check_file(top: Path, install: str | None) -> None:
    """Check a file of requirements: pip would refuse it every night, and nobody might look."""
    if install is None or not _FILE.fullmatch(install):
        return
    path = top / install
    if not path.is_file():
        raise StackError(f"{path} is missing", "write it first: a file of requirements with the hashes of all packages")
    if unhashed := next(_unhashed(path.read_text("utf-8", "replace")), None):
        raise StackError(f"{path}: {unhashed[:80]} has no hash", "make it with pip-compile --generate-hashes")


def _unhashed(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        words = line.strip()
        if words and not words.startswith(("#", "-")) and "--hash=sha256:" not in words:
            yield words

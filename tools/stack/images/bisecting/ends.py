# SPDX-License-Identifier: Apache-2.0
"""Load the two ends of a bisection: stack folders, git revisions of the stack at hand, or images."""

import io
import re
import tarfile
import tempfile
from pathlib import Path

from stack.base.errors import StackError
from stack.images import image, labels, layers, pulling, reference
from stack.images.reference import Reference
from stack.model import digest, lanes, pins
from stack.model import stack as stacks
from stack.model.stack import FOLDER, Stack
from stack.store import git, plain_view

_IMAGE = re.compile(r"oci:|docker://|[^/]+/[^:@]*(?::|@sha256:)")
"""Matches an image's name: a git revision never has a colon after a slash."""


def load(name: str, root: Path, folder: Path, lane: str | None = None) -> Stack:
    """Load the stack that a name means; of a lane, as a stack of its own without lanes, written below `folder`.

    The name is a folder with `pins.toml`, an image, or a git revision of the stack in `root`. An image is `oci:DIR`, or
    HOST/NAME with a tag or a digest. The stack in an image and the one of a revision are unpacked into `folder`.

    Raises:
        StackError: the name is none of them, or there is no stack.

    """
    if (Path(name) / pins.FILE).is_file():
        return _alone(stacks.load(Path(name).resolve(), lane), folder)
    if _IMAGE.match(name):
        return _of_image(reference.parse(name), folder)
    try:
        packed = _packed(name, root)
    except StackError as unknown:
        raise StackError(
            f"{name} is not a stack's folder, an image, or a revision of {root} that has a stack",
            "name a folder with pins.toml, HOST/NAME:TAG, oci:DIR, or a commit",
        ) from unknown
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # The filter exists since Python 3.11.4; Debian 12 has 3.11.2. Git's archives are safe without: a tree's path never
        # leads out or through a link.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 (see above)
    return _alone(stacks.load(folder, lane), folder)


def _packed(name: str, root: Path) -> bytes:
    """Return the files of a stack at a revision as a tar file.

    `git archive` runs the filters that a repository configures; the view has none.
    """
    prefix = git.text(["-C", str(root), "rev-parse", "--show-prefix"])
    with plain_view.view(root) as seen:
        commit = git.text(["-C", str(root), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
        tree = f"{commit}:{prefix.rstrip('/')}" if prefix else commit
        return git.run(["archive", "--format=tar", tree, "--", pins.FILE, FOLDER], env={"GIT_DIR": str(seen.repository)}).stdout


def _alone(stack: Stack, folder: Path) -> Stack:
    """Return a lane's stack written as a stack of its own; any other stack is returned as it is."""
    if stack.lane is None:
        return stack
    place = folder.with_name(f"{folder.name}-lane")
    for name, data in lanes.alone(stack).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return stacks.load(place)


def _of_image(where: Reference, folder: Path) -> Stack:
    """Unpack the stack in an image, and check that it is the one that the image's label names."""
    with tempfile.TemporaryDirectory(prefix="stack-image-") as place:
        kept = where if where.layout else pulling.pull(where, Path(place) / "image")
        platform = image.read(kept).platforms[0]
        files = layers.read(Path(kept.place), platform, labels.SOURCES)
    if not files:
        raise StackError(
            f"{where.shown} does not contain the stack that it was built from", "name a folder or a commit that has it"
        )
    try:
        for name, data in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except (OSError, ValueError) as odd:  # a file and a folder of the same name, or an invalid file name
        raise StackError(f"{where.shown} contains a stack that cannot be unpacked ({odd})", "do not use this image") from odd
    stack = stacks.load(folder)
    if digest.of(stack) != platform.labels.get(labels.STACK):
        raise StackError(f"{where.shown} contains another stack than its label names", "do not use this image")
    return stack

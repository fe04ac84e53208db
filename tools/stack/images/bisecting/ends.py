# SPDX-License-Identifier: Apache-2.0
"""The two ends of a bisection: folders of stacks, revisions of the repository of the stack at hand, or images."""

import io
import re
import tarfile
import tempfile
from pathlib import Path

from stack.base.errors import StackError
from stack.images import image, labels, layers, pulling, reference
from stack.images.reference import Reference
from stack.model import digest, pins
from stack.model import stack as stacks
from stack.model.stack import FOLDER, Stack
from stack.store import git

_IMAGE = re.compile(r"oci:|docker://|[^/]+/[^:@]*(?::|@sha256:)")
"""What names an image: no commit has a colon behind a slash."""


def load(name: str, root: Path, folder: Path) -> Stack:
    """The stack that a name means: a folder with pins.toml, an image (`oci:DIR`, or HOST/NAME with a tag or a digest), of which the
    source that it brings is unpacked into `folder`, or a git revision of the stack in `root`, unpacked there.

    Raises:
        StackError: it is none of them, or no stack.

    """
    if (Path(name) / pins.FILE).is_file():
        return stacks.load(Path(name).resolve())
    if _IMAGE.match(name):
        return _of_image(reference.parse(name), folder)
    here = ["-C", str(root)]
    try:
        commit = git.text([*here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
        packed = git.run([*here, "archive", "--format=tar", commit, "--", pins.FILE, FOLDER])
    except StackError as unknown:
        raise StackError(
            f"{name} is no folder of a stack, no image, and no revision of {root} that has a stack",
            "name a folder with pins.toml, HOST/NAME:TAG, oci:DIR, or a commit",
        ) from unknown
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        # Python 3.11.4 brings it, and Debian 12 has 3.11.2. Git's archives need none: no path of a tree leads out or through a link.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 - see above
    return stacks.load(folder)


def _of_image(where: Reference, folder: Path) -> Stack:
    """The stack that an image brings, which has to be the one that its label names."""
    with tempfile.TemporaryDirectory(prefix="stack-image-") as place:
        kept = where if where.layout else pulling.pull(where, Path(place) / "image")
        platform = image.read(kept).platforms[0]
        found = layers.read(Path(kept.place), platform, labels.SOURCES)
    if not found:
        raise StackError(
            f"{where.shown} does not bring the stack that it was built of", "name a folder or a commit that has it"
        )
    try:
        for name, data in found.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except (OSError, ValueError) as odd:  # a file where another one's folder is, a name that no file can have
        raise StackError(f"{where.shown} brings a stack that cannot be unpacked ({odd})", "do not use this image") from odd
    stack = stacks.load(folder)
    if digest.of(stack) != platform.labels.get(labels.STACK):
        raise StackError(f"{where.shown} brings another stack than its label names", "do not use this image")
    return stack

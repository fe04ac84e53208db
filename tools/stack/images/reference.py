# SPDX-License-Identifier: Apache-2.0
"""Where an image is: in a registry, or in an OCI layout on disk. Read strictly: what is written here goes onto command lines."""

import re
from dataclasses import dataclass, replace

from stack.base.errors import StackError

DIGEST = r"sha256:[0-9a-f]{64}"
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
ATTESTED = "sha256-"
"""How names of attestations begin."""
BEFORE = ".previous"
"""What the name of a tag has more that keeps where another one pointed before it was moved."""
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REMOTE = re.compile(
    rf"(?:docker://)?(?P<repository>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(?P<tag>{TAG}))?(?:@(?P<digest>{DIGEST}))?"
)
# skopeo parts folder and tag at the first colon.
_LAYOUT = re.compile(rf"oci:(?P<folder>[^:\0\n]+)(?::(?P<tag>{TAG}))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image: `place` is a repository (`host/name`) or, where `layout`, the folder of an OCI layout.

    Without tag and digest it means the repository, or the only image of a layout.
    """

    place: str
    tag: str | None = None
    digest: str | None = None
    layout: bool = False

    def __str__(self) -> str:
        """As skopeo takes it."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{'oci:' if self.layout else 'docker://'}{self.place}{tag}{digest}"

    @property
    def shown(self) -> str:
        """As people write it."""
        return str(self).removeprefix("docker://")

    def tagged(self, tag: str) -> "Reference":
        """The same place under a tag."""
        return replace(self, tag=tag, digest=None)

    def at(self, digest: str) -> "Reference":
        """The same repository at a digest."""
        return replace(self, tag=None, digest=digest)


def parse(text: str) -> Reference:
    """The reference that a text means: `[docker://]HOST/NAME[:TAG|@DIGEST]` or `oci:FOLDER[:TAG]`.

    Raises:
        StackError: it is none, or has both a tag and a digest, of which one would be overlooked.

    """
    if found := _LAYOUT.fullmatch(text):
        return Reference(found["folder"], found["tag"], layout=True)
    found = _REMOTE.fullmatch(text)
    if found is None:
        raise StackError(f"{text!r:.200} names no image", "write HOST/NAME:TAG, HOST/NAME@sha256:DIGEST or oci:FOLDER")
    if found["tag"] and found["digest"]:
        raise StackError(f"{text} has a tag and a digest", "write one of them")
    return Reference(found["repository"], found["tag"], found["digest"])


def tag(text: str) -> str:
    """A tag as it may be given.

    Raises:
        StackError: it is none, or one that belongs to attestations.

    """
    if not re.fullmatch(TAG, text):
        raise StackError(f"{text!r:.200} is no tag", "use letters, digits, '.', '_' and '-', at most 128")
    if text.startswith(ATTESTED):
        raise StackError(f"{text} is a name for attestations", "take another tag")
    if text.endswith(BEFORE):
        raise StackError(f"{text} is a name for what a moving tag was before", "take another tag")
    return text

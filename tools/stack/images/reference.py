# SPDX-License-Identifier: Apache-2.0
"""References to images, in a registry or in an OCI layout. Parsing is strict because references become command-line arguments."""

import re
from dataclasses import dataclass, replace

from stack.base.errors import StackError

DIGEST = r"sha256:[0-9a-f]{64}"
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
ATTESTED = "sha256-"
"""The prefix of tags for attestations."""
BEFORE = ".previous"
"""The suffix of the tag that keeps a moving tag's earlier target."""
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REMOTE = re.compile(
    rf"(?:docker://)?(?P<repository>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(?P<tag>{TAG}))?(?:@(?P<digest>{DIGEST}))?"
)
# skopeo separates folder and tag at the first colon.
_LAYOUT = re.compile(rf"oci:(?P<folder>[^:\0\n]+)(?::(?P<tag>{TAG}))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image: `place` is a repository (`host/name`), or the folder of an OCI layout if `layout` is set.

    Without tag and digest, it means the whole repository, or the only image of a layout.
    """

    place: str
    tag: str | None = None
    digest: str | None = None
    layout: bool = False

    def __str__(self) -> str:
        """Return the reference in skopeo's form."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{'oci:' if self.layout else 'docker://'}{self.place}{tag}{digest}"

    @property
    def shown(self) -> str:
        """The reference in the form that people write."""
        return str(self).removeprefix("docker://")

    def tagged(self, tag: str) -> "Reference":
        """Return the same place under a tag."""
        return replace(self, tag=tag, digest=None)

    def at(self, digest: str) -> "Reference":
        """Return the same repository at a digest."""
        return replace(self, tag=None, digest=digest)


def parse(text: str) -> Reference:
    """Parse a reference: `[docker://]HOST/NAME[:TAG|@DIGEST]` or `oci:FOLDER[:TAG]`.

    Raises:
        StackError: the text is not a reference, or has both a tag and a digest, one of which would be ignored.

    """
    if match := _LAYOUT.fullmatch(text):
        return Reference(match["folder"], match["tag"], layout=True)
    match = _REMOTE.fullmatch(text)
    if match is None:
        raise StackError(f"{text!r:.200} names no image", "write HOST/NAME:TAG, HOST/NAME@sha256:DIGEST or oci:FOLDER")
    if match["tag"] and match["digest"]:
        raise StackError(f"{text} has a tag and a digest", "write one of them")
    return Reference(match["repository"], match["tag"], match["digest"])


def tag(text: str) -> str:
    """Check a tag that a user gave, and return it.

    Raises:
        StackError: the text is not a tag, or the tag is reserved for attestations or earlier targets.

    """
    if not re.fullmatch(TAG, text):
        raise StackError(f"{text!r:.200} is not a tag", "use letters, digits, '.', '_' and '-', at most 128")
    if text.startswith(ATTESTED):
        raise StackError(f"{text} is reserved for attestations", "use another tag")
    if text.endswith(BEFORE):
        raise StackError(f"{text} is reserved for the earlier target of a moving tag", "use another tag")
    return text

# SPDX-License-Identifier: Apache-2.0
"""Check the names of images: what Docker refuses, and tags that vLLM's own image does not have."""

import re
from collections.abc import Iterator

from stack.base.did_you_mean import similar
from stack.doctor.commands import starts_itself
from stack.doctor.finding import Found, note, wrong
from stack.doctor.shell import Word

_LONGEST = 512
_HOST = r"(?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)/|[A-Za-z0-9.-]+:[0-9]{1,5}/)?"
# distribution/reference: a name has small letters, and at most one tag.
_REFERENCE = re.compile(
    rf"{_HOST}(?P<name>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,128}))?",
    re.ASCII,
)
_RELEASE = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(?:\.?(?:post|rc)[0-9]+)?(?:-.*)?", re.ASCII)
_NEARLY = re.compile(r"v?\.?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(.*)", re.ASCII)
_NAMED = ("latest", "nightly", "cu130-nightly", "cu129-nightly", "latest-cu130", "latest-aarch64", "nightly-aarch64")
"""Tags of vllm/vllm-openai that stand for no release; there are others, for single models."""


def check(image: Word) -> Iterator[Found]:
    """Check an image's name as it stands in a script; one with a variable is left alone."""
    text = image.text.strip()
    if not text or not text.isascii() or text.startswith("[") or "$" in text or "{" in text or len(text) > _LONGEST:
        return
    found = _REFERENCE.fullmatch(text)
    if found is None:
        yield wrong(
            f"{text} is not a name of an image: Docker accepts small letters, and at most one tag",
            f"write {text.lower()}" if _REFERENCE.fullmatch(text.lower()) else "write NAME:TAG",
            image.line,
        )
    elif starts_itself(text) and found["tag"] and not found["digest"]:
        yield from _tag(found["tag"], text, image.line)


def _tag(tag: str, text: str, line: int) -> Iterator[Found]:
    """Check a tag of vLLM's own image: releases are v0.32.0, not 0.32.0 or v0.32."""
    nearly = _NEARLY.fullmatch(tag)
    if _RELEASE.fullmatch(tag) or tag in _NAMED:
        return
    if nearly is not None:
        near = f"v{nearly[1]}.{nearly[2]}.{nearly[3] or 0}{nearly[4] if nearly[4].startswith('-') else ''}"
    else:
        near = next((name for name in similar(tag, _NAMED) if abs(len(name) - len(tag)) < 3), "")
    if near and near != tag:
        yield note(
            f"{text}: the image has no tag of that form, its releases are tagged like v0.32.0",
            f"write {text.removesuffix(tag)}{near}, if you mean that",
            line,
        )

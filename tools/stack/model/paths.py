# SPDX-License-Identifier: Apache-2.0
"""Check which paths and link targets of an untrusted archive may become entries of a git tree.

Git refuses most unsafe ones when it fills an index, but `git fast-import` and `git mktree` do not: they would store such a tree,
and the first checkout would do the damage. The rules are those of git's `verify_path` with both `core.protectHFS` and
`core.protectNTFS` on, so that the store is safe on every file system.
"""

import re
from itertools import takewhile

MAX_PATH = 4096
"""Bytes; Linux's PATH_MAX."""

MAX_DEPTH = 128
"""Components; the deepest path of the vLLM and FlashInfer releases has 13."""

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_DRIVE = re.compile(rb"[A-Za-z]:")

# Code points that HFS+ ignores when it compares names (git's utf8.c, next_hfs_char).
_HFS_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])

_NEVER_LINKS = {".gitmodules", ".gitattributes", ".gitignore", ".mailmap"}
"""Git reads these files; as symbolic links they could make it read other files (an error in git's fsck)."""


def fault(path: bytes) -> str:
    """Return why `path` (relative, `/` between components) may not stand in a tree; empty if it may."""
    components = path.split(b"/")
    faults = {
        "is empty": not path,
        "is absolute": path.startswith(b"/") or _DRIVE.match(path),
        "has a control character": _CONTROL.search(path),
        "has a backslash, which is a separator on Windows": b"\\" in path,
        f"is longer than {MAX_PATH} bytes": len(path) > MAX_PATH,
        f"is deeper than {MAX_DEPTH} folders": len(components) > MAX_DEPTH,
        "has an empty component": b"" in components or b"." in components,
        "climbs out with '..'": b".." in components,
        "has a component that some file system takes for '.git'": any(map(is_dot_git, components)),
    }
    return next((words for words, holds in faults.items() if holds), "")


def link_fault(path: bytes, target: bytes) -> str:
    """Return why the symbolic link at `path` may not point at `target`; empty if it may.

    `..` is allowed at the start of the target only, where the folders are known to be real. After a name it could pass through
    another link, and `link/..` need not be the folder that holds the link.
    """
    folders, _, name = path.rpartition(b"/")
    components = [component for component in target.split(b"/") if component not in (b"", b".")]
    climbs = len(list(takewhile(b"..".__eq__, components)))
    faults = {
        "is a file that git reads and may not be a link": _folded(name) in _NEVER_LINKS,
        "points nowhere": not target,
        "points at an absolute path": target.startswith(b"/") or _DRIVE.match(target),
        "points at something other than a plain relative path": _CONTROL.search(target)
        or b"\\" in target
        or len(target) > MAX_PATH,
        "points out of the archive": climbs > (folders.count(b"/") + 1 if folders else 0),
        "points through a name and back with '..'": b".." in components[climbs:],
        "points into '.git'": any(map(is_dot_git, components)),
    }
    return next((words for words, holds in faults.items() if holds), "")


def is_dot_git(component: bytes) -> bool:
    """Tell whether HFS+ or NTFS takes the path component for `.git`."""
    # NTFS accepts `.git` and its short name `git~1`, followed by spaces, dots and a stream (`.git::$INDEX_ALLOCATION`).
    return _folded(component).split(":", 1)[0].rstrip(" .") in (".git", "git~1")


def _folded(component: bytes) -> str:
    return component.decode("utf-8", "replace").translate(_HFS_IGNORED).casefold()

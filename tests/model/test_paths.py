# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.model import paths


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b",
        "a b",
        ".github/x",
        ".gitignore",
        "a/.gitmodules",
        "git",
        "\uff47it",
        "x.git",
        ".gitx",
        "git~2",
        "ü/ß",
        "a..b",
        "...x",
        '"q"',
        "ab:c",
    ],
)
def test_ordinary_paths(path: str) -> None:
    assert paths.fault(path.encode()) == ""


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (b"", "empty"),
        (b"/etc/passwd", "absolute"),
        (b"C:/x", "absolute"),
        (b"c:x", "absolute"),
        (b"a\0b", "control"),
        (b"a\nb", "control"),
        (b"a\x7fb", "control"),
        (b"a\\b", "backslash"),
        (b"..\\b", "backslash"),
        (b"a//b", "empty component"),
        (b"a/./b", "empty component"),
        (b"a/", "empty component"),
        (b"..", "climbs"),
        (b"../a", "climbs"),
        (b"a/../b", "climbs"),
        (b"a/" * 200 + b"b", "deeper"),
        (b"a" * 5000, "longer"),
        (b".git", ".git"),
        (b"a/.git/hooks/x", ".git"),
        (b".GIT/config", ".git"),
        (b".gIt", ".git"),
        (b".git ", ".git"),
        (b".git.", ".git"),
        (b".git. . ", ".git"),
        (b"git~1", ".git"),
        (b"GIT~1/x", ".git"),
        (b".git::$INDEX_ALLOCATION/x", ".git"),
        (b".git:stream", ".git"),
        (b"git~1 :x", ".git"),
        (".g\u200cit".encode(), ".git"),
        (".git\ufeff".encode(), ".git"),
        ("\u202a.\u206agit\u200f".encode(), ".git"),
    ],
)
def test_paths_that_may_not_stand_in_a_tree(path: bytes, why: str) -> None:
    assert why in paths.fault(path)


@pytest.mark.parametrize(
    ("path", "target"),
    [(b"l", b"x"), (b"a/l", b"../x"), (b"a/b/l", b"../../x/y"), (b"l", b"./x"), (b"l", b"x//y"), (b"l", b".")],
)
def test_links_inside_the_tree(path: bytes, target: bytes) -> None:
    assert paths.link_fault(path, target) == ""


@pytest.mark.parametrize(
    ("path", "target", "why"),
    [
        (b"l", b"", "nowhere"),
        (b"l", b"/etc/passwd", "absolute"),
        (b"l", b"C:/x", "absolute"),
        (b"l", b"..", "out of"),
        (b"l", b"../x", "out of"),
        (b"a/l", b"../../x", "out of"),
        (b"a/l", b".././../x", "out of"),
        (b"l", b"a/../../x", "back"),  # `a` may be a link to `.`
        (b"l", b"x\0y", "plain"),
        (b"l", b"..\\x", "plain"),
        (b"l", b"x" * 5000, "plain"),
        (b"l", b".git/config", "into '.git'"),
        (b"a/l", b"../.GIT/config", "into '.git'"),
        (b".gitmodules", b"x", "git reads"),
        (b"a/.GitAttributes", b"x", "git reads"),
    ],
)
def test_links_that_lead_astray(path: bytes, target: bytes, why: str) -> None:
    assert why in paths.link_fault(path, target)

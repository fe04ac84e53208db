# SPDX-License-Identifier: Apache-2.0
"""`lint` accepts the files that `refresh` writes: random subjects and messages, as git lets a user commit them."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stack.carry import lint, worktree
from stack.model.patch import ends_message

from .test_worktree import user_git
from .trees import PROPERTY
from .world import World

# Letters with a meaning in mails, blanks that Python and git see differently, controls, and what needs more than one byte.
LETTERS = st.text(
    st.sampled_from("ab.:,;-_[]()<>\"'\\=?/@#%&*!xyz \t\r\x0b\x0c\x1b\x7f\x85\xa0\u2028\u3000äß漢😀"), max_size=60
)
WORDS = st.sampled_from(
    (
        "two  blanks",
        "[PATCH] x",
        "[PATCH 1/2] y",
        "[tag] z",
        "Re: x",
        "=?utf-8?q?M=C3?=",
        "From: a@b",
        "x: y",
        "\tx",
        "x" * 300,
        "a b " * 90,
    )
)
SUBJECTS = st.one_of(
    LETTERS, WORDS, st.builds(" ".join, st.lists(WORDS, max_size=3)), st.builds("{}  {}".format, WORDS, LETTERS)
)
LINES = st.one_of(st.just(""), LETTERS, WORDS, st.sampled_from(("Signed-off-by: A <a@b>", "Fixes: 1", "  indented", "- list")))
BODIES = st.lists(LINES.filter(lambda line: not ends_message(line)), max_size=6).map("\n".join)
MESSAGES = st.tuples(SUBJECTS.filter(str.strip), st.sampled_from(("\n", "\n\n", "\n\n\n")), BODIES).map("".join)


@settings(PROPERTY, max_examples=max(PROPERTY.max_examples // 10, 3))
@given(st.lists(MESSAGES, min_size=30, max_size=30))
def test_what_refresh_writes_lint_accepts(template: World, messages: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(template.root, Path(place) / "stack")
        world = World(Path(place) / "stack", template.cache, template.index, template.commits)
        tree = Path(place) / "tree"
        with world.stores() as stores:
            worktree.checkout(stores, "gamma", tree)
        _commit(tree, messages)
        written = _refresh(world, tree)
        assert len(written.added) == len(messages)
        with world.stores() as stores:
            assert lint.lint(stores) == ()
        assert _refresh(world, tree).changed == ()


def _refresh(world: World, tree: Path) -> worktree.Refreshed:
    with world.stores() as stores:
        found = worktree.refresh(stores, "gamma", tree)
        worktree.write_back(stores.stack, tree, found, title="refresh")
    return found


def _commit(tree: Path, messages: list[str]) -> None:
    """Commit an empty file with each message, byte for byte."""
    stream = b""
    for number, message in enumerate(messages):
        text = f"{message}\n\nStack-Series: two\n".encode()
        stream += b"commit refs/heads/stack\ncommitter C <c@x> %d +0000\ndata %d\n%s\n" % (number, len(text), text)
        stream += b"from refs/heads/stack^0\n" * (number == 0) + b"M 100644 inline new/%d\ndata 2\n%d\n\n" % (
            number,
            number % 10,
        )
    user_git(tree, "fast-import", "--quiet", "--force", stdin=stream)
    user_git(tree, "reset", "-q", "--hard")

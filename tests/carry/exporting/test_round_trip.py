# SPDX-License-Identifier: Apache-2.0
"""git makes the carried tree of exported patches, and we read the same patch files from them."""

import tempfile
from pathlib import Path

from hypothesis import given, settings

from stack.carry.commits import exported, read_commits
from stack.carry.exporting import branch, files
from stack.carry.exporting.branch import BranchState, Target
from stack.carry.trailers import PATCH, SERIES, marks
from stack.model import mail
from stack.model.ids import CommitId
from stack.model.patch import parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Identity, Objects

from ..test_worktree import user_git
from ..trees import PROPERTY
from .random_stacks import Drawn, Made, make, stacks_of

FEW = settings(PROPERTY, max_examples=max(PROPERTY.max_examples // 3, 5))


def clone_of(made: Made, place: Path) -> Path:
    """A clone of the upstream at the pin, without the patches."""
    user_git(place, "clone", "-q", "-c", "core.autocrlf=false", str(made.remote), "clone")
    user_git(place / "clone", "checkout", "-q", "--detach", "v1")
    return place / "clone"


def tree(folder: Path, revision: str = "HEAD") -> str:
    return user_git(folder, "rev-parse", f"{revision}^{{tree}}")


@settings(PROPERTY, max_examples=FEW.max_examples)
@given(stacks_of(any_message=False))
def test_git_am_gives_the_carried_tree_and_every_byte_of_the_patches(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, place = make(Path(folder), drawn), Path(folder)
        with made.stores() as stores:
            files.export(stores, "up", "am", place / "am", plain=False)
        clone = clone_of(made, place)
        if names := sorted(str(path) for path in (place / "am").iterdir()):
            user_git(clone, "am", "-q", "--keep-cr", "--keep-non-patch", "--committer-date-is-author-date", *names)
        assert tree(clone) == tree(made.remote, made.tip)
        # `git am` drops the quotation marks in an author's name.
        assert _again(made, clone) == {path: raw.replace(b"=22x=22", b"x") for path, raw in made.patches().items()}


def _again(made: Made, clone: Path) -> dict[str, bytes]:
    """The patch files that the commits of a clone give, with the names in their trailers."""
    with Objects(made.remote) as store, Objects(clone / ".git") as objects:
        commits = read_commits(objects, clone, pinned(clone))
        named = [marks(commit.message) for commit in commits]
        refs = [PatchRef(each[SERIES], "up", each[PATCH]) for each in named]
        return {ref.path: raw for ref, raw in exported(store, objects, pinned(clone), commits, refs).items()}


def pinned(clone: Path) -> CommitId:
    return CommitId(user_git(clone, "rev-parse", "v1"))


@FEW
@given(stacks_of())
def test_a_mailbox_holds_every_byte(drawn: Drawn) -> None:
    """Read by our own parser, which keeps what `git am` would cut off a subject."""
    with tempfile.TemporaryDirectory() as folder:
        made, place = make(Path(folder), drawn), Path(folder)
        with made.stores() as stores:
            files.export(stores, "up", "mbox", place / "all.mbox", plain=False)
        raws = mail.split((place / "all.mbox").read_bytes()) if drawn.patches else ()
        clone = clone_of(made, place)
        assert _committed(made, clone, raws) == made.patches()


def _committed(made: Made, clone: Path, raws: tuple[bytes, ...]) -> dict[str, bytes]:
    """Apply mails with git in a clone, and commit them with what our parser reads."""
    with Objects(clone / ".git") as objects:
        parent = pinned(clone)
        for raw in raws:
            patch = parse(raw, PatchRef("x", "up", "up/x.patch"), name="mail")
            git.run(["apply", "--index", "--whitespace=nowarn", "-"], cwd=clone, stdin=patch.diff)
            written = git.text(["write-tree"], cwd=clone)
            author = Identity(patch.author.name, patch.author.mail, patch.author.date)
            parent = objects.write_commit(written, (parent,), patch.message, author)
        objects.flush()
        user_git(clone, "reset", "-q", "--hard", parent)
    return _again(made, clone)


@FEW
@given(stacks_of())
def test_a_quilt_folder_applies_in_the_order_of_its_list(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, place = make(Path(folder), drawn), Path(folder)
        with made.stores() as stores:
            written = files.export(stores, "up", "quilt", place / "quilt", plain=False)
        clone = clone_of(made, place)
        listed = [line for line in (place / "quilt/series").read_text().splitlines() if not line.startswith("#")]
        assert listed == list(written.names.values())
        for name in listed:
            user_git(clone, "apply", "--index", "--whitespace=nowarn", str(place / "quilt" / name))
        assert user_git(clone, "write-tree") == tree(made.remote, made.tip)
        raws = tuple((place / "quilt" / name).read_bytes() for name in listed)
        user_git(clone, "reset", "-q", "--hard", "v1")
        assert _committed(made, clone, raws) == made.patches()


@FEW
@given(stacks_of())
def test_a_branch_is_the_carried_tree(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, place = make(Path(folder), drawn), Path(folder)
        clone = clone_of(made, place)
        with made.stores() as stores:
            found = branch.export(stores, "up", Target("mine", str(clone)), plain=False)
            again = branch.export(stores, "up", Target("mine", str(clone)), plain=False)
        assert (found.state, again.state) == (BranchState.NEW, BranchState.UNCHANGED)
        assert tree(clone, "mine") == tree(made.remote, made.tip)
        user_git(clone, "checkout", "-q", "mine")
        assert _again(made, clone) == made.patches()

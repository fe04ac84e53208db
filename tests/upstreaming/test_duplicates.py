# SPDX-License-Identifier: Apache-2.0
"""Whether another pull request does the same: on diffs that git makes of small trees, and on this stack's own patches."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.carry.unmerged_remainder import difference
from stack.model import stack as stacks
from stack.model.diff import parse
from stack.model.ids import TreeId
from stack.model.patch import files
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects
from stack.upstreaming import duplicates
from stack.upstreaming.duplicates import BAR, Overlap

ROOT = Path(__file__).parents[2]
COMMON = (
    "# SPDX-License-Identifier: Apache-2.0\nimport os\n\n\ndef first():\n    return None\n\n\ndef second():\n    return None\n"
)
ADDED = """

def supports_decode(capability, dtype, page_size):
    if capability.major == 12 and dtype in SUPPORTED_DTYPES and page_size % 16 == 0:
        return has_sources()
    logger.warning_once("Decode is not supported for %s on capability %s.", dtype, capability)
    return None
"""


class Tree:
    """A small upstream: other contents of its files become diffs."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.base = self.tree({"pkg/one.py": COMMON, "pkg/two.py": COMMON.replace("first", "third"), "docs/a.md": "# A\n"})

    def tree(self, contents: dict[str, str], over: str = EMPTY_TREE) -> TreeId:
        written = {path: Entry(FILES[0], self.objects.write_blob(text.encode())) for path, text in contents.items()}
        return self.objects.replaced(over, written)

    def diff(self, contents: dict[str, str]) -> bytes:
        return difference(self.objects, self.base, self.tree(contents, self.base))

    def overlap(self, ours: bytes, theirs: bytes) -> Overlap:
        (found,) = duplicates.overlaps(self.objects, self.base, parse(ours), [theirs])
        return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    place = tmp_path_factory.mktemp("duplicates") / "git"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    with Objects(place) as objects:
        yield Tree(objects)


def reflowed(text: str, width: int) -> str:
    """As a formatter with another line length writes it."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={width}", "--stdin-filename=a.py", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def test_the_same_change_is_a_duplicate(tree: Tree) -> None:
    diff = tree.diff({"pkg/one.py": COMMON + ADDED})
    found = tree.overlap(diff, diff)
    assert (found.score, found.ours, found.theirs, found.paths, found.whole) == (1, 1, 1, ("pkg/one.py",), True)
    assert found.is_duplicate
    assert found.lines[0].startswith("logger.warning_once(")
    assert found.lines[-1] == "return None"


@pytest.mark.parametrize("width", [40, 60, 200])
def test_line_breaks_do_not_count(tree: Tree, width: int) -> None:
    ours, theirs = (tree.diff({"pkg/one.py": text}) for text in (COMMON + ADDED, reflowed(COMMON + ADDED, width)))
    assert ours != theirs or width == 200
    assert tree.overlap(ours, theirs).score > 2 * BAR  # parentheses that a formatter puts in are other lines


def test_lines_that_stand_everywhere_say_little(tree: Tree) -> None:
    ours = tree.diff({"pkg/one.py": COMMON + "\n\ndef ours():\n    use(the_one_thing)\n    return None\n"})
    theirs = tree.diff({"pkg/one.py": COMMON + "\n\ndef theirs():\n    use(quite_another)\n    return None\n"})
    found = tree.overlap(ours, theirs)
    assert found.lines == ("return None",)
    assert found.score < BAR / 2


def test_a_part_of_the_other_shows(tree: Tree) -> None:
    small = tree.diff({"pkg/one.py": COMMON + ADDED})
    more = "".join(f"\n\ndef more_{number}():\n    return compute({number})\n" for number in range(40))
    large = tree.diff({"pkg/one.py": COMMON + ADDED + more, "docs/a.md": "# A\n\nMuch more.\n"})
    assert tree.overlap(small, large).ours == 1
    assert tree.overlap(large, small).theirs == 1
    assert tree.overlap(large, small).is_duplicate


def test_few_lines_in_another_file_are_a_sibling(tree: Tree) -> None:
    ours, theirs = (
        tree.diff({"pkg/one.py": COMMON + ADDED}),
        tree.diff({"pkg/two.py": COMMON.replace("first", "third") + ADDED}),
    )
    assert tree.overlap(ours, theirs).score == 0


def test_many_lines_are_the_same_change_in_a_renamed_file_too(tree: Tree) -> None:
    more = "".join(f"\n\ndef more_{number}():\n    return compute({number})\n" for number in range(10))
    ours, theirs = tree.diff({"pkg/new.py": more}), tree.diff({"pkg/renamed.py": more})
    assert tree.overlap(ours, theirs).score == 1


def test_a_change_that_only_removes_is_compared_by_what_it_removes(tree: Tree) -> None:
    ours = tree.diff({"pkg/one.py": COMMON.replace("def second():\n    return None\n", "")})
    other = tree.diff({"pkg/one.py": COMMON.replace("import os\n", "")})
    assert tree.overlap(ours, ours).score == 1
    assert tree.overlap(ours, other).score == 0


def test_of_a_diff_that_is_cut_off_the_rest_counts(tree: Tree) -> None:
    both = tree.diff({"docs/a.md": "# A\n\nMore.\n" * 9, "pkg/one.py": COMMON + ADDED})
    cut = both[: both.index(b"supports_decode") + 20]
    found = tree.overlap(both, cut)
    assert not found.whole
    assert found.paths == ("docs/a.md",)
    assert 0 < found.theirs <= 1


@pytest.mark.parametrize(
    "odd",
    [b"", b"\0" * 99, b"no diff at all\n", b"diff --git a/x b/x\n@@ -1,9 +1,9 @@\n+a\n", b"diff --git " * 999, b"\xff\xfe\n"],
)
def test_what_is_no_diff_overlaps_with_nothing(tree: Tree, odd: bytes) -> None:
    assert tree.overlap(tree.diff({"pkg/one.py": COMMON + ADDED}), odd).score == 0


def test_of_a_huge_diff_a_part_is_looked_at(tree: Tree) -> None:
    diff = tree.diff({"pkg/one.py": COMMON + ADDED})
    data = b"".join(b"+%d,\n" % number for number in range(duplicates.LARGEST // 8))
    huge = diff + b"diff --git a/d b/d\nnew file mode 100644\n--- /dev/null\n+++ b/d\n@@ -0,0 +1,%d @@\n%b" % (
        data.count(b"\n"),
        data,
    )
    assert len(huge) > duplicates.LARGEST // 2
    found = tree.overlap(diff, huge + huge)
    assert not found.whole
    assert found.ours == 1


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_nothing_that_a_server_sends_ends_in_an_error(tree: Tree, odd: bytes) -> None:
    diff = tree.diff({"pkg/one.py": COMMON + ADDED})
    found = tree.overlap(diff, diff[:200] + odd)
    assert 0 <= found.score <= 1


@pytest.mark.parametrize("upstream", ["vllm", "flashinfer"])
def test_the_patches_of_this_stack_are_no_duplicates_of_each_other(upstream: str, tree: Tree) -> None:
    """Without upstream's tree common lines count in full: it makes the scores higher, not lower.

    A patch that changes what an earlier one of its series has added repeats some of its lines, and may come nearer.
    """
    patches = stacks.load(ROOT).order(upstream)
    for patch in patches:
        found = duplicates.overlaps(tree.objects, tree.base, files(patch), [other.diff for other in patches])
        for other, overlap in zip(patches, found, strict=True):
            if other is patch:
                assert overlap.score == 1
            else:
                most = BAR if other.ref.series != patch.ref.series else 1.2 * BAR
                assert overlap.score < most, (patch.subject, other.subject)

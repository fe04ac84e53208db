# SPDX-License-Identifier: Apache-2.0
"""Random small stacks on a git upstream: what round trips are tried with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from stack.carry.commits import exported, read_commit
from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.model.ids import CommitId
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Objects

from ..test_messages import MESSAGES
from ..trees import BODIES, LINK, SUBJECTS, Scratch, Tree, changed, trees

SERIES = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Drawn:
    """The tree of the upstream, and each patch as the tree after it, its message and its series."""

    base: Tree
    patches: tuple[tuple[Tree, str, str], ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A stack with its upstream, and a cache of its own."""

    root: Path
    cache: Path
    remote: Path
    tip: CommitId
    """The upstream's commit with all patches."""

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        with Stores(stacks.load(self.root), Place(self.cache)) as stores:
            yield stores

    def patches(self) -> dict[str, bytes]:
        """The bytes of each patch file, in the order of the stack."""
        return {patch.ref.path: patch.raw for patch in stacks.load(self.root).order("up")}


def _inside(tree: Tree) -> Tree:
    """A tree without links that lead out of it, which are refused."""
    return {path: (mode, b"a" if mode == LINK else content) for path, (mode, content) in tree.items()}


@st.composite
def stacks_of(draw: st.DrawFn, *, any_message: bool = True) -> Drawn:
    """A random stack; without `any_message`, only with messages that `git am` keeps."""
    plain = st.builds("{}\n\n{}".format, st.sampled_from(SUBJECTS), st.sampled_from(BODIES))
    messages = st.one_of(plain, MESSAGES) if any_message else plain
    base = before = _inside(draw(trees()))
    number = draw(st.integers(1, 5))
    series = sorted(draw(st.lists(st.sampled_from(SERIES), min_size=number, max_size=number)), key=SERIES.index)
    patches = []
    for name in series:
        after = _inside(draw(changed(before, most=3)))
        if after and after != before:
            patches.append((after, draw(messages), name))
            before = after
    return Drawn(base, tuple(patches))


def make(place: Path, drawn: Drawn) -> Made:
    """Write the upstream, the stack and an empty cache."""
    made = Made(place / "stack", place / "cache", place / "up", CommitId(""))
    git.run(["init", "--quiet", "--bare", "--template=", str(made.remote)])
    git.run(["config", "uploadpack.allowFilter", "true"], cwd=made.remote)
    git.run(["config", "uploadpack.allowAnySHA1InWant", "true"], cwd=made.remote)
    with Objects(made.remote) as objects:
        scratch = Scratch(made.remote, objects)
        items = [(drawn.base, None, "base\n")]
        items += [(tree, number, message) for number, (tree, message, _) in enumerate(drawn.patches)]
        base, *commits = scratch.commits(*items)
        scratch.git("tag", "v1", base)
        refs = [PatchRef(name, "up", f"up/p{number}.patch") for number, (_, _, name) in enumerate(drawn.patches, 1)]
        raws = exported(objects, objects, base, [read_commit(objects, commit) for commit in commits], refs)
    _write(made.root, made.remote, base, raws)
    return Made(made.root, made.cache, made.remote, commits[-1] if commits else base)


def _write(root: Path, remote: Path, base: CommitId, raws: dict[PatchRef, bytes]) -> None:
    (root / "stacks").mkdir(parents=True)
    (root / "pins.toml").write_text(f'[up]\ngit = "file://{remote}"\ntag = "v1"\ncommit = "{base}"\nsource = "git"\n')
    names = list(dict.fromkeys(ref.series for ref in raws))
    (root / "stacks/stack.toml").write_text(f"series = {names}\n".replace("'", '"'))
    for name in names:
        listed = [ref.file for ref in raws if ref.series == name]
        text = f'title = "{name}"\nwhy = "To try."\nstate = "draft"\n'
        text += "".join(f'[[patch]]\nupstream = "up"\nfile = "{file}"\n' for file in listed)
        (root / "stacks" / name / "up").mkdir(parents=True)
        (root / "stacks" / name / "series.toml").write_text(text)
    for ref, raw in raws.items():
        (root / "stacks" / ref.path).write_bytes(raw)

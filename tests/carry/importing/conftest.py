# SPDX-License-Identifier: Apache-2.0
"""A small C project with git only, a clone of it with commits of our own, and an empty stack on its first release."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stack.carry.importing import closing, gather, plan
from stack.carry.importing.assignment import Assignment
from stack.carry.importing.plan import Import
from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.store import git

from ...store.factories import Remote
from ..world import numbered

FILES = {
    "src/web.c": numbered("web", count=120),
    "src/tls.c": numbered("tls", count=120),
    "Makefile": b"all:\n\ttrue\n",
    "doc/old.txt": b"old\n",
}


class Project:
    """The upstream, its clone with branches, and the stack."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.remote = Remote(place / "web-remote")
        self.remote.commit({"README": b"web\n", **FILES}, "Begin")
        self.remote.tag("release-1.0.0")
        self.first = self.remote.commit({"src/web.c": numbered("web", {100: "release"}, count=120)}, "Release 1.1")
        self.remote.tag("release-1.1.0")
        self.clone = Remote(place / "my-web")
        self.clone.git("remote", "add", "up", self.remote.url)
        self.clone.git("fetch", "--quiet", "--tags", "up")
        self.clone.git("checkout", "--quiet", "-b", "mine", "release-1.1.0")
        self.root = place / "stack"
        (self.root / "stacks").mkdir(parents=True)
        (self.root / "stacks/stack.toml").write_text("# The order.\nseries = []\n")
        self.pin("release-1.1.0")

    def pin(self, tag: str) -> None:
        commit = self.remote.git("rev-parse", f"{tag}^{{commit}}")
        (self.root / "pins.toml").write_text(f'[web]\ngit = "{self.remote.url}"\ntag = "{tag}"\ncommit = "{commit}"\n')

    def stores(self) -> Stores:
        return Stores(stacks.load(self.root), Place(self.place / "cache"))

    def bring(
        self, *given: object, series: str | None = None, rules: Sequence[str] = (), tree: Path | None = None, **more: object
    ) -> Import:
        """Import into the stack, as `stack import` does."""
        with self.stores() as stores:
            found = gather.gather(stores, "web", [str(one) for one in given], tree)
            asked = Assignment(series or found.name, tuple(rules))
            work = plan.plan(stores, plan.Request("web", found.read, found.came_from, asked, notes=found.notes, **more))  # type: ignore[arg-type]
            if work.imported:
                closing.write(stores, work)
        return work

    def tip(self) -> dict[str, bytes]:
        """All files of the tree with every patch of the stack."""
        with self.stores() as stores:
            objects = stores.objects("web")
            commit = stores.tip("web")
            objects.flush()
            listed = git.text(["ls-tree", "-r", "--name-only", commit], env={"GIT_DIR": str(objects.repository)}).splitlines()
            found = {}
            for path in listed:
                entry = objects.entry(objects.tree_of(commit), path)
                assert entry is not None
                found[path] = objects.read(entry.id)
            return found

    def head(self, clone: Remote | None = None) -> dict[str, bytes]:
        """All files of the clone's working tree."""
        where = (clone or self.clone).path
        return {
            path.relative_to(where).as_posix(): path.read_bytes()
            for path in sorted(where.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(where).parts
        }

    def series(self) -> Mapping[str, list[str]]:
        return {one.name: [ref.file for ref in one.patches] for one in stacks.load(self.root).series}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def web(changes: Mapping[int, str]) -> dict[str, bytes]:
    """`src/web.c` of release 1.1.0 with some lines changed."""
    return {"src/web.c": numbered("web", {100: "release"} | dict(changes), count=120)}


def tls(changes: Mapping[int, str]) -> dict[str, bytes]:
    """`src/tls.c` with some lines changed."""
    return {"src/tls.c": numbered("tls", changes, count=120)}

# SPDX-License-Identifier: Apache-2.0
"""A small fork with its own repository at a forge, and what its maintainer does there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from stack.store import git

from ..carry.world import numbered
from ..forge.fake_github import Hub
from ..forge.fake_threads import Issue
from ..store.factories import Remote
from ..upstreaming.forge import Forge, Request
from ..upstreaming.fork import Change, fork

OWN = "me/stack"
BRANCH = "stack-watch/up"
BASE = {"a.py": numbered("a"), "b.py": numbered("b"), "c.py": b""}
FIXED = numbered("b", {30: "fixed"})
HOOKED = numbered("a", {10: "hook"})
PROOF = """
from pathlib import Path
from urllib.parse import unquote

import c

def test_hook():
    assert "hook" in Path(c.__file__).with_name("a.py").read_text()
"""
CONFLICT = {"a.py": numbered("a", {10: "upstream's"}), "b.py": FIXED}


class Branches(Mapping[str, str]):
    """The branches that a bare repository has now."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def _all(self) -> dict[str, str]:
        lines = git.text(["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads"], cwd=self.place)
        return dict(line.split(" ", 1) for line in lines.splitlines())  # type: ignore[misc]

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass
class Maintainer:
    """`work` is a checkout of the repository `me/stack`, which the forge has as `mine`."""

    work: Path
    cache: Path
    mine: Path
    upstream: Remote
    forge: Forge
    hub: Hub

    @property
    def args(self) -> list[str]:
        return ["--root", str(self.work), "--cache", str(self.cache)]

    @property
    def issues(self) -> list[Issue]:
        return self.hub.repositories[OWN].issues

    @property
    def branches(self) -> dict[str, str]:
        return dict(Branches(self.mine))

    def release(self, tag: str, files: Mapping[str, bytes]) -> None:
        self.upstream.commit(files, f"Towards {tag}")
        self.upstream.tag(tag)

    def writes(self) -> list[str]:
        """List the writes at the forge, in order of kind: requests to the API, then pushes."""
        asked = [f"{method} {unquote(target).rpartition(OWN)[2]}" for method, target in self.hub.seen if method != "GET"]
        return asked + [f"push {request.path.rpartition('/')[2]}" for request, _ in self.forge.seen if _pushes(request)]

    def ran(self) -> None:
        """Let the forge list a run of the workflow that began now."""
        began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.hub.repositories[OWN].runs["stack-watch.yml"] = [(began, None)]

    def forget(self) -> None:
        self.hub.seen.clear()
        self.forge.seen.clear()

    def commit_to(self, branch: str, path: str) -> str:
        """Let a person commit to a branch at the forge."""
        tree = self._with(branch, path)
        person = {f"GIT_{who}_{what}": "p" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        made = git.run(["commit-tree", "-p", branch, "-m", "Mine", tree], cwd=self.mine, env=person).stdout.decode().strip()
        git.run(["update-ref", f"refs/heads/{branch}", made], cwd=self.mine)
        return made

    def _with(self, branch: str, path: str) -> str:
        lines = git.text(["ls-tree", branch], cwd=self.mine).splitlines()
        blob = next(line for line in lines if "\tpins.toml" in line)
        index = self.mine / "index-of-person"
        env = {"GIT_INDEX_FILE": str(index)}
        git.run(["read-tree", branch], cwd=self.mine, env=env)
        git.run(["update-index", "--add", "--cacheinfo", f"100644,{blob.split()[2]},{path}"], cwd=self.mine, env=env)
        return git.text(["write-tree"], cwd=self.mine, env=env).strip()


def _pushes(request: Request) -> bool:
    return request.pushes


def maintainer(place: Path, home: Path, forge: Forge, hub: Hub) -> Maintainer:
    """The upstream on v1.0, and the stack, committed and pushed by somebody whose git knows the forge's password."""
    changes = [
        Change("one", "hook", {"a.py": HOOKED}, ("test_hook",)),
        Change("one", "fix", {"a.py": HOOKED, "b.py": FIXED}),
    ]
    made = fork(place, BASE, changes, {}, PROOF)
    pins = made.root / "pins.toml"
    pins.write_text(f'{pins.read_text()}source = "git"\n')
    mine = forge.make(OWN)
    forge.passwords |= {"me": "secret"}
    helper = '"!f() { test \\"$1\\" = get && echo username=me && echo password=secret; }; f"'
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
    git._reaching.cache_clear()  # read once in a process
    person = {f"GIT_{who}_{what}": "p" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for args in (
        ["init", "--quiet", "--initial-branch=main", "--template="],
        ["add", "."],
        ["commit", "--quiet", "-m", "One"],
        ["push", "--quiet", str(mine), "main"],
        ["remote", "add", "origin", forge.address(OWN)],
    ):
        git.run(args, cwd=made.root, env=person)
    return Maintainer(made.root, made.cache, mine, made.remote, forge, hub)

# SPDX-License-Identifier: Apache-2.0
"""A contributor to a small upstream: their stack, their store, and a forge with the upstream and their fork of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stack.carry.export import export
from stack.carry.upstream_stores import Place, Stores
from stack.model.ids import CommitId
from stack.model.patch import Patch, parse
from stack.model.pins import Source
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.store import cache, fork, git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Identity, Objects
from stack.upstreaming.proposal import Part, Proposal, UpstreamPlan
from stack.upstreaming.pushing import PushRow, push
from tests.carry.world import Files, numbered
from tests.store.factories import TIME, Remote, bare, sdist, sha256

from .forge import Forge, serving

BASE: Files = {"a.py": numbered("a"), "b.py": numbered("b"), "same.py": numbered("same")}
FORGE = "https://forge.test/"
"""Where the user's git finds the forge: pins name no address without TLS."""
HOOK = {"a.py": numbered("a", {10: "hook"})}
MORE = {"a.py": numbered("a", {10: "hook", 11: "more"})}
OTHER = {"b.py": numbered("b", {10: "other"})}
SERIES = """\
title = "One"
why = "It is needed."
state = "pending"
[[patch]]
upstream = "up"
file = "up/hook.patch"
[[patch]]
upstream = "up"
file = "up/other.patch"
[[patch]]
upstream = "up"
file = "up/more.patch"
"""
PINS = """\
[up]
git = "{git}"
tag = "v1.0"
commit = "{commit}"
archive = {{ package = "up", version = "1.0", sha256 = "{sha256}" }}
"""
MESSAGE = "{}\n\nWhy it is needed.\n\nSigned-off-by: A Person <a@person>\n"


@dataclass
class Contributor:
    """The stack's folder and cache; the upstream as its maintainers have it; the forge with `them/up` and `me/up`."""

    root: Path
    cache: Path
    home: Path
    upstream: Remote
    forge: Forge
    source: Source = "git"

    @property
    def theirs(self) -> Path:
        return self.forge.root / "them/up.git"

    @property
    def mine(self) -> Path:
        return self.forge.root / "me/up.git"

    @property
    def store(self) -> Path:
        return cache.upstream_store(self.cache, "up")

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        with Stores(load(self.root), Place(self.cache, self.source)) as stores:
            yield stores

    def publish(self) -> None:
        """What upstream's maintainers have becomes what the forge serves."""
        git.run(["push", "--quiet", "--mirror", str(self.theirs)], cwd=self.upstream.path)

    def sync(self) -> None:
        """The fork gets upstream's default branch."""
        git.run(["fetch", "--quiet", str(self.theirs), "+main:main"], cwd=self.mine)

    def base(self, tag: str = "v1.0") -> CommitId:
        with self.stores() as stores:
            return stores.obtain("up", tag).commit

    def configure(self, text: str = "", *, person: str = "A Person", mail: str = "a@person", secret: str = "secret") -> None:
        """The user's git: who they are, and a helper that knows the forge's password."""
        helper = f'"!f() {{ test \\"$1\\" = get && echo username=me && echo password={secret}; }}; f"'
        settings = f"[user]\n\tname = {person}\n\temail = {mail}\n" if person else ""
        settings += f'[url "{self.forge.url}/"]\n\tinsteadOf = {FORGE}\n'
        settings += f"[credential]\n\thelper = {helper}\n" if secret else ""
        (self.home / ".gitconfig").write_text(settings + text)
        git._reaching.cache_clear()  # read once in a process

    def push(
        self, *proposals: Proposal, to: str = "", planned: Sequence[Proposal] = (), over: Sequence[str] = ()
    ) -> tuple[PushRow, ...]:
        """Push proposals; `planned` are those that they need."""
        with self.stores() as stores:
            store = stores.objects("up").repository
            remote = to or self.forge.address("me/up")
            forks = fork.named([remote], stores.stack.pins, ["up"], self.root, store)
            return push(stores, [plan_of(*proposals, *planned)], proposals, forks, over)

    def branches(self, place: Path | None = None) -> dict[str, str]:
        """The branches and tags of pull requests in a repository; the fork's unless another is named."""
        shown = ["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/pr", "refs/tags/pr"]
        lines = git.text(shown, cwd=place or self.mine).splitlines()
        return dict(line.split(" ") for line in lines)  # type: ignore[misc]

    def records(self) -> dict[str, str]:
        lines = git.text(["for-each-ref", "--format=%(refname) %(objectname)", "refs/stack"], cwd=self.store).splitlines()
        return {name: commit for name, commit in (line.split(" ") for line in lines) if "/push" in name}


def plan_of(*proposals: Proposal) -> UpstreamPlan:
    return UpstreamPlan("up", proposals[0].base, proposals[0].onto, proposals)


def patch_between(folder: Path, before: Mapping[str, bytes], after: Mapping[str, bytes], subject: str) -> Patch:
    """The patch that makes one set of files another, written by git."""
    writer = Identity("Jörg Writer", "joerg@writer", f"{TIME} +0000")
    with Objects(bare(folder)) as objects:
        trees = [
            objects.replaced(EMPTY_TREE, {path: Entry(FILES[0], objects.write_blob(content)) for path, content in one.items()})
            for one in (before, after)
        ]
        base = objects.write_commit(trees[0], (), "base\n", writer)
        commit = objects.write_commit(trees[1], (base,), MESSAGE.format(subject), writer)
        [raw] = export(objects, base, [commit])
    return parse(raw, PatchRef("one", "up", "up/x.patch"), name="x.patch")


def proposal(
    base: CommitId, slug: str, *patches: Patch, real: bool = True, needs: tuple[str, ...] = (), wave: int = 1
) -> Proposal:
    parts = tuple(Part(f"one/up/{slug}.patch", patch) for patch in patches)
    return Proposal("up", "one", slug, base, "v1.0", real, parts, wave, needs)


def worded(patch: Patch, message: str) -> Patch:
    return replace(patch, message=message)


def build(folder: Path) -> None:
    """The upstream, published and forked; its archive; the stack. No server runs yet."""
    upstream = Remote(folder / "upstream")
    upstream.commit({"a.py": b"first\n"}, "first")
    commit = upstream.commit(BASE, "second")
    upstream.tag("v1.0")
    forge = Forge(folder / "forge")
    forge.make("them/up")
    forge.make("me/up")
    archive = sdist(folder / "up-1.0.tar.gz", BASE | {"PKG-INFO": b"generated\n"}, top="up-1.0")
    page = folder / "simple/up/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../{archive.name}#sha256={sha256(archive)}">{archive.name}</a>')
    root = folder / "stack"
    (root / "stacks/one/up").mkdir(parents=True)
    (root / "stacks/stack.toml").write_text('series = ["one"]\n')
    (root / "stacks/one/series.toml").write_text(SERIES)
    files = dict(BASE)
    for name, changed in (("hook", HOOK), ("other", OTHER), ("more", MORE)):
        patch = patch_between(folder / f"scratch-{name}", files, files | changed, f"Do {name}")
        files |= changed
        (root / f"stacks/one/up/{name}.patch").write_bytes(patch.raw)
    (root / "pins.toml").write_text(PINS.format(git=f"{FORGE}them/up", commit=commit, sha256=sha256(archive)))


def contributor(folder: Path, home: Path, forge: Forge) -> Contributor:
    """Somebody whose git knows the forge."""
    forge.passwords |= {"me": "secret", "them": "theirs"}
    made = Contributor(folder / "stack", folder / "cache", home, Remote(folder / "upstream"), forge)
    made.configure()
    return made


def fill(folder: Path, home: Path) -> None:
    """Build it, and fetch the release."""
    build(folder)
    with serving(folder / "forge") as forge:
        made = contributor(folder, home, forge)
        made.publish()
        made.sync()
        made.base()

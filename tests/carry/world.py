# SPDX-License-Identifier: Apache-2.0
"""A small world to carry patches in: three upstreams, their releases as archives and in git, and a stack on them.

`gamma` names the release of `alpha` that it needs; `alpha` vendors `beta` at `3rd/beta`. What their releases bring:

| release | the patches |
|---|---|
| alpha v1.0, gamma v2.0 | what the pins name |
| alpha v1.1, gamma v2.1 | all can be carried, `gamma/old.py` is gone; beta moves, but not the folder that its pin vouches for |
| alpha v1.2 | the folder that beta's pin vouches for changes |
| alpha v1.3, gamma v2.2 | conflicts in patches of both |
| alpha v1.4 | an archive that does not say which commit it was made from |
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.model.pins import Source
from stack.model.stack import Stack
from stack.store import archive, git, indexes
from stack.store.objects import Objects

from ..store.factories import Remote, sdist, sha256
from .trees import FILE, Scratch

Files = dict[str, bytes]


def numbered(name: str, changes: Mapping[int, str] | None = None, *, count: int = 40, above: int = 0) -> bytes:
    """Numbered lines, some of them others, and some more above."""
    lines = [(changes or {}).get(number, f"{name} {number}") for number in range(1, count + 1)]
    return "".join(f"{line}\n" for line in [f"above {number}" for number in range(above)] + lines).encode()


BETA: dict[str, Files] = {
    "b1": {"include/b.h": numbered("header"), "README": b"beta\n"},
    "b2": {"include/b.h": numbered("header"), "README": b"beta, told anew\n"},
    "b3": {"include/b.h": numbered("header", {30: "other"}), "README": b"beta\n"},
}
ALPHA: dict[str, tuple[Files, str]] = {
    "v1.0": ({"alpha/core.py": numbered("core"), "README": b"alpha\n"}, "b1"),
    "v1.1": ({"alpha/core.py": numbered("core", above=3), "README": b"alpha 1.1\n"}, "b2"),
    "v1.2": ({"alpha/core.py": numbered("core"), "README": b"alpha 1.2\n"}, "b3"),
    "v1.3": ({"alpha/core.py": numbered("core", {10: "upstream's"}), "README": b"alpha\n"}, "b2"),
    "v1.4": ({"alpha/core.py": numbered("core"), "README": b"alpha 1.4\n"}, "b1"),
}
FIXED = {30: "limit, fixed"}
GAMMA: dict[str, Files] = {
    "v2.0": {
        "gamma/main.py": numbered("main"),
        "gamma/tool.py": numbered("tool"),
        "gamma/old.py": b"def pack(): ...\n",
        "requirements/cuda.txt": b"# for the GPU\n-r common.txt\nother==7\nalpha-pkg==1.0 # together\n",
    },
    "v2.1": {
        "gamma/main.py": numbered("main", FIXED),
        "gamma/tool.py": numbered("tool", above=5),
        "requirements/cuda.txt": b"other==7\nAlpha_Pkg==1.1 ; python_version > '3'\n",
    },
    "v2.2": {
        "gamma/main.py": numbered("main", {10: "upstream's", 30: "upstream's limit"}),
        "gamma/tool.py": numbered("tool"),
        "requirements/cuda.txt": b"alpha-pkg==1.3\n",
    },
}

PINS = """\
# SPDX-License-Identifier: Apache-2.0
# A comment at the top.

[gamma]
git     = "{gamma_git}"
tag     = "v2.0"
commit  = "{gamma_commit}"      # as far as the release states it
archive = {{ package = "gamma-pkg", version = "2.0", sha256 = "{gamma_sha256}" }}
tree    = "{gamma_tree}"

[alpha] # the holder
git = "{alpha_git}"
tag = "v1.0"
commit = "{alpha_commit}"
archive = {{ package = "alpha-pkg", version = "1.0", sha256 = "{alpha_sha256}" }}
tree = "{alpha_tree}"

[beta]
git      = "{beta_git}"
commit   = "{beta_commit}" # 4.5
within   = {{ upstream = "alpha", path = "3rd/beta" }}
subtrees = {{ include = "{beta_include}" }}
# A comment at the end.
"""
PYPROJECT = """\
[project.optional-dependencies]
serve = ["gamma-pkg==2.0", "alpha-pkg[gpu]==1.0"] # the pins
dev = ["alpha-pkg==0.1"]
"""
ONE = """\
# Why this series is first.
title = "One"
why = "It is needed."
state = "pending"

[[patch]]
upstream = "gamma"
file = "gamma/hook-main.patch"

# A comment on the second one.
[[patch]]
upstream = "alpha"
file = "alpha/core-switch.patch"

[[patch]]
upstream = "gamma"
file = "gamma/tool-flag.patch"
"""
TWO = """\
title = "Two"
why = "It is needed, too."
state = "draft"
needs = ["one"]
[[patch]]
upstream = "alpha"
file = "alpha/open-header.patch"
[[patch]]
upstream = "beta"
file = "beta/wide-load.patch"
[[patch]]
upstream = "gamma"
file = "gamma/fix-limit.patch"
"""
# Patches in the order in which they apply: message, files after it (over those of the release).
GAMMA_PATCHES: dict[str, tuple[str, Files]] = {
    "one/gamma/hook-main.patch": ("Hook main", {"gamma/main.py": numbered("main", {10: "hook"})}),
    "one/gamma/tool-flag.patch": ("[tool] Flag für das Werkzeug", {"gamma/tool.py": numbered("tool", {20: "flag"})}),
    "two/gamma/fix-limit.patch": ("Fix limit", {"gamma/main.py": numbered("main", {10: "hook"} | FIXED)}),
}
ALPHA_PATCHES: dict[str, tuple[str, Files]] = {
    "one/alpha/core-switch.patch": (
        "Core switch",
        {"alpha/core.py": numbered("core", {10: "switch"}), "alpha/extra.py": b"extra\n"},
    ),
    "two/alpha/open-header.patch": ("Open header", {"3rd/beta/include/b.h": numbered("header", {5: "open"})}),
}
BETA_PATCHES: dict[str, tuple[str, Files]] = {
    "two/beta/wide-load.patch": ("Wide load", {"include/b.h": numbered("header", {5: "open", 7: "wide"})}),
}
PATCHES = (*GAMMA_PATCHES, *ALPHA_PATCHES, *BETA_PATCHES)
MESSAGE = "{}\n\nWhy it is needed.\n\nSigned-off-by: A Person <a@person>\n"


@dataclass(frozen=True, slots=True)
class World:
    """The stack's folder, the cache, and what the releases are made from."""

    root: Path
    cache: Path
    index: Path
    commits: Mapping[str, str]
    """Upstream commits by `<upstream> <tag>`; beta's by their names here."""

    def load(self) -> Stack:
        return stacks.load(self.root)

    @contextmanager
    def stores(self, source: Source = "archive") -> Iterator[Stores]:
        with Stores(self.load(), Place(self.cache, source)) as stores:
            yield stores

    def files(self) -> Files:
        """All files of the stack that a user would put into git."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".stack" not in path.relative_to(self.root).parts
        }

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace the one place in a file of the stack."""
        text = self.read(path)
        assert text.count(old) == 1, (path, old)
        (self.root / path).write_text(text.replace(old, new))


def inside(files: Files, folder: str) -> Files:
    return {f"{folder}/{path}": content for path, content in files.items()}


def build(place: Path) -> World:
    """Make remotes, archives, index, stack and a cache that has all releases."""
    remotes = {name: Remote(place / f"{name}-remote") for name in ("beta", "alpha", "gamma")}
    commits = {name: remotes["beta"].commit(files, name) for name, files in BETA.items()}
    archives: dict[str, Path] = {}
    for tag, (files, vendored) in ALPHA.items():
        commit = remotes["alpha"].commit(files, tag, submodules={"3rd/beta": commits[vendored]})
        remotes["alpha"].tag(tag)
        commits[f"alpha {tag}"] = commit
        made = {"PKG-INFO": b"generated\n", "alpha/_build_meta.py": b'__git_commit__ = "%s"\n' % commit.encode()}
        if tag == "v1.4":
            del made["alpha/_build_meta.py"]
        content = files | inside(BETA[vendored], "3rd/beta") | made
        archives[f"alpha {tag}"] = _release(place, "alpha_pkg", tag, content)
    for tag, files in GAMMA.items():
        commit = remotes["gamma"].commit(files, tag)
        remotes["gamma"].tag(tag)
        commits[f"gamma {tag}"] = commit
        version = b"__version__ = '%s'\n__commit_id__ = commit_id = 'g%s'\n" % (tag[1:].encode(), commit[:9].encode())
        archives[f"gamma {tag}"] = _release(place, "gamma_pkg", tag, files | {"gamma/_version.py": version})
    for package in ("alpha_pkg", "gamma_pkg"):
        page = place / "simple" / package.replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True)
        links = [
            f'<a href="../../files/{path.name}#sha256={sha256(path)}">{path.name}</a>'
            for path in archives.values()
            if path.name.startswith(package)
        ]
        page.write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    world = World(place / "stack", place / "cache", place / "simple", commits)
    _write_stack(world, remotes, archives, place)
    return world


def _release(place: Path, package: str, tag: str, files: Files) -> Path:
    top = f"{package}-{tag.removeprefix('v')}"
    return sdist(place / f"files/{top}.tar.gz", files, top=top)


def _write_stack(world: World, remotes: Mapping[str, Remote], archives: Mapping[str, Path], place: Path) -> None:
    values = {f"{name}_git": remote.url for name, remote in remotes.items()}
    values |= {f"{name}_sha256": sha256(archives[f"{name} {tag}"]) for name, tag in (("alpha", "v1.0"), ("gamma", "v2.0"))}
    values |= {"gamma_commit": world.commits["gamma v2.0"][:9], "alpha_commit": world.commits["alpha v1.0"]}
    values |= {"beta_commit": world.commits["b1"], "beta_include": "0" * 40, "alpha_tree": "0" * 40, "gamma_tree": "0" * 40}
    stack_folder = world.root / "stacks"
    stack_folder.mkdir(parents=True)
    (world.root / "pyproject.toml").write_text(PYPROJECT)
    (stack_folder / "stack.toml").write_text('# The order.\nseries = ["one", "two"]\n')
    for name, text in (("one", ONE), ("two", TWO)):
        (stack_folder / name).mkdir()
        (stack_folder / name / "series.toml").write_text(text)
    alpha, gamma = (ALPHA["v1.0"][0] | inside(BETA["b1"], "3rd/beta")), GAMMA["v2.0"]
    scratch_place = place / "scratch"
    git.run(["init", "--quiet", "--bare", "--template=", str(scratch_place)])
    with Objects(scratch_place) as objects:
        scratch = Scratch(scratch_place, objects)
        opened = BETA["b1"] | {"include/b.h": numbered("header", {5: "open"})}
        for files, patches in ((gamma, GAMMA_PATCHES), (alpha, ALPHA_PATCHES), (opened, BETA_PATCHES)):
            _write_patches(stack_folder, scratch, files, patches)
    (world.root / "pins.toml").write_text(PINS.format(**values))
    _pin_trees(world, archives, values)


def _write_patches(folder: Path, scratch: Scratch, base: Files, patches: Mapping[str, tuple[str, Files]]) -> None:
    items, files = [({path: (FILE, content) for path, content in base.items()}, None, "base\n")], dict(base)
    for number, (subject, after) in enumerate(patches.values()):
        files |= after
        items.append(({path: (FILE, content) for path, content in files.items()}, number, MESSAGE.format(subject)))
    commits = scratch.commits(*items)
    for path, raw in zip(patches, scratch.format_patch(commits[0], commits[-1]), strict=True):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(raw)


def _pin_trees(world: World, archives: Mapping[str, Path], values: dict[str, str]) -> None:
    """Fetch all releases, and pin what they are."""
    pins = world.root / "pins.toml"
    for name in ("alpha", "gamma"):
        values[f"{name}_tree"] = archive.tree_id(archives[f"{name} {'v1.0' if name == 'alpha' else 'v2.0'}"])
    pins.write_text(PINS.format(**values))
    with world.stores() as stores:
        for release in archives:
            name, tag = release.split(" ")
            tree = stores.obtain(name, tag)
            if release == "alpha v1.0":
                entry = stores.objects("alpha").entry(tree.tree, "3rd/beta/include")
                assert entry is not None
                values["beta_include"] = entry.id
    pins.write_text(PINS.format(**values))


def isolate(monkeypatch: pytest.MonkeyPatch, home: Path, index: Path | None = None) -> None:
    """The user's machine: no configuration of pip, uv or git, no proxy, a home of its own."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "GIT_", "STACK_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{index}/" if index else f"file://{home}/no-index/")
    # Asking pip takes a quarter of a second; its environment variables are read without it.
    monkeypatch.setattr(indexes, "_pip_says", lambda: iter(()))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as monkeypatch:
        isolate(monkeypatch, place / "home", place / "simple")
        return build(place)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("home")
    isolate(monkeypatch, place)
    return place


@pytest.fixture
def world(template: World, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of the world of its own; remotes and index are shared."""
    isolate(monkeypatch, home, template.index)
    shutil.copytree(template.root, tmp_path / "stack")
    shutil.copytree(template.cache, tmp_path / "cache", symlinks=True)
    return World(tmp_path / "stack", tmp_path / "cache", template.index, template.commits)

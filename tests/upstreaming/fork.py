# SPDX-License-Identifier: Apache-2.0
"""Small forks to plan: an upstream in git with releases, and a stack of series on its first one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.store import git

from ..store.factories import Remote

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Change:
    """A patch: its series, its name, the files that it changes as they are after it, and the tests that prove it."""

    series: str
    name: str
    files: Files
    tests: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.series}/up/{self.name}.patch"


@dataclass(frozen=True)
class Fork:
    """The stack's folder, the upstream, and the cache."""

    root: Path
    remote: Remote
    cache: Path

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        with Stores(load(self.root), Place(self.cache, "git")) as opened:
            yield opened

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text()
        assert old in text
        (self.root / file).write_text(text.replace(old, new))


def fork(place: Path, base: Files, changes: Sequence[Change], releases: Mapping[str, Files], proof: str = "") -> Fork:
    """A stack on `v1.0`; `releases` have their files over those of v1.0, one after the other on upstream's main."""
    remote = Remote(place / "remote")
    first = remote.commit(base, "First")
    remote.tag("v1.0")
    remote.git("checkout", "--quiet", "--detach")
    names: dict[str, None] = {}
    tables: dict[str, str] = {}
    for change in changes:
        before = remote.git("rev-parse", "HEAD")
        remote.commit(change.files, f"{change.name.replace('-', ' ').capitalize()}\n\nWhy.")
        folder = place / "root/stacks" / change.series / "up"
        folder.mkdir(parents=True, exist_ok=True)
        shown = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", "--stdout", f"{before}..HEAD"]
        (folder / f"{change.name}.patch").write_bytes(git.run(["format-patch", *shown], cwd=remote.path).stdout)
        names[change.series] = None
        tables[change.series] = tables.get(change.series, "") + f'[[patch]]\nupstream = "up"\nfile = "up/{change.name}.patch"\n'
    remote.git("checkout", "--quiet", "main")
    for tag, files in releases.items():
        remote.commit(files, f"Towards {tag}")
        remote.tag(tag)
    root = place / "root"
    for series, table in tables.items():
        proves = f'proves = ["proofs/test_{series}.py"]\n' if any(one.tests for one in changes if one.series == series) else ""
        text = f'title = "{series}"\nwhy = "w"\nstate = "pending"\n{proves}{table}'
        (root / "stacks" / series / "series.toml").write_text(text)
        if proves:
            (root / "proofs").mkdir(exist_ok=True)
            of = {f"up/{one.name}.patch": [*one.tests] for one in changes if one.series == series and one.tests}
            (root / f"proofs/test_{series}.py").write_text(f"PROVES = {of!r}\n{proof}")
    listed = ", ".join(f'"{name}"' for name in names)
    (root / "stacks/stack.toml").write_text(f"series = [{listed}]\n")
    archive = 'archive = { package = "up", version = "1.0" }'
    (root / "pins.toml").write_text(f'[up]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{first}"\n{archive}\n')
    return Fork(root, remote, place / "cache")

# SPDX-License-Identifier: Apache-2.0
"""An upstream with a history in git, and a plug-in beside the stack that replaces and copies parts of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.store import git

from ...store.factories import Remote
from ..world import isolate

LAYER = """\
class Base:
    def inherited(self, x): ...


class Layer(Base):
    def forward(self, x, *, scale=1.0):
        return x * scale

    @classmethod
    def build(cls, config): ...


def helper(a, b=2):
    return a + b


LIMIT = 3
"""
ROPE = "".join(f"def rope_{number}(x):\n    return x * {number}\n\n\n" for number in range(10))
KERNEL = "// a kernel\nvoid paged_attention_v1(float* out) {\n}\n"
FIRST = {
    "up/__init__.py": b"from up.layer import Layer, helper\n",
    "up/layer.py": LAYER.encode(),
    "up/rope.py": ROPE.encode(),
    "up/user.py": b"from up.layer import helper\nprint(helper(1))\n",
    "csrc/attention.cu": KERNEL.encode(),
    "README": b"first\n",
}


@dataclass
class Plant:
    """The stack's folder, a cache, and the upstream; `commits` has those of upstream by their subjects."""

    place: Path
    remote: Remote
    commits: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.place / "mine" / "fork"

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    def commit(self, subject: str, files: dict[str, str] | None = None, *, gone: tuple[str, ...] = ()) -> str:
        for path in gone:
            self.remote.git("rm", "--quiet", path)
        given = {path: text.encode() for path, text in (files or {"README": subject}).items()}
        self.commits[subject] = self.remote.commit(given, subject)
        return self.commits[subject]

    def write(self, path: str, text: str) -> None:
        """Write a file of the user's repository."""
        file = self.place / "mine" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    @property
    def text(self) -> str:
        return (self.root / "stacks/guards.toml").read_text()

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        with Stores(stacks.load(self.root), Place(self.cache)) as stores:
            yield stores


@pytest.fixture
def plant(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    isolate(monkeypatch, home)
    remote = Remote(tmp_path / "up-remote")
    made = Plant(tmp_path, remote)
    made.commits["first"] = remote.commit(FIRST, "first")
    remote.tag("v1.0")
    (made.root / "stacks").mkdir(parents=True)
    git.run(["init", "--quiet", "--template=", str(tmp_path / "mine")])
    pins = f'[up]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{made.commits["first"]}"\nsource = "git"\n'
    (made.root / "pins.toml").write_text(pins)
    (made.root / "stacks/stack.toml").write_text("series = []\n")
    made.write("plugin/rope.py", ROPE)
    return made

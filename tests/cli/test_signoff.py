# SPDX-License-Identifier: Apache-2.0
"""From equal findings to a stack in order, with the command that the finding names."""

import re

import pytest

from ..carry.test_lint import policy
from ..carry.test_signoff import SIGNED
from ..carry.world import PATCHES, World
from .conftest import Stack
from .test_verbs import parsed


@pytest.fixture
def unsigned(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    policy(world, 'signed-off-by = "required"')
    for patch in PATCHES:
        (world.root / "stacks" / patch).write_text(world.read(f"stacks/{patch}").replace(SIGNED, ""))
    for key, value in (("GIT_CONFIG_COUNT", "2"), ("GIT_CONFIG_KEY_0", "user.name"), ("GIT_CONFIG_KEY_1", "user.email")):
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Me")
    monkeypatch.setenv("GIT_CONFIG_VALUE_1", "me@example.org")
    return world


def test_equal_findings_and_their_fix(stack: Stack, unsigned: World) -> None:
    ran = stack("lint")
    assert ran.code == 1
    assert ran.out.splitlines()[:4] == [
        "3 patches have no Signed-off-by: `stack refresh gamma --signoff` adds yours",
        "  stacks/one/gamma/hook-main.patch",
        "  stacks/one/gamma/tool-flag.patch",
        "  stacks/two/gamma/fix-limit.patch",
    ]
    assert ran.out.endswith("\n6 findings\n")
    found = parsed(stack("lint", "--json"))["findings"]
    assert sorted(finding["place"] for finding in found) == sorted(f"stacks/{patch}" for patch in PATCHES)
    before = unsigned.files()
    assert stack("refresh", "gamma", "--signoff", "--dry-run").out.endswith("0 kept, 3 changed, 0 added, 0 dropped (dry run)\n")
    assert unsigned.files() == before
    for upstream in re.findall(r"stack refresh (\w+) --signoff", ran.out):
        assert stack("refresh", upstream, "--signoff").code == 0
    assert stack("lint").code == 0
    assert "Signed-off-by: Me <me@example.org>" in unsigned.read("stacks/one/gamma/hook-main.patch")


def test_more_places_than_are_printed(stack: Stack, unsigned: World) -> None:
    text = unsigned.read("stacks/two/series.toml").replace('upstream = "gamma"\nfile = "gamma/fix-limit.patch"\n', "")
    names = [f"gamma/add-{number}.patch" for number in range(3)]
    listed = "".join(f'[[patch]]\nupstream = "gamma"\nfile = "{name}"\n' for name in ("gamma/fix-limit.patch", *names))
    (unsigned.root / "stacks/two/series.toml").write_text(text.removesuffix("[[patch]]\n") + listed)
    raw = unsigned.read("stacks/one/alpha/core-switch.patch")
    head = raw.partition("diff --git")[0]
    for number, name in enumerate(names):
        diff = (
            f"diff --git a/new{number} b/new{number}\nnew file mode 100644\nindex {'0' * 40}..d00491fd7e5bb6fa28c517a0bb32b8b506539d4d\n"
            f"--- /dev/null\n+++ b/new{number}\n@@ -0,0 +1 @@\n+1\n"
        )
        (unsigned.root / "stacks/two" / name).write_text(head + diff)
    lines = stack("lint").out.splitlines()
    assert lines[0] == "6 patches have no Signed-off-by: `stack refresh gamma --signoff` adds yours"
    assert lines[4] == "  and 3 more (--json lists all)"


def test_nobody_to_sign(stack: Stack, unsigned: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    assert (
        stack("refresh", "gamma", "--signoff").refused().startswith("git does not know who signs off the commits: git config")
    )

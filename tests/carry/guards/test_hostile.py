# SPDX-License-Identifier: Apache-2.0
"""Guards and sources that somebody wrote to break the program: each gives one clear line, or is passed over."""

import os
import subprocess

import pytest

from stack.base.errors import StackError
from stack.carry.guards import proposals, recording, standing
from stack.carry.guards.judgement import State
from stack.carry.guards.recording import Wanted
from stack.model.guards import Kind

from .conftest import Plant

WHY = "the plug-in relies on it"
BYTES = "caf\udce9"
"""A word that is not UTF-8, as the command line gives it to a program."""
DEEP = "-" * 900 + "1"
"""An expression of this depth can be parsed; a function that calls itself that often cannot end."""


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("g", Kind.TEXT, "README", WHY, text=BYTES),
        Wanted("g", Kind.TEXT, "README", BYTES, text="first"),
        Wanted("g", Kind.TEXT, f"READ{BYTES}", WHY, text="first"),
        Wanted("g", Kind.TEXT, "README", WHY, text="fir\0st"),
        Wanted("g", Kind.TEXT, "README", "x" * 10_000, text="first"),
        Wanted("g", Kind.TEXT, "README", WHY, text="x" * 10_000),
        Wanted("g", Kind.PATTERN, "README", WHY, text=BYTES),
        Wanted("g", Kind.DEFINITION, f"up/layer.py::{BYTES}", WHY),
        Wanted("g", Kind.DEFINITION, f"csrc/attention.cu::{BYTES}", WHY),
        Wanted("g", Kind.COPIED, "up/rope.py", WHY, file=f"plugin/{BYTES}.py"),
        Wanted("g", Kind.COPIED, "up/rope.py", WHY, file="plugin/" + "x" * 300),
        Wanted("g", Kind.PATCHED, f"up.layer:{BYTES}", WHY),
        Wanted(BYTES, Kind.TEXT, "README", WHY, text="first"),
    ],
)
def test_what_cannot_be_written_or_read_again_is_refused(plant: Plant, wanted: Wanted) -> None:
    with plant.stores() as stores, pytest.raises((StackError, OSError)) as refused:
        recording.added(stores, [wanted])
    assert not (plant.root / "stacks/guards.toml").exists()
    assert str(refused.value).encode()


def judged(plant: Plant, lines: str) -> State:
    head = '[g]\nupstream = "up"\nreason = "x"\n'
    (plant.root / "stacks/guards.toml").write_text(head + lines)
    with plant.stores() as stores:
        [found] = standing.at_pins(stores)
    assert found.judgement.problem.encode()
    return found.judgement.state


@pytest.mark.parametrize(
    "lines",
    [
        'path = "README"\ntext = "fir\\u0000st"\n',
        'path = "README"\ntext = "\\n"\n',
        'path = "README"\ntext = "--open-files-in-pager=sh"\n',
        'path = "-x"\ntext = "-e"\n',
        f'copied = "up/rope.py"\nfile = "{"x" * 300}"\nhash = "{"0" * 40}"\n',
        f'copied = "up/rope.py"\nfile = "loop"\nhash = "{"0" * 40}"\n',
        f'copied = "up/rope.py"\nfile = "pipe"\nhash = "{"0" * 40}"\n',
        f'copied = "up/rope.py"\nfile = "out"\nhash = "{"0" * 40}"\n',
        f'copied = "up/rope.py"\nfile = "endless"\nhash = "{"0" * 40}"\n',
    ],
)
def test_a_file_of_guards_from_a_stranger(plant: Plant, lines: str) -> None:
    mine = plant.place / "mine"
    (mine / "loop").symlink_to("loop")
    (mine / "out").symlink_to("/etc/passwd")
    (mine / "endless").symlink_to("/dev/zero")
    os.mkfifo(mine / "pipe")
    try:
        assert judged(plant, lines) in (State.BROKEN, State.HELD)
    except StackError as refused:
        assert str(refused).isprintable()


@pytest.mark.parametrize(
    "source",
    [
        f"def helper(a={DEEP}): ...\n",
        "@x" + ".a" * 900 + "\ndef helper(a): ...\n",
        f"class helper({'+'.join('a' * 900)}): ...\n",
        "if 1: pass\n" + "elif 1: pass\n" * 900 + "def helper(a): ...\n",
        "x = " + "(" * 100_000,
        "\0",
    ],
    ids=["default", "decorator", "base", "elif", "parentheses", "nul"],
)
def test_upstreams_code_that_is_nested_deeply(plant: Plant, source: str) -> None:
    with plant.stores() as stores:
        made = [
            Wanted("one", Kind.PATCHED, "up.layer:helper", WHY),
            Wanted("two", Kind.DEFINITION, "up/layer.py::helper", WHY),
            Wanted("three", Kind.COPIED, "up/rope.py::rope_1", WHY, file="plugin/rope.py"),
        ]
        recording.added(stores, made)
    changed = {"up/layer.py": source, "up/other.py": source + "\n\ndef rope_1(x): ...\n", "up/rope.py": "x = 1\n"}
    commit = plant.commit("nested", changed)
    pins = plant.root / "pins.toml"
    pins.write_text(pins.read_text().replace(plant.commits["first"], commit).replace('tag = "v1.0"\n', 'tag = "v1.1"\n'))
    plant.remote.tag("v1.1")
    with plant.stores() as stores:
        assert len(standing.at_pins(stores)) == 3
        for each in made:
            try:
                recording.added(stores, [Wanted("again", each.kind, each.target, WHY, file=each.file)])
            except StackError as refused:
                assert str(refused).isprintable()


def test_sources_in_which_replacements_are_looked_for(plant: Plant) -> None:
    """One file that cannot be read does not hide what the others do."""
    mine = plant.place / "mine/plugin"
    place = os.open(mine, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    good = "import up.layer\nup.layer.helper = print\n"
    plant.write("plugin/patch.py", good)
    plant.write("plugin/large.py", "#" * (5 << 20))
    (mine / "caf\udce9.py").write_text(good.replace("helper", "Layer"))
    (mine / "link.py").symlink_to("/dev/zero")
    os.mkfifo(mine / "pipe.py")
    plant.write("plugin/deep.py", f"import up.layer\nup.layer.LIMIT = {DEEP}\n")
    (mine / "nul.py").write_bytes(b"\0")
    try:
        with plant.stores() as stores:
            found = proposals.find(stores, [mine])
            recording.written(stores, [each.guard for each in found])
    finally:
        subprocess.run(["rm", "-rf", mine / "d"], check=True)  # pytest cannot remove it
    assert {each.guard.target for each in found} >= {"up.layer:helper", "up.layer:LIMIT"}
    assert "up.layer:helper" in plant.text

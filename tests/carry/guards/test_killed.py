# SPDX-License-Identifier: Apache-2.0
"""Killed at any step of a write, `guards.toml` is the old one or the new one, and the next command goes on."""

import pytest

from ...store.factories import run_python
from .conftest import Plant
from .test_guards import add, patched

# Writes the file in forked children. Each kills itself one step later than the one before, until one ends by itself.
DRIVER = """
import os, shutil, signal, sys
from pathlib import Path
from stack.model import guards, stack, switch

root, new = Path(sys.argv[1]), sys.argv[2]
place = root / guards.PLACE
old = place.read_text()
kept = root.with_name("kept")
shutil.copytree(root, kept, symlinks=True)
steps = 0
while True:
    steps += 1
    pid = os.fork()
    if not pid:
        left = steps
        def count(event, _):
            global left
            if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        switch.apply(root, {guards.PLACE: new.encode()}, title="guard accept x", expected={guards.PLACE: old.encode()})
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    switch.recover(root)
    text = place.read_text()
    assert text in (old, new), (steps, text)
    assert stack.load(root).guards
    if status == 0:
        assert text == new
        break
    place.write_text(old)
    shutil.rmtree(root)
    shutil.copytree(kept, root, symlinks=True)
print(steps)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_file_or_the_new_one(plant: Plant) -> None:
    add(plant, patched("forward", "up.layer:Layer.forward"))
    text = plant.text
    assert "the plug-in relies on it" in text
    new = text.replace("the plug-in relies on it", "another reason")
    done = run_python(DRIVER, str(plant.root), new)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15

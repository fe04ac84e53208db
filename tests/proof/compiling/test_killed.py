# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from stack.proof.compiling import compiler
command = ["sh", "-c", "setsid sh -c 'echo $$ > started; sleep 60' & sleep 60"]
with ThreadPoolExecutor(1) as pool:
    pool.submit(compiler._once, command, SimpleNamespace(environment=os.environ), Path(sys.argv[1])).result()
"""


def test_a_compiler_ends_with_what_has_started_it(tmp_path: Path) -> None:
    running = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=dict(os.environ))
    note = tmp_path / "started"
    while not (note.exists() and note.read_text().strip()):
        assert running.poll() is None
        time.sleep(0.05)
    compiler = Path("/proc") / note.read_text().strip()
    assert compiler.exists()
    running.kill()
    running.wait()
    ends = time.monotonic() + 20
    while compiler.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not compiler.exists()

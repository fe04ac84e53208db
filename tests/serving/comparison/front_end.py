# SPDX-License-Identifier: Apache-2.0
"""In place of vLLM's command line: says what a log says, and reads and makes tokens at a known speed, which depends on the recipe.

`--how` is what goes wrong: `dies` (at once), `lies` (claims tokens that it does not send). A recipe with `--dtype bfloat16` decodes at 80
tokens a second, the others at 40.
"""

import http.server
import os
import subprocess
import sys
from pathlib import Path

from tests.validation.bench.server import Behaviour, Handler


def given(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


quick = given("--dtype", "") == "bfloat16"
model = Path(sys.argv[2])
with Path(os.environ["NOTE"]).open("a") as note:
    note.write(f"{given('--dtype', '')}\n")
says = given("--says", "cpu-mxfp4" if quick else "cpu-fp32")
sys.stdout.write((model / f"{says}.log").read_text().partition("INFO:     127.0.0.1:")[0])
sys.stdout.flush()
how = given("--how", "")
if how == "dies" and quick:
    sys.exit(1)
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with Path(os.environ["NOTE"]).with_name("pids").open("a") as pids:
    pids.write(f"{os.getpid()} {engine.pid}\n")


class Served(Handler):
    behaviour = Behaviour(prefill=5000, decode=80 if quick else 40, lie="usage only" if how == "lies" else "")
    root = str(model)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer({})
        else:
            super().do_GET()


http.server.ThreadingHTTPServer(("127.0.0.1", int(given("--port", "0"))), Served).serve_forever()

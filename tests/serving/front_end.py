#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In place of vLLM's command line: says what a log says, answers as a server does, and has an engine, a process of its own.

It is a script of its own, by the system's Python of an image, too. What it says are logs that lie beside the model. `--how` is what goes
wrong: `dies` (at once), `silent` (answers nothing), `broken` (its engine is dead, its front end healthy), `none` (answers without a token),
`never` (is not ready), `ends` (after the first answer). In a container, HOW and SAYS in the environment are the defaults.
"""

import http.server
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def given(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


how, model = given("--how", os.environ.get("HOW", "")), Path(sys.argv[2])
name = given("--served-model-name", "fake")
note = Path(os.environ.get("NOTE", "/dev/null"))
if "NOTE" in os.environ:
    note.with_name("arguments").write_text(json.dumps(sys.argv[1:]))
    note.with_name("environment").write_text(json.dumps(dict(os.environ)))
text = (model / f"{given('--says', os.environ.get('SAYS', 'cpu-fp32'))}.log").read_text()
sys.stdout.write(text.partition("INFO:     127.0.0.1:")[0])
sys.stdout.flush()
if how == "dies":
    sys.exit(1)
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
note.write_text(f"{os.getpid()} {engine.pid}")
if "--headless" in sys.argv:
    time.sleep(600)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if how == "never" else 200, {})
        elif self.headers.get("authorization", "") != (f"Bearer {key}" if (key := os.environ.get("VLLM_API_KEY")) else ""):
            self.answer(401, {"error": "Unauthorized"})
        else:
            self.answer(200, {"data": [{"id": name}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if how == "silent":
            time.sleep(600)
        if how == "broken" or body["model"] != name:
            self.answer(500, {"error": "EngineDeadError"})
        elif body.get("stream"):
            self.stream(body["max_tokens"])
        else:
            self.answer(200, {"usage": {"completion_tokens": 0 if how == "none" else 3}})
        if how == "ends":
            os._exit(4)

    def stream(self, tokens: int) -> None:
        self.send_response(200)
        self.end_headers()
        word, usage = {"choices": [{"delta": {"content": " word"}}]}, {"choices": [], "usage": {"completion_tokens": tokens}}
        for event in (*[json.dumps(word)] * tokens, json.dumps(usage), "[DONE]"):
            self.wfile.write(f"data: {event}\n\n".encode())
            time.sleep(0.001)

    def answer(self, status: int, content: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())
        self.wfile.flush()


http.server.ThreadingHTTPServer((given("--host", "127.0.0.1"), int(given("--port", "0"))), Handler).serve_forever()

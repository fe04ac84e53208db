# SPDX-License-Identifier: Apache-2.0
"""Count the tokens of every answer from its text, with the model's own tokenizer; runs in llama-benchy's environment.

    python counting.py TOKENIZER PROGRESS

PROGRESS is the file that llama-benchy wrote with --emit-progress. Prints a JSON list with one object per request: the counts that the
server claimed, and ours. Imports only the standard library and `tokenizers`, since nothing else is installed there.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def requests(progress: Path) -> list[dict[str, Any]]:
    """Read the measured requests in order, each with its text."""
    measured: dict[int, dict[str, Any]] = {}
    for line in progress.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["type"] == "request_start":
            measured[event["request_id"]] = {"text": "", "chunks": 0, "ended": False}
        elif event["type"] == "tokens":
            measured[event["request_id"]]["text"] += event["snippet"]
            measured[event["request_id"]]["chunks"] += 1
        elif event["type"] == "request_end":
            claimed = {key: event[key] for key in ("total_tokens", "prompt_tokens", "error")}
            measured[event["request_id"]].update(claimed, ended=True)
    return list(measured.values())


def main() -> None:
    """Print the counts."""
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(sys.argv[1])
    measured = requests(Path(sys.argv[2]))
    for request in measured:
        request["counted"] = len(tokenizer.encode(request.pop("text"), add_special_tokens=False).ids)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

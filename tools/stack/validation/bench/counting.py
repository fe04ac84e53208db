# SPDX-License-Identifier: Apache-2.0
"""Count the tokens of every answer from its text, with the model's own tokenizer; runs in llama-benchy's environment.

    python counting.py TOKENIZER PROGRESS

PROGRESS is what llama-benchy wrote with --emit-progress. Prints a JSON list, one object a request: the counts that the server
claimed, and ours. Only the standard library and `tokenizers`: nothing of ours can be imported there.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def requests(progress: Path) -> list[dict[str, Any]]:
    """The measured requests in order, each with its text."""
    found: dict[int, dict[str, Any]] = {}
    for line in progress.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["type"] == "request_start":
            found[event["request_id"]] = {"text": "", "chunks": 0, "ended": False}
        elif event["type"] == "tokens":
            found[event["request_id"]]["text"] += event["snippet"]
            found[event["request_id"]]["chunks"] += 1
        elif event["type"] == "request_end":
            claimed = {key: event[key] for key in ("total_tokens", "prompt_tokens", "error")}
            found[event["request_id"]].update(claimed, ended=True)
    return list(found.values())


def main() -> None:
    """Print the counts."""
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(sys.argv[1])
    found = requests(Path(sys.argv[2]))
    for one in found:
        one["counted"] = len(tokenizer.encode(one.pop("text"), add_special_tokens=False).ids)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

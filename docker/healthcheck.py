# SPDX-License-Identifier: Apache-2.0
"""Ask the server of this container for one token: exit 0 when it gives one.

STACK_HOST names another address than the loopback's, STACK_PORT another port than vLLM's own, VLLM_API_KEY the key that the server wants.
"""

import json
import os
import sys
import urllib.request
from typing import Any

SECONDS = 100
"""Less than the health check waits; a busy server lets a request wait its turn."""


def ask(path: str, body: dict[str, Any] | None = None) -> Any:
    """What the server answers to a request."""
    key = os.environ.get("VLLM_API_KEY")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    host = os.environ.get("STACK_HOST", "127.0.0.1")
    url = f"http://{f'[{host}]' if ':' in host else host}:{os.environ.get('STACK_PORT', '8000')}{path}"
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=SECONDS) as answer:
        return json.load(answer)


def main() -> int:
    """Ask for the model, then for a token of it."""
    try:
        model = ask("/v1/models")["data"][0]["id"]
        usage = ask("/v1/completions", {"model": model, "prompt": "1", "max_tokens": 1})["usage"]
    except (OSError, ValueError, LookupError, TypeError) as failed:
        print(f"no completion: {failed}", file=sys.stderr)
        return 1
    return 0 if usage["completion_tokens"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Read the date that a running server writes into the system message, so that its prompts can be compared token by token.

vLLM writes today's date there, or that of VLLM_SYSTEM_START_DATE.
"""

import re

from stack.base.errors import StackError
from stack.validation.serve import checks, prompts
from stack.validation.serve.client import Talk, Wrong

_DATE = re.compile(r"Current date: ([0-9]{4}-[0-9]{2}-[0-9]{2})\n")
_HARMONY = "<|start|>system<|message|>"


def used(talk: Talk, otherwise: str) -> str:
    """Return the date in a server's prompts; `otherwise` if the server does not give its prompts away.

    What the server says is only what its prompts are compared with afterwards: each token is encoded here again.

    Raises:
        StackError: the server's prompts are not gpt-oss's.

    """
    try:
        with talk.taken():
            got = talk.ask(
                checks.CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=1, return_token_ids=True
            )
            text = str(talk.ask("/detokenize", tokens=got.part("prompt_token_ids")).part("prompt"))
    except Wrong:
        return otherwise
    if _HARMONY not in text:
        raise StackError(
            f"the prompts of {talk.model} are not in gpt-oss's format: {text!r:.80}",
            "name a server of gpt-oss with --url; `stack doctor --url` asks any server",
        )
    found = _DATE.search(text)
    return found[1] if found else otherwise

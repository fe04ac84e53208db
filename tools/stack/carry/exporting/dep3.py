# SPDX-License-Identifier: Apache-2.0
"""Write the state of a series into its patches as the header fields of DEP-3, which Debian's tools read."""

from stack.model import patch as patches
from stack.model.patch import Patch
from stack.model.series import Series, State
from stack.model.stack import Stack


def with_facts(mail: bytes, stack: Stack, patch: Patch) -> bytes:
    """Add `Forwarded` and `Applied-Upstream` to the header of a mail; its message and diff stay as they are."""
    head, blank, text = mail.partition(b"\n\n")
    facts = _facts(stack.get(patch.ref.series), patch)
    return head + "".join(f"\n{key}: {value}" for key, value in facts.items()).encode() + blank + text


def _facts(series: Series, patch: Patch) -> dict[str, str]:
    own = [pull.address for pull in series.pulls if pull.ref == patch.ref]
    pull = own[0] if own else series.pull
    if series.state is State.INAPPROPRIATE:
        return {"Forwarded": "not-needed"}
    # An imported message keeps its field, which says more than that the series knows of no pull request.
    stated = {key.lower(): value for key, value in patches.trailers(patch.message)}.get("forwarded")
    facts = {"Forwarded": pull or stated or "no"}
    if series.state is State.MERGED and pull:
        facts["Applied-Upstream"] = pull
    return facts

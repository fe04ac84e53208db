# SPDX-License-Identifier: Apache-2.0
"""Write what is known of imported series into `series.toml` and `stack.toml`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from stack.base.text import counted
from stack.carry.importing.candidate import Candidate
from stack.model import series
from stack.model.series import PatchRef, Pulled, State


def new_series(name: str, came_from: str, candidates: Mapping[PatchRef, Candidate], needs: Sequence[str]) -> str:
    """Return the `series.toml` of a new series."""
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only writing needs it)

    ones = list(candidates.values())
    toml = tomlkit.document()
    toml["title"] = ones[0].subject if len(ones) == 1 else _title(name, ones)
    toml["why"] = _why(came_from, ones)
    state, reason, pull = _state(ones)
    toml["state"] = str(state)
    if pull:
        toml["pull"] = pull
    if reason:
        toml["reason"] = reason
    if needs:
        toml["needs"] = list(needs)
    drop = [f"{one.named()}: {one.upstreamed.applied}" for one in ones if one.upstreamed.applied]
    if drop:
        toml["drop_when"] = "the pin has what upstream applied: " + "; ".join(drop)
    return with_patches(tomlkit.dumps(toml), candidates, tuple(candidates))


def with_patches(text: str, added: Mapping[PatchRef, Candidate], patches: Sequence[PatchRef]) -> str:
    """Return the text of a `series.toml` with these patches, and the pull requests of those that were added."""
    listed = series.edited(text, tuple(patches))
    pulled = [Pulled(ref, one.upstreamed.pull) for ref, one in added.items() if one.upstreamed.pull]
    return series.with_pulls(listed, pulled) if pulled else listed


def stack_toml(text: str, names: Sequence[str]) -> str:
    """Return the text of `stack.toml` with further series at the end."""
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only writing needs it)

    toml = tomlkit.parse(text)
    toml.setdefault("series", [])
    for name in names:
        toml["series"].append(name)
    return tomlkit.dumps(toml)


def _title(name: str, ones: Sequence[Candidate]) -> str:
    """Return the words of a series' name, spelled as the subjects of its patches spell them: `tls` may be TLS."""
    spelled = Counter(word for one in ones for word in re.findall(r"[A-Za-z0-9]+", one.subject))
    words = [
        max((word for word in spelled if word.lower() == part), key=spelled.__getitem__, default=part)
        for part in name.split("-")
    ]
    return " ".join(words)


def _why(came_from: str, ones: Sequence[Candidate]) -> str:
    first = "; ".join(one.subject for one in ones[:3])
    more = f"; and {len(ones) - 3} more" if len(ones) > 3 else ""
    count = counted(len(ones), "patch")
    return f"Imported from {came_from} ({count}): {first}{more}. Write here what is wrong upstream, and who needs the change."


def _state(ones: Sequence[Candidate]) -> tuple[State, str, str]:
    """Return the state of a series, with its reason and its pull request, as far as all of its patches agree."""
    headers = [one.upstreamed for one in ones]
    if all(header.not_needed for header in headers):
        return State.INAPPROPRIATE, "its patches say that they need not be forwarded", ""
    if all(header.pull for header in headers):
        addresses = {header.pull or "" for header in headers}
        return State.SUBMITTED, "", next(iter(addresses)) if len(addresses) == 1 else ""
    return State.DRAFT, "", ""

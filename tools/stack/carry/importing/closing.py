# SPDX-License-Identifier: Apache-2.0
"""Write an import to the stack, and look what became of the patches in the newest release."""

from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry import fitting_plugins, rebase
from stack.carry.importing.plan import Import
from stack.carry.outcome import Outcome
from stack.carry.rebase import Leg, Request
from stack.carry.upstream_stores import Stores
from stack.model import lanes


@dataclass(frozen=True, slots=True)
class Triage:
    """The imported patches on the newest release: how many have landed, how many need a person; `why` it is not known.

    `leg`: the whole upstream carried there.
    """

    release: str = ""
    landed: int = 0
    partly: int = 0
    needs_person: int = 0
    why: str = ""
    leg: Leg | None = None


def write(stores: Stores, work: Import) -> tuple[str, ...]:
    """Write the import to the stack, in one transaction; return the plug-ins that `stack.toml` names from now on.

    These are the installed plug-ins that know the upstream, and that the stack did not name.

    Raises:
        StackError: The stack was changed meanwhile, or cannot be written.

    """
    stack, path = stores.stack, fitting_plugins.PATH
    plugins = fitting_plugins.unnamed(stores, work.request.upstream) if stack.lane is None else ()
    named = fitting_plugins.edited(stack, plugins, work.files.get(path))
    expected = {key: (stack.root / key).read_bytes() for key in named} | dict(work.expected)
    lanes.apply(stack, {**work.files, **named}, title=f"import {work.request.came_from}", expected=expected)
    return plugins


def triage(stores: Stores, work: Import) -> Triage:
    """Carry the stack, as it is after the import, to the newest known release; nothing is written."""
    upstream = work.request.upstream
    pin = stores.stack.pins.get(upstream)
    try:
        if pin.within is not None:
            return Triage(why=f"{upstream} is vendored in {pin.within.upstream}")
        ordered = pin.releases.ordered(stores.tags(upstream))
        if not ordered:
            return Triage(why=f"{upstream} has no release tags like {pin.releases.pattern}")
        newest = ordered[-1]
        have = pin.releases.version(pin.tag) if pin.tag else None
        version = pin.releases.version(newest)
        if newest == pin.tag or (have is not None and version is not None and version <= have):
            return Triage(release=newest, why=f"{pin.shown} is the newest release")
        tree = stores.obtain(upstream, newest)
        leg = rebase.released(stores, upstream, tree, Request(upstream, newest))
    except StackError as failed:
        return Triage(why=str(failed))
    ours = [row for row in leg.carry.rows if row.patch.ref in work.imported]
    return Triage(
        release=newest,
        landed=sum(row.outcome is Outcome.LANDED for row in ours),
        partly=sum(row.outcome is Outcome.PARTLY_LANDED for row in ours),
        needs_person=sum(row.needs_person for row in ours),
        leg=leg,
    )

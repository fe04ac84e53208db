# SPDX-License-Identifier: Apache-2.0
"""Random series with known dependencies: the waves respect them, and merging all branches gives the tree of the carried series."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stack.carry import apply
from stack.carry.rebase import Request, rebase
from stack.model.ids import CommitId
from stack.store import git
from stack.store.objects import Identity, Objects
from stack.upstreaming import graph
from stack.upstreaming.plan import Wanted, plans
from stack.upstreaming.proposal import Proposal, UpstreamPlan

from .fork import Change, Files, fork

SLOTS, BETWEEN = 6, 7
SOME_ONE = Identity("Up Stream", "up@stream", "1700000000 +0000")


@dataclass
class Drawn:
    """A random stack: its patches, which of them each needs, and how many lines upstream has above by then."""

    changes: list[Change] = field(default_factory=list)
    needs: list[set[int]] = field(default_factory=list)
    above: int = 0


def text(module: int, slots: dict[int, str], above: int = 0) -> bytes:
    lines = [*(f"# above {number}" for number in range(above)), *(f"# {module} top {number}" for number in range(BETWEEN))]
    for slot in range(SLOTS):
        lines += [slots.get(slot, f"slot_{module}_{slot} = 0"), *(f"# {module} {slot} {number}" for number in range(BETWEEN))]
    return "".join(f"{line}\n" for line in lines).encode()


@st.composite
def stacks(draw: st.DrawFn) -> Drawn:
    """Patches that write into a slot of a module: a free one, one that an earlier patch wrote, and what others add, or not."""
    found = Drawn(above=draw(st.integers(0, 3)))
    state: dict[int, dict[int, str]] = {0: {}, 1: {}}
    writers: dict[tuple[int, int], int] = {}
    helpers: dict[int, str] = {}
    for number in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(("plain", "plain", "helper", "flag")))
        files: dict[str, bytes] = {}
        needs: set[int] = set()
        if kind == "helper":
            files[f"up/helper_{number}.py"] = f"def assist_{number}():\n    return {number}\n".encode()
            helpers[number] = kind
        else:
            place = draw(st.integers(0, 1)), draw(st.integers(0, SLOTS - 1))
            used = draw(st.sampled_from([None, *helpers]))
            line = f"slot_{place[0]}_{place[1]} = {number + 1}"
            if kind == "flag":
                line += f'; FLAGS_{number} = {{"--option-{number}": 1}}'
            if used is not None and helpers[used] == "helper":
                line += f"; from up.helper_{used} import assist_{used}"
                needs.add(used)
            elif used is not None:
                line += f'; wants_{number} = "--option-{used}"'
                needs.add(used)
            if place in writers:
                needs.add(writers[place])
                helpers.pop(writers[place], None)  # its flag goes
            if kind == "flag":
                helpers[number] = kind
            state[place[0]][place[1]] = line
            writers[place] = number
            files[f"up/module_{place[0]}.py"] = text(place[0], state[place[0]])
        found.changes.append(Change("one", f"change-{number}", files))
        found.needs.append(needs)
    return found


def sorted_by_series(drawn: Drawn) -> Drawn:
    """The first half is one series, the rest another."""
    half = len(drawn.changes) // 2
    changes = [Change("one" if place < half else "two", one.name, one.files) for place, one in enumerate(drawn.changes)]
    return Drawn(changes, drawn.needs, drawn.above)


def branch(objects: Objects, one: Proposal, by_name: dict[str, Proposal]) -> CommitId:
    """A pull request's branch: upstream's commit, what it needs, wave by wave, and its own commits, applied strictly."""
    reach = graph.closed({name: set(other.needs) for name, other in by_name.items()})
    below = sorted((by_name[name] for name in reach[one.name]), key=lambda other: (other.wave, [*by_name].index(other.name)))
    patches = [part.patch for part in one.parts]
    tip = one.base
    for other in below:
        # Their patches are for their own needs: what else is there may have moved their lines.
        tip = merged(objects, tip, branch(objects, other, by_name))
    return apply.chain(objects, tip, patches)[-1]


def merged(objects: Objects, ours: CommitId, theirs: CommitId) -> CommitId:
    """The merge of two branches, by git itself: no conflict."""
    done = git.run(["merge-tree", "--write-tree", ours, theirs], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1))
    assert done.returncode == 0, done.stdout.decode()
    return objects.write_commit(done.stdout.decode().split("\n")[0], (ours, theirs), "Merge\n", SOME_ONE)  # type: ignore[arg-type]


def check(drawn: Drawn, plan: UpstreamPlan, known: Sequence[Change]) -> None:
    number = {change.path: place for place, change in enumerate(known)}
    owner = {number[part.path]: one for one in plan.proposals for part in one.parts}
    assert sorted(owner) == list(range(len(known)))
    wanted = graph.closed(dict(enumerate(drawn.needs)))
    by_name = {one.name: one for one in plan.proposals}
    reach = graph.closed({name: set(one.needs) for name, one in by_name.items()})
    for place, one in owner.items():
        assert {number[part.path] for name in reach[one.name] for part in by_name[name].parts} == wanted[place], one.name
        assert all(by_name[name].wave < one.wave for name in one.needs)
        assert one.wave == 1 + max((by_name[name].wave for name in one.needs), default=0)
        assert len(one.why) == len(one.needs) and all(one.why)


@given(stacks().map(sorted_by_series))
@settings(
    deadline=None,
    max_examples=int(os.environ.get("STACK_TEST_EXAMPLES", "12")),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_waves_respect_what_is_known_and_merge_to_the_carried_tree(drawn: Drawn) -> None:
    base: Files = {"up/__init__.py": b"", **{f"up/module_{module}.py": text(module, {}) for module in range(2)}}
    later = {f"up/module_{module}.py": text(module, {}, drawn.above) for module in range(2)} | {"README": b"later\n"}
    with tempfile.TemporaryDirectory() as folder:
        made = fork(Path(folder), base, drawn.changes, {"v1.1": later})
        with made.stores() as stores:
            (plan,) = plans(stores, Wanted(onto={"up": "v1.1"}, tests=False))
            check(drawn, plan, drawn.changes)
            objects = stores.objects("up")
            by_name = {one.name: one for one in plan.proposals}
            main = plan.base
            for wave in plan.waves:
                for one in wave:
                    main = merged(objects, main, branch(objects, one, by_name))
            carried = rebase(stores, Request("up", "v1.1")).legs[0].carry
            assert objects.tree_of(main) == objects.tree_of(carried.tip)

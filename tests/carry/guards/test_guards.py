# SPDX-License-Identifier: Apache-2.0
"""Guards against upstream's history: what holds, what has moved, and which commit broke the others."""

import pytest

from stack.base.errors import StackError
from stack.carry.guards import recording, standing
from stack.carry.guards.judgement import Guarded, State
from stack.carry.guards.recording import Wanted
from stack.carry.rebase import Conclusion, Rebase, Request, conclude, rebase
from stack.model import stack as stacks
from stack.model.guards import Guard, Kind

from .conftest import LAYER, ROPE, Plant

WHY = "the plug-in relies on it"


def add(plant: Plant, *wanted: Wanted) -> tuple[Guard, ...]:
    with plant.stores() as stores:
        return recording.added(stores, wanted)


def definition(name: str, target: str) -> Wanted:
    return Wanted(name, Kind.DEFINITION, target, WHY)


def patched(name: str, target: str) -> Wanted:
    return Wanted(name, Kind.PATCHED, target, WHY)


def copied(name: str, target: str, file: str = "plugin/rope.py") -> Wanted:
    return Wanted(name, Kind.COPIED, target, WHY, file=file)


def text(name: str, path: str, wanted: str) -> Wanted:
    return Wanted(name, Kind.TEXT, path, WHY, text=wanted)


def onto(plant: Plant, tag: str) -> Rebase:
    plant.remote.tag(tag)
    with plant.stores() as stores:
        return rebase(stores, Request("up", tag))


def only(work: Rebase) -> Guarded:
    [found] = work.guards
    return found


def padded(plant: Plant, number: int = 3) -> None:
    """Commits that have nothing to do with the guards."""
    for _ in range(number):
        plant.commit(f"unrelated {len(plant.commits)}")


def test_what_is_filled_in(plant: Plant) -> None:
    made = add(
        plant,
        patched("forward", "up.layer:Layer.forward"),
        patched("build", "up:Layer.build"),
        patched("inherited", "up.layer:Layer.inherited"),
        patched("limit", "up.layer:LIMIT"),
        patched("whole", "up.layer:Layer"),
        copied("rope", "up/rope.py"),
        definition("kernel", "csrc/attention.cu::void paged_attention_v1("),
    )
    assert [guard.signature for guard in made[:5]] == [
        "def (self, x, *, scale=1.0)",
        "@classmethod def (cls, config)",
        "def (self, x)",
        "value",
        "class (Base)",
    ]
    assert {guard.defined for guard in made[:5]} == {"up/layer.py"}
    assert made[5].hash == plant.remote.git("rev-parse", "v1.0:up/rope.py")
    assert {guard.at for guard in made} == {plant.commits["first"]}
    assert stacks.load(plant.root).guards == made


def test_what_the_tree_does_not_have_is_refused(plant: Plant) -> None:
    for wanted, why in (
        (patched("x", "up.layer:Layer.no"), "does not define or import Layer.no"),
        (patched("x", "up.nothing:Layer"), "there is no module up.nothing"),
        (definition("x", "up/layer.py::Nothing"), "does not define Nothing"),
        (definition("x", "up/none.py::Nothing"), "up/none.py does not exist"),
        (definition("x", "csrc/attention.cu::void nothing("), "has no line with"),
        (text("x", "up/layer.py", "no such text"), "does not have the text"),
        (copied("x", "up/rope.py", "plugin/none.py"), "plugin/none.py is missing"),
    ):
        with pytest.raises(StackError, match=why):
            add(plant, wanted)
    assert not (plant.root / "stacks/guards.toml").exists()


def test_a_signature_that_changed_names_its_commit(plant: Plant) -> None:
    add(plant, patched("forward", "up:Layer.forward"))
    padded(plant)
    plant.commit("a body only", {"up/layer.py": LAYER.replace("x * scale", "scale * x")})
    padded(plant)
    broke = plant.commit("take a mask", {"up/layer.py": LAYER.replace("x, *, scale", "x, mask, *, scale")})
    padded(plant)
    found = only(onto(plant, "v1.1"))
    assert found.state is State.BROKEN
    assert "is now `def (self, x, mask, *, scale=1.0)`" in found.judgement.problem
    assert found.cause is not None
    assert (found.cause.commit, found.cause.subject, found.cause.release) == (broke, "take a mask", False)
    assert found.cause.date == "2023-11-14"


def test_what_broke_is_found_after_it_was_mended_and_broken_again(plant: Plant) -> None:
    add(plant, patched("forward", "up.layer:Layer.forward"))
    other = LAYER.replace("x, *, scale", "x, mask, *, scale")
    plant.commit("break", {"up/layer.py": other})
    plant.commit("mend", {"up/layer.py": LAYER})
    padded(plant)
    broke = plant.commit("break again", {"up/layer.py": other})
    found = only(onto(plant, "v1.1"))
    assert found.cause is not None
    assert found.cause.commit == broke


def test_a_commit_that_changes_what_a_module_imports(plant: Plant) -> None:
    """The judgement depends on a file that neither end knows: the module goes by way of a third one."""
    add(plant, patched("forward", "up:Layer.forward"))
    plant.commit(
        "go by way of another",
        {"up/__init__.py": "from up.between import Layer\n", "up/between.py": "from up.layer import Layer\n"},
    )
    padded(plant)
    other = "class Layer:\n    def forward(self): ...\n"
    broke = plant.commit("another class", {"up/between.py": "from up.other import Layer\n", "up/other.py": other})
    padded(plant)
    plant.commit("directly", {"up/__init__.py": "from up.other import Layer\n"}, gone=("up/between.py",))
    found = only(onto(plant, "v1.1"))
    assert found.state is State.BROKEN
    assert found.cause is not None
    assert found.cause.commit == broke


def test_a_definition_that_moved(plant: Plant) -> None:
    add(plant, definition("layer", "up/layer.py::Layer.forward"))
    padded(plant)
    moved = plant.commit("split", {"up/layer.py": "LIMIT = 3\n", "up/core/layers.py": LAYER})
    work = onto(plant, "v1.1")
    found = only(work)
    assert (found.state, found.judgement.path, found.judgement.line) == (State.MOVED, "up/core/layers.py", 6)
    assert found.cause is not None
    assert found.cause.commit == moved
    assert conclude(work) is Conclusion.SWITCHED
    [guard] = stacks.load(plant.root).guards
    assert (guard.target, guard.at) == ("up/core/layers.py::Layer.forward", moved)


def test_a_renamed_file_whose_definition_goes_later(plant: Plant) -> None:
    add(plant, definition("helper", "up/rope.py::rope_3"))
    plant.commit("rename", {"up/rotary.py": ROPE}, gone=("up/rope.py",))
    padded(plant)
    gone = plant.commit("drop it", {"up/rotary.py": ROPE.replace("def rope_3", "def rope_three")})
    padded(plant)
    found = only(onto(plant, "v1.1"))
    assert found.state is State.BROKEN
    assert found.cause is not None
    assert found.cause.commit == gone, found


def test_a_copy_shows_what_has_changed_since(plant: Plant) -> None:
    add(plant, copied("rope", "up/rope.py"), copied("one", "up/rope.py::rope_3"))
    padded(plant)
    changed = plant.commit("a fix", {"up/rope.py": ROPE.replace("x * 3", "x * 3.0")})
    padded(plant)
    whole, one = onto(plant, "v1.1").guards
    assert whole.judgement.share == pytest.approx(2 / 80)
    assert one.judgement.share == pytest.approx(2 / 4)
    assert "-    return x * 3\n+    return x * 3.0\n" in whole.judgement.diff
    assert whole.judgement.problem.startswith("2 % of up/rope.py has changed since it was copied to plugin/rope.py")
    assert [each.cause.commit for each in (whole, one) if each.cause is not None] == [changed, changed]


def test_a_copy_of_a_file_that_moved(plant: Plant) -> None:
    add(plant, copied("rope", "up/rope.py"))
    plant.commit("rename", {"up/rotary.py": ROPE}, gone=("up/rope.py",))
    found = only(onto(plant, "v1.1"))
    assert (found.state, found.judgement.path) == (State.MOVED, "up/rotary.py")
    changed = plant.commit("a fix", {"up/rotary.py": ROPE.replace("x * 3", "x * 3.0")})
    found = only(onto(plant, "v1.2"))
    assert (found.state, found.judgement.path) == (State.BROKEN, "up/rotary.py")
    assert found.cause is not None
    assert found.cause.commit == changed


def test_a_function_that_is_only_imported_now_is_broken(plant: Plant) -> None:
    add(plant, patched("helper", "up.layer:helper"), patched("again", "up:helper"), patched("class", "up.layer:Layer.forward"))
    rest = LAYER.partition("class Base")[0] + "from up.new import Base, Layer, helper\nLIMIT = 3\n"
    plant.commit("move", {"up/layer.py": rest, "up/new.py": LAYER})
    first, again, method = onto(plant, "v1.1").guards
    assert first.state is State.BROKEN
    assert "does not see a replacement" in first.judgement.problem
    assert again.state is State.MOVED  # It was an import before, too.
    assert method.state is State.MOVED


def test_an_attribute_that_is_gone_names_where_it_may_be(plant: Plant) -> None:
    add(plant, patched("forward", "up.layer:Layer.forward"))
    plant.commit("move", {"up/layer.py": "LIMIT = 3\n", "up/new.py": LAYER, "up/__init__.py": ""})
    found = only(onto(plant, "v1.1"))
    assert found.state is State.BROKEN
    assert found.judgement.problem == "up.layer has no Layer; up.new:Layer.forward has it"
    assert found.judgement.renewed is not None
    assert found.judgement.renewed.target == "up.new:Layer.forward"


def test_texts_and_patterns(plant: Plant) -> None:
    add(
        plant,
        text("limit", "up/layer.py", "LIMIT = 3"),
        Wanted("pattern", Kind.PATTERN, "up/layer.py", WHY, text="LIMIT = <n>"),
        definition("kernel", "csrc/attention.cu::void paged_attention_v1("),
    )
    changed = plant.commit("more", {"up/layer.py": LAYER.replace("LIMIT = 3", "LIMIT = 44")})
    twice = plant.commit(
        "twice", {"csrc/attention.cu": "void paged_attention_v1(int);\nvoid paged_attention_v1(float* out) {}\n"}
    )
    limit, pattern, kernel = onto(plant, "v1.1").guards
    assert [each.state for each in (limit, pattern, kernel)] == [State.BROKEN, State.HELD, State.BROKEN]
    assert limit.cause is not None
    assert limit.cause.commit == changed
    assert kernel.cause is not None
    assert kernel.cause.commit == twice
    assert "has 2 lines with" in kernel.judgement.problem


def test_a_rebase_renews_what_holds_and_leaves_the_rest(plant: Plant) -> None:
    first, _ = add(plant, patched("forward", "up.layer:Layer.forward"), patched("build", "up.layer:Layer.build"))
    new = plant.commit("break", {"up/layer.py": LAYER.replace("x, *, scale", "x, mask, *, scale")})
    before = plant.text
    work = onto(plant, "v1.1")
    assert conclude(work) is Conclusion.GUARD
    assert plant.text == before
    assert conclude(work, allow_drift=True) is Conclusion.SWITCHED
    kept, renewed = stacks.load(plant.root).guards
    assert (kept, renewed.at) == (first, new)
    with plant.stores() as stores:
        found = standing.at_pins(stores)
        assert [each.state for each in found] == [State.BROKEN, State.HELD]
        assert found[0].cause is not None
        assert found[0].cause.commit == new  # also at the new pin
        recording.accepted(stores, found[:1])
    with plant.stores() as stores:
        assert [each.state for each in standing.at_pins(stores)] == [State.HELD, State.HELD]
    assert stacks.load(plant.root).guards[0].signature == "def (self, x, mask, *, scale=1.0)"


def test_a_copy_that_the_user_removed(plant: Plant) -> None:
    add(plant, copied("rope", "up/rope.py"))
    (plant.place / "mine/plugin/rope.py").unlink()
    with plant.stores() as stores:
        [found] = standing.at_pins(stores)
    assert (found.state, found.judgement.problem) == (State.BROKEN, "plugin/rope.py of yours is gone")


def test_a_module_that_is_no_longer_python(plant: Plant) -> None:
    add(plant, patched("forward", "up.layer:Layer.forward"), definition("layer", "up/layer.py::Layer"))
    broke = plant.commit("break", {"up/layer.py": "class Layer(:\n"})
    for found in onto(plant, "v1.1").guards:
        assert found.judgement.problem == "up/layer.py cannot be read as Python"
        assert found.cause is not None
        assert found.cause.commit == broke


def test_after_patches_were_resolved_by_hand_a_broken_guard_does_not_stop_the_switch(plant: Plant) -> None:
    [before] = add(plant, patched("forward", "up.layer:Layer.forward"))
    plant.commit("break", {"up/layer.py": LAYER.replace("x, *, scale", "x, mask, *, scale")})
    work = onto(plant, "v1.1")
    assert conclude(work, allow_guards=True) is Conclusion.SWITCHED
    assert stacks.load(plant.root).pins.get("up").tag == "v1.1"
    assert stacks.load(plant.root).guards == (before,)

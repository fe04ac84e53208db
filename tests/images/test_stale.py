# SPDX-License-Identifier: Apache-2.0
"""`stack image validate --stale`: what has passed in this very image, under the same gates, is not run again.

The container and the suites are stood in for; everything that decides is real.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stack.cli import main
from stack.images import container_env, engine, validating
from stack.model.verdict import Case, Outcome, load
from stack.validation import gates
from stack.validation.suite import Job, ValidatedSubject
from tests.validation.factories import CHAT, answered, exact, failed

from .world import ONE, TWO, World

Validate = Callable[..., dict[str, Any]]


@pytest.fixture
def ran() -> list[str]:
    """The names of the cases that ran."""
    return []


@pytest.fixture
def cases() -> dict[str, list[Case]]:
    return {"kernels": [exact(ONE), exact(TWO)], "serve": [answered(CHAT)]}


@pytest.fixture
def validate(
    offline: World,
    ran: list[str],
    cases: dict[str, list[Case]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Validate:
    """Run `stack image validate`; each suite has the given cases."""

    def suite(_: object, name: str) -> tuple[Callable[[Job], Iterator[Case]], ValidatedSubject]:
        def run(job: Job) -> Iterator[Case]:
            for case in cases[name]:
                if job.wants(case.name):
                    ran.append(case.name)
                    yield case

        return run, ValidatedSubject()

    monkeypatch.setattr(engine, "found", lambda _: None)
    monkeypatch.setattr(container_env, "entered", lambda *_: nullcontext())
    monkeypatch.setattr(validating._Made, "suite", suite)
    offline.image()

    def go(*args: object, code: int = 0, suites: tuple[str, ...] = ("kernels", "serve")) -> dict[str, Any]:
        ran.clear()
        asked = ["image", "validate", *suites, "--out", str(tmp_path / "out"), "--json", *map(str, args)]
        monkeypatch.setattr(sys, "argv", ["stack", "--root", str(offline.root), *asked])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return go


def test_what_has_passed_in_the_image_is_not_run_again(validate: Validate, ran: list[str], tmp_path: Path) -> None:
    whole = validate("--gate", "cpu")
    assert ran == [ONE, TWO, CHAT]
    assert whole["gate"]["problems"] == []
    again = validate("--gate", "cpu", "--stale")
    assert (ran, again["verdicts"], again["standing"]) == ([], [], sorted([ONE, TWO, CHAT]))
    assert again["gate"] == whole["gate"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["kernels.json", "serve.json"]


def test_only_the_rest_is_run_beside_what_stands(
    validate: Validate, ran: list[str], cases: dict[str, list[Case]], tmp_path: Path
) -> None:
    good = cases["kernels"][1]
    cases["kernels"][1] = failed(TWO, "cpu")
    validate(code=1)
    kept = (tmp_path / "out/kernels.json").read_bytes()
    cases["kernels"][1] = good
    found = validate("--stale")
    assert ran == [TWO]
    [made] = found["verdicts"]
    assert (made["file"], [case["name"] for case in made["cases"]]) == (str(tmp_path / "out/kernels-2.json"), [TWO])
    assert (tmp_path / "out/kernels.json").read_bytes() == kept
    validate("--stale")
    assert ran == []


def test_another_image_other_gates_or_weights_count_for_nothing(
    validate: Validate, ran: list[str], offline: World, tmp_path: Path
) -> None:
    validate()
    (tmp_path / "out/kernels.json").unlink()
    serve = load(tmp_path / "out/serve.json")
    file = offline.root / gates.FILE
    file.write_text(file.read_text().replace("least = 1\n", "least = 2\n"))
    validate("--stale", suites=("serve",))
    assert ran == [CHAT]
    file.write_text(file.read_text().replace("least = 2\n", "least = 1\n"))
    (tmp_path / "out/serve.json").unlink()
    (tmp_path / "out/serve-2.json").unlink()
    for other in (
        replace(serve, image="sha256:" + "1" * 64),
        replace(serve, image=None, gates={}),
        replace(serve, whole=False),
    ):
        offline.written(other, "other.json")
        (tmp_path / "out/other.json").write_bytes((offline.root / "other.json").read_bytes())
        validate("--stale", suites=("serve",))
        assert ran == [CHAT]
        for path in (tmp_path / "out").iterdir():
            path.unlink()


def test_a_run_that_was_broken_off_is_gone_on_with(validate: Validate, ran: list[str], tmp_path: Path, offline: World) -> None:
    validate()
    found = load(tmp_path / "out/kernels.json")
    begun = replace(found, cases=found.cases[:1], whole=False)
    (tmp_path / "out/kernels.json").write_bytes((offline.written(begun)).read_bytes())
    done = validate("--stale", "--resume")
    assert ran == [TWO]
    assert [case.outcome for case in load(tmp_path / "out/kernels.json").cases] == [Outcome.PASSED] * 2
    assert [one["file"] for one in done["verdicts"]] == [
        str(tmp_path / "out" / name) for name in ("kernels.json", "serve.json")
    ]

# SPDX-License-Identifier: Apache-2.0
"""Patches with their outcomes, on terminals of several sizes and in a pipe."""

from collections.abc import Callable

import pytest

from stack.cli.rendering import patches, settings, terminal
from stack.cli.rendering.patches import PatchLine, Section

from ..carry.world import World
from .conftest import Stack
from .test_verbs import CONFLICT, REBASE

MOVED = "now at vllm/config/kernel.py:373, was 360 and 3 more"


def lines(number: int = 10) -> tuple[PatchLine, ...]:
    made = [
        PatchLine(f"serving/up/keep-the-characters-of-argument-{place}", "serving", "clean", False) for place in range(number)
    ]
    made += [
        PatchLine(f"kernels/up/let-few-tokens-choose-kernel-{place}", "kernels", "moved", False, MOVED) for place in range(4)
    ]
    made.append(PatchLine("cpu/up/support-experts", "cpu", "landed", False, "80f4de4419a7 fix: support experts on CPUs, too"))
    detail = "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:867-869 (content)"
    made.append(PatchLine("cpu/up/refuse-it", "cpu", "conflict", True, "", (detail, "  since 80f4de4419a7 Move it")))
    return tuple(made)


Printed = Callable[..., list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    settings.reset()

    def at(columns: int | None, high: int = 40, number: int = 10, **chosen: bool) -> list[str]:
        monkeypatch.delenv(terminal.WIDTH, raising=False)
        monkeypatch.setenv("LINES", str(high))
        monkeypatch.setenv("COLUMNS", "80")
        if columns is not None:
            monkeypatch.setenv(terminal.WIDTH, str(columns))
        settings.reset()
        settings.use(**chosen)
        patches.print_sections([Section(("up v1 -> v2",), lines(number))], lambda _: None)
        settings.reset()
        return capsys.readouterr().out.splitlines()

    return at


def test_the_summary() -> None:
    assert patches.summary(lines(), "up v2") == "16 patches onto up v2: 1 conflict, 1 landed, 10 clean, 4 moved"
    assert patches.summary(lines()[:1]) == "1 patch: 1 clean"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_needs_a_person_is_first_and_whole(printed: Printed, columns: int) -> None:
    shown = printed(columns)
    assert max(map(len, shown)) <= columns
    assert shown[:2] == ["up v1 -> v2", "conflict  cpu/up/refuse-it"]
    assert "".join("".join(shown[2:4]).split()).startswith("vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:867-869")
    assert "serving" in shown
    assert sum(line.startswith("  clean   keep-the-characters-of-argument-") for line in shown) == 10
    assert any(line.startswith("landed  cpu/support-experts") for line in shown), "a series of one patch has no heading"
    assert any(MOVED in line for line in shown) == (columns == 120)


def test_what_does_not_fit_is_counted(printed: Printed) -> None:
    low = printed(80, high=24, number=30)
    assert "serving: 30 clean" in low
    assert sum("  moved   let-few-tokens-choose-kernel-" in line for line in low) == 4
    assert len(low) <= 20
    assert len(printed(80, high=24, number=30, every=True)) > 40
    assert any(MOVED in line for line in printed(80, high=24, number=30, verbose=True))


def test_landed_patches_are_never_only_counted(printed: Printed) -> None:
    assert any("support-experts" in line for line in printed(80, high=10, number=60))


def test_quiet_shows_what_needs_a_person(printed: Printed) -> None:
    for columns in (80, None):
        shown = "\n".join(printed(columns, quiet=True))
        assert "refuse-it" in shown
        assert "clean" not in shown
        assert "moved" not in shown


def test_a_pipe_has_a_line_with_the_whole_name_for_each_patch(printed: Printed) -> None:
    shown = printed(None)
    assert shown[3].startswith("cpu/up/refuse-it ")
    for line in lines():
        [row] = [row for row in shown if row.startswith(f"{line.name} ")]
        assert row.endswith(line.evidence or line.outcome)


def test_the_verbs(stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stack(*REBASE, "--dry-run").out.splitlines()[0] == "6 patches onto gamma v2.1: 1 landed, 3 clean, 2 moved"
    conflict = stack(*CONFLICT)
    assert "why, and both sides: stack explain one/gamma/hook-main --onto v2.2\n" in conflict.out
    monkeypatch.setenv(terminal.WIDTH, "60")
    for args in (CONFLICT, (*REBASE, "--dry-run"), ("status",), ("status", "--all"), ("log",), ("show", "tool"), ("lint",)):
        ran = stack(*args)
        assert [line for line in ran.out.splitlines() if len(line) > 60 and not line.strip().startswith("stack ")] == [], ran


COMMIT = "80f4de4419a7"
LANDED = f"{COMMIT} fix: support experts on CPUs, too"


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    ("outcome", "evidence", "wanted"),
    [
        ("landed", LANDED, COMMIT),
        ("landed", f"together with cpu/up/a-patch-with-a-long-name-that-leaves-no-room-for-it: {LANDED}", COMMIT),
        ("landed", "landed by behaviour in v2.1: support experts", "landed by behaviour"),
        ("partly-landed", f"{COMMIT} fix: experts; a part is carried", COMMIT),
        ("resolved", "resolution 1a2b3c made on v2.1", "resolution 1a2b3c"),
        ("clean", "resolved by hand", "resolved by hand"),
    ],
)
def test_a_line_names_the_commit_on_every_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
    outcome: str,
    evidence: str,
    wanted: str,
) -> None:
    monkeypatch.setenv(terminal.WIDTH, str(columns))
    settings.reset()
    for length in range(10, 90):
        line = PatchLine(f"cpu/up/{'word-' * length}"[: length + 7], "cpu", outcome, False, evidence)
        patches.print_sections([Section((), (line,))], lambda _: None)
        shown = capsys.readouterr().out.splitlines()
        assert any(wanted in each for each in shown), shown
        assert max(map(len, shown)) <= columns
        assert len(shown) == 1 or shown[1].startswith("    ")


def test_a_short_hash_stays_on_the_line_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(terminal.WIDTH, "80")
    settings.reset()
    name = "x" * 53
    patches.print_sections([Section((), (PatchLine(f"{name}", "", "landed", False, LANDED),))], lambda _: None)
    assert capsys.readouterr().out == f"landed  {name}  {COMMIT}{terminal.ellipsis()}\n"


def test_a_patch_resolved_by_hand_is_never_only_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(terminal.WIDTH, "80")
    monkeypatch.setenv("LINES", "10")
    settings.reset()
    by_hand = PatchLine("serving/up/by-a-person", "serving", "clean", False, "resolved by hand")
    patches.print_sections([Section((), (*lines(60)[:60], by_hand))], lambda _: None)
    assert "  clean   by-a-person  resolved by hand" in capsys.readouterr().out.splitlines()

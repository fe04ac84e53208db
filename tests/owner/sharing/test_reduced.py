# SPDX-License-Identifier: Apache-2.0
"""A reduced verdict has what others need, and nothing that says whose machine it was."""

import json
from dataclasses import replace

import pytest

from stack.model import verdict as verdicts
from stack.model.verdict import Case, Gpu, Machine, Outcome, Verdict, Weights
from stack.owner.sharing import reduced

from ...validation.factories import failed, not_run, passed, verdict

SECRETS = (
    "grace",
    "spark-in-the-attic",
    "192.168.7.31",
    "/home/grace/models/secret-model",
    "grace@example.org",
    "hf_abcdefghijklmnop",
    "https://internal.example.org:8443/v1",
    "10:ff:e0:12:34:56",
    "GPU-12345678-1234-1234-1234-123456789abc",
)
MACHINE = Machine(
    "Linux 6.17.0-1014-nvidia-spark-in-the-attic",
    "aarch64",
    "Cortex-X925",
    20,
    128_000_000_000,
    ("sve2", "grace"),
    (Gpu("NVIDIA GB10", "12.1", None, "580.95.05"),),
    "13.0",
)


def full() -> Verdict:
    """A verdict whose every text names somebody or something."""
    why = "\n".join(SECRETS)
    cases = (
        passed("doctor/content", "sm121", **{"generated tokens": 20.0, "said": "grace"}),
        replace(failed("doctor/stream"), why=f"the server at {why}"),
        *(replace(failed(f"doctor/fault-{place}"), why=f"it says: {secret}") for place, secret in enumerate(SECRETS)),
        replace(not_run("bench/pp8192-tg128"), why="no time is left of 2 minutes: give it more with --minutes"),
        Case(
            "bench/pp512-tg32",
            Outcome.PASSED,
            measured={"decode t/s": 60.1, "decode runs": "60 60.1 60.2", "decode apart": "grace"},
        ),
        Case("serve/running/version", Outcome.PASSED, measured={"version": "0.32.0+sm121.g01234567"}),
        Case(
            "serve/running/models", Outcome.PASSED, measured={"context": 131072.0, "model": "/home/grace/models/secret-model"}
        ),
    )
    versions = {
        "stack": "0.2.0",
        "server": "0.32.0+sm121.g01234567",
        "model": "/home/grace/models/gpt-oss-120b",
        "bench": "llama-benchy 0.4.0",
        "python": "3.12.3",
        "host": "spark-in-the-attic",
    }
    return verdict(
        *cases,
        machine=MACHINE,
        versions=versions,
        recipe="gpt-oss-120b-spark",
        weights=Weights.REAL,
        image=f"sha256:{'0' * 64}",
    )


def test_nothing_names_the_owner() -> None:
    text = verdicts.write(reduced.of(full())).decode()
    assert [secret for secret in SECRETS if secret in text] == []


def test_what_others_need_is_there() -> None:
    before, after = full(), reduced.of(full())
    assert (after.stack, after.pins, after.image, after.recipe, after.weights, after.made) == (
        before.stack,
        before.pins,
        before.image,
        before.recipe,
        before.weights,
        before.made,
    )
    assert after.machine == replace(MACHINE, system="Linux 6.17.0-1014-nvidia", flags=())
    assert dict(after.versions) == {
        "stack": "0.2.0",
        "python": "3.12.3",
        "bench": "llama-benchy 0.4.0",
        "model": "gpt-oss-120b",
        "server": "0.32.0+sm121.g01234567",
    }
    assert [case.outcome for case in after.cases] == [case.outcome for case in before.cases]
    measured = {case.name: dict(case.measured) for case in after.cases}
    assert measured["bench/pp512-tg32"] == {"decode t/s": 60.1, "decode runs": "60 60.1 60.2"}
    assert measured["serve/running/version"] == {"version": "0.32.0+sm121.g01234567"}


def test_it_is_a_verdict_that_can_be_read() -> None:
    less = reduced.of(full())
    assert verdicts.read(verdicts.write(less), "x") == less
    assert reduced.of(less) == less


@pytest.mark.parametrize(
    ("why", "kept"),
    [
        ("no time is left of 2 minutes: give it more with --minutes", True),
        ("the server takes 4096 tokens in a request, this size needs 8352", True),
        ("the prompt differs from token 17 on: [200006, 17360] of 80", "the prompt differs from token 17 on"),
        ("4 of 24 requests: the content is 'my name is Ada'", "4 of 24 requests"),
        ("41.2 tokens a second, measured once, 60 are expected (grace's own)", "41.2 tokens a second"),
        ("it says 'my name is Ada'", False),
        ("it answers 500: /srv/models is missing", "it answers 500"),
        ("it cannot reach spark-7.attic.local", False),
        ("it answers 500\nand 192.168.7.31 is its address", "it answers 500"),
        ("grace", False),
    ],
)
def test_a_reason_is_kept_as_far_as_it_is_known(why: str, kept: bool | str) -> None:
    (case,) = reduced.of(verdict(replace(failed("doctor/stream"), why=why))).cases
    assert case.why == (
        kept if isinstance(kept, str) else why.splitlines()[0] if kept else "the reason is in the owner's own verdict"
    )
    assert "192.168" not in case.why


@pytest.mark.parametrize("system", ["Darwin 24.1", "Linux", "Linux 6.1.0-grace-built-this", "Linux 6.17.0-1014-nvidia"])
def test_a_kernels_name_is_cut_behind_its_version(system: str) -> None:
    after = reduced.of(verdict(machine=replace(MACHINE, system=system)))
    assert after.machine.system in ("Linux", "Linux 6.1.0", "Linux 6.17.0-1014-nvidia")


def test_odd_names_of_hardware_are_not_shared() -> None:
    odd = replace(MACHINE, cpu="CPU of grace\u202e", gpus=(Gpu("<script>", "12.1", None, "580"),))
    text = json.dumps(verdicts.as_json(reduced.of(verdict(machine=replace(odd, cpu="z" * 200)))))
    assert "script" not in text
    assert "zzzz" not in text

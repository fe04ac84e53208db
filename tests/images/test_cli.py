# SPDX-License-Identifier: Apache-2.0
"""`stack image publish | verify | list | promote | rollback`, as a user runs them."""

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stack.cli import main
from stack.images import image, labels, layout

from ..model.factories import FILES, write
from ..validation.factories import VERSIONS
from . import factories
from .world import World

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `stack image ARGS` on the stack of `world` or `offline`."""

    def one(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stack", "--root", str(tmp_path / "stack"), "image", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out.getvalue(), err.getvalue()

    return one


def said(ran: tuple[int, str, str]) -> Any:
    assert ran[0] in (0, 1), ran
    return json.loads(ran[1])


def publish(world: World, run: Run, name: str, *more: object, verdict: Path | None = None) -> tuple[int, str, str]:
    given = ("--verdict", verdict or world.root / "v.json", "--signers", world.policy.signers, "--gates", world.policy.gates)
    return run("publish", f"{world.host}/{name}", "--gate", "cpu", *given, "--key", world.root / "release.pem", *more)


def test_an_image_is_published_listed_promoted_and_rolled_back(world: World, run: Run, tmp_path: Path) -> None:
    name, key = f"{world.host}/cli", ("--key", world.root / "release.pub.pem")
    first = world.image({"a": b"1"})
    world.verdict(first)
    world.root.joinpath("python.cdx.json").rename(world.layout / "python.cdx.json")
    code, out, err = publish(world, run, "cli:1.0", "--move", "latest")
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"{name}:1.0 is published", f"digest {first}", f"latest -> {first}, is new"]
    assert said(publish(world, run, "cli:1.0", "--json")) == {
        "schema": "stack/image-publish/1", "published": True, "digest": first, "new": False, "moves": [], "problems": [],
    }  # fmt: skip
    second = world.image({"a": b"2"})
    world.verdict(second)
    assert publish(world, run, "cli:1.1")[0] == 0

    verified = said(run("verify", f"{name}:1.1", *key, "--save", f"oci:{tmp_path / 'kept'}", "--json"))
    assert verified["verified"]
    assert verified["digest"] == second
    assert verified["names"] == [f"{name}:1.1"]
    assert said(run("verify", f"oci:{tmp_path / 'kept'}:image", *key, "--json"))["verified"]
    assert said(run("verify", f"oci:{tmp_path / 'kept'}", *key, "--json"))["verified"]
    assert run("verify", f"{name}:1.1")[0] == 1  # who has said it?
    assert run("verify", f"{name}:1.1", *key, "--gate", "spark")[0] == 1

    moves = said(run("promote", f"{name}:1.1", "latest", "1", *key, "--json"))["moves"]
    assert moves == [{"tag": "latest", "before": first, "after": second}, {"tag": "1", "before": None, "after": second}]
    assert image.read(world.name("cli:latest")).digest == second
    for place, (before, after) in enumerate([(second, first), (first, second)]):
        assert said(run("rollback", f"{name}:latest", *key, "--json"))["moves"] == [
            {"tag": "latest", "before": before, "after": after}
        ], place
        assert image.read(world.name("cli:latest")).digest == after
    code, _, err = run("rollback", f"{name}:1", *key)
    assert (code, "has no earlier target" in err) == (2, True)
    code, _, err = run("promote", f"{name}:1.1", "1.0", *key)
    assert (code, "never moves" in err) == (2, True)
    code, _, err = run("promote", f"{name}:1.1", "latest", "--key", world.root / "other.pub.pem")
    assert (code, "none of" in err) == (2, True)

    images = {one["digest"]: one for one in said(run("list", name, *key, "--json"))["images"]}
    assert {*images} == {first, second}
    assert images[first]["tags"] == ["1.0", "latest.previous"]
    assert images[second]["tags"] == ["1", "1.1", "latest"]
    assert images[second]["gates"] == ["cpu"]
    assert images[second]["holds"] is True
    assert images[first]["holds"] is True
    assert "not checked" in run("list", name)[1]


def test_what_is_not_admitted_exits_1_and_says_all_of_it(world: World, run: Run) -> None:
    world.image({"a": b"1"})
    code, out, _ = publish(world, run, "refused:1.0", verdict=world.verdict(None))
    assert code == 1
    assert "v.json: it is not for an image: validate inside the image that shall be published" in out
    assert out.endswith("gate cpu: not passed, nothing was pushed\n")
    assert "/tmp/stack-publish-" not in out
    shown = said(publish(world, run, "refused:1.0", "--json"))
    assert not shown["published"]
    assert shown["problems"]
    assert run("list", f"{world.host}/refused")[0] == 2


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("verify", "not an image"), "names no image"),
        (("verify", "oci:missing"), "not an OCI layout"),
        (("verify", "oci:x", "--save", "oci:y"), "cannot be saved"),
        (("list", "host/name:tag"), "not a repository"),
        (("promote", "oci:x", "latest"), "not an image in a registry"),
        (("rollback", "host/name"), "not a tag in a registry"),
    ],
)
def test_wrong_usage_is_one_line(offline: World, run: Run, args: tuple[str, ...], line: str) -> None:
    key = () if args[0] == "list" else ("--key", offline.root / "release.pub.pem")
    code, out, err = run(*args, *key)
    assert code == 2
    assert out == ""
    assert line in err
    assert err.count("\n") == 1


def test_what_the_patches_state_is_compared_with_the_sources(offline: World, run: Run) -> None:
    """Here with sources that nobody has, in one line; nothing is published by what patches claim alone."""
    write(offline.root, FILES)
    offline.verdict(offline.image())
    policy = offline.policy
    given = ("--gates", policy.gates, "--signers", policy.signers, "--key", offline.root / "release.pem")
    code, out, err = run("publish", f"{offline.host}/x:1", "--gate", "cpu", *given, "--verdict", offline.root / "v.json")
    assert (code, out) == (2, "")
    assert "no source archive of vllm 1.0.0" in err
    assert err.count("\n") == 1


def test_without_signers_it_says_how_to_name_them(
    offline: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    offline.verdict(offline.image())
    code, _, err = run(
        "publish",
        f"{offline.host}/x:1",
        "--gate",
        "cpu",
        "--gates",
        offline.policy.gates,
        "--verdict",
        offline.root / "v.json",
        "--key",
        offline.root / "release.pem",
    )
    assert code == 2
    assert "--signers" in err
    assert "--protected" in err


@pytest.mark.parametrize("docker", [False, True])
def test_images_of_two_platforms_become_one_index(world: World, run: Run, docker: bool) -> None:
    name, made = f"{world.host}/both{'-docker' if docker else ''}", {}
    for architecture in ("arm64", "amd64"):
        folder = world.root / architecture
        one = factories.manifest(folder, labels.of(world.stack), {"arch": architecture.encode()}, architecture, docker)
        layout.finish(folder, {"built": one})
        made[architecture] = world.verdict(one["digest"], f"{architecture}.json", versions=VERSIONS | {"machine": architecture})
    both = ("--image", f"oci:{world.root / 'arm64'}", "--image", f"oci:{world.root / 'amd64'}")
    common = (
        f"{name}:1.0",
        "--gate",
        "cpu",
        "--signers",
        world.policy.signers,
        "--gates",
        world.policy.gates,
        "--key",
        world.root / "release.pem",
    )
    assert run("publish", *common, *both, "--verdict", made["amd64"])[0] == 1
    code, _, err = run("publish", *common, *both, "--verdict", made["amd64"], "--verdict", made["arm64"])
    assert (code, err) == (0, "")
    verified = said(run("verify", f"{name}:1.0", "--key", world.root / "release.pub.pem", "--json"))
    assert verified["verified"]
    assert [one["name"] for one in verified["platforms"]] == ["linux/amd64", "linux/arm64"]
    twice = (*both[:2], *both[:2])
    assert "two of the images are for linux/arm64" in run("publish", *common, *twice, "--verdict", made["arm64"])[2]
    assert [*world.root.glob(".index-*")] == []

# SPDX-License-Identifier: Apache-2.0
"""What runs in a container of an image: as its user, with what it was lent, and never longer than who started it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import container_env, image, layout
from stack.images import engine as engines
from stack.images.container_env import ImageContainer
from stack.images.engine import Container
from stack.images.image import Platform
from stack.images.reference import Reference
from stack.validation import python_env
from stack.validation.python_env import Process

from .. import system
from . import bases

pytestmark = pytest.mark.slow

SERVER = '#!/bin/sh\necho "$0 $*"; env; id -u; cat "$2/letter"; grep -c : /proc/net/dev\n'
OWNER = """
import signal, subprocess, sys
from pathlib import Path
from stack.images import container_env, engine, image
from stack.images.reference import Reference
where = Reference(sys.argv[1], layout=True)
with container_env.entered(engine.found(sys.argv[4]), where, image.read(where).platforms[0], Path(sys.argv[2])) as container:
    process = container.interpreter(["-c", "import time; print('runs', flush=True); time.sleep(600)"], {"MARK": sys.argv[3]})
    running = subprocess.Popen(process.command, env=process.environment, start_new_session=True)
    try:
        running.wait()
    finally:
        running.terminate()
        running.wait()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """A small image with a Python and a server where ours has them."""
    system.demand(*bases.PROGRAMS)
    with bases.serving(tmp_path_factory.mktemp("inside"), SERVER) as layout:
        yield layout


@pytest.fixture
def platform(made: Reference) -> Platform:
    return image.read(made).platforms[0]


@pytest.fixture(params=engines.ENGINES)
def engine(request: pytest.FixtureRequest, made: Reference) -> engines.Engine:
    return engines.found(request.param)


@pytest.fixture
def container(engine: engines.Engine, made: Reference, platform: Platform, tmp_path: Path) -> Iterator[ImageContainer]:
    with container_env.entered(engine, made, platform, tmp_path) as found:
        yield found


def ran(process: Process) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(process.command, env=dict(process.environment), capture_output=True, text=True, check=False)


def test_a_server_is_started_as_the_image_does(container: ImageContainer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/blob").write_text("hello\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/letter").symlink_to("../elsewhere/blob")
    tmp_path.chmod(0o755)
    done = ran(container.server(["serve", str(tmp_path / "model")], {"SETTING": "a b"}, tmp_path, [tmp_path / "model"]))
    assert done.returncode == 0, done.stderr
    assert "entered" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"/opt/stack/bin/vllm serve {tmp_path / 'model'}"
    assert {"SETTING=a b", "HF_HUB_OFFLINE=1", "10001", "hello"} <= set(lines)


def test_python_has_no_network_and_nothing_that_was_not_lent(container: ImageContainer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    code = (
        "import json, os, socket, sys; print(json.dumps([[n for _, n in socket.if_nameindex()], os.path.exists(sys.argv[1])]))"
    )
    done = python_env.run(container, code, str(tmp_path / "secret"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["lo"], False]
    assert python_env.versions(container, "nothing-of-this-name") == {}


def test_no_variable_of_ours_comes_in(
    engine: engines.Engine, made: Reference, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "STACK_TOKEN", "VLLM_PLUGINS"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")
    with container_env.entered(engine, made, platform, tmp_path) as entered:
        for process in (
            entered.interpreter(["-c", "import os; print(dict(os.environ))"], {}),
            entered.server(["-"], {}, tmp_path),
        ):
            said = ran(process).stdout
            assert "HF_HUB_OFFLINE" in said
            assert "secret" not in said


def test_two_with_caches_of_their_own(engine: engines.Engine, made: Reference, platform: Platform, tmp_path: Path) -> None:
    with container_env.entered(engine, made, platform, tmp_path / "one") as first:
        with container_env.entered(engine, made, platform, tmp_path / "other") as second:
            assert python_env.run(second, "print('second')").stdout == "second\n"
        assert python_env.run(first, "print('first')").stdout == "first\n"


def test_what_lies_in_a_home_that_the_image_closes_can_be_read(container: ImageContainer) -> None:
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        model = Path(place, "model")
        model.mkdir()
        (model / "letter").write_text("hello\n")
        assert "hello" in ran(container.server(["serve", str(model)], {}, model, [model])).stdout.splitlines()
        read = f"print(open({str(model / 'letter')!r}).read())"
        assert ran(container.interpreter(["-c", read], {}, [model])).stdout == "hello\n\n"


def test_what_is_lent_cannot_be_written(container: ImageContainer, tmp_path: Path) -> None:
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent").chmod(0o777)
    process = container.interpreter(
        ["-c", "open('/" + str(tmp_path / "lent/new").lstrip("/") + "', 'w')"], {}, [tmp_path / "lent"]
    )
    done = ran(process)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr


def test_what_the_images_user_may_not_read_is_named(container: ImageContainer, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_text("mine")
    (tmp_path / "model/weights").chmod(0o600)
    with pytest.raises(StackError, match=r"the image's user may not read .*/model/weights: chmod o\+r"):
        container.server(["serve"], {}, tmp_path, [tmp_path / "model"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a:b", r"cannot be mounted into a container because of its colon"),
        ("broken", r"broken/link cannot be read \(No such file or directory\)"),
        ("loop", r"loop/link cannot be read \(Too many levels"),
        ("missing", r"missing cannot be read \(No such file"),
        ("closed", r"may not read .*/closed: chmod o\+rx"),
        ("hiding", r"/ would hide /opt/stack of the image"),
    ],
)
def test_folders_that_cannot_be_lent(name: str, line: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    if name != "missing":
        folder.mkdir()
        folder.chmod(0o755)
    if name in ("broken", "loop"):
        (folder / "link").symlink_to("nowhere" if name == "broken" else "link")
    if name == "closed":
        folder.chmod(0o744)
    lent = Path("/") if name == "hiding" else folder
    with pytest.raises(StackError, match=line):
        ImageContainer(engines.Engine("buildah"), Container("one", "image"), ()).server(["serve"], {}, tmp_path, [lent])


def test_another_image_in_the_storage_is_not_taken(made: Reference, platform: Platform, tmp_path: Path) -> None:
    other = replace(platform, digest=f"sha256:{'0' * 64}")
    with pytest.raises(StackError, match="stored the image as"), container_env.entered(engines.found(), made, other, tmp_path):
        pass


def test_a_device_that_is_not_there(engine: engines.Engine, made: Reference, platform: Platform, tmp_path: Path) -> None:
    with (
        pytest.raises(StackError, match="nowhere"),
        container_env.entered(engine, made, platform, tmp_path, ["/dev/nowhere"]),
    ):
        pass


def test_an_image_whose_blobs_were_changed_is_not_run(made: Reference, platform: Platform, tmp_path: Path) -> None:
    shutil.copytree(made.place, tmp_path / "image")
    changed = layout.place(tmp_path / "image", platform.layers[-1].digest)
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    where = Reference(str(tmp_path / "image"), layout=True)
    with bases.storage(tmp_path / "engine") as variables, pytest.MonkeyPatch.context() as patched:
        patched.setenv("CONTAINERS_STORAGE_CONF", variables["CONTAINERS_STORAGE_CONF"])
        with pytest.raises(StackError, match="failed"), container_env.entered(engines.found(), where, platform, tmp_path):
            pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_runs_on_when_its_owner_is_killed(
    engine: engines.Engine, made: Reference, tmp_path: Path, number: signal.Signals
) -> None:
    mark = f"inside-{engine.name}-{os.getpid()}-{number}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, made.place, str(tmp_path), mark, engine.name],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "runs\n"
    assert marked(mark)
    owner.send_signal(number)
    owner.wait(30)
    until = time.monotonic() + 30
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not marked(mark)
    owner.stdout.close()
    # A container that was left is no hindrance.
    where = image.read(made).platforms[0]
    with container_env.entered(engine, made, where, tmp_path) as again:
        assert python_env.run(again, "print('here')").stdout == "here\n"


def test_nothing_runs_on_when_one_in_between_is_killed(
    engine: engines.Engine, container: ImageContainer, tmp_path: Path
) -> None:
    code = "import time; print('runs', flush=True); time.sleep(600)"
    for place in range(3):  # two that watch, and the engine
        mark = f"between-{engine.name}-{os.getpid()}-{place}"
        process = container.interpreter(["-c", code], {"MARK": mark})
        with subprocess.Popen(process.command, env=process.environment, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "runs\n"
            os.kill([running.pid, *below(running.pid)][place], signal.SIGKILL)
            until = time.monotonic() + 60
            while marked(mark) and time.monotonic() < until:
                time.sleep(0.05)
            assert not marked(mark)


def below(process: int) -> list[int]:
    """The line of first children of a process."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(children[0]), *below(int(children[0]))] if children else []


def marked(mark: str) -> list[str]:
    """The processes in containers with a variable of this value."""
    found = []
    for one in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MARK={mark}".encode() in one.read_bytes().split(b"\0"):
                found.append(one.parent.name)
        except OSError:
            continue
    return found

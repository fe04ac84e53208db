# SPDX-License-Identifier: Apache-2.0
"""The engine's command: confined, on the loopback interface, with the model read-only and no secret in it."""

from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import recipes
from stack.owner import container
from stack.owner.engine import Engine
from stack.owner.state import Image, Model, Setup

DIGEST = f"sha256:{'1' * 64}"


def setup(folder: Path, recipe: str = "gpt-oss-120b-spark", **more: object) -> Setup:
    return Setup(recipe, Image("host/name:1", DIGEST, DIGEST, None), Model(str(folder)), 8123, **more)  # type: ignore[arg-type]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A revision in Hugging Face's cache."""
    top = tmp_path / "models--maker--model"
    folder = top / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    (top / "blobs").mkdir()
    (top / "blobs/abc").write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/abc")
    return folder


def words(engine: str, one: Setup) -> tuple[str, ...]:
    return container.command_of(Engine(engine), one, recipes.load(one.recipe), "stack-server")


def test_docker(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    found = words("docker", setup(snapshot))
    assert found[:2] == ("run", "--detach")
    wanted = {
        *("--name=stack-server", "--restart=unless-stopped", "--pull=never", "--gpus=all", "--init"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--shm-size=1gb"),
        *("--publish=127.0.0.1:8123:8123", "--volume=stack-server-cache-unverified:/home/stack/.cache"),
        *(f"--volume={snapshot.parents[1]}:/model:ro", "--env=VLLM_API_KEY", "--env=HF_HUB_OFFLINE=1", "--env=STACK_PORT=8123"),
        *("--env=FLASHINFER_CUDA_ARCH_LIST=12.1a", "--env=TRITON_CACHE_DIR=/home/stack/.cache/triton"),
    }
    assert wanted - {*found} == set()
    served = found[found.index(DIGEST) + 1 :]
    assert served[:5] == ("vllm", "serve", f"/model/snapshots/{'0' * 40}", "--served-model-name", "openai/gpt-oss-120b")
    assert served[-4:] == ("--host", "0.0.0.0", "--port", "8123")
    assert "secret" not in " ".join(found)


def test_compiled_code_is_kept_in_the_volume_of_the_image(snapshot: Path) -> None:
    one = setup(snapshot)
    named = replace(one, image=replace(one.image, cache="stack-server-cache-key-0123"))
    assert "--volume=stack-server-cache-key-0123:/home/stack/.cache" in words("docker", named)


def test_memory_is_kept_free_where_asked(snapshot: Path) -> None:
    assert "--env=STACK_KEEP_FREE=8" in words("docker", setup(snapshot, keep_free=8.0))
    assert not [word for word in words("docker", setup(snapshot)) if "KEEP_FREE" in word]


def test_a_node_without_an_api_gets_no_key(snapshot: Path) -> None:
    """Even if the environment there has one: the container would not be known again."""
    recipe = recipes.load("gpt-oss-120b-2-sparks")
    for rank, key in (("0", "--env=VLLM_API_KEY"), ("1", "--env=VLLM_API_KEY=")):
        values = dict.fromkeys(recipe.variables, "x") | {"NODE_RANK": rank}
        assert key in words("docker", setup(snapshot, recipe.name, variables=values))


def test_podman(snapshot: Path) -> None:
    found = words("podman", setup(snapshot))
    assert "--device=nvidia.com/gpu=all" in found
    assert not {"--gpus=all", "--log-opt=max-file=3"} & {*found}
    assert {"--log-driver=k8s-file", "--log-opt=max-size=100m"} <= {*found}


def test_no_gpu_for_a_recipe_of_none(snapshot: Path) -> None:
    for engine in ("docker", "podman"):
        assert not [word for word in words(engine, setup(snapshot, "cpu-fp32")) if word.startswith(("--gpus", "--device"))]


def test_open(snapshot: Path) -> None:
    assert "--publish=0.0.0.0:8123:8123" in words("docker", setup(snapshot, opened=True))


def test_the_label_is_of_the_whole_command(snapshot: Path) -> None:
    one, other = (words("docker", setup(snapshot, extra=extra))[2] for extra in ((), ("--max-num-seqs", "3")))
    assert one.startswith("--label=stack.setup=")
    assert one != other
    assert one == words("docker", setup(snapshot))[2]


def test_a_plain_folder_is_mounted_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert container.mount(tmp_path) == (tmp_path.resolve(), "/model")


def test_what_cannot_be_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match="cannot be read"):
        container.mount(folder)
    (tmp_path / "elsewhere").write_text("{}")
    with pytest.raises(StackError, match=r"is a link to .*: name the folder that has the files"):
        container.mount(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").write_text("{}")
    (folder / "config.json").chmod(0o600)
    with pytest.raises(StackError, match=r"the image's user may not read .*: chmod o\+r"):
        container.mount(folder)
    with pytest.raises(StackError, match=r"the model's folder .*/gone is gone: name"):
        container.mount(tmp_path / "gone")
    colon = tmp_path / "a:b"
    colon.mkdir()
    with pytest.raises(StackError, match="because of its colon"):
        container.mount(colon)

# SPDX-License-Identifier: Apache-2.0
"""The owner's container: the engine's command that starts it, and whether the one that is there is the wanted one."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy.recipes import RANK, Recipe
from stack.owner import caches
from stack.owner.caches import USER
from stack.owner.engine import Container, Engine
from stack.owner.state import Setup
from stack.serving import container as common
from stack.serving.command import HEAD, command
from stack.serving.demands import KEY
from stack.validation.python_env import OFFLINE

SETUP = "stack.setup"
"""The label with a digest of the command that a container was started with."""
_MODEL = "/model"
_RDMA = "HCA"
"""The variable of a recipe with the node's RDMA devices."""
_SYSTEMD = Path("/run/systemd/system")
_INIT = "/usr/libexec/podman/catatonit"
_LOGS = ("--log-opt=max-size=100m", "--log-opt=max-file=3")
"""docker keeps logs without limit unless told."""
_PODMANS_LOG = ("--log-driver=k8s-file", "--log-opt=max-size=100m")
"""So does podman with this driver. Its other one, systemd's journal, is limited by the journal alone, and shares it with the system."""


def command_of(engine: Engine, setup: Setup, recipe: Recipe, name: str, *, looks: bool = True) -> tuple[str, ...]:
    """Return the engine's command that starts the container, without the engine's name.

    The API key is inherited from the environment: a command line is visible to every user of the machine. Without `looks`, the
    model's folder need not be there.

    Raises:
        StackError: The model's folder cannot be mounted.

    """
    folder = Path(setup.model.folder)
    mounted, inside = mount(folder) if looks else _mounted(folder)
    address = common.INSIDE if setup.opened else "127.0.0.1"
    host = address if setup.spread else common.INSIDE
    serve = command(recipe, setup.variables, host=host, port=setup.port, model_path=Path(inside), extra=setup.extra)
    # A health check inside of the container asks at the same port.
    own = {common.RECIPE: recipe.name, "STACK_PORT": str(setup.port)}
    guard = {common.KEEP_FREE: f"{setup.keep_free:g}"} if setup.keep_free else {}
    variables = {**serve.environment, **common.folders(), **OFFLINE, **own, **guard}
    options = (
        *(f"--label={USER}={os.getuid()}", f"--name={name}", "--restart=unless-stopped", "--pull=never"),
        *(f"--cap-drop={common.NO_CAPABILITY}", f"--security-opt={common.NO_NEW_PRIVILEGES}", f"--shm-size={common.SHARED}"),
        *(_shared_network(setup) if setup.spread else (f"--publish={address}:{setup.port}:{setup.port}",)),
        *(f"--volume={caches.of(setup)}:{common.cache()}", f"--volume={mounted}:{_MODEL}:ro"),
        *(f"--env={key}={value}" for key, value in sorted(variables.items())),
        # A node without an API gets no key, whatever the environment there has.
        *(f"--env={KEY}" if setup.variables.get(RANK, HEAD) == HEAD else f"--env={KEY}=", f"--env={common.UNCHECKED}"),
        *_of_engine(engine),
        *(_devices(engine) if recipe.hardware is not None else ()),
    )
    words = (*options, setup.image.id, *serve.arguments)
    return ("run", "--detach", f"--label={SETUP}={_digest(words)}", *words)


def is_wanted(container: Container, words: tuple[str, ...], key: str) -> bool:
    """Return whether a container runs, and was started with this command and this API key."""
    label = next(word for word in words if word.startswith(f"--label={SETUP}="))
    same = container.labels.get(SETUP) == label.rpartition("=")[2]
    return container.running and same and container.variables.get(KEY, "") == key


def demand_own(container: Container, name: str) -> None:
    """Refuse to stop a container that somebody else has started under the same name.

    Raises:
        StackError: It has not the labels of this user's server.

    """
    if SETUP not in container.labels:
        raise StackError(f"the container {name} was not started by spark-stack", "rename it, or remove it if nobody needs it")
    user = container.labels.get(USER, str(os.getuid()))
    if user != str(os.getuid()):
        raise StackError(
            f"the container {name} is the server of the user with the id {user:.20}", "that user can stop it: spark-stack down"
        )


def mount(folder: Path) -> tuple[Path, str]:
    """Return the folder to mount for a model, and the model's folder in the container.

    A snapshot of Hugging Face's cache consists of links into a folder beside it: the folder of both is mounted.

    Raises:
        StackError: The folder is gone, a file cannot be read by the image's user, or a link leaves what is mounted.

    """
    real = folder.resolve()
    root, inside = _mounted(real)
    if ":" in str(root):  # a colon ends a path in the engines' mount options
        raise StackError(f"{root} cannot be mounted into a container because of its colon", "rename it")
    if not real.is_dir():
        raise StackError(f"the model's folder {folder} is gone", "name the folder where it is now, with --model")
    for file in sorted(real.iterdir()):
        _demand_readable(file, root)
    return root, inside


def _mounted(folder: Path) -> tuple[Path, str]:
    """Return the folder to mount and the model's one in the container; a snapshot links to files in a folder beside it."""
    top = folder.parents[1] if folder.parent.name == "snapshots" else folder
    if folder == top or not ((top / "blobs").is_dir() or not top.exists()):
        return folder, _MODEL
    return top, f"{_MODEL}/{folder.relative_to(top)}"


def _demand_readable(file: Path, root: Path) -> None:
    try:
        target = file.resolve(strict=True)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "copy or download it again") from failed
    if not target.is_relative_to(root):
        raise StackError(f"{file} is a link to {target}", "name the folder that has the files themselves, with --model")
    wanted, words = (0o5, "o+rx") if target.is_dir() else (0o4, "o+r")
    if target.stat().st_mode & wanted != wanted:
        raise StackError(f"the image's user may not read {target}", f"chmod {words} {target}")


def environment(here: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the engine's command: an API key that is not set is empty, which asks for none."""
    return {**here, KEY: here.get(KEY, "")}


def _shared_network(setup: Setup) -> tuple[str, ...]:
    """Return the options of one of several nodes: the machine's own network, with its RDMA devices."""
    devices = ("--device=/dev/infiniband",) if setup.variables.get(_RDMA) else ()
    # A node without an API answers no health check.
    checks = () if setup.variables[RANK] == "0" else ("--no-healthcheck",)
    return ("--network=host", "--ulimit=memlock=-1:-1", *devices, *checks)


def _of_engine(engine: Engine) -> tuple[str, ...]:
    if engine.name == "docker":
        return ("--init", *_LOGS)
    init = ("--init",) if shutil.which("catatonit") or Path(_INIT).exists() else ()
    # podman runs health checks by timers of systemd.
    return (*init, *_PODMANS_LOG, *(() if _SYSTEMD.exists() else ("--no-healthcheck",)))


def _devices(engine: Engine) -> tuple[str, ...]:
    return ("--gpus=all",) if engine.name == "docker" else ("--device=nvidia.com/gpu=all",)


def _digest(words: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]

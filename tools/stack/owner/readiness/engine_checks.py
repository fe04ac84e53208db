# SPDX-License-Identifier: Apache-2.0
"""Check the container engine, and that its containers get the GPU."""

from collections.abc import Iterator

from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.need import Need
from stack.owner.readiness.remark import Remark, fine, note, wrong

_TOOLKIT = "sudo apt install nvidia-container-toolkit"
_DOCKER_GPU = ("sudo nvidia-ctk runtime configure --runtime=docker", "sudo systemctl restart docker")
_CDI = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_GUIDE = ("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",)


def engine(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check that there is a container engine that answers this user."""
    found = facts.engine
    if not found.name:
        yield wrong(
            "engine",
            "there is no container engine",
            "sudo apt install docker.io",
            shown_by="neither docker nor podman is on PATH",
            advice="DGX OS brings docker with it",
        )
    elif found.denied:
        yield wrong(
            "engine",
            f"this user may not use {found.name}",
            "sudo usermod -aG docker $USER",
            "newgrp docker",
            shown_by=found.problem,
            advice="who is in the group docker can become root on this machine",
        )
    elif found.problem:
        yield wrong(
            "engine",
            f"{found.name} does not answer",
            *(("sudo systemctl enable --now docker",) if found.name == "docker" else ("podman info",)),
            shown_by=found.problem,
        )
    else:
        yield fine("engine", f"{found.name} {found.version}".strip())


def gpu_access(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check that containers get the GPU: by what the engine says, and by a container if one was tried."""
    found = facts.engine
    if not found.name or found.problem or not facts.driver.gpus:
        return
    mend = (*(() if found.toolkit else (_TOOLKIT,)), *(_DOCKER_GPU if found.name == "docker" else (_CDI,)))
    if found.refused is not None:
        yield wrong("gpu-access", "a container does not get the GPU", *mend, shown_by=found.refused, sources=_GUIDE)
    elif found.seen is not None:
        yield fine("gpu-access", f"a container sees {found.seen}")
    elif found.gives_gpus:
        by = "CDI" if found.devices else "NVIDIA's runtime"
        yield fine("gpu-access", f"{found.name} gives containers the GPU by {by}; --try starts one")
    elif found.name == "docker" and found.toolkit:
        # `--gpus` needs only the toolkit's hook, which docker finds on PATH: the runtime need not be registered.
        yield note(
            "gpu-access",
            "NVIDIA's toolkit is installed, but not registered with docker",
            *_DOCKER_GPU,
            shown_by=f"docker's runtimes are {', '.join(found.runtimes) or 'not listed'}",
            advice="`--gpus` may work all the same: --try starts a container that shows it",
            sources=_GUIDE,
        )
    else:
        yield wrong(
            "gpu-access",
            f"{found.name} cannot give containers the GPU",
            *mend,
            shown_by="no runtime of NVIDIA, and no CDI specification for nvidia.com",
            sources=_GUIDE,
        )

# SPDX-License-Identifier: Apache-2.0
"""One job of the list: its command, what it needs of a machine, and the files that it leaves."""

import shlex
from dataclasses import dataclass
from enum import StrEnum

MOST = 256
"""Jobs of one list: GitHub takes no larger matrix."""


class Kind(StrEnum):
    """What a job does."""

    PROOFS = "proofs"
    WHEELS = "wheels"
    IMAGES = "images"
    KERNELS = "kernels"
    SERVERS = "servers"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job needs of its machine.

    `memory` is in 10^9 bytes. `labels` name hardware, such as `sm121`; without them any machine will do. `minutes` is how long the job
    last took on a machine of this user; None: it was not measured.
    """

    cpus: int = 1
    memory: int = 4
    gpus: int = 0
    labels: tuple[str, ...] = ()
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the list.

    `arguments` are those of `stack`. `outputs` are files or folders below the stack's folder that the command leaves. `series` are
    those of a proof. `lane` is None for a job that stands in no lane.
    """

    name: str
    kind: Kind
    arguments: tuple[str, ...]
    needs: Needs
    lane: str | None = None
    outputs: tuple[str, ...] = ()
    series: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command as a person types it in the stack's folder."""
        return shlex.join(("stack", *self.arguments))

# SPDX-License-Identifier: Apache-2.0
"""The other nodes of a server: bring image and model there over the link, start and stop their containers from here."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import last_line, printable, shortened
from stack.deploy.recipes import Recipe
from stack.owner import container as containers
from stack.owner.engine import Engine
from stack.owner.nodes.kept import Member
from stack.owner.nodes.reach import Node
from stack.owner.state import Image, Setup

_PIECE = 2**20
_QUICK = 20.0
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Follower:
    """A node that serves together with this machine, and its engine."""

    member: Member
    engine: Engine

    @property
    def host(self) -> str:
        """The host name, for messages."""
        return self.member.host or self.member.node.name

    def prepare(self, source: Engine, setup: Setup, tell: Progress) -> None:
        """Bring the image and the model there, unless they are; both go over the link.

        Raises:
            StackError: The node is not reached, has no room, or lacks a program.

        """
        link = self._link()
        self._bring_image(source, setup.image, link, tell)
        if setup.model.folder:
            self._bring_model(containers.mount(Path(setup.model.folder))[0], link, tell)

    def words(self, setup: Setup, recipe: Recipe, name: str) -> tuple[str, ...]:
        """Return the engine's command that starts the container there."""
        own = {key: self.member.variables.get(key, value) for key, value in setup.variables.items()}
        return containers.command_of(self.engine, replace(setup, variables=own), recipe, name)

    def runs(self, setup: Setup, recipe: Recipe, name: str) -> bool:
        """Return whether the wanted container runs there.

        Raises:
            StackError: The node is not reached.

        """
        there = self.engine.container(name)
        return there is not None and containers.is_wanted(there, self.words(setup, recipe, name), "")

    def start(self, setup: Setup, recipe: Recipe, name: str, tell: Progress) -> None:
        """Start the container there.

        Raises:
            StackError: It does not start.

        """
        tell(f"starting the container on {self.host}")
        self.engine.run(*self.words(setup, recipe, name))

    def stop(self, name: str, seconds: str, tell: Progress) -> bool:
        """Stop and remove the container there; return whether there was one.

        Raises:
            StackError: The node is not reached, or the container is not this user's server.

        """
        there = self.engine.container(name)
        if there is None:
            self.engine.remove_half_made(name)
            return False
        containers.demand_own(there, f"{name} on {self.host}")
        tell(f"stopping the container on {self.host}")
        self.engine.run("stop", f"--time={seconds}", name)
        self.engine.run("rm", "--force", name)
        return True

    def _link(self) -> Node:
        """Return the node as it is reached over the link; by its own name, if `ssh` does not take it there."""
        over = replace(self.member.node, address=self.member.variables.get("NODE_ADDRESS"))
        try:
            over.script("true", _QUICK)
        except StackError:
            return self.member.node
        return over

    def _bring_image(self, source: Engine, image: Image, link: Node, tell: Progress) -> None:
        if self.engine.image(image.id) is not None:
            return
        size = (source.image(image.id) or {}).get("Size")
        step = f"copying the image to {self.host}"
        tell(step)
        loading = replace(self.engine, node=link).words("load")
        with (
            subprocess.Popen(source.words("save", image.id), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as saver,
            subprocess.Popen(loading, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as loader,
        ):
            assert saver.stdout is not None
            assert loader.stdin is not None
            done = 0
            try:
                while piece := saver.stdout.read(_PIECE):
                    loader.stdin.write(piece)
                    done += len(piece)
                    tell(step, done, size if isinstance(size, int) and size >= done else None)
            except BrokenPipeError:
                saver.kill()
            said = loader.communicate()[1].decode("utf-8", "replace")
        if self.engine.image(image.id) is None:
            raise StackError(
                f"{self.host} did not take the image: {_last(said) or f'{self.engine.name} load does not say why'}",
                "make room there, then run the command again",
            )

    def _bring_model(self, folder: Path, link: Node, tell: Progress) -> None:
        if shutil.which("rsync") is None:
            raise StackError("rsync is missing", "install it on all nodes: sudo apt-get install rsync")
        step = f"copying the model to {self.host}"
        tell(step)
        link.script(f"mkdir -p -- {shlex.quote(str(folder))}", _QUICK)
        # The bytes of a file that was interrupted stay in .rsync-partial, which no server takes for a file of the model.
        words = [
            "rsync",
            "--archive",
            "--protect-args",
            "--partial-dir=.rsync-partial",
            "--info=progress2",
            "--no-inc-recursive",
        ]
        words += ["--exclude=*.incomplete", "--exclude=*.stack-part", f"--rsh={link.remote_shell()}"]
        words += ["--", f"{folder}/", f"{_for_rsync(link.name)}:{folder}/"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as copier:
            assert copier.stdout is not None
            assert copier.stderr is not None
            # It ends a line of progress by a carriage return.
            while piece := copier.stdout.read1(_PIECE):  # type: ignore[attr-defined]  # a pipe's reader has it
                if found := re.findall(rb"(\d{1,3})%", piece):
                    tell(step, int(found[-1]), 100)
            said = copier.stderr.read().decode("utf-8", "replace")
        if copier.returncode:
            raise StackError(
                f"the model does not arrive on {self.host}: {_last(said)}",
                "mend that, then run the command again: it goes on where it was",
            )


def of(members: Sequence[Member], engine: str) -> tuple[Follower, ...]:
    """Return the nodes but this machine; each is taken to have the same engine."""
    return tuple(Follower(member, Engine(engine, member.node)) for member in members if member.node.rank)


def _for_rsync(name: str) -> str:
    """Return a node's name as rsync takes it: two colons behind a name mean a server of rsync's own."""
    user, at, host = name.rpartition("@")
    return f"{user}{at}[{host}]" if ":" in host else name


def _last(output: str) -> str:
    return shortened(printable(last_line(output)), _SHOWN)

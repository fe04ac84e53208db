# SPDX-License-Identifier: Apache-2.0
"""Run a shell script on a node: this machine, or one that `ssh` reaches without asking for anything."""

import re
import shlex
from dataclasses import dataclass

from stack.base import bounded_process
from stack.base.errors import StackError
from stack.base.text import last_line, printable, shortened

_NAME = re.compile(r"(?:[A-Za-z_][\w.-]*@)?[A-Za-z0-9][A-Za-z0-9.:_-]*", re.ASCII)
_MOST = 2**20
"""Bytes of an answer that are read; a node's own are some thousand."""
_SHOWN = 300
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""A password or an unknown host key is an error here: a script that waits for an answer would wait for ever."""

_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi'


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: its name for `ssh`, and its number; number 0 is this machine, which needs no `ssh`.

    `address`: where to reach it in the place of its name's own address; its key is still that of the name.
    """

    name: str
    rank: int
    address: str | None = None

    def shell(self, line: str) -> tuple[str, ...]:
        """Return the command that has a line read by a shell there."""
        return ("sh", "-c", line) if self.rank == 0 else ("ssh", *self._options(), "--", self.name, line)

    def remote_shell(self) -> str:
        """Return the command that `rsync` runs in the place of `ssh`."""
        return shlex.join(("ssh", *self._options()))

    def _options(self) -> tuple[str, ...]:
        if self.address is None:
            return _OPTIONS
        host = self.name.rpartition("@")[2]
        return (*_OPTIONS, "-o", f"HostName={self.address}", "-o", f"HostKeyAlias={host}")

    def script(self, text: str, seconds: float, *, root: bool = False) -> str:
        """Run a shell script there, as root if asked, and return its output.

        Raises:
            StackError: The node is not reached, or the script fails or takes too long.

        """
        try:
            done = bounded_process.run(
                self.shell(_AS_ROOT if root else "exec sh -s"), input_=text.encode(), seconds=seconds, largest=_MOST
            )
        except FileNotFoundError as missing:
            raise StackError("ssh is missing", "install it: sudo apt-get install openssh-client") from missing
        except TimeoutError as late:
            raise StackError(f"{self.name} has not answered within {seconds:.0f} s", f"try: ssh {self.name} true") from late
        except bounded_process.TooMuchError as endless:
            raise StackError(
                f"{self.name} answers without an end", f"see what its shell prints: ssh {self.name} true"
            ) from endless
        if done.code:
            raise StackError(f"{self.name}: {_last(done.errors) or f'exit code {done.code}'}", self._remedy(done.errors))
        return done.output.decode("utf-8", "replace")

    def _remedy(self, stderr: bytes) -> str:
        """Say what to do about a failure of `ssh`."""
        said = stderr.decode("utf-8", "replace")
        if "Host key verification failed" in said:
            return f"log in once by hand and compare the key: ssh {self.name}"
        if "Permission denied" in said:
            return f"give the node your key: ssh-copy-id {self.name}"
        if self.rank and re.search(r"resolve hostname|Connection (?:refused|timed out)|No route to host", said):
            return f"check its name and that it runs sshd: ssh {self.name}"
        return "see what it says on that machine"


def nodes(names: tuple[str, ...]) -> tuple[Node, ...]:
    """Return this machine and the others by their names for `ssh`, in their order.

    Raises:
        StackError: A name is invalid or named twice.

    """
    for place, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise StackError(f"{printable(name)[:60]!r} is not a name for ssh", "write HOST or USER@HOST")
        if name in names[:place]:
            raise StackError(f"{name} is named twice", "name each other machine once")
    return (Node("this machine", 0), *(Node(name, rank) for rank, name in enumerate(names, start=1)))


def _last(output: bytes) -> str:
    return shortened(printable(last_line(output.decode("utf-8", "replace"))), _SHOWN)

# SPDX-License-Identifier: Apache-2.0
"""What builds and runs images: buildah, or podman, which has buildah inside and containers of its own."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import shortened

ENGINES = ("buildah", "podman")
"""In the order in which they are tried."""
_SHOWN = 300
_SHARED = "2g"
"""Of /dev/shm: the processes of a server share memory, and 64 MB, the usual size, are too few."""
CACHE = "/home/stack/.cache"
"""Where an image keeps what it compiles."""
_LABEL = "stack.container"
_ROOTS_HOME = Path("/root")
"""Images close it to everybody but root; a superuser's caches lie below it, by the same path."""
_RUN = ("run", "--rm", "--interactive", "--pull=never", "--entrypoint=")
_CLOSED = "--http-proxy=false"
"""Engines hand on the proxies of their user, whose addresses may have passwords."""
_UMASK = 0o022
"""Rights of files in images are not those that a user likes for files of their own."""
_FORMAT = "docker"
"""OCI's own format has no place for a health check."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to build of a context: a stage of its Dockerfile, with arguments; all times become `time` (seconds since 1970).

    Without `network` what runs in it has none. `platform` is the engine's own unless given (`linux/arm64`).
    """

    context: Path
    target: str
    arguments: Mapping[str, str]
    time: int
    network: bool
    platform: str | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A place to run commands in, of an image of the local storage.

    `home`: an empty folder, open to everybody, that lies over root's own in the image where something below that is lent. A file
    system in memory would not do: runc gives it the rights of what it covers.
    """

    name: str
    image: str
    devices: tuple[str, ...] = ()
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that builds images, by name; as buildah does it."""

    name: str

    def pull(self, image: str, platform: str | None) -> str:
        """The id of an image, fetched into the local storage.

        Raises:
            StackError: it cannot be had.

        """
        return self._run("pull", "--quiet", *_platform(platform), "--", image).strip().rpartition("\n")[2]

    def load(self, layout: str, name: str, platform: str | None) -> str:
        """The name of an image of an OCI layout (`oci:DIR`), once it lies under it in the local storage.

        Raises:
            StackError: it cannot be read.

        """
        _ran(*self.loading(layout, name, platform))
        return name

    @staticmethod
    def loading(layout: str, name: str, platform: str | None) -> tuple[str, ...]:
        """The command that does so."""
        system, _, machine = (platform or "").partition("/")
        wanted = [f"--override-os={system}", f"--override-arch={machine}"] if platform is not None else []
        return ("skopeo", *wanted, "copy", "--quiet", "--", layout, f"containers-storage:{name}")

    def build(self, step: Step, log: Path, tell: Callable[[str], None]) -> str:
        """The id of the image that a step makes; `tell` gets a line an instruction, `log` all that is said.

        Raises:
            StackError: an instruction failed.

        """
        id_file = log.with_name(f"{log.name}.id")
        arguments = [part for name, value in step.arguments.items() for part in ("--build-arg", f"{name}={value}")]
        command = [
            *(self.name, "build", f"--target={step.target}", f"--timestamp={step.time}", f"--format={_FORMAT}"),
            # What took the network is kept for the next build; the rest would be copied once more to be kept.
            *(
                f"--layers={'true' if step.network else 'false'}",
                "--identity-label=false",
                "--pull-never" if self.name == "buildah" else "--pull=never",
            ),
            *(f"--iidfile={id_file}", f"--file={step.context / 'Dockerfile'}"),
            *_apart(step.network),
            *_platform(step.platform),
            *arguments,
            str(step.context),
        ]
        with (
            log.open("a", encoding="utf-8") as kept,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                umask=_UMASK,
            ) as process,
        ):
            assert process.stdout is not None
            last = ""
            for line in process.stdout:
                kept.write(line)
                # What failed says so before the engine repeats the whole instruction.
                last = line.strip() or last if not line.startswith("Error: building at STEP") else last
                if "STEP " in line:
                    tell(_words(line))
        if process.returncode:
            raise StackError(f"{self.name} could not build the stage {step.target}: {shortened(last, _SHOWN)}", f"see {log}")
        return id_file.read_text().strip().removeprefix("sha256:")

    def ask(self, image: str, *command: str) -> str:
        """What a command of root says in an image, without network.

        Raises:
            StackError: it failed.

        """
        container = self._run("from", "--pull-never", "--", image).strip()
        try:
            return self._run("run", "--user=0", *_apart(network=False), "--", container, *command)
        finally:
            self._run("rm", container)

    def manifest(self, name: str) -> bytes:
        """The manifest of an image in the local storage.

        Raises:
            StackError: there is none of that name.

        """
        return _ran("skopeo", "inspect", "--raw", "--", f"containers-storage:{name}").encode()

    def create(self, image: str, name: str, devices: Sequence[str] = (), home: Path | None = None) -> Container:
        """A place to run commands of an image in; what an older one of that name left is removed.

        Raises:
            StackError: a device is not there, or the image.

        """
        made = Container(name, image, tuple(devices), home)
        self.remove(made)
        _ran(*self.creating(made))
        return made

    def creating(self, container: Container) -> tuple[str, ...]:
        """The command that makes a container."""
        lent = [f"--device={one}" for one in container.devices]
        made = (f"--name={container.name}", f"--shm-size={_SHARED}", _CLOSED, *lent)
        return (self.name, "from", "--pull-never", *made, "--", container.image)

    def inside(
        self, container: Container, command: Sequence[str], variables: Mapping[str, str], folders: Sequence[Path], network: bool
    ) -> tuple[str, ...]:
        """The command that runs another one in a container as the image's user; it reads `folders` of this machine as they are here."""
        return (self.name, "run", *_apart(network), *_lent(variables, folders, container.home), "--", container.name, *command)

    def remove(self, container: Container) -> None:
        """Remove a container, if it is there."""
        self._tried("rm", container.name)

    def save(self, image: str, folder: Path) -> None:
        """Write an image into a folder as files: `manifest.json`, and blobs by their hashes.

        Raises:
            StackError: it cannot be written.

        """
        self._run("push", "--quiet", *self._packed(), "--", image, f"dir:{folder}")

    def _packed(self) -> Sequence[str]:
        """How layers are written; the same bytes whoever writes them."""
        return ("--format=v2s2", "--compression-format=gzip")

    def _run(self, *arguments: str) -> str:
        return _ran(self.name, *arguments)

    def _tried(self, *arguments: str) -> str:
        """What a command says, whether it failed or not."""
        command = [self.name, *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


class Podman(Engine):
    """podman: each command has a container of its own; what is compiled in one is kept for the next in a volume."""

    __slots__ = ()

    def ask(self, image: str, *command: str) -> str:
        """What a command of root says in an image, without network.

        Raises:
            StackError: it failed.

        """
        return self._run(*_RUN, *_isolated(network=False), "--user=0", image, *command)

    def creating(self, container: Container) -> tuple[str, ...]:
        """The command that sees that a container can be had: each command has one of its own."""
        return (self.name, *self._first(container), *_isolated(network=False), container.image, "true")

    def inside(
        self, container: Container, command: Sequence[str], variables: Mapping[str, str], folders: Sequence[Path], network: bool
    ) -> tuple[str, ...]:
        """The command that runs another one in a container as the image's user; it reads `folders` of this machine as they are here."""
        own = (*self._first(container), *_isolated(network), *_lent(variables, folders, container.home))
        return (self.name, *own, container.image, *command)

    def remove(self, container: Container) -> None:
        """Remove what was started, if it is there, and what it kept."""
        left = self._tried("ps", "--all", "--quiet", f"--filter=label={_LABEL}={container.name}").split()
        if left:
            self._tried("rm", "--force", "--time=0", *left)
        self._tried("volume", "rm", "--force", container.name)

    def _packed(self) -> Sequence[str]:
        # Into a folder it packs nothing unless it is told to.
        return ("--format=v2s2", "--compress", "--compression-format=gzip")

    @staticmethod
    def _first(container: Container) -> Sequence[str]:
        lent = [f"--device={one}" for one in container.devices]
        kept = f"--volume={container.name}:{CACHE}"
        return (*_RUN, f"--label={_LABEL}={container.name}", f"--shm-size={_SHARED}", _CLOSED, kept, *lent)


def _ran(program: str, *arguments: str) -> str:
    """What a program says."""
    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        umask=_UMASK,
    )
    if done.returncode:
        verb = next(one for one in arguments if not one.startswith("-"))
        raise StackError(f"{program} {verb} failed: {_last(done.stderr)}", "check the image's name, disk space and rights")
    return done.stdout


def found(name: str | None = None) -> Engine:
    """The engine of that name, or the first that works.

    Raises:
        StackError: it does not work here, or none does.

    """
    said = []
    for one in [name] if name is not None else ENGINES:
        problem = _problem(one)
        if problem is None:
            return Podman(one) if one == "podman" else Engine(one)
        said.append(f"{one}: {problem}")
    raise StackError(f"nothing here builds images ({'; '.join(said)})", "apt-get install buildah runc skopeo")


def _problem(name: str) -> str | None:
    if shutil.which(name) is None:
        return "is missing"
    done = subprocess.run(
        [name, "info"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    return _last(done.stderr) if done.returncode else None


def _apart(network: bool) -> Sequence[str]:
    """How commands run: root's share nothing with the host that they need not; chroot, the other way, always has its network."""
    isolation = ["--isolation=oci"] if os.geteuid() == 0 else []
    # crun, the other runtime, fails on machines with hybrid control groups.
    runtime = [f"--runtime={found}"] if (found := _runtime()) else []
    return (*isolation, *runtime, "--network=host" if network else "--network=none")


def _isolated(network: bool) -> Sequence[str]:
    """As `_apart`, for podman's containers, which are always isolated."""
    return [one for one in _apart(network) if not one.startswith("--isolation")]


def _lent(variables: Mapping[str, str], folders: Sequence[Path], home: Path | None) -> Sequence[str]:
    given = [f"--env={name}={value}" for name, value in variables.items()]
    opened = (
        [f"--volume={home}:{_ROOTS_HOME}"]
        if home is not None and any(one.is_relative_to(_ROOTS_HOME) for one in folders)
        else []
    )
    return (*given, *opened, *(f"--volume={folder.resolve()}:{folder}:ro" for folder in folders))


def _runtime() -> str | None:
    return shutil.which("runc")


def _platform(named: str | None) -> Sequence[str]:
    return [f"--platform={named}"] if named is not None else []


def _words(line: str) -> str:
    """`STEP 2/5: RUN …` without what follows its first words."""
    return line.partition("STEP ")[2].strip()[:60]


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return shortened(lines[-1], _SHOWN) if lines else "it said nothing"

# SPDX-License-Identifier: Apache-2.0
"""Build and run images with an engine: buildah, or podman, which contains buildah and manages its own containers."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import last_line, shortened

ENGINES = ("buildah", "podman")
"""In the order in which they are tried."""
_SHOWN = 300
_SHARED = "2g"
"""Size of /dev/shm: a server's processes share memory, and the usual 64 MB do not suffice."""
CACHE = "/home/stack/.cache"
"""The folder in an image for what it compiles."""
_LABEL = "stack.container"
_ROOTS_HOME = Path("/root")
"""Closed in images to everybody but root; a superuser's caches, mounted at the same path, lie below it."""
_RUN = ("run", "--rm", "--interactive", "--pull=never", "--entrypoint=")
_CLOSED = "--http-proxy=false"
"""Do not pass on the user's proxy settings, which may contain passwords."""
_UMASK = 0o022
"""File permissions in images must not depend on the user's umask."""
_FORMAT = "docker"
"""OCI's own format has no field for a health check."""


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One build: a context, a stage of its Dockerfile, and arguments.

    All file times become `time` (seconds since 1970). Commands have no network unless `network` is set. `platform`
    (`linux/arm64`) defaults to the engine's own. `file` is the Dockerfile's path in the context.
    """

    context: Path
    target: str
    arguments: Mapping[str, str]
    time: int
    network: bool
    platform: str | None = None
    file: str = "Dockerfile"


@dataclass(frozen=True, slots=True)
class Container:
    """A container for commands, of an image in the local storage.

    `home` is an empty folder, readable by everybody, mounted over the image's `/root` if a folder below that is mounted. A
    tmpfs would not do: runc gives it the permissions of the folder it covers.
    """

    name: str
    image: str
    devices: tuple[str, ...] = ()
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that builds images, by its program's name; this class implements buildah."""

    name: str

    def pull(self, image: str, platform: str | None) -> str:
        """Pull an image into the local storage, and return its id.

        Raises:
            StackError: it cannot be pulled.

        """
        return self._run("pull", "--quiet", *_platform(platform), "--", image).strip().rpartition("\n")[2]

    def load(self, layout: str, name: str, platform: str | None) -> str:
        """Load an image of an OCI layout (`oci:DIR`) into the local storage under a name, and return the name.

        Raises:
            StackError: it cannot be read.

        """
        _ran(*self.loading(layout, name, platform))
        return name

    @staticmethod
    def loading(layout: str, name: str, platform: str | None) -> tuple[str, ...]:
        """Return the command for `load`."""
        system, _, machine = (platform or "").partition("/")
        wanted = [f"--override-os={system}", f"--override-arch={machine}"] if platform is not None else []
        return ("skopeo", *wanted, "copy", "--quiet", "--", layout, f"containers-storage:{name}")

    def build(self, step: BuildStep, log: Path, tell: Progress) -> str:
        """Build an image, and return its id; `tell` gets a line for each instruction, and `log` the whole output.

        Raises:
            StackError: an instruction failed.

        """
        id_file = log.with_name(f"{log.name}.id")
        arguments = [part for name, value in step.arguments.items() for part in ("--build-arg", f"{name}={value}")]
        command = [
            *(self.name, "build", f"--target={step.target}", f"--timestamp={step.time}", f"--format={_FORMAT}"),
            # Only steps with network are worth caching as layers: caching the others would copy them once more.
            *(
                f"--layers={'true' if step.network else 'false'}",
                "--identity-label=false",
                "--pull-never" if self.name == "buildah" else "--pull=never",
            ),
            *(f"--iidfile={id_file}", f"--file={step.context / step.file}"),
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
                # The last line is the error itself, which the engine follows with the whole failed instruction.
                last = line.strip() or last if not line.startswith("Error: building at STEP") else last
                if "STEP " in line:
                    tell(_words(line))
        if process.returncode:
            raise StackError(f"{self.name} could not build the stage {step.target}: {shortened(last, _SHOWN)}", f"see {log}")
        return id_file.read_text().strip().removeprefix("sha256:")

    def ask(self, image: str, *command: str) -> str:
        """Run a command as root in an image, without network, and return its output.

        Raises:
            StackError: the command failed.

        """
        container = self._run("from", "--pull-never", "--", image).strip()
        try:
            return self._run("run", "--user=0", *_apart(network=False), "--", container, *command)
        finally:
            self._run("rm", container)

    def manifest(self, name: str) -> bytes:
        """Return the manifest of an image in the local storage.

        Raises:
            StackError: there is no image of that name.

        """
        return _ran("skopeo", "inspect", "--raw", "--", f"containers-storage:{name}").encode()

    def create(self, image: str, name: str, devices: Sequence[str] = (), home: Path | None = None) -> Container:
        """Create a container for commands, replacing an older one of that name.

        Raises:
            StackError: a device or the image does not exist.

        """
        made = Container(name, image, tuple(devices), home)
        self.remove(made)
        _ran(*self.creating(made))
        return made

    def creating(self, container: Container) -> tuple[str, ...]:
        """Return the command that creates a container."""
        lent = [f"--device={device}" for device in container.devices]
        made = (f"--name={container.name}", f"--shm-size={_SHARED}", _CLOSED, *lent)
        return (self.name, "from", "--pull-never", *made, "--", container.image)

    def inside(
        self, container: Container, command: Sequence[str], variables: Mapping[str, str], folders: Sequence[Path], network: bool
    ) -> tuple[str, ...]:
        """Return the command that runs another command in a container as the image's user; it may read `folders`, at the same paths."""
        return (self.name, "run", *_apart(network), *_lent(variables, folders, container.home), "--", container.name, *command)

    def remove(self, container: Container) -> None:
        """Remove a container if it exists."""
        self._tried("rm", container.name)

    def save(self, image: str, folder: Path) -> None:
        """Write an image into a folder: `manifest.json`, and blobs named by their hashes.

        Raises:
            StackError: it cannot be written.

        """
        self._run("push", "--quiet", *self._packed(), "--", image, f"dir:{folder}")

    def _packed(self) -> Sequence[str]:
        """Options for writing layers, with which every engine writes the same bytes."""
        return ("--format=v2s2", "--compression-format=gzip")

    def _run(self, *arguments: str) -> str:
        return _ran(self.name, *arguments)

    def _tried(self, *arguments: str) -> str:
        """Run a command that may fail, and return its output."""
        command = [self.name, *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


class Podman(Engine):
    """podman: each command has its own container; compiled files are kept in a volume for the next one."""

    __slots__ = ()

    def ask(self, image: str, *command: str) -> str:
        """Run a command as root in an image, without network, and return its output.

        Raises:
            StackError: the command failed.

        """
        return self._run(*_RUN, *_isolated(network=False), "--user=0", image, *command)

    def creating(self, container: Container) -> tuple[str, ...]:
        """Return a command that checks that a container can be created; each command creates its own."""
        return (self.name, *self._first(container), *_isolated(network=False), container.image, "true")

    def inside(
        self, container: Container, command: Sequence[str], variables: Mapping[str, str], folders: Sequence[Path], network: bool
    ) -> tuple[str, ...]:
        """Return the command that runs another command in a container as the image's user; it may read `folders`, at the same paths."""
        own = (*self._first(container), *_isolated(network), *_lent(variables, folders, container.home))
        return (self.name, *own, container.image, *command)

    def remove(self, container: Container) -> None:
        """Remove the containers that were started, and their volume."""
        left = self._tried("ps", "--all", "--quiet", f"--filter=label={_LABEL}={container.name}").split()
        if left:
            self._tried("rm", "--force", "--time=0", *left)
        self._tried("volume", "rm", "--force", container.name)

    def _packed(self) -> Sequence[str]:
        # Without `--compress`, podman writes uncompressed layers into a folder.
        return ("--format=v2s2", "--compress", "--compression-format=gzip")

    @staticmethod
    def _first(container: Container) -> Sequence[str]:
        lent = [f"--device={device}" for device in container.devices]
        kept = f"--volume={container.name}:{CACHE}"
        return (*_RUN, f"--label={_LABEL}={container.name}", f"--shm-size={_SHARED}", _CLOSED, kept, *lent)


def _ran(program: str, *arguments: str) -> str:
    """Run a program, and return its output."""
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
        verb = next(argument for argument in arguments if not argument.startswith("-"))
        raise StackError(f"{program} {verb} failed: {_last(done.stderr)}", "check the image's name, disk space and rights")
    return done.stdout


def found(name: str | None = None) -> Engine:
    """Find the engine of a name, or the first that works.

    Raises:
        StackError: the named engine, or every engine, does not work here.

    """
    problems = []
    for candidate in [name] if name is not None else ENGINES:
        problem = _problem(candidate)
        if problem is None:
            return Podman(candidate) if candidate == "podman" else Engine(candidate)
        problems.append(f"{candidate}: {problem}")
    raise StackError(f"no program here builds images ({'; '.join(problems)})", "apt-get install buildah runc skopeo")


def _problem(name: str) -> str | None:
    if shutil.which(name) is None:
        return "is missing"
    done = subprocess.run(
        [name, "info"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    return _last(done.stderr) if done.returncode else None


def _apart(network: bool) -> Sequence[str]:
    """Return the isolation options: as root, isolate commands from the host; without root, chroot isolation always has the host's network."""
    isolation = ["--isolation=oci"] if os.geteuid() == 0 else []
    # crun, the other runtime, fails on machines with hybrid control groups (cgroups).
    runtime = [f"--runtime={found}"] if (found := _runtime()) else []
    return (*isolation, *runtime, "--network=host" if network else "--network=none")


def _isolated(network: bool) -> Sequence[str]:
    """Return the options of `_apart` for podman, whose containers are always isolated."""
    return [option for option in _apart(network) if not option.startswith("--isolation")]


def _lent(variables: Mapping[str, str], folders: Sequence[Path], home: Path | None) -> Sequence[str]:
    given = [f"--env={name}={value}" for name, value in variables.items()]
    opened = (
        [f"--volume={home}:{_ROOTS_HOME}"]
        if home is not None and any(folder.is_relative_to(_ROOTS_HOME) for folder in folders)
        else []
    )
    return (*given, *opened, *(f"--volume={folder.resolve()}:{folder}:ro" for folder in folders))


def _runtime() -> str | None:
    return shutil.which("runc")


def _platform(named: str | None) -> Sequence[str]:
    return [f"--platform={named}"] if named is not None else []


def _words(line: str) -> str:
    """Return the start of an instruction from a line `STEP 2/5: RUN …`."""
    return line.partition("STEP ")[2].strip()[:60]


def _last(output: str) -> str:
    return shortened(last_line(output), _SHOWN) or "no message"

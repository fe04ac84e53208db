# SPDX-License-Identifier: Apache-2.0
"""What builds images: buildah."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.errors import StackError

ENGINES = ("buildah",)
"""In the order in which they are tried."""
_SHOWN = 300
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
class Engine:
    """A program that builds images, by name."""

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
        system, _, machine = (platform or "").partition("/")
        wanted = [f"--override-os={system}", f"--override-arch={machine}"] if platform is not None else []
        _ran("skopeo", *wanted, "copy", "--quiet", "--", layout, f"containers-storage:{name}")
        return name

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
            raise StackError(f"{self.name} could not build the stage {step.target}: {last[:_SHOWN]}", f"see {log}")
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

    def save(self, image: str, folder: Path) -> None:
        """Write an image into a folder as files: `manifest.json`, and blobs by their hashes.

        Raises:
            StackError: it cannot be written.

        """
        self._run("push", "--quiet", "--format=v2s2", "--compression-format=gzip", "--", image, f"dir:{folder}")

    def _run(self, *arguments: str) -> str:
        return _ran(self.name, *arguments)


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
            return Engine(one)
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


def _runtime() -> str | None:
    return shutil.which("runc")


def _platform(named: str | None) -> Sequence[str]:
    return [f"--platform={named}"] if named is not None else []


def _words(line: str) -> str:
    """`STEP 2/5: RUN …` without what follows its first words."""
    return line.partition("STEP ")[2].strip()[:60]


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:_SHOWN] if lines else "it said nothing"

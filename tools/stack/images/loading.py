# SPDX-License-Identifier: Apache-2.0
"""Load an image of a layout into Docker or podman, or write it as an archive or another layout."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.images import combining, docker_archive, image, layout, processors, reference
from stack.images.image import Platform
from stack.images.reference import Reference
from stack.store import cache

PROGRAMS = ("docker", "podman")
"""In the order in which they are tried."""
ARCHIVE = "docker-archive:"
LAYOUT = "oci:"
REPOSITORY = "localhost/stack"
"""Where images get their names on a machine; compose files and `spark-stack` are given such a name."""
_VERSION = "org.opencontainers.image.version"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded image: its name, the digest of its manifest in the layout, its platform, and where it is now."""

    name: str
    digest: str
    platform: str
    to: str


def chosen(source: Reference, platform: str | None) -> Platform:
    """Return the image of a layout for a platform: of an index, that of this machine unless one is named.

    Raises:
        StackError: The layout cannot be read, or has no image for the platform.

    """
    found = image.read(source)
    names = [one.name for one in found.platforms]
    wanted = platform or (names[0] if len(names) == 1 else f"linux/{processors.own()}")
    if wanted not in names:
        raise StackError(f"{source.shown} has no image for {wanted}", f"it has {', '.join(names)}: name one with --platform")
    return found.platforms[names.index(wanted)]


def default_name(platform: Platform) -> str:
    """Return the name of an image on a machine: `localhost/stack:VERSION`, with the version of its label."""
    version = platform.labels.get(_VERSION, "")
    tag = re.sub(r"[^A-Za-z0-9_.-]", "-", version)[:128]
    return f"{REPOSITORY}:{tag if re.fullmatch(reference.TAG, tag) else platform.digest.removeprefix('sha256:')[:12]}"


def load(source: Reference, platform: Platform, name: str, to: str | None, tell: Callable[[str], None]) -> Loaded:
    """Load an image under a name: `to` is `docker`, `podman`, `docker-archive:FILE` or `oci:DIR`; by default the first program here.

    Raises:
        StackError: The image is damaged, the place is invalid, or the program fails or stores another image.

    """
    named = reference.parse(name)
    if named.layout or named.tag is None:
        raise StackError(f"--name {name!r:.200} is not a name with a tag", f"write it as {REPOSITORY}:1")
    folder, place = Path(source.place), to or _program()
    tell(f"loading {platform.digest[:19]} into {place}")
    if place in PROGRAMS:
        _into_program(folder, platform, named.shown, place)
    elif place.startswith(ARCHIVE) and (file := place.removeprefix(ARCHIVE)):
        _into_archive(folder, platform, named.shown, Path(file))
    elif place.startswith(LAYOUT) and (target := place.removeprefix(LAYOUT)):
        _into_layout(folder, platform, named, Path(target))
    else:
        raise StackError(
            f"--to {place!r:.200} is not a place for an image", "write docker, podman, docker-archive:FILE or oci:DIR"
        )
    return Loaded(named.shown, platform.digest, platform.name, place)


def _program() -> str:
    found = next((program for program in PROGRAMS if shutil.which(program)), None)
    if found is None:
        raise StackError("neither docker nor podman is on PATH", "install one, or write a file: --to docker-archive:FILE")
    return found


def _into_program(folder: Path, platform: Platform, name: str, program: str) -> None:
    try:
        process = subprocess.Popen(
            [program, "load", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as missing:
        raise StackError(
            f"{program} cannot be started ({missing.strerror})", f"install {program}, or name another place"
        ) from missing
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            docker_archive.write(folder, platform, name, process.stdin)
            process.stdin.close()
        except BrokenPipeError:
            pass  # the program has ended, and says why
        except BaseException:
            process.kill()
            raise
        said = process.stdout.read().decode("utf-8", "replace").strip()
    if process.returncode:
        raise StackError(f"{program} load failed: {said[-300:] or 'no message'}", f"check that {program} works: {program} info")
    _demand_same(folder, platform, name, program)


def _demand_same(folder: Path, platform: Platform, name: str, program: str) -> None:
    """Compare the layers that the program has under the name now with those of the image."""
    wanted = json.loads(layout.blob(folder, platform.config))["rootfs"]["diff_ids"]
    command = [program, "image", "inspect", "--format", "{{json .RootFS.Layers}}", name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or _bare(json.loads(done.stdout)) != _bare(wanted):
        raise StackError(f"{program} has another image as {name} after loading", f"look at it: {program} image inspect {name}")


def _bare(digests: Sequence[str]) -> list[str]:
    """Return digests without the name of their algorithm, which podman leaves out."""
    return [digest.removeprefix("sha256:") for digest in digests]


def _into_archive(folder: Path, platform: Platform, name: str, file: Path) -> None:
    try:
        with cache.appearing(file) as out:
            docker_archive.write(folder, platform, name, out)
    except OSError as failed:
        raise StackError(
            f"{file} cannot be written ({failed.strerror})", "check the folder, its rights and the disk space"
        ) from failed


def _into_layout(folder: Path, platform: Platform, name: Reference, target: Path) -> None:
    """Write a new layout with this image only, in one step."""
    if target.exists():
        raise StackError(f"{target} exists", "name a new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as work:
        made = Path(work) / "layout"
        for digest in (platform.digest, platform.config, *(layer.digest for layer in platform.layers)):
            combining.bring(folder, made, digest)
        manifest = layout.blob(made, platform.digest)
        kind = image.kind(manifest, Reference(str(made), layout=True))
        system, _, processor = platform.name.partition("/")
        described = {"mediaType": kind, "digest": platform.digest, "size": len(manifest)}
        layout.finish(made, {name.tag or "": {**described, "platform": {"os": system, "architecture": processor}}})
        made.rename(target)

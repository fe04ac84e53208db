# SPDX-License-Identifier: Apache-2.0
"""Make a base image of Debian packages, for any processor, where no image registry can be reached.

mmdebstrap chooses, verifies and unpacks the packages; dpkg of the new system installs them there, under qemu where it is for another
processor. The same packages give the same bytes: what names the hour, the machine or the mirror is removed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.images import confined, emulation, layout
from stack.images.reference import Reference

PROGRAMS = ("mmdebstrap", "proot")
_UNREAD = ("doc", "info", "locale", "man")
_ALWAYS = ("ca-certificates",)
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHIVE = "http://deb.debian.org/debian"
_DEBS = "var/cache/apt/archives"
_REMOVED = (
    *(
        "var/lib/apt/lists/*",
        "var/cache/apt/*",
        "var/cache/ldconfig/aux-cache",
        "var/log/apt",
        "var/log/*.log",
        "var/lib/dpkg/*-old",
    ),
    *(
        "var/cache/debconf/*-old",
        "etc/*-",
        "etc/machine-id",
        "etc/hostname",
        "etc/resolv.conf",
        "var/lib/systemd/catalog/database",
    ),
    *("var/lib/dpkg/lock*", "var/lib/dpkg/triggers/Lock", "tmp/*", "run/*", "etc/apt/apt.conf.d/99mmdebstrap"),
    *("etc/apt/sources.list.d/*", "var/lib/dpkg/arch"),
)
"""Patterns of files that name the hour or the machine, or are only kept to be faster."""


@dataclass(frozen=True, slots=True)
class DebianOrder:
    """A system to be made: the suite (`bookworm`), Debian's name of the processor, and packages.

    `mirrors` are apt's source lines or addresses in place of those that mmdebstrap takes by itself.
    """

    suite: str
    architecture: str
    packages: tuple[str, ...]
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeBase:
    """A base image: its layout, and the day of the newest list of packages that it was made of (`20261127`).

    `confined`: the packages' own scripts could not reach this machine while they were set up.
    """

    layout: Reference
    day: str
    confined: bool


def make(order: DebianOrder, folder: Path, tell: Progress) -> MadeBase:
    """Make a base image in a new layout. Needs root, as files of several users are written.

    All files get the time of the newest list of packages.

    Raises:
        StackError: A program is missing, you are not root, or a package cannot be obtained or installed.

    """
    _demand()
    with tempfile.TemporaryDirectory(prefix="debian-", dir=folder.parent) as name:
        root = Path(name) / "root"
        tell(f"packages of {order.suite} for {order.architecture}")
        _unpack(order, root, Path(name))
        time = _time(root)
        tell(f"installing {len(list((root / _DEBS).glob('*.deb')))} packages for {order.architecture}")
        confined_ = _install(order, root, time)
        _clean(order, root)
        tell("writing the base image")
        made = Path(name) / "layout"
        _write(order, root, time, made)
        made.rename(folder)
    day = datetime.fromtimestamp(time, UTC).strftime("%Y%m%d")
    return MadeBase(Reference(str(folder), layout=True), day, confined=confined_)


def _demand() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise StackError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            "apt-get install mmdebstrap proot qemu-user-static debian-archive-keyring",
        )
    if os.geteuid():
        raise StackError(
            "a base image is made as root only",
            # sudo has another PATH and another cache, in which `stack image build` would not find the base.
            'sudo "$(command -v stack)" --cache ~/.cache/stack image base, or name another base: stack pins set base IMAGE:TAG',
        )


def _unpack(order: DebianOrder, root: Path, work: Path) -> None:
    """Download the essential packages and those that were asked for, with all that they need, and unpack them."""
    wanted = ("?essential", ",".join(sorted({*order.packages, *_ALWAYS})))
    _run(
        work,
        "mmdebstrap",
        *("--quiet", "--mode=root", "--variant=extract", f"--architectures={order.architecture}"),
        *(f"--include={packages}" for packages in wanted),
        # The packages are installed below, so neither does mmdebstrap need an emulator, nor may it remove them.
        *("--skip=check/qemu,cleanup/apt,cleanup/reproducible", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
        *(order.suite, str(root), *order.mirrors),
    )


def _time(root: Path) -> int:
    """Return the time of the newest list of packages, in seconds since 1970."""
    lists = (path.read_text(errors="replace") for path in (root / "var/lib/apt/lists").glob("*Release"))
    dates = [parsedate_to_datetime(match[1]) for text in lists if (match := re.search(r"^Date: (.+)$", text, re.MULTILINE))]
    if not dates:
        raise StackError("the mirror's list of packages has no date", "name another one with --mirror")
    return int(max(dates).timestamp())


def _install(order: DebianOrder, root: Path, time: int) -> bool:
    """Install the unpacked packages by the new system's own dpkg; return whether their scripts were confined."""
    excluded = "".join(f"path-exclude=/usr/share/{name}/*\n" for name in _UNREAD)
    (root / "etc/dpkg/dpkg.cfg.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/dpkg/dpkg.cfg.d/unread").write_text(excluded)
    variables = {
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
        "SOURCE_DATE_EPOCH": str(time),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    walls = confined.command(root.parent)

    def there(*words: str) -> str:
        return _run(root.parent, *(walls or ()), *emulation.command(root, order.architecture, words, variables))

    # All at once, without looking at Pre-Depends: each package is unpacked already, so what installs one is there.
    install = "dpkg --force-depends --force-unsafe-io --force-confnew --install"
    for script in (
        f"{install} /{_DEBS}/base-passwd_*.deb /{_DEBS}/base-files_*.deb",
        f"{install} /{_DEBS}/*.deb",
        "dpkg --configure --pending",
    ):
        there("/bin/sh", "-ec", script)
    broken = there("dpkg", "--audit").strip()
    if broken:
        raise StackError(f"packages for {order.architecture} are not installed: {broken[:300]}", "report it")
    return walls is not None


def _clean(order: DebianOrder, root: Path) -> None:
    for pattern in _REMOVED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for folder in ("usr/lib", "usr/share"):
        for path in sorted((root / folder).rglob("__pycache__")):
            shutil.rmtree(path)
    for name in _UNREAD:
        for path in (root / "usr/share" / name).glob("*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc/apt/sources.list").write_text(_sources(order.suite))
    (root / "etc/machine-id").write_text("")


def _sources(suite: str) -> str:
    """Return apt's sources for the image: Debian's own addresses, not the mirror of the machine that made it."""
    security = "http://deb.debian.org/debian-security"
    return "".join(
        f"deb {place} {name} main\n"
        for place, name in ((_ARCHIVE, suite), (_ARCHIVE, f"{suite}-updates"), (security, f"{suite}-security"))
    )


def _write(order: DebianOrder, root: Path, time: int, folder: Path) -> None:
    """Write the layout of an image of one layer, which is not compressed: each zlib would give other bytes."""
    folder.mkdir()
    layer = folder / "layer.tar"
    with tarfile.open(layer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, str(path.relative_to(root)), recursive=False, filter=partial(_steady, time))
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    size = layer.stat().st_size
    target = layout.place(folder, digest)
    target.parent.mkdir(parents=True)
    layer.rename(target)
    created = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": order.architecture,
        "os": "linux",
        "created": created,
        "config": {"Env": [f"PATH={emulation.PATH}"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
        "history": [{"created": created, "created_by": f"mmdebstrap {order.suite}"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": layout.MANIFEST,
        "config": layout.put(folder, layout.encode(config), layout.CONFIG),
        "layers": [{"mediaType": _LAYER, "digest": digest, "size": size}],
    }
    platform = {"os": "linux", "architecture": order.architecture}
    layout.finish(folder, {order.suite: layout.put(folder, layout.encode(manifest), layout.MANIFEST, platform=platform)})


def _steady(time: int, member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Remove what differs between machines; devices and sockets are left out."""
    member.mtime, member.uname, member.gname = time, "", ""
    return None if member.isdev() else member


def _run(work: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        umask=0o022,
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        first = next((line for line in lines if re.search(r"\b(?:error|E:)", line)), lines[-1] if lines else "no message")
        raise StackError(f"{command[0]} failed: {first[:300]}", "check the network, the suite's name and the disk space")
    return done.stdout

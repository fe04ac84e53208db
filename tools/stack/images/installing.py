# SPDX-License-Identifier: Apache-2.0
"""Install wheels for an image on this machine: unpacking runs none of their code, so the image may be for another processor."""

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import installer
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.sources import WheelFile
from installer.utils import Scheme

from stack.base.errors import StackError
from stack.images.system import Python

PREFIX = PurePosixPath("/opt/stack")
"""Where an image has its environment."""
_CUDA = PurePosixPath("/usr/local/cuda")
"""Where FlashInfer, PyTorch and Triton look for CUDA's compiler."""


def install(wheels: Sequence[Path], python: Python, root: Path, *, link_cuda: bool) -> None:
    """Install wheels into the environment /opt/stack below `root`, in the order given.

    Where two wheels have the same file, that of the later one stays: the stack's own come last. `link_cuda` gives CUDA's compiler,
    if it came as wheels, the place where build tools look for it.

    Raises:
        StackError: A wheel is broken.

    """
    place = root / PREFIX.relative_to("/")
    site = PREFIX / f"lib/python{python.short}/site-packages"
    _environment(place, python)
    for path in wheels:
        name = path.name.partition("-")[0]
        scheme = {
            **dict.fromkeys(("purelib", "platlib"), str(site)),
            "headers": str(PREFIX / f"include/site/python{python.short}" / name),
            "scripts": str(PREFIX / "bin"),
            "data": str(PREFIX),
        }
        destination = _Destination(scheme, str(PREFIX / "bin/python"), "posix", destdir=str(root), overwrite_existing=True)
        try:
            with warnings.catch_warnings(), WheelFile.open(path) as source:
                # Byte code in a wheel is left out, and said so.
                warnings.simplefilter("ignore", RuntimeWarning)
                installer.install(source, destination, {"INSTALLER": b"stack\n"})
        except (InstallerError, ValueError, OSError, zipfile.BadZipFile) as bad:
            raise StackError(f"{path.name} cannot be installed ({bad})", "fetch it again: stack cache prune") from bad
    if link_cuda:
        _link_cuda(root, site)
    _same_rights(root)


class _Destination(SchemeDictionaryDestination):
    """A folder to install into; no file is written through a link: the environment's lead to this machine's Python."""

    def _path_with_destdir(self, scheme: Scheme, path: str) -> Path:
        target = super()._path_with_destdir(scheme, path)
        assert self.destdir is not None
        root = Path(self.destdir)
        inside = target.relative_to(root).parents
        if target.is_symlink() or any((root / each).is_symlink() for each in inside):
            raise ValueError(f"{path} would be written through a link")
        return target


def _environment(place: Path, python: Python) -> None:
    """Make a virtual environment of the system's Python, as `python3 -m venv --without-pip` does."""
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python.version}\n")
    (place / "bin/python3").symlink_to("/usr/bin/python3")
    for name in ("python", f"python{python.short}"):
        (place / "bin" / name).symlink_to("python3")


def _link_cuda(root: Path, site: PurePosixPath) -> None:
    """Give CUDA's compiler the place and the names that build tools know, if it came as wheels.

    The wheels have libraries under the name that programs load (`libcudart.so.13`), not the one that linkers look for.
    """
    for nvcc in sorted((root / site.relative_to("/")).glob("nvidia/cu*/bin/nvcc")):
        home = nvcc.parents[1]
        (home / "lib64").symlink_to("lib")
        for library in sorted((home / "lib").glob("lib*.so.*")):
            name = library.with_name(f"{library.name.partition('.so.')[0]}.so")
            if not name.exists():
                name.symlink_to(library.name)
        link = root / _CUDA.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(PurePosixPath("/", home.relative_to(root)))


def _same_rights(root: Path) -> None:
    """Set the same permissions for any umask."""
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)

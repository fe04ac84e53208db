# SPDX-License-Identifier: Apache-2.0
"""Remove the images of other GPUs from a shared library, in place.

nvcc puts the fat binary of every source into the section `.nv_fatbin`. It is a sequence of containers, each with a header and images
for several GPUs, and each image has its own header. NVIDIA's `nvprune` removes images from object files and static libraries only.
NVIDIA does not document the containers. A test (tests/validation/pack/test_fatbin_real.py) verifies these offsets: NVIDIA's
`cuobjdump` must find the same images in a library before and after.

An image that the GPU cannot use is overwritten with zeros, and its header stays. So nothing moves, the driver still selects images by
their headers, and zeros take almost no room in an archive.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stack.base.errors import StackError

_SECTION = b".nv_fatbin"
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of what follows it
_MAGIC = 0xBA55ED50
_IMAGE = struct.Struct("<HHIQII HHI QQ")
# kind, version, bytes of this header, bytes of the image, compressed bytes of it, offset of options, minor and major version of
# the code, GPU, position and length of a name, flags
_SPECIFIC = 0x0010_0000
"""Flag of an image for one GPU only (sm_90a)."""
_FAMILY = 0x0020_0000
"""Flag of an image for a family of GPUs (sm_120f)."""
_ELF = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


class ImageKind(IntEnum):
    """Type of an image."""

    PTX = 1
    CUBIN = 2


@dataclass(frozen=True, slots=True)
class Image:
    """One image: its position in the file, its GPU (90 for sm_90), and its container."""

    container: int
    kind: ImageKind
    gpu: int
    start: int
    size: int
    compressed: bool
    specific: bool = False
    family: bool = False

    @property
    def end(self) -> int:
        """Position after its last byte in the file."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Thinned:
    """A library without the images of other GPUs, with the images that were kept and dropped."""

    data: bytes
    kept: tuple[Image, ...]
    dropped: tuple[Image, ...]


def images(data: bytes, name: str) -> tuple[Image, ...]:
    """List the images in a library; empty if it has no code for GPUs.

    Raises:
        StackError: it is not a 64-bit ELF file, or its containers have an unknown form.

    """
    section = _section(data, name)
    if section is None:
        return ()
    start, end = section
    return tuple(_contained(data, start, end, name))


def thin(data: bytes, gpu: int, name: str, kernels: str | None = None) -> Thinned:
    """Keep only the images that a GPU uses: its own code, or in a container without such, the newest PTX that it can compile.

    `gpu` is 90 for compute capability 9.0. `kernels` is a pattern: uncompressed images in which no name matches are dropped, too.

    Raises:
        StackError: the library cannot be read (see `images`).

    """
    all_images = images(data, name)
    containers: dict[int, list[Image]] = {}
    for image in all_images:
        containers.setdefault(image.container, []).append(image)
    wanted = {image for inside in containers.values() for image in used(inside, gpu)}
    if kernels is not None:
        pattern = re.compile(kernels.encode())
        wanted = {image for image in wanted if image.compressed or pattern.search(data, image.start, image.end)}
    changed = bytearray(data)
    dropped = tuple(image for image in all_images if image not in wanted)
    for image in dropped:
        changed[image.start : image.end] = bytes(image.size)
    return Thinned(bytes(changed), tuple(image for image in all_images if image in wanted), dropped)


def used(inside: Sequence[Image], gpu: int) -> tuple[Image, ...]:
    """Select the images of a container that the driver may use on a GPU: its machine code, else the newest PTX for it."""
    own = tuple(image for image in inside if image.kind is ImageKind.CUBIN and _runs(image, gpu))
    if own:
        return own
    suiting = [image for image in inside if image.kind is ImageKind.PTX and _compiles(image, gpu)]
    newest = max((image.gpu for image in suiting), default=None)
    return tuple(image for image in suiting if image.gpu == newest)


def _runs(image: Image, gpu: int) -> bool:
    """Return whether machine code runs on a GPU: on its own, and on later ones of the same major version unless it is for one GPU only."""
    return image.gpu == gpu or (not image.specific and image.gpu // 10 == gpu // 10 and image.gpu < gpu)


def _compiles(image: Image, gpu: int) -> bool:
    """Return whether PTX compiles for a GPU: for its own, and for every later one unless it is for one GPU or family only."""
    return image.gpu == gpu or (not image.specific and not image.family and image.gpu < gpu)


def _section(data: bytes, name: str) -> tuple[int, int] | None:
    """Find the begin and end of the section with the containers; None if there is none."""
    if len(data) < _ELF.size or data[:6] != b"\x7fELF\x02\x01":
        raise StackError(f"{name} is not a 64-bit library", "fetch the wheel again")
    header = _ELF.unpack_from(data)
    table, size, count, names_at = header[6], header[11], header[12], header[13]
    if size != _ELF_SECTION.size or table + size * count > len(data) or names_at >= count:
        raise StackError(f"{name} has a broken section table", "fetch the wheel again")
    sections = [_ELF_SECTION.unpack_from(data, table + size * place) for place in range(count)]
    names = sections[names_at][4]
    for section in sections:
        at = names + section[0]
        if data[at : data.find(b"\0", at)] == _SECTION:
            start, length = section[4], section[5]
            if start + length > len(data):
                raise StackError(f"{name} ends before its section {_SECTION.decode()} does", "fetch the wheel again")
            return start, start + length
    return None


def _contained(data: bytes, start: int, end: int, name: str) -> Iterator[Image]:
    place = start
    while place < end:
        if end - place < _CONTAINER.size:
            raise _unknown(name, place)
        magic, _, header, size = _CONTAINER.unpack_from(data, place)
        if magic != _MAGIC or header < _CONTAINER.size or place + header + size > end:
            raise _unknown(name, place)
        yield from _images(data, place, place + header, place + header + size, name)
        place += header + size
        while place < end and data[place : place + 1] == b"\0":  # containers are aligned
            place += 1


def _images(data: bytes, container: int, place: int, end: int, name: str) -> Iterator[Image]:
    while place < end:
        if end - place < _IMAGE.size:
            raise _unknown(name, place)
        kind, _, header, size, compressed, _, _, _, gpu, _, flags = _IMAGE.unpack_from(data, place)
        if kind not in tuple(ImageKind) or header < _IMAGE.size or place + header + size > end:
            raise _unknown(name, place)
        yield Image(
            container,
            ImageKind(kind),
            gpu,
            place + header,
            size,
            compressed=compressed > 0,
            specific=bool(flags & _SPECIFIC),
            family=bool(flags & _FAMILY),
        )
        place += header + size


def _unknown(name: str, place: int) -> StackError:
    return StackError(
        f"{name}: unknown form of a fat binary at byte {place}",
        "NVIDIA's format may have changed: compare with cuobjdump --list-elf",
    )

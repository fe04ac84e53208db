# SPDX-License-Identifier: Apache-2.0
"""What is read from layers is what their digests say, of whole archives that stay in the image."""

from pathlib import Path, PurePosixPath

import pytest

from stack.base.errors import StackError
from stack.images import image, layers, layout
from stack.images.image import Platform
from stack.images.reference import Reference

from . import factories

BELOW = PurePosixPath("/usr/share")
FILE = "usr/share/pins.toml"
BYTES = bytes(range(256)) * 40
"""More than a header and its padding: it can be cut in the middle."""


def made(folder: Path, files: dict[str, bytes]) -> Platform:
    factories.image(folder, {}, files)
    (platform,) = image.read(Reference(str(folder), layout=True)).platforms
    return platform


def refusals(folder: Path, platform: Platform) -> set[str]:
    """How a layer is refused where its files are read, and where it is only looked at."""
    found = set()
    for look in (
        lambda: layers.read(folder, platform, BELOW),
        lambda: layers.check(image.read(Reference(str(folder), layout=True))),
    ):
        with pytest.raises(StackError) as refused:
            look()
        found.add(str(refused.value).replace(platform.layers[0].digest, "DIGEST"))
    return found


def test_files_below_a_folder(tmp_path: Path) -> None:
    platform = made(tmp_path, {FILE: BYTES, "usr/bin/serve": b"no"})
    assert layers.read(tmp_path, platform, BELOW) == {PurePosixPath("pins.toml"): BYTES}


def test_a_file_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = factories.layer
    monkeypatch.setattr(factories, "layer", lambda files: whole(files)[:5000])
    platform = made(tmp_path, {FILE: BYTES})
    (said,) = refusals(tmp_path, platform)
    assert said.startswith("the layer DIGEST is not a complete archive (")


def test_what_leaves_the_image_behind_what_is_wanted(tmp_path: Path) -> None:
    platform = made(tmp_path, {FILE: BYTES, "../x": b"evil"})
    assert refusals(tmp_path, platform) == {"the layer DIGEST writes outside the image ('../x'): do not use it"}


def test_nothing_in_a_layer_is_believed_before_its_digest(tmp_path: Path) -> None:
    platform = made(tmp_path / "one", {FILE: BYTES})
    other = made(tmp_path / "other", {"../x": b"evil"})
    place = layout.place(tmp_path / "one", platform.layers[0].digest)
    place.write_bytes(layout.place(tmp_path / "other", other.layers[0].digest).read_bytes())
    (said,) = refusals(tmp_path / "one", platform)
    assert said.endswith("the layer DIGEST does not match its digest: copy the image again")


def test_a_layer_that_is_missing(tmp_path: Path) -> None:
    platform = made(tmp_path, {FILE: BYTES})
    layout.place(tmp_path, platform.layers[0].digest).unlink()
    (said,) = refusals(tmp_path, platform)
    assert "lacks the layer DIGEST (No such file" in said

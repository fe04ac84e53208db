# SPDX-License-Identifier: Apache-2.0
"""The kernels' cases of an archive: those of SM120's kernels are among them, with the library that the archive carries."""

from pathlib import Path

from laboratory.target.numerics import Numerics
from stack.validation.numerics.tiles import TILES
from stack.validation.pack.contents import EMULATED

ROOT = Path(__file__).parents[3]


def test_an_archive_asks_for_the_kernels_of_sm120(tmp_path: Path) -> None:
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    numerics = Numerics(tmp_path, tmp_path)
    grouped = [name for name, needs in numerics.names() if name.startswith("kernels/grouped/") and needs == ("sm90",)]
    assert len(grouped) == 3 * len(TILES)
    (case,) = numerics.run(grouped[:1])
    # Here is no GPU; there, its library would be missed next.
    assert not (tmp_path / EMULATED).exists()
    assert (case.outcome, case.why) in (("not-run", "torch is not installed"), ("not-run", "needs a GPU, sm90"))

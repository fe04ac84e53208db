# SPDX-License-Identifier: Apache-2.0
"""Find the data of validations: recipes, hardware, checkpoints, baselines, gates, texts and kept verdicts."""

from importlib import resources
from pathlib import Path


def _folder() -> Path:
    """Return the data inside the installed package, or the folder `validation/` of a checkout."""
    package = Path(str(resources.files("stack")))
    inside = package / "data"
    return inside if inside.is_dir() else package.parents[1] / "validation"


DATA = _folder()

# SPDX-License-Identifier: Apache-2.0
"""Put the man pages that `make docs` made into the wheel, so that `man stack` and `git carry --help` show them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface[Any]):
    """Hatch's hook of a build."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Name the pages, and where they are installed.

        Raises:
            RuntimeError: There are none.

        """
        pages = sorted(Path(self.root, "build/man").glob("*.1"))
        if not pages:
            raise RuntimeError("build/man has no man pages: run `make docs`")
        build_data["shared_data"] |= {str(page): f"share/man/man1/{page.name}" for page in pages}

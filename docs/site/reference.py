# SPDX-License-Identifier: Apache-2.0
"""Write the reference pages that are made from the code; `make reference` and `make docs` run it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import reference_environment
import reference_exit_codes
import reference_json
import reference_recipes
import reference_settings

DOCS = Path(__file__).parents[1]
PAGES = {
    "json.md": reference_json.page,
    "exit-codes.md": reference_exit_codes.page,
    "settings.md": reference_settings.page,
    "environment.md": reference_environment.page,
    "recipes.md": reference_recipes.page,
}
"""The function that returns each page, by its file below `docs/`."""


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

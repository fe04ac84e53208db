# SPDX-License-Identifier: Apache-2.0
"""The form of the changelog, and that a release needs its version there."""

from pathlib import Path

import pytest

from stack import __version__

from .scripts import loaded

ROOT = Path(__file__).parents[1]
CHANGELOG = loaded("requirements/changelog.py")
SOUND = """\
# Changelog

About its form.

## [Unreleased]

## [0.2.0] - 2026-11-27

### Added

#### Rebase

- One entry.
- An entry of
  two lines.

### Fixed

- Another one.

## [0.1.0] - 2026-11-26

### Added

- The first.
"""


def test_ours_has_the_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [*CHANGELOG.problems(text)] == []
    assert f"\n## [{__version__}] - " in text
    assert text.index("## [Unreleased]") < text.index(f"## [{__version__}]") < text.index("## [0.1.0]")


def test_every_page_that_it_names_is_there() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    paths = {part.partition("#")[0] for piece in text.split("](")[1:] for part in [piece.partition(")")[0]]}
    assert sorted(path for path in paths if not path.startswith("https://") and not (ROOT / path).is_file()) == []


def test_a_sound_one() -> None:
    assert [*CHANGELOG.unfit(SOUND, "0.2.0")] == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("# Changelog\n", "# Changes\n", "line 1: write"),
        ("## [Unreleased]\n\n", "", "the first version has to be `## [Unreleased]`"),
        ("- One entry.", f"- {'One entry, ' * 10}too wide.", "line 13: wider than 100 columns"),
        ("  two lines.", "  two\n  lines.", "line 16: an entry has at most 2 lines"),
        ("- One entry.", "- One entry", "line 13: an entry ends with a full stop"),
        ("- One entry.", "One entry.", "line 13: neither a heading nor an entry: One entry."),
        ("### Fixed", "### Mended", "line 17: a version has Added, Changed"),
        ("### Fixed", "### Added", "line 17: a version has Added, Changed"),
        ("## [0.2.0] - 2026-11-27", "## 0.2.0", "`## 0.2.0`: write"),
        ("## [0.1.0] - 2026-11-26", "## [0.3.0] - 2026-11-26", "0.2.0 of 2026-11-27 stands above 0.3.0"),
        ("## [0.1.0] - 2026-11-26", "## [0.1.0] - 2026-11-28", "the newest version comes first"),
        ("### Added\n\n#### Rebase\n\n- One", "- One", "line 9: an entry stands below"),
    ],
)
def test_other_forms_are_named(old: str, new: str, problem: str) -> None:
    assert old in SOUND
    found = [*CHANGELOG.problems(SOUND.replace(old, new))]
    assert any(problem in each for each in found), found


@pytest.mark.parametrize(
    ("text", "version", "problem"),
    [
        (SOUND, "0.3.0", "the newest version is not 0.3.0"),
        (SOUND, "0.1.0", "the newest version is not 0.1.0"),
        (SOUND.replace("ed]\n\n", "ed]\n\n### Added\n\n- New.\n\n", 1), "0.2.0", "[Unreleased] has entries"),
        (SOUND.replace("- One entry.", "- One entry"), "0.2.0", "full stop"),
    ],
)
def test_what_cannot_be_released(text: str, version: str, problem: str) -> None:
    assert any(problem in each for each in CHANGELOG.unfit(text, version))

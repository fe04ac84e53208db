# SPDX-License-Identifier: Apache-2.0
"""A list of requirements, and the lock that pins it."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.proof import requirements

LOCK = """\
helper==1.5 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via -r requirements.txt
old-numbers==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
old-numbers==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ("helper>=1\nold_numbers", []),
        ("Helper[fast]<2  # a comment\n# other==1\n", []),
        ("--no-index\n-r more.txt\nhelper", []),
        ("torch==2.13.0", []),
        ("helper>=1.6", ["helper"]),
        ("other", ["other"]),
        ("other; sys_platform == 'win32'", []),
        ("old-numbers>=2", ["old-numbers"]),
    ],
)
def test_each_requirement_needs_a_pin_within_its_range(asked: str, missing: list[str]) -> None:
    machine = {"python_version": "3.11", "python_full_version": "3.11.4", "sys_platform": "linux"}
    assert [one.name for one in requirements.unpinned(asked, LOCK, machine, ("torch",))] == missing


def test_a_pin_counts_where_its_marker_holds() -> None:
    newer = {"python_version": "3.12", "python_full_version": "3.12.0"}
    assert requirements.unpinned("old-numbers>=2", LOCK, newer) == ()
    assert requirements.unpinned("old-numbers<2", LOCK, newer) != ()


def test_the_lock_is_installed_where_there_is_one(tmp_path: Path) -> None:
    asked = tmp_path / "requirements.txt"
    asked.write_text("helper\n")
    assert requirements.wanted(asked) == requirements.Wanted(asked, locked=False)
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCK)
    assert requirements.wanted(asked) == requirements.Wanted(lock, locked=True)
    asked.write_text("helper>=2\n")
    with pytest.raises(StackError, match=r"requirements\.lock pins no version of helper>=2"):
        requirements.wanted(asked)


def test_the_key_changes_with_what_is_installed(tmp_path: Path) -> None:
    asked = tmp_path / "requirements.txt"
    asked.write_text("helper\n")
    keys = [requirements.wanted(asked).key("2.13.0"), requirements.wanted(asked).key("2.14.0")]
    lock = asked.with_suffix(".lock")
    lock.write_text(LOCK)
    keys.append(requirements.wanted(asked).key("2.13.0"))
    lock.write_text(LOCK.replace("1.5", "1.6"))
    keys.append(requirements.wanted(asked).key("2.13.0"))
    assert len({*keys}) == len(keys)
    asked.write_text("helper  # a comment changes nothing that is installed\n")
    assert requirements.wanted(asked).key("2.13.0") == keys[-1]

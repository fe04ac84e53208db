# SPDX-License-Identifier: Apache-2.0
"""Files in a folder that nobody vouches for."""

import os
from pathlib import Path

import pytest

from stack.base import files
from stack.base.errors import StackError


def test_a_file_without_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LARGEST", 1 << 20)
    (tmp_path / "journal").touch()
    os.truncate(tmp_path / "journal", 1 << 40)
    with files.opened(tmp_path) as folder, pytest.raises(StackError, match="larger than 1 MiB"):
        folder.read("journal")
    (tmp_path / "whole").write_bytes(bytes(1 << 20))
    with files.opened(tmp_path) as folder:
        assert folder.read("whole") == bytes(1 << 20)

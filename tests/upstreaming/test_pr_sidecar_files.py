# SPDX-License-Identifier: Apache-2.0
"""What is kept beside a description: where, as which bytes, and what is said where it cannot be written."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.ids import CommitId
from stack.upstreaming import pr_sidecar_files
from stack.upstreaming.proposal import Proposal

ONE = Proposal("up", "one", "hook", CommitId("1" * 40), "v1.0", False, ())


def test_the_bytes_come_back(tmp_path: Path) -> None:
    odd = b"caf\xe9\n".decode("utf-8", "surrogateescape")
    file = pr_sidecar_files.put(tmp_path, ONE, ".range-diff", odd)
    assert file == pr_sidecar_files.file(tmp_path, ONE, ".range-diff") == tmp_path / ".stack/pulls/up/one-hook.range-diff"
    assert file.read_bytes() == b"caf\xe9\n"


def test_a_file_in_the_way_is_a_line(tmp_path: Path) -> None:
    (tmp_path / ".stack").write_text("no folder")
    with pytest.raises(StackError, match=r"one-hook\.md cannot be written \(.+\): check the folder's rights"):
        pr_sidecar_files.put(tmp_path, ONE, ".md", "text")

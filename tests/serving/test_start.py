# SPDX-License-Identifier: Apache-2.0
"""What a server says while it starts: all of it is handed on, so much of it is kept."""

import io

import pytest

from stack.serving import start


def test_a_log_without_an_end_is_handed_on_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_MOST", 2**17)
    handed = bytearray()
    said = start._Output(io.BytesIO(b"first " + b"x" * 2**22), handed.extend)
    text = said.finished()
    assert len(handed) == 2**22 + 6
    assert text.startswith("first x")
    assert len(text) < 2**17 + 2**16

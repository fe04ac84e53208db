# SPDX-License-Identifier: Apache-2.0
"""Files that are shared: their names, their place, and their signatures."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import verdict as verdicts
from stack.owner import kept_verdicts
from stack.owner.sharing import prepared
from stack.validation import signing

from ...validation.factories import SPARK, passed, verdict

LESS = verdict(passed("doctor/content"), machine=SPARK, recipe="gpt-oss-120b-spark")
NAME = "nvidia-gb10-gpt-oss-120b-spark-aaaaaaaa-2026-11-21.json"


def test_a_file_beside_the_owners_own(tmp_path: Path) -> None:
    made = prepared.beside(tmp_path, LESS)
    assert made.file == tmp_path / "shared" / NAME
    assert verdicts.load(made.file) == LESS
    assert made.signature is None


def test_a_file_for_a_pull_request(tmp_path: Path) -> None:
    made = prepared.for_pull_request(tmp_path, LESS)
    assert made.file == tmp_path / "validation/verdicts" / NAME
    assert prepared.for_pull_request(tmp_path, LESS) == made
    with pytest.raises(StackError, match="is another verdict"):
        prepared.for_pull_request(tmp_path, replace(LESS, cases=()))
    assert verdicts.load(made.file) == LESS


def test_it_is_signed_with_the_owners_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    made = prepared.beside(tmp_path, LESS, key)
    assert made.signature == made.file.with_name(f"{NAME}.sig")
    signers = tmp_path / "signers"
    signers.write_text(f"ada@example.org {key.with_suffix('.pub').read_text()}")
    assert signing.verify(made.file, made.file.read_bytes(), signers) == "ada@example.org"
    again = prepared.beside(tmp_path, replace(LESS, cases=()))
    assert again.signature is None
    assert not made.signature.exists()  # it was of another content


def test_the_newest_verdict(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="there is no verdict"):
        kept_verdicts.newest(tmp_path)
    first = kept_verdicts.write(tmp_path, LESS)
    second = kept_verdicts.write(tmp_path, replace(LESS, made="2026-11-22T09:00:00Z"))
    assert kept_verdicts.newest(tmp_path) == second
    assert first != second
    assert verdicts.load(first) == LESS

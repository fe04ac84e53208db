# SPDX-License-Identifier: Apache-2.0
import os
import time
from pathlib import Path

import pytest

from stack.store.results import Results, key, results

KEY = key({"tree": "1", "tests": "a b"})


@pytest.fixture
def kept(tmp_path: Path) -> Results:
    return results(tmp_path, "proofs")


def test_a_result_comes_back_under_its_key_only(kept: Results) -> None:
    kept.put(KEY, {"passed": ["test_one"], "seconds": 0.5})
    assert kept.get(KEY) == {"passed": ["test_one"], "seconds": 0.5}
    assert kept.get(key({"tree": "2", "tests": "a b"})) is None


def test_every_input_is_part_of_the_key_and_their_order_is_not() -> None:
    assert key({"a": "1", "b": "2"}) == key({"b": "2", "a": "1"})
    keys = [key(one) for one in ({"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": ""}, {"a": "1b"}, {})]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b" " * (9 << 20) + b"{}"])
def test_a_damaged_file_counts_as_not_kept(kept: Results, damage: bytes) -> None:
    kept.put(KEY, {})
    (file,) = kept.folder.iterdir()
    file.write_bytes(damage)
    assert kept.get(KEY) is None
    kept.put(KEY, {"whole": True})
    assert kept.get(KEY) == {"whole": True}


def test_a_cache_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where the folder should be")
    kept = results(tmp_path, "proofs")
    kept.put(KEY, {"passed": []})
    assert kept.get(KEY) is None


def test_reading_a_result_counts_as_use(kept: Results) -> None:
    kept.put(KEY, {})
    (file,) = kept.folder.iterdir()
    os.utime(file, (0, 0))
    kept.get(KEY)
    assert file.stat().st_mtime > time.time() - 3600

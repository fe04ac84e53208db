# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import pypi_simple
import pytest

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.store import indexes
from stack.store.indexes import Index, Settings, parse, settings

A, B, C = ("https://a.test/simple/", "https://b.test/simple/", "https://c.test/simple/")


@pytest.fixture
def pip_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(place))
    return place


def urls(found: Settings) -> list[str]:
    return [index.url for index in found.indexes]


def test_an_unconfigured_machine_asks_the_default_index() -> None:
    assert settings() == Settings(indexes=(parse(pypi_simple.PYPI_SIMPLE_ENDPOINT),))


def test_pips_files_are_read_by_pip(pip_configuration: Path, tmp_path: Path) -> None:
    pip_configuration.write_text(
        f"[global]\nindex-url = {A}\nextra-index-url =\n  {B}\n  file:///srv/it's%20here/simple\n"
        f"cert = {tmp_path}/ca.pem\nclient_cert = ~/client.pem\ntimeout = 7.5\nretries = 2\n"
        "trusted-host = Intern.test\n  other.test:8443\nproxy = proxy.test:3128\n"
        "[list]\nformat = columns\nindex-url = https://ignored.test/\n"
    )
    assert settings() == Settings(
        indexes=(parse(A), parse(B), parse("file:///srv/it's%20here/simple")),
        certificates=tmp_path / "ca.pem",
        client_certificate=Path.home() / "client.pem",
        proxy="proxy.test:3128",
        trusted_hosts=frozenset({"intern.test", "other.test:8443"}),
        timeout=7.5,
        retries=2,
    )


def test_a_narrower_section_wins_and_the_environment_wins_over_all(
    pip_configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_configuration.write_text(f"[global]\nindex-url = {A}\ntimeout = 1\n[install]\nindex-url = {B}\ntimeout = 2\n")
    assert urls(settings()) == [B]
    monkeypatch.setenv("PIP_INDEX_URL", C)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{A} {B}")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "99")
    assert urls(settings()) == [C, A, B]
    assert settings().timeout == 2  # `timeout` is the narrower name of the same option


def test_the_long_name_of_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "99")
    assert settings().timeout == 99


def test_extra_indexes_come_after_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", A)
    assert urls(settings()) == [pypi_simple.PYPI_SIMPLE_ENDPOINT, A]


def test_uv_counts_where_pip_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", A)
    assert urls(settings()) == [A]
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"main={B}")
    monkeypatch.setenv("UV_INDEX", f"mine={C}")
    assert urls(settings()) == [B, C]
    monkeypatch.setenv("PIP_INDEX_URL", A)
    assert urls(settings()) == [A]


def no_pip(tmp_path: Path) -> str:
    return str(tmp_path / "no-such-python")


def failing_pip(tmp_path: Path) -> str:
    place = tmp_path / "python"
    place.write_text("#!/bin/sh\necho \"global.index-url='https://half.test/'\"\necho 'No module named pip' >&2\nexit 1\n")
    place.chmod(0o755)
    return str(place)


@pytest.mark.parametrize("python", [no_pip, failing_pip])
def test_without_pip_its_variables_still_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: object) -> None:
    monkeypatch.setattr(sys, "executable", python(tmp_path))  # type: ignore[operator]
    monkeypatch.setenv("PIP_INDEX_URL", A)
    monkeypatch.setenv("PIP_TRUSTED_HOST", "a.test")
    found = settings()
    assert urls(found) == [A]
    assert found.trusted_hosts == {"a.test"}


def test_what_pip_says_beside_settings_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "python"
    place.write_text(
        "#!/bin/sh\ncat <<'END'\nWARNING: something = else\nglobal.index-url=not quoted\nglobal.timeout=5\n"
        f"global.extra-index-url='{A}\\n{B}'\n\nhalf a line\nglobal.cert='open\nEND\n"
    )
    place.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(place))
    assert urls(settings()) == [pypi_simple.PYPI_SIMPLE_ENDPOINT, A, B]


def test_a_folder_named_pip_is_not_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__init__.py").write_text("")
    (tmp_path / "pip/__main__.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    settings()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["1", "true", "on"])
def test_no_index(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", value)
    with pytest.raises(StackError, match=r"no-index.*--source git"):
        settings()


@pytest.mark.parametrize(
    ("name", "value"), [("PIP_TIMEOUT", "soon"), ("PIP_RETRIES", "-1"), ("PIP_TIMEOUT", "nan"), ("PIP_TIMEOUT", "inf")]
)
def test_numbers_that_are_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setattr(indexes, "_pip_says", lambda: iter(()))
    monkeypatch.setenv(name, value)
    with pytest.raises(StackError, match="not a number"):
        settings()


def test_credentials_are_taken_out_of_the_address() -> None:
    found = parse("https://me:p%40ss@[::1]:8443/simple?x=1#f")
    assert found == Index("https://[::1]:8443/simple/?x=1", "me", "p@ss")
    assert "p@ss" not in repr(found) + repr(Settings(indexes=(found,), proxy="http://u:p@ss@h"))
    assert parse("https://token@a.test") == Index("https://a.test/", "token", "")


@pytest.mark.parametrize("url", ["simple", "ftp://a.test/", "https:///x", "https://user:secret@a.test:port/", "https://[a/"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(StackError, match="no valid address") as caught:
        parse(url)
    assert "secret" not in str(caught.value)


def test_an_address_in_a_message() -> None:
    assert redacted("https://me:secret@a.test:1/x?token=secret#secret") == "https://a.test:1/x"
    assert "secret" not in redacted("https://me:secret@[a/")


def test_the_environment_of_these_tests_is_clean() -> None:
    assert not [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"]

# SPDX-License-Identifier: Apache-2.0
"""Upstream's configuration of pre-commit is read before any of its tools is installed."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.upstreaming.linting import Desk, precommit

from .factories import STYLE, Making


@pytest.mark.parametrize(
    "config",
    [
        "repos: [",
        "repos: 1\n",
        "- a\n",
        "repos: [1]\n",
        "repos: [{hooks: 1}]\n",
        "repos: [{hooks: [{id: 1}]}]\n",
        "repos: [{hooks: [{id: typos, files: '('}]}]\n",
        "repos: [{hooks: [{id: no-print, entry: 'sh x'}]}]\n",
        'repos: [{hooks: [{id: no-print, entry: "python \'"}]}]\n',
        "a: &a [*a, *a]\nrepos: !!python/object/apply:os.system [true]\n",
        "\x00",
    ],
)
def test_an_odd_configuration_is_a_line(config: str) -> None:
    with pytest.raises(StackError) as refused:
        precommit.checks(STYLE, config.encode())
    line = str(refused.value)
    assert line.startswith("upstream's .pre-commit-config.yaml cannot be read (")
    assert line.endswith("name another file as style.config in the rules, or leave it out")


@pytest.mark.parametrize("odd", ["--index-url=x", "../evil", "a @ file:///x", "-r x"])
def test_a_check_asks_for_packages_only(making: Making, tmp_path: Path, odd: str) -> None:
    config = f"repos: [{{repo: local, hooks: [{{id: no-print, entry: python x.py, additional_dependencies: ['{odd}']}}]}}]\n"
    change = making.change({".pre-commit-config.yaml": config}, {".pre-commit-config.yaml": config, "pkg/a.py": "X = 1\n"})
    with Desk(tmp_path, lambda _: None) as desk, pytest.raises(StackError, match="which is not a package"):
        list(desk.check(STYLE, change))

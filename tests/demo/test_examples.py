# SPDX-License-Identifier: Apache-2.0
"""Each example that makes its own project: the series and patches that it leaves, what became of them, and the carried tree."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from .example import Example, run


def finished(name: str, folder: Path) -> Example:
    example = run(name, folder)
    assert (example.status, example.errors) == (0, "")
    return example


def test_any_fork(tmp_path: Path) -> None:
    example = finished("any-fork", tmp_path)
    assert example.outcomes() == {"raise-the-tenth-limit": "moved", "raise-the-fortieth-limit": "landed"}
    assert re.search(r"landed +\w{12} serve: a higher limit .*\(in release-1\.28\.0\)", example.printed)
    assert example.stack.pins.get("serve").tag == "release-1.27.1"
    assert "static int limit_40(void) { return 4096; }" in example.carried("serve", "src/serve.c")
    assert example.next_command() == "stack rebase serve --onto release-1.31.4 --through auto"


@pytest.mark.images  # a whole example
def test_a_debian_package(tmp_path: Path) -> None:
    example = finished("debian-package", tmp_path)
    assert example.series() == {"debian": ["greet/prefix.patch", "greet/spelling.patch", "greet/friendly.patch"]}
    assert example.outcomes() == {"prefix": "clean", "spelling": "landed", "friendly": "moved"}
    (prefix, spelling, friendly) = example.stack.order("greet")
    assert (prefix.subject, prefix.author.name, prefix.author.mail) == ("Install into /usr", "Grace", "grace@example.org")
    assert friendly.author.name == "Lin"
    # Nobody is named in this header: the person who imports is its author.
    assert (spelling.author.name, spelling.author.mail) == ("Ada", "ada@example.org")
    listed = tomllib.loads((example.place / "stack/stacks/debian/series.toml").read_text(encoding="utf-8"))
    assert [patch.get("pull") for patch in listed["patch"]] == [None, None, "https://example.org/greet/pull/7"]
    assert "1.3" in listed["drop_when"]
    carried = example.carried("greet", "greet.txt")
    assert (carried[9], carried[19]) == ("greeting 10, my friend", "greeting 20, spelled right")


@pytest.mark.images  # a whole example
def test_a_branch_of_forty_commits_in_three_series(tmp_path: Path) -> None:
    example = finished("three-series", tmp_path)
    assert {name: len(files) for name, files in example.series().items()} == {"cache": 14, "log": 13, "tls": 13}
    assert {series.name: series.needs for series in example.stack.series} == {"cache": (), "log": ("cache",), "tls": ()}
    outcomes = example.outcomes()
    assert (len(outcomes), set(outcomes.values())) == (40, {"clean", "moved"})
    for topic in ("cache", "log", "tls"):
        path = f"src/{topic}.c"
        assert example.carried("server", path) == (example.place / "my-fork" / path).read_text().splitlines()


@pytest.mark.images  # a whole example
def test_a_folder_of_plain_diffs(tmp_path: Path) -> None:
    example = finished("plain-diffs", tmp_path)
    assert example.series() == {"fixes": ["parser/parse-twice.patch", "parser/colour.patch", "parser/later.patch"]}
    assert example.stack.order("parser")[1].author.name == "Grace"
    left = example.place / "stack/fixes-not-imported"
    assert [file.read_bytes() for file in left.glob("*.patch")] == [(example.place / "patches/04-old.patch").read_bytes()]
    assert "src/print.txt:19: the lines that it changes are not there" in example.printed
    parse = example.carried("parser", "src/parse.txt")
    assert (parse[9], parse[29]) == ("parse 10 twice", "parse 30 later")
    assert example.carried("parser", "src/print.txt")[9] == "print 10 in red"


@pytest.mark.images  # a whole example
def test_a_vendored_tree(tmp_path: Path) -> None:
    example = finished("vendored-tree", tmp_path)
    assert example.series() == {"ours": ["zipper/local-changes-in-doc.patch", "zipper/local-changes-in-src.patch"]}
    assert example.outcomes() == {"local-changes-in-doc": "clean", "local-changes-in-src": "moved"}
    assert example.stack.pins.get("zipper").tag == "v1.1"
    vendored = example.place / "app/vendor/zipper"
    for path in ("src/deflate.c", "src/inflate.c", "doc/manual.txt"):
        assert example.carried("zipper", path) == (vendored / path).read_text().splitlines()
    assert not (vendored / "tests").exists()
    assert (vendored / "src/deflate.c").read_text().splitlines()[0] == "#include <zip.h>"


@pytest.mark.images  # a whole example
@pytest.mark.parametrize(
    ("name", "program", "tag", "path", "line"),
    [
        ("javascript", "node", "v1.5.0", "index.js", '    .replace(/ß/g, "ss")'),
        pytest.param(
            *("rust", "cargo", "v1.1.0", "src/lib.rs", '        "in" => Some(number * 0.0254),'), marks=pytest.mark.images
        ),  # cargo compiles five trees
    ],
)
def test_a_project_in_another_language(tmp_path: Path, name: str, program: str, tag: str, path: str, line: str) -> None:
    example = run(name, tmp_path)
    (pin,) = example.stack.pins
    assert line in example.carried(pin.upstream, path)
    if shutil.which(program) is None:
        stopped_without(program, example)
        return
    assert (example.status, example.errors) == (0, "")
    assert re.search(r"^\S+/\S+/\S+ +passes +fails", example.printed, re.MULTILINE)
    assert set(example.outcomes().values()) == {"moved"}
    assert pin.tag == tag


def stopped_without(program: str, example: Example) -> None:
    """The first proof says that a program is missing, and nothing was moved."""
    assert example.status == 1
    assert re.search(rf"{program}.*: its program is not there", example.printed)
    assert "$ stack rebase" not in example.printed


@pytest.mark.images  # a whole example
def test_a_missing_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("cat", "dirname", "git", "grep", "mkdir", "mktemp", "rm", "sed", "sh"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    (tmp_path / "run").mkdir()
    stopped_without("node", run("javascript", tmp_path / "run", path=str(tmp_path / "bin")))

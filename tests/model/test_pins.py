# SPDX-License-Identifier: Apache-2.0
import tempfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import pins
from stack.model.ids import Sha256, TreeId
from stack.model.pins import Archive, Base, Pin, Pins, Within

from .factories import PINS, SHA256, TREE, refusal


def test_loads(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text(PINS)
    loaded = pins.load(tmp_path / "pins.toml")
    vllm, flashinfer, cutlass = loaded
    assert vllm == Pin(
        upstream="vllm",
        git="https://example.org/vllm",
        commit="aaaaaaa",
        tag="v1.0.0",
        archive=Archive("vllm", "1.0.0", Sha256(SHA256)),
        tree=TreeId(TREE),
    )
    assert flashinfer.archive == Archive("flashinfer-python", "0.5.0", None)
    assert (cutlass.within, cutlass.tag) == (Within("flashinfer", "3rdparty/cutlass"), None)
    assert cutlass.subtrees == {"include": TREE}
    assert loaded.base == Base("example.org/cuda", "13.0", f"sha256:{SHA256}")
    assert loaded.names() == ("vllm", "flashinfer", "cutlass")
    assert loaded.get("cutlass") is cutlass
    assert loaded.vendored_in("flashinfer") == (cutlass,)
    assert loaded.vendored_in("vllm") == ()
    assert loaded.replaced(replace(vllm, tag="v2")).get("vllm").tag == "v2"


GIT_ONLY = """\
[nginx]
git = "https://example.org/nginx"
commit = "1234567"
"""


@pytest.mark.parametrize(
    ("more", "source", "revision"),
    [
        ("", "git", "1234567"),
        ('tag = "release-1.27.1"\n', "git", "release-1.27.1"),
        ('tag = "v1"\narchive = { package = "nginx", version = "1" }\n', "archive", "v1"),
        ('tag = "v1"\narchive = { package = "nginx", version = "1" }\nsource = "git"\n', "git", "v1"),
        ('archive = { package = "nginx", version = "1" }\nsource = "git"\n', "git", "1234567"),
    ],
)
def test_where_trees_come_from(tmp_path: Path, more: str, source: str, revision: str) -> None:
    (tmp_path / "pins.toml").write_text(GIT_ONLY + more)
    pin = pins.load(tmp_path / "pins.toml").get("nginx")
    assert (pin.source, pin.revision) == (source, revision)


def test_the_rule_for_releases_follows_from_the_tag_unless_it_is_stated(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text(f'{GIT_ONLY}tag = "release-1.27.1"\n')
    assert pins.load(tmp_path / "pins.toml").get("nginx").releases.pattern == "release-*"
    (tmp_path / "pins.toml").write_text(f'{GIT_ONLY}tag = "release-1.27.1"\ntags = "b*"\n')
    assert pins.load(tmp_path / "pins.toml").get("nginx").releases.ordered(["b10", "b9", "release-1.27.1"]) == ["b9", "b10"]


def test_unknown_upstream(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text(PINS)
    loaded = pins.load(tmp_path / "pins.toml")
    assert refusal(tmp_path, loaded.get, "vlm") == "unknown upstream 'vlm': did you mean 'vllm'?"


ID = "a git tree id, 40 hexadecimal digits"
CIRCLE = """\
[a]
git = "/a"
commit = "1234567"
within = { upstream = "b", path = "b" }
[b]
git = "/b"
commit = "1234567"
within = { upstream = "a", path = "a" }
"""
NESTED = f"""{PINS}
[inner]
git = "/inner"
commit = "1234567"
within = {{ upstream = "cutlass", path = "inner" }}
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[vllm]", "[Vllm]", "'Vllm' is not a valid name of an upstream: lower-case letters, digits and dashes"),
        ("[vllm]", "other = 1\n[vllm]", "other is 1: it has to be a table"),
        ("[base]", "[bases]", "bases.git is missing: add it"),
        ('git     = "https://example.org/vllm"', "", "vllm.git is missing: add it"),
        ("https://example.org/vllm", "", "vllm.git is '': it has to be the address of a git repository"),
        ("https://example.org/vllm", "--x", "vllm.git is '--x': it has to be the address of a git repository"),
        ("https://example.org/vllm", "-x@y", "vllm.git is '-x@y': it has to be the address of a git repository"),
        ("aaaaaaa", "AAAAAAA", "vllm.commit is 'AAAAAAA': it has to be a commit id, 7 to 40 hexadecimal digits"),
        ("aaaaaaa", "aaaaaa", "vllm.commit is 'aaaaaa': it has to be a commit id, 7 to 40 hexadecimal digits"),
        ('"v1.0.0"', '"-v1"', "vllm.tag is '-v1': it has to be a tag"),
        ('tag     = "v1.0.0"', "", 'vllm.tag is missing: add it, or write source = "git"'),
        ('tag     = "v1.0.0"', 'source = "svn"', 'vllm.source is \'svn\': it has to be "archive" or "git"'),
        (
            'tag     = "v1.0.0"',
            'tag = "v1.0.0"\ntags = "v1"',
            "vllm.tags has no group named version: write it like release-*, or as a regular expression with a group (?P<version>…)",
        ),
        ("tag     = ", "tagg    = ", "vllm.tagg is an unknown key: did you mean 'tag'?"),
        (f'tree    = "{TREE}"', 'tree = "77"', f"vllm.tree is '77': it has to be {ID}"),
        (SHA256 + '" }', '5" }', "vllm.archive.sha256 is '5': it has to be a SHA-256, 64 hexadecimal digits"),
        ('package = "vllm"', 'package = "-r"', "vllm.archive.package is '-r': it has to be the name of a package"),
        ('package = "vllm", ', "", "vllm.archive.package is missing: add it"),
        ('version = "0.5.0"', 'version = "<1"', "flashinfer.archive.version is '<1': it has to be a version"),
        ('version = "0.5.0"', 'vrsion = "1"', "flashinfer.archive.version is missing: add it"),
        (
            'version = "0.5.0"',
            'version = "1", url = "x"',
            "flashinfer.archive.url is an unknown key: known here: package, sha256, version",
        ),
        (
            'archive = { package = "flashinfer-python", version = "0.5.0" }',
            'source = "archive"',
            'flashinfer.archive is missing: add it, or write source = "git"',
        ),
        (
            'archive = { package = "flashinfer-python", version = "0.5.0" }',
            'archive = { package = "f", version = "1" }\nwithin = { upstream = "vllm", path = "x" }',
            "flashinfer.archive and `within` exclude each other: an upstream is released or vendored",
        ),
        (
            'within   = { upstream = "flashinfer"',
            'within = { upstream = "triton"',
            "cutlass.within.upstream names 'triton', which has no pin: known: vllm, flashinfer, cutlass",
        ),
        (', path = "3rdparty/cutlass"', "", "cutlass.within.path is missing: add it"),
        (', path = "3rdparty/cutlass"', ', paths = "x"', "cutlass.within.path is missing: add it"),
        *(
            (
                '"3rdparty/cutlass"',
                f"'{path}'",
                f"cutlass.within.path is {path!r}: it has to be a path in that upstream's tree",
            )
            for path in ("../x", "a/../b", "..", "a/..", "./a", ".", "/etc", "a/", "a//b", "", "a\\b")
        ),
        ("{ include = ", '{ "../x" = ', "cutlass.subtrees.../x is not a path in the upstream's tree: no .., no / at its ends"),
        (f'include = "{TREE}"', 'include = "x"', f"cutlass.subtrees.include is 'x': it has to be {ID}"),
        (f'digest = "sha256:{SHA256}"', 'digest = ""', "base.digest is '': it has to be sha256: and 64 hexadecimal digits"),
        ('image  = "example.org/cuda"', "", "base.image is missing: add it"),
        ('tag    = "13.0"', 'tag = "a b"', "base.tag is 'a b': it has to be a tag"),
        ('tag    = "13.0"', 'tag = "1"\ntags = "2"', "base.tags is an unknown key: did you mean 'tag'?"),
        (PINS, CIRCLE, "`within` is a cycle: a -> b -> a: break it"),
        (PINS, NESTED, "inner is vendored in an upstream that is vendored itself: give its path in the outer one"),
    ],
)
def test_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in PINS
    (tmp_path / "pins.toml").write_text(PINS.replace(old, new, 1))
    assert refusal(tmp_path, pins.load, tmp_path / "pins.toml") == f"pins.toml: {line}"


# --- edited ---------------------------------------------------------------------------------------------------------------

HEX = "0123456789abcdef"
COMMITS = st.text(HEX, min_size=7, max_size=40)
TREES = st.text(HEX, min_size=40, max_size=40).map(TreeId)
HASHES = st.text(HEX, min_size=64, max_size=64).map(Sha256)
TAGS = st.from_regex(r"v[0-9]{1,2}(\.[0-9]{1,2}){0,2}", fullmatch=True)
ARCHIVES = st.builds(Archive, st.sampled_from(["vllm", "flashinfer-python"]), TAGS.map(lambda tag: tag[1:]), HASHES | st.none())
SUBTREES = st.dictionaries(st.sampled_from(["include", "3rdparty/a b", "ünï.c"]), TREES, max_size=3).map(MappingProxyType)
BLANK = st.sampled_from(["", " ", "   ", "\t"])
COMMENT = st.from_regex(r"# [a-zü\[\]=\"' ]{0,8}", fullmatch=True)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A `pins.toml` in some layout, and the comments in it that stand by themselves."""
    alone: list[str] = []

    def between() -> str:
        lines = draw(st.lists(st.just("") | COMMENT, max_size=2))
        alone.extend(line for line in lines if line)
        return "".join(f"{draw(BLANK) if line else ''}{line}\n" for line in lines)

    def line(key: str, value: str) -> str:
        gap, quoted = draw(BLANK), draw(st.sampled_from([key, f'"{key}"']))
        comment = draw(st.just("") | COMMENT)
        return f"{draw(BLANK)}{quoted}{gap}={draw(BLANK)}{value}{draw(BLANK) if comment else ''}{comment}\n{between()}"

    def text(value: str) -> str:
        return draw(st.sampled_from([f'"{value}"', f"'{value}'", f'"""{value}"""', f"'''\n{value}'''"]))

    def inline(key: str, fields: dict[str, str]) -> tuple[str, str]:
        """One table: as a line, as dotted keys, or as a table of its own below the others."""
        shape = draw(st.sampled_from(["inline", "dotted", "table"]))
        pairs = [
            (name if name.isidentifier() and name.isascii() else f'"{name}"', text(value)) for name, value in fields.items()
        ]
        if shape == "inline":
            gap = draw(BLANK)
            return line(key, "{" + gap + f",{gap}".join(f"{name}{gap}={gap}{value}" for name, value in pairs) + gap + "}"), ""
        if shape == "dotted":
            return "".join(f"{key}.{name} = {value}\n" for name, value in pairs), ""
        return "", f"[{{}}.{key}]\n" + "".join(f"{name} = {value}\n" for name, value in pairs) + between()

    def table(name: str, kind: str) -> str:
        lines = [line("git", text("https://example.org/x")), line("commit", text(draw(COMMITS)))]
        subtrees: dict[str, str] = dict(draw(SUBTREES))
        tables = []
        if kind == "archive" or draw(st.booleans()):
            lines.append(line("tag", text(draw(TAGS))))
        if draw(st.booleans()):
            lines.append(line("tree", text(draw(TREES))))
        fields = {"upstream": "vllm", "path": "a/b"} if kind == "within" else {"package": "vllm", "version": "1"}
        if kind == "archive" and draw(st.booleans()):
            fields["sha256"] = draw(HASHES)
        for key, values in ((kind, fields), ("subtrees", subtrees)):
            if values:
                above, below = inline(key, values)
                lines.append(above)
                tables.append(below.format(name) if below else "")
        comment = draw(st.just("") | COMMENT.map(lambda it: f" {it}"))
        return f"{draw(BLANK)}[{name}]{comment}\n{between()}{''.join(draw(st.permutations(lines)))}{''.join(tables)}"

    parts = [table("vllm", "archive"), table("cutlass", "within"), f'[base]\nimage = "i"\ntag = "t"\n{between()}']
    whole = between() + "".join(draw(st.permutations(parts)))
    ending = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return (whole if draw(st.booleans()) else whole.rstrip("\n")).replace("\n", ending), alone


@st.composite
def changes(draw: st.DrawFn) -> dict[str, object]:
    fields = {"tag": TAGS, "commit": COMMITS, "tree": TREES | st.none(), "archive": ARCHIVES | st.none(), "subtrees": SUBTREES}
    return {key: draw(fields[key]) for key in draw(st.sets(st.sampled_from(sorted(fields))))}


def parsed(text: str) -> Pins:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pins.toml").write_bytes(text.encode())
        return pins.load(Path(folder) / "pins.toml")


@settings(max_examples=60, deadline=None)
@given(layouts(), changes(), changes())
@pytest.mark.slow
def test_edited(layout: tuple[str, list[str]], released: dict[str, object], vendored: dict[str, object]) -> None:
    text, comments = layout
    before = parsed(text)
    assert pins.edited(text, before) == text
    vendored.pop("archive", None)
    after = before.replaced(
        replace(before.get("vllm"), **released),  # type: ignore[arg-type]
        replace(before.get("cutlass"), **vendored),  # type: ignore[arg-type]
    )
    try:
        edited = pins.edited(text, after)
    except StackError as refused:
        # tomlkit cannot edit dotted keys of one table that are mixed with those of another.
        assert "is written in several places" in str(refused)
        assume(False)
    assert parsed(edited) == after
    for comment in comments:
        assert edited.count(comment) >= 1
    assert pins.edited(edited, after) == edited


def test_edited_touches_only_what_changes() -> None:
    before = parsed(PINS)
    new = replace(before.get("vllm"), commit="d" * 40, tree=None, archive=Archive("vllm", "2.0", None))
    assert pins.edited(PINS, before.replaced(new)) == PINS.replace('"aaaaaaa"', f'"{"d" * 40}"').replace(
        f'"1.0.0", sha256 = "{SHA256}" }}', '"2.0"  }'
    ).replace(f'tree    = "{TREE}"\n', "")


def test_edited_adds_below_the_last_key() -> None:
    """What stands above the next table is about that one."""
    text = PINS.replace("[cutlass]", "# The kernels' templates.\n[cutlass]")
    new = replace(parsed(text).get("flashinfer"), tree=TreeId(TREE))
    expected = text.replace('version = "0.5.0" }\n', f'version = "0.5.0" }}\ntree = "{TREE}"\n')
    assert pins.edited(text, parsed(text).replaced(new)) == expected


@pytest.mark.parametrize(
    "text",
    [
        'vllm.git = "/x"\nvllm.tag = "v1"\nvllm.commit = "1234567"\nvllm.archive = { package = "vllm", version = "1" }\n',
        '[vllm]\ngit = "/x"\ntag = "v1"\ncommit = "1234567"\n[base]\nimage = "i"\ntag = "t"\n[vllm.archive]\npackage = "v"\nversion = "1"\n',
    ],
)
def test_edited_refuses_what_it_cannot_edit(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, pins.edited, text, parsed(text)) == (
        "pins.toml: vllm is written in several places, which cannot be edited: write it as one table"
    )


def test_edited_inline_table() -> None:
    text = 'vllm = { git = "/x", tag = "v1", commit = "1234567", archive = { package = "vllm", version = "1" } } # one line\n'
    after = parsed(text).replaced(replace(parsed(text).get("vllm"), commit="7654321", tree=TreeId(TREE)))
    assert pins.edited(text, parsed(text)) == text
    assert parsed(pins.edited(text, after)) == after
    assert "# one line" in pins.edited(text, after)


def test_edited_writes_the_base_image(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    bare, _, _ = PINS.partition("[base]")
    base = Base("example.org/cuda", "13.1", f"sha256:{'e' * 64}")
    for text in (PINS, bare, f"{bare.rstrip()}\n# the last word\n"):
        path.write_text(text)
        path.write_text(pins.edited(text, pins.load(path).based(base)))
        after = pins.load(path)
        assert after.base == base
        assert path.read_text().startswith(text.partition("[base]")[0].rstrip("\n"))
        assert pins.edited(path.read_text(), after) == path.read_text()
        path.write_text(pins.edited(path.read_text(), after.based(replace(base, digest=None))))
        assert pins.load(path).base == replace(base, digest=None)

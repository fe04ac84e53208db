# SPDX-License-Identifier: Apache-2.0
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model import series
from stack.model.series import Compiles, Landed, PatchRef, Pulled, Series, State

from .factories import CACHE, GATING, refusal, write


def load(root: Path, text: str) -> Series:
    write(root, {"small/series.toml": text})
    return series.load(root / "small")


def test_loads(tmp_path: Path) -> None:
    write(tmp_path, {"cache/series.toml": CACHE})
    loaded = series.load(tmp_path / "cache")
    assert loaded == Series(
        name="cache",
        title="Small caches",
        why="Half the memory.",
        state=State.DRAFT,
        needs=("gating",),
        patches=(
            PatchRef("cache", "flashinfer", "flashinfer/read-caches.patch"),
            PatchRef("cache", "cutlass", "cutlass/add-a-tile.patch"),
        ),
    )
    assert loaded.patches[0].path == "cache/flashinfer/read-caches.patch"


PULL = 'state = "submitted"\npull = "https://example.org/pull/1"'
STATES = "draft, pending, submitted, merged, declined, inappropriate"


def test_loads_every_key(tmp_path: Path) -> None:
    extra = 'reason = "r"\ndrop_when = "d"\nacts_on = ["cpu"]\nproves = ["tests/x.py"]\n'
    loaded = load(tmp_path, GATING.replace('state = "pending"', f"{PULL}\n{extra}"))
    assert (loaded.state, loaded.pull, loaded.reason) == (State.SUBMITTED, "https://example.org/pull/1", "r")
    assert (loaded.drop_when, loaded.acts_on, loaded.proves) == ("d", ("cpu",), ("tests/x.py",))


def test_loads_what_a_patch_has_compiled(tmp_path: Path) -> None:
    entries = 'compiles = [{ unit = "m/*.cu", instantiation = "128, 32", makes = "m.f()", sass = ["QMMA.SF.E8", "LDG.128"] }, { unit = "n/s.cu" }]'
    loaded = load(tmp_path, GATING.replace('upstream = "vllm"', f'upstream = "vllm"\n{entries}'))
    (patch,) = loaded.patches
    assert loaded.compiles == (
        Compiles(patch, "m/*.cu", "128, 32", "m.f()", ("QMMA.SF.E8", "LDG.128")),
        Compiles(patch, "n/s.cu"),
    )


def test_loads_the_tags_of_a_title(tmp_path: Path) -> None:
    tagged = load(tmp_path, GATING.replace('upstream = "vllm"', 'upstream = "vllm"\ntags = ["Bugfix", "Spec Decode", "C++"]'))
    (patch,) = tagged.patches
    assert tagged.tags == {patch: ("Bugfix", "Spec Decode", "C++")}
    assert load(tmp_path, GATING).tags == {}


@pytest.mark.parametrize("tag", ["[Bugfix]", "Bug]fix", " Bugfix", "Bug\\nfix", "Bug\\u001bfix"])
def test_refuses_odd_tags(tmp_path: Path, tag: str) -> None:
    text = GATING.replace('upstream = "vllm"', f'upstream = "vllm"\ntags = ["{tag}"]')
    line = refusal(tmp_path, load, tmp_path, text)
    assert line.startswith("small/series.toml: patch[0].tags names ")
    assert line.endswith(": write them without their brackets: Bugfix, Kernel")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('title = "Gate kernels"', "", "title is missing: add it"),
        ('title = "Gate kernels"', "title = 1", "title is 1: it has to be text"),
        ('title = "Gate kernels"', 'title = "t"\ntitel = "t"', "titel is an unknown key: did you mean 'title'?"),
        ('why   = "The upstream takes the wrong ones."', "", "why is missing: add it"),
        ('why   = "The upstream takes the wrong ones."', 'why = ""', "why is '': it has to be text"),
        ('state = "pending"', "", "state is missing: add it"),
        ('state = "pending"', 'state = "Pending"', f"state is 'Pending': it has to be one of {STATES}"),
        ('state = "pending"', 'state = "submitted"', "pull is missing: the state is submitted: add the pull request's address"),
        ('state = "pending"', 'state = "merged"', "pull is missing: the state is merged: add the pull request's address"),
        ('state = "pending"', 'state = "declined"', "reason is missing: the state is declined: add the reason"),
        ('state = "pending"', 'state = "inappropriate"', "reason is missing: the state is inappropriate: add the reason"),
        ('state = "pending"', 'state = "draft"\npull = "#1"', "pull is '#1': it has to be the address of the pull request"),
        ('state = "pending"', 'state = "draft"\nneeds = "x"', "needs is 'x': it has to be a list of strings"),
        ('state = "pending"', 'state = "draft"\nneeds = ["x", "x"]', "needs names 'x' twice: name it once"),
        ('state = "pending"', 'state = "draft"\nproves = [1]', "proves is [1]: it has to be a list of strings"),
        ("[[patch]]", "[patch]", "patch is {'upstream': 'vllm', 'file': 'vllm/gate-kernels.patch'}: it has to be an array of tables"),
        ("[[patch]]", "[[patches]]", "patches is an unknown key: did you mean 'patch'?"),
        ('upstream = "vllm"', "", "patch[0].upstream is missing: add it"),
        ('upstream = "vllm"', 'upstream = "../x"', "patch[0].upstream is '../x': it has to be the name of an upstream"),
        (
            'upstream = "vllm"',
            'upstream = "vllm"\norder = 1',
            "patch[0].order is an unknown key: known here: compiles, file, from, pull, tags, upstream",
        ),
        ('upstream = "vllm"', 'upstream = "cutlass"', "patch[0].file is 'vllm/gate-kernels.patch': a patch of cutlass stands in cutlass/"),
        *(
            ('upstream = "vllm"', f'upstream = "vllm"\ncompiles = [{{ {keys} }}]', f"patch[0].{line}")
            for keys, line in (
                ("", "compiles[0].unit is missing: add it"),
                ('unit = "m"', "compiles[0].unit is 'm': it has to be <module>/<source file>, with * for any text"),
                (
                    'unit = "m/s", sass = ["qmma"]',
                    "compiles[0].sass names 'qmma': an instruction is named as the disassembler does: QMMA.SF, LDG.128",
                ),
                ('unit = "m/s", makes = ""', "compiles[0].makes is '': it has to be text"),
                ('unit = "m/s", sas = []', "compiles[0].sas is an unknown key: did you mean 'sass'?"),
            )
        ),
        *(
            (
                "vllm/gate-kernels.patch",
                file,
                f"patch[0].file is '{file}': a patch is named after its subject, never numbered",
            )
            for file in ("vllm/0001-gate.patch", "vllm/1-gate.patch", "vllm/01_gate.patch")
        ),
        *(
            ("vllm/gate-kernels.patch", file, f"patch[0].file is '{file}': it has to be <upstream>/<name>.patch")
            for file in [
                "../x.patch", "/x.patch", "vllm/../x.patch", "vllm/x/y.patch", "vllm/.x.patch", "vllm/x", "x.patch", "vllm/-x.patch",
                "vllm/a b.patch", "vllm//x.patch",
            ]
        ),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in GATING
    assert refusal(tmp_path, load, tmp_path, GATING.replace(old, new, 1)) == f"small/series.toml: {line}"


# --- edited ---------------------------------------------------------------------------------------------------------------

NAMES = [f"{upstream}/{name}.patch" for upstream in ("vllm", "cutlass") for name in "abcd"]
WHYS = st.sampled_from(['"w"', '"""\nw\n# no comment\n[[patch]]\n"""', "'''\n[[patch]]'''"])


def ref(file: str) -> PatchRef:
    return PatchRef("small", file.partition("/")[0], file)


def listed(text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return [one.file for one in load(Path(folder), text).patches]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A `series.toml`; the comment above the table of `f` is `# above f`, in it `# in f`, at its end `# end f`."""
    files = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    head = f"# about the series\ntitle = 't' # the title\nwhy = {draw(WHYS)}\nstate = 'draft'\n"
    tables = []
    for file in files:
        header = draw(st.sampled_from(["[[patch]]", " [[ patch ]]", '[["patch"]] # header']))
        keys = draw(st.permutations([f'upstream = "{file.partition("/")[0]}" # in {file}\n', f'file="{file}"\n']))
        blank = draw(st.sampled_from(["\n", "\n\n"]))
        end = f"# end {file}\n" if draw(st.booleans()) else ""
        above = "".join(f"# above {file}\n" for _ in range(draw(st.integers(0, 2))))
        tables.append(f"{above}{header}\n{''.join(keys)}{end}{blank if end or draw(st.booleans()) else ''}")
    text = head + draw(st.sampled_from(["", "\n"])) + "".join(tables)
    text += draw(st.sampled_from(["", "\n# at the end\n"]))
    text = text.rstrip("\n") if draw(st.booleans()) else text
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))), files


@settings(deadline=None)
@given(layouts(), st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
def test_edited(layout: tuple[str, list[str]], new: list[str]) -> None:
    text, old = layout
    assert series.edited(text, tuple(map(ref, old))) == text
    edited = series.edited(text, tuple(map(ref, new)))
    assert listed(edited) == new
    before, after = tomllib.loads(text), tomllib.loads(edited)
    assert {**before, "patch": None} == {**after, "patch": None}
    lines = [line.strip() for line in edited.splitlines()]
    for comment in ("# about the series", "# at the end"):
        assert (comment in lines) == (comment in text)
    for file in new:
        for place in ("above", "in", "end"):
            assert edited.count(f"# {place} {file}") == text.count(f"# {place} {file}")
        if f"# above {file}" in text:
            above = max(place for place, line in enumerate(lines) if line == f"# above {file}")
            assert file in "".join(lines[above + 1 : above + 4])
        if f"# end {file}" in text:
            assert file in "".join(lines[lines.index(f"# end {file}") - 2 : lines.index(f"# end {file}")])
    assert listed(series.edited(edited, tuple(map(ref, old)))) == old


def test_edited_touches_only_the_list() -> None:
    text = CACHE.replace('\n[[patch]]\nupstream = "cutlass"', '\n# Needs the caches.\n[[patch]] # later\nupstream = "cutlass"')
    first, second = text.index('[[patch]]\nupstream = "fl'), text.index("# Needs")
    files = ("cutlass/add-a-tile.patch", "flashinfer/read-caches.patch")
    swapped = text[:first] + text[second:] + "\n" + text[first:second].rstrip("\n") + "\n"
    assert series.edited(text, tuple(map(ref, files))) == swapped
    assert series.edited(text, (ref(files[0]),)) == text[:first] + text[second:]
    assert series.edited(text, (ref(files[1]),)) == text[:second].rstrip("\n") + "\n"
    added = '\n[[patch]]\nupstream = "vllm"\nfile     = "vllm/new.patch"\n'
    assert series.edited(text, (*map(ref, reversed(files)), ref("vllm/new.patch"))) == text + added


def test_edited_list_of_inline_tables() -> None:
    text = "title = 't' # kept\nwhy = 'w'\npatch = [{ upstream = 'vllm', file = 'vllm/a.patch' }]\nstate = 'draft'\n"
    edited = series.edited(text, (ref("cutlass/b.patch"), ref("vllm/a.patch")))
    assert listed(edited) == ["cutlass/b.patch", "vllm/a.patch"]
    assert edited.startswith("title = 't' # kept\nwhy = 'w'\nstate = 'draft'\n")


# --- slug -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("Do it, now", "do-it-now"),
        ("[Tag] [Other]  Do it", "do-it"),
        ("[Tag]", "patch"),
        ("", "patch"),
        ("日本", "patch"),
        ("../../etc/passwd", "etc-passwd"),
        ("4 bit caches", "4bit-caches"),
        ("2024-01 is over", "202401is-over"),
        ("0001", "0001"),
        (f"{'word ' * 30}end", "-".join(["word"] * 14)),
        ("x" * 100, "x" * 72),
    ],
)
def test_slug(subject: str, name: str) -> None:
    assert series.slug(subject) == name


@given(st.text() | st.from_regex(r"(\[[A-Z]+\] )?([0-9]{1,3}[ -]){0,3}[a-z ]{0,100}"))
def test_slug_is_a_name_that_a_series_may_list(subject: str) -> None:
    file = f"vllm/{series.slug(subject)}.patch"
    text = f"title = 't'\nwhy = 'w'\nstate = 'draft'\n[[patch]]\nupstream = 'vllm'\nfile = '{file}'\n"
    assert listed(text) == [file]
    assert len(file) <= 84


@pytest.mark.parametrize("inline", [True, False])
def test_edited_keeps_what_patches_have_compiled(tmp_path: Path, inline: bool) -> None:
    compiles = '{unit = "m/s.cu", sass = ["QMMA"]}'
    tables = f'upstream = "vllm"\nfile = "vllm/a.patch"\ncompiles = [{compiles}]', 'upstream = "vllm"\nfile = "vllm/b.patch"'
    inner = ", ".join(f"{{{table.replace(chr(10), ', ')}}}" for table in tables)
    listed_so = f"patch = [{inner}]\n" if inline else "".join(f"[[patch]]\n{table}\n" for table in tables)
    text = f"title = 't'\nwhy = 'w'\nstate = 'draft'\n{listed_so}"
    swapped = load(tmp_path, series.edited(text, (ref("vllm/b.patch"), ref("vllm/a.patch"))))
    assert [one.file for one in swapped.patches] == ["vllm/b.patch", "vllm/a.patch"]
    assert swapped.compiles == (Compiles(ref("vllm/a.patch"), "m/s.cu", sass=("QMMA",)),)


HEAD = 'title = "t" # short\nwhy = "w"\nstate = "draft"\n'
PATCH = '\n# about it\n[[patch]]\nupstream = "up"\nfile = "up/b.patch"\n'
GONE = Landed(PatchRef("small", "up", "up/a.patch"), "v2", "v1")
ALSO = Landed(PatchRef("small", "up", "up/c.patch"), "v3", "v2")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("patches", [PATCH, "", '\n[[patch]]\nupstream = "up"\nfile = "up/b.patch"\n# the end\n'])
def test_what_has_landed_is_kept_above_the_patches(tmp_path: Path, patches: str, newline: str) -> None:
    text = (HEAD + patches).replace("\n", newline)
    once = series.with_landed(text, [GONE])
    twice = series.with_landed(once, [ALSO])
    assert twice.startswith(HEAD.replace("\n", newline))
    assert twice.endswith(patches.replace("\n", newline))
    assert twice.count("\n") == twice.count(newline)
    assert load(tmp_path, twice).landed == (GONE, ALSO)
    assert load(tmp_path, twice).patches == load(tmp_path, text).patches
    assert series.with_landed(twice, []) == twice


def test_what_has_landed_outlives_the_patches(tmp_path: Path) -> None:
    text = series.edited(series.with_landed(HEAD + PATCH, [GONE]), ())
    assert load(tmp_path, text).landed == (GONE,)
    below = HEAD + PATCH + '[[landed]]\nfile = "up/a.patch"\nrelease = "v2"\nbefore = "v1"\n'
    assert load(tmp_path, below).landed == (GONE,)
    assert "`landed` below a [[patch]] that goes" in refusal(tmp_path, series.edited, below, ())
    assert "`landed` below a [[patch]]: put it above" in refusal(tmp_path, series.with_landed, below, [ALSO])


def test_what_has_landed_is_read_strictly(tmp_path: Path) -> None:
    odd = HEAD + 'landed = [{file = "a.patch", release = "v2", before = "v1"}]'
    assert "landed[0].file is 'a.patch'" in refusal(tmp_path, load, tmp_path, odd)
    short = HEAD + 'landed = [{file = "up/a.patch", release = "v2"}]'
    assert "landed[0].before is missing" in refusal(tmp_path, load, tmp_path, short)


ONE = "https://github.com/up/up/pull/1"
TWO = "https://github.com/up/up/pull/2"
B = PatchRef("small", "up", "up/b.patch")
LISTED = """\
title = "t" # short
why = "w"
state = "pending" # until it is opened

# about a
[[patch]]
upstream = "up"
file     = "up/a.patch" # the first
# below a
[[patch.compiles]]
unit = "m/s.cu"

# about b
[[patch]]
upstream = "up"
file = "up/b.patch"
# the end
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_pull_requests_stand_below_the_files_of_their_patches(tmp_path: Path, newline: str) -> None:
    a = PatchRef("small", "up", "up/a.patch")
    text = LISTED.replace("\n", newline)
    opened = series.with_pulls(text, [Pulled(a, ONE)], State.SUBMITTED)
    assert opened.replace(newline, "\n") == LISTED.replace('"pending"', '"submitted"').replace(
        "# the first\n", f'# the first\npull     = "{ONE}"\n'
    )
    assert opened.count("\n") == opened.count(newline)
    both = series.with_pulls(opened, [Pulled(B, ONE), Pulled(B, TWO)])
    assert load(tmp_path, both).pulls == (Pulled(a, ONE), Pulled(B, ONE), Pulled(B, TWO))
    assert load(tmp_path, both).state is State.SUBMITTED
    again = series.with_pulls(both, [Pulled(a, TWO), Pulled(B, TWO)])
    assert load(tmp_path, again).pulls == (Pulled(a, TWO), Pulled(B, TWO))
    assert again.replace(f'pull     = "{TWO}"', f'pull     = "{ONE}"').startswith(opened[: opened.index("# about b")])
    assert series.with_pulls(again, []) == again


def test_a_series_that_cannot_be_edited_says_what_to_write(tmp_path: Path) -> None:
    inline = HEAD + 'patch = [{upstream = "up", file = "up/b.patch"}]\n'
    said = refusal(tmp_path, series.with_pulls, inline, [Pulled(B, ONE)])
    assert said == f"series.toml cannot be edited as it is written: write it there by hand: up/b.patch: pull = '{ONE}'"
    said = refusal(tmp_path, series.with_pulls, LISTED.replace("b.patch", "c.patch"), [Pulled(B, ONE)])
    assert "cannot be edited" in said
    # Text that looks like a patch's file, in a comment above it.
    hidden = HEAD + "[[patch]]\n# file = 'x'\nupstream = 'up'\nfile = 'up/b.patch'"
    assert load(tmp_path, series.with_pulls(hidden, [Pulled(B, ONE)])).pulls == (Pulled(B, ONE),)
    quoted = HEAD + "[[patch]]\nupstream = 'up'\n'file' = 'up/b.patch'\n"
    assert "cannot be edited" in refusal(tmp_path, series.with_pulls, quoted, [Pulled(B, ONE)])


def test_pull_requests_of_patches_are_read_strictly(tmp_path: Path) -> None:
    text = HEAD.replace("draft", "submitted") + PATCH
    assert "pull is missing: the state is submitted" in refusal(tmp_path, load, tmp_path, text)
    assert load(tmp_path, f'{text}pull = "{ONE}"').pulls == (Pulled(B, ONE),)
    assert load(tmp_path, f'{text}pull = ["{ONE}", "{TWO}"]').pulls == (Pulled(B, ONE), Pulled(B, TWO))
    assert "patch[0].pull is 'soon'" in refusal(tmp_path, load, tmp_path, f'{text}pull = "soon"')
    assert "patch[0].pull has 'soon'" in refusal(tmp_path, load, tmp_path, f'{text}pull = ["{ONE}", "soon"]')
    assert "patch[0].pull is 7" in refusal(tmp_path, load, tmp_path, f"{text}pull = 7")

# SPDX-License-Identifier: Apache-2.0
"""Release tags of real projects, in the order of their versions; hostile patterns and tags end soon."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import releases

# For each form of tags: a rule, and a project's releases in order, mixed with other tags.
FORMS: dict[str, tuple[str, list[str], list[str]]] = {
    "nginx": ("release-*", ["release-1.9.15", "release-1.27.1", "release-1.31.4"], ["release", "main-1.0", "release-x"]),
    "llama.cpp": ("b*", ["b999", "b4567", "b10000"], ["gguf-v0.17.1", "master-1a2b3c4", "b45x"]),
    "llvm": ("llvmorg-*", ["llvmorg-9.0.0", "llvmorg-18.1.0", "llvmorg-18.1.8"], ["llvmorg-19-init", "llvmorg-19.1.0-rc1"]),
    "curl": ("curl-*", ["curl-7_88_1", "curl-8_5_0", "curl-8_10_0"], ["tiny-curl-8_4_0", "x"]),
    "openssh": ("V_*", ["V_9_8", "V_9_8_P1", "V_9_9_P1", "V_10_0_P1"], ["ANONCVS_1", "PRE_SHADOW_MERGE"]),
    "linux": ("v*", ["v5.19", "v6.9", "v6.12"], ["v6.12-rc3", "next"]),
    "javascript": ("v*", ["v1.2.3", "v1.10.0"], ["v1.2.3-rc.1", "v2.0.0-alpha.4", "v2.0.0-canary.1"]),
    "rust": ("*", ["0.9.12", "1.2.3", "1.10.0"], ["1.11.0-beta.2", "show"]),
    "dates": ("*", ["2023-12-31", "2024-01-31", "2024-02-01"], ["nightly"]),
    "compact dates": ("snapshot-*", ["snapshot-20231231", "snapshot-20240131"], ["snapshot-latest"]),
    "a digit in the name": ("log4j-*", ["log4j-1.2.17", "log4j-2.9.0", "log4j-2.17.0"], ["rel", "log5-1"]),
    "a folder": ("rel/*", ["rel/1.9", "rel/1.10"], ["docs/1.0"]),
    "tmux": ("*", ["3.2a", "3.3", "3.3a", "3.4", "3.5a"], ["3.5-rc", "3.6-rc2"]),
    "openssl": ("OpenSSL_*", ["OpenSSL_1_0_2z", "OpenSSL_1_0_2za", "OpenSSL_1_1_1", "OpenSSL_1_1_1w"], ["OpenSSL_1_1_1-pre9"]),
    "tzdata": ("*", ["2023d", "2024a", "2024b"], ["vanguard"]),
    "postgresql": ("REL_*", ["REL_9_6", "REL_16_1"], ["REL7_4_BETA"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_in_the_order_of_their_versions(form: str) -> None:
    pattern, ordered, others = FORMS[form]
    tags = [*ordered, *others]
    random.Random(form).shuffle(tags)
    assert releases.of(pattern).ordered(tags) == ordered


@pytest.mark.parametrize("form", FORMS)
def test_the_rule_follows_from_a_pinned_tag(form: str) -> None:
    pattern, ordered, others = FORMS[form]
    for tag in ordered:
        assert releases.of(None, tag).pattern == pattern
        assert releases.of(None, tag).ordered([*others, *ordered]) == ordered


@pytest.mark.parametrize("form", FORMS)
def test_the_likely_rule_of_a_project(form: str) -> None:
    _, ordered, others = FORMS[form]
    rule = releases.likely([*others, *ordered])
    assert rule is not None
    assert rule.ordered([*others, *ordered]) == ordered


def test_nightly_tags_do_not_outnumber_the_versions() -> None:
    nightly = [f"nightly-v1.{day // 30}.0-202610{day:02}" for day in range(100)]
    assert releases.likely([*nightly, "v1.0.0", "v1.1.0", "v1.2.0"]) == releases.of(None)
    alone = releases.likely([*nightly, *(f"nightly-v9.0.{day}" for day in range(100)), "v0"])
    assert alone is not None
    assert alone.version("nightly-v9.0.1") is not None


def test_a_project_without_versions_has_no_likely_rule() -> None:
    assert releases.likely(["latest", "stable", "x" * 1000, ""]) is None
    assert releases.likely([]) is None


def test_between_leaves_out_the_ends_and_what_is_no_release() -> None:
    rule = releases.of("release-*")
    tags = ["release-1.3.0", "release-1.2.0", "release-1.2.1", "release-1.3.0-rc1", "v1.2.5", "release-1.4.0"]
    assert rule.between(tags, "release-1.2.0", "release-1.4.0") == ["release-1.2.1", "release-1.3.0"]
    assert rule.between(tags, "release-1.2.0", "release-1.3.0-rc1") == ["release-1.2.1"]
    assert rule.between(tags, "release-1.2.1", "release-1.3.0") == []
    assert rule.between(tags, "release-1.4.0", "release-1.2.0") == []
    assert rule.between(tags, "main", "release-1.4.0") == []


def test_pre_releases_are_in_order_before_their_release() -> None:
    tags = ["v1.2.3", "v1.2.3-rc.1", "v1.2.3-rc.10", "v1.2.3-rc.2", "v1.2.3-alpha.1", "v1.2.4"]
    expected = ["v1.2.3-alpha.1", "v1.2.3-rc.1", "v1.2.3-rc.2", "v1.2.3-rc.10", "v1.2.3", "v1.2.4"]
    assert releases.of("v*").ordered(tags, early=True) == expected


def test_a_regular_expression() -> None:
    rule = releases.of(r"rel/(?P<version>\d+\.\d+)(?:-final)?")
    assert rule.ordered(["rel/3.12-old", "rel/3.2", "rel/3.12-final", "rel/3.1"]) == ["rel/3.1", "rel/3.2", "rel/3.12-final"]
    assert rule.tag_of("3.12") is None
    assert releases.of("release-*").tag_of("1.2") == "release-1.2"


def test_the_same_version_twice_keeps_a_fixed_order() -> None:
    assert releases.of("v*").ordered(["v1.0.0", "v1.0", "v1"]) == releases.of("v*").ordered(["v1", "v1.0.0", "v1.0"])


HOSTILE = [
    "(",
    "[",
    "(?P<version>",
    "(?P<version>[)",
    "(?P<version>a" * 30,
    "*" * 3,
    "x",
    "(?P<other>.)",
    "(?P<version>.{1,9})",
]


@pytest.mark.parametrize("pattern", [*HOSTILE, "v" * 101, "(?P<version>(?R))", "(?P<version>a)\\", "(?P<1>a)", ""])
def test_a_pattern_that_is_none_is_refused_in_one_line(pattern: str) -> None:
    with pytest.raises(StackError, match=r"write it like release-\*"):
        releases.of(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(?P<version>(a+)+b)", r"(?P<version>(a|a)*b)", r"(?P<version>(?:a*)*b)", r"(?P<version>.*.*.*.*.*.*.*.*.*x)"),
        *(r"(?P<version>(?:.*a)*)(?:a*a*)*b", r"((a*)*)*(?P<version>x)", r"(?P<version>(?:\w+\w+)+!)"),
    ],
)
def test_a_pattern_that_takes_for_ever_ends_soon(pattern: str) -> None:
    tags = ["a" * 99 for _ in range(50)]
    begun = time.process_time()
    try:
        assert releases.of(pattern).ordered(tags) == []
    except StackError as refused:
        assert "write it like" in str(refused)
    assert time.process_time() - begun < 5


def test_many_tags_that_each_take_a_while_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_SECONDS_FOR_ALL", 0.3)
    tags = [f"{number:04}{'a' * 90}" for number in range(5000)]
    begun = time.process_time()
    with pytest.raises(StackError, match="for the tags of one project: write it like"):
        releases.of(r"(?P<version>\w*\w*\w*[bc]\w?)").ordered(tags)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    "tag",
    [
        "v" + "1." * 49,
        "v1" + "0" * 97,
        "v1" * 50,
        "v1" + "_1" * 45,
        "v1p" * 30,
        "v" + "9" * 10**6,
        "v1\n",
        "v\u0661.\u0662",
        "v1\0",
    ],
)
def test_a_hostile_tag_is_read_soon(tag: str) -> None:
    begun = time.process_time()
    for rule in (releases.of("v*"), releases.of(None), releases.of(None, tag[:90] if "\n" not in tag else None)):
        rule.ordered([tag] * 20)
    releases.likely([tag] * 20)
    assert time.process_time() - begun < 2


@given(st.lists(st.text(alphabet="v0123456789._-+/abrcpP*()", max_size=20), max_size=20))
def test_any_tags(tags: list[str]) -> None:
    rule = releases.likely(tags) or releases.of(None)
    ordered = rule.ordered(tags, early=True)
    assert set(ordered) <= set(tags)
    assert ordered == rule.ordered(reversed(tags), early=True)
    for tag in tags:
        releases.of(None, tag).version(tag)


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3), unique=True), st.sampled_from([("v", "."), ("curl-", "_"), ("", "-")]))
def test_versions_of_three_numbers(versions: list[tuple[int, ...]], form: tuple[str, str]) -> None:
    before, between = form
    tags = [before + between.join(map(str, version)) for version in versions]
    expected = [before + between.join(map(str, version)) for version in sorted(versions)]
    assert releases.of(f"{before}*").ordered(tags) == expected

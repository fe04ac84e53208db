# SPDX-License-Identifier: Apache-2.0
"""Images of other GPUs go, all else stays."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.validation.pack import fatbin
from stack.validation.pack.fatbin import ImageKind
from tests.validation.pack.factories import FAMILY, PTX, SPECIFIC, Made, library

SOME = st.builds(
    Made,
    gpu=st.sampled_from([75, 80, 86, 89, 90, 100, 120, 121]),
    kind=st.sampled_from([1, 2]),
    data=st.binary(min_size=1, max_size=40),
    flags=st.sampled_from([0x11, 0x8011, 0x11 | SPECIFIC, 0x11 | FAMILY]),
    compressed=st.booleans(),
)
CONTAINERS = st.lists(st.lists(SOME, max_size=6), max_size=4)


@given(CONTAINERS)
def test_every_image_is_found_where_it_was_put(containers: list[list[Made]]) -> None:
    data = library(containers)
    found = fatbin.images(data, "x.so")
    made = list(itertools.chain.from_iterable(containers))
    assert [(one.kind, one.gpu, one.compressed) for one in found] == [(one.kind, one.gpu, one.compressed) for one in made]
    for image, one in zip(found, made, strict=True):
        assert data[image.start : image.end].rstrip(b"\0") == one.data.rstrip(b"\0")


@given(CONTAINERS)
def test_only_what_goes_changes_and_it_is_zeros(containers: list[list[Made]]) -> None:
    data = library(containers)
    thinned = fatbin.thin(data, 90, "x.so")
    expected = bytearray(data)
    for image in thinned.dropped:
        expected[image.start : image.end] = bytes(image.size)
    assert thinned.data == bytes(expected)
    assert {*thinned.kept, *thinned.dropped} == {*fatbin.images(data, "x.so")}
    assert fatbin.images(thinned.data, "x.so") == fatbin.images(data, "x.so")  # the driver sees the same offer


@given(CONTAINERS)
def test_a_container_that_has_something_for_the_gpu_keeps_it_and_nothing_else(containers: list[list[Made]]) -> None:
    data = library(containers)
    kept = fatbin.thin(data, 90, "x.so").kept
    for number in {image.container for image in fatbin.images(data, "x.so")}:
        inside = [image for image in fatbin.images(data, "x.so") if image.container == number]
        mine = [image for image in kept if image.container == number]
        own = [image for image in inside if image.kind is ImageKind.CUBIN and image.gpu == 90]
        assert mine == own if own else all(image.kind is ImageKind.PTX and image.gpu <= 90 for image in mine)


def test_the_newest_ptx_stays_where_there_is_no_machine_code() -> None:
    data = library([[Made(75, PTX), Made(80), Made(80, PTX), Made(90, PTX, flags=0x11 | SPECIFIC), Made(100, PTX)]])
    assert [(one.kind, one.gpu) for one in fatbin.thin(data, 90, "x.so").kept] == [(ImageKind.PTX, 90)]
    data = library([[Made(75, PTX), Made(80), Made(80, PTX), Made(89, PTX, flags=0x11 | SPECIFIC), Made(100, PTX)]])
    assert [(one.kind, one.gpu) for one in fatbin.thin(data, 90, "x.so").kept] == [(ImageKind.PTX, 80)]


def test_machine_code_of_the_same_major_number_runs_on_later_ones() -> None:
    data = library([[Made(80), Made(86, flags=0x11 | SPECIFIC), Made(90), Made(80, PTX)]])
    assert [one.gpu for one in fatbin.thin(data, 89, "x.so").kept] == [80]


def test_kernels_that_are_not_named_go() -> None:
    data = library([[Made(90, data=b"...head64_bf16...")], [Made(90, data=b"...head128_bf16...")]])
    (kept,) = fatbin.thin(data, 90, "x.so", "head64").kept
    assert b"head64" in data[kept.start : kept.end]


def test_a_library_without_gpu_code_stays() -> None:
    data = library([[Made(80)]], section=b".rodata")
    assert fatbin.thin(data, 90, "x.so").data == data


@pytest.mark.parametrize("cut", [10, 70, 100, 130])
def test_a_library_that_is_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(StackError):
        fatbin.images(library([[Made(90)]])[:cut], "x.so")


def test_an_unknown_form_is_an_error() -> None:
    data = bytearray(library([[Made(90)]]))
    place = data.index(b"\x50\xed\x55\xba")
    data[place] ^= 1
    with pytest.raises(StackError, match="known form"):
        fatbin.images(bytes(data), "x.so")

# SPDX-License-Identifier: Apache-2.0
"""Cutting a generated source down to one explicit instantiation."""

import pytest

from stack.proof.compiling import instantiations

MACROS = """\
#include <gemm.cuh>
namespace gemm {

INSTANTIATE_GEMM(
    128,
    (wide<1, 2>),
    float
)

#if defined(ENABLE)
        INSTANTIATE_GEMM(64, narrow, float);
#endif
}
"""
TEMPLATES = """\
template <int N>
void run() {}

template void run<1>();
  template class Runner<
      float>;
// template void run<2>();
template<> void run<3>() {}
"""


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (MACROS, ["INSTANTIATE_GEMM( 128, (wide<1, 2>), float )", "INSTANTIATE_GEMM(64, narrow, float);"]),
        (TEMPLATES, ["template void run<1>();", "template class Runner< float>;"]),
        ("int x;\n", []),
        ("INSTANTIATE_GEMM(1,\n", []),
    ],
)
def test_found(source: str, texts: list[str]) -> None:
    assert [one.text for one in instantiations.of(source)] == texts


@pytest.mark.parametrize(
    ("source", "cuts"),
    [
        (
            MACROS,
            [
                MACROS.replace("        INSTANTIATE_GEMM(64, narrow, float);", ""),
                MACROS.replace("INSTANTIATE_GEMM(\n    128,\n    (wide<1, 2>),\n    float\n)", "\n\n\n\n"),
            ],
        ),
        (
            TEMPLATES,
            [
                TEMPLATES.replace("  template class Runner<\n      float>;", "\n"),
                TEMPLATES.replace("template void run<1>();", "", 1),
            ],
        ),
    ],
    ids=["macros", "templates"],
)
def test_only_one_is_kept_and_lines_keep_their_numbers(source: str, cuts: list[str]) -> None:
    found = instantiations.of(source)
    assert [instantiations.only(source, one) for one in found] == cuts
    assert {cut.count("\n") for cut in cuts} == {source.count("\n")}

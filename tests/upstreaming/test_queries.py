# SPDX-License-Identifier: Apache-2.0
"""What the open pull requests are searched for."""

from stack.model import patch as patches
from stack.model.ids import CommitId
from stack.model.series import PatchRef, Series, State
from stack.upstreaming.proposal import Part, Proposal
from stack.upstreaming.queries import queries

REF = PatchRef("moe", "vllm", "vllm/guard.patch")
DIFF = """\
diff --git a/vllm/fused_moe/cpu_moe.py b/vllm/fused_moe/cpu_moe.py
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/vllm/fused_moe/cpu_moe.py
+++ b/vllm/fused_moe/cpu_moe.py
@@ -1,2 +1,2 @@
 class CPUExpertsMxfp4:
-    return _is_amx_tile_supported()
+    return _is_avx512_bf16_supported()
"""


def proposal(subject: str, body: str) -> Proposal:
    head = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@x>\nDate: Mon, 5 Jan 2026 10:00:00 +0100\n"
    patch = patches.parse(f"{head}Subject: [PATCH] {subject}\n\n{body}\n---\n{DIFF}".encode(), REF, name="guard")
    return Proposal("vllm", "moe", "guard", CommitId("0" * 40), "v1", False, (Part(REF.path, patch),))


def series(why: str = "Because.", drop_when: str | None = None) -> Series:
    return Series("moe", "MoE", why, State.PENDING, drop_when=drop_when)


def test_issues_are_searched_by_number() -> None:
    asked = proposal("Guard (#7)", "Fixes #123, see https://github.com/o/r/pull/456 and o/r#9.")
    other = series(
        "Issues 46464 and 51977 are open.", "vLLM has pull requests 43408, #47350 and 52055; issue 0 is none, 2026 a year"
    )
    assert queries(asked, other).numbers == (7, 123, 456, 46464, 51977, 43408, 47350, 52055)


def test_names_of_the_code_are_searched_before_words() -> None:
    asked = proposal(
        "[CPU] Support MXFP4 experts on CPUs without AMX", "CPUExpertsMxfp4 asks for other_things and _is_amx_tile_supported()."
    )
    assert queries(asked, series()).words == ("CPUExpertsMxfp4", "_is_amx_tile_supported", "cpu_moe", "MXFP4 CPUs AMX")


def test_a_plain_subject_gives_its_longest_words() -> None:
    assert queries(proposal("Let it be the same for all of them", "x"), series()).words == ("cpu_moe", "same all")

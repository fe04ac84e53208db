# SPDX-License-Identifier: Apache-2.0
"""Small changes of small trees, as pull requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.carry.unmerged_remainder import difference
from stack.model import patch as patches
from stack.model.diff import parse
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.series import PatchRef
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects
from stack.upstreaming import rules
from stack.upstreaming.change import Change
from stack.upstreaming.linting import LintFinding
from stack.upstreaming.proposal import Part, Proposal
from stack.upstreaming.rules import Style

AUTHOR = "Ada Lovelace <ada@example.org>"
SIGNED = f"Signed-off-by: {AUTHOR}"
DIFF = "diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
VLLM = rules.load("vllm", Path("/nowhere"))
FLASHINFER = rules.load("flashinfer", Path("/nowhere"))
CUTLASS = rules.load("cutlass", Path("/nowhere"))
REF = PatchRef("moe", "vllm", "vllm/guard.patch")
STYLE = Style(".pre-commit-config.yaml", (("ruff", "0.1.0"),), ("no-print",))


@dataclass(frozen=True)
class Making:
    """Trees of one repository."""

    objects: Objects

    def tree(self, files: Mapping[str, str]) -> TreeId:
        entries = {path: Entry(FILES[0], self.objects.write_blob(text.encode())) for path, text in files.items()}
        return self.objects.replaced(EMPTY_TREE, entries)

    def change(self, before: Mapping[str, str], after: Mapping[str, str]) -> Change:
        """What makes one set of files another."""
        trees = self.tree(before), self.tree(after)
        return Change(self.objects, *trees, parse(difference(self.objects, *trees)))


def patch(subject: str = "Guard it", body: str = f"Because.\n\n{SIGNED}", author: str = AUTHOR, diff: str = DIFF) -> Patch:
    head = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: {author}\nDate: Mon, 5 Jan 2026 10:00:00 +0100\n"
    return patches.parse(f"{head}Subject: [PATCH] {subject}\n\n{body}\n---\n{diff}".encode(), REF, name="guard.patch")


def proposal(*made: Patch, upstream: str = "vllm", real: bool = True) -> Proposal:
    parts = tuple(Part(REF.path, one) for one in made or (patch(),))
    return Proposal(upstream, "moe", "guard", CommitId("1" * 40), "v1.0", real, parts)


def said(found: object) -> list[tuple[str, str, str]]:
    """Rule, severity and place of findings."""
    return [(one.rule, one.severity.value, one.place) for one in found if isinstance(one, LintFinding)]  # type: ignore[attr-defined]

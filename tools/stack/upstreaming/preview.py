# SPDX-License-Identifier: Apache-2.0
"""Prepare the pull requests of the first wave as a maintainer would see them, and refuse those that upstream's rules refuse."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.carry.unmerged_remainder import difference
from stack.carry.upstream_stores import Stores
from stack.model import series
from stack.model.patch import trailers
from stack.proof.series_proofs import ProofState
from stack.upstreaming import description, own_folder
from stack.upstreaming.change import change
from stack.upstreaming.linting import Desk, LintFinding
from stack.upstreaming.linting.finding import error
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.proposal import Proposal, UpstreamPlan

PAGE = "index.html"
"""The page of all pull requests, in the folder of the preview."""
_RECORDED = frozenset({"base", "validation", "measurements", "duplicates", "assistance", "open"})
"""Rules about what is recorded or declared when a pull request is opened. A preview shows them and refuses nothing for them."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A pull request as it would be opened: title, description, and the diff of upstream's tree; `refused` says why it may not.

    `notes` are findings that do not refuse it: warnings, and what is still to be recorded before it is opened.
    """

    proposal: Proposal
    title: str
    body: str
    diff: bytes
    refused: tuple[LintFinding, ...]
    notes: tuple[LintFinding, ...]

    @property
    def folder(self) -> Path:
        """The folder of this pull request within the preview."""
        return Path(self.proposal.upstream, f"{self.proposal.series}-{self.proposal.slug}")


def previews(
    stores: Stores,
    preparation: Preparation,
    plans: Sequence[UpstreamPlan],
    chosen: Sequence[Proposal],
    desk: Desk,
    *,
    tested: bool,
) -> Iterator[Preview]:
    """Prepare and check each chosen pull request of the first wave; `tested` says whether planning ran the proofs.

    Raises:
        StackError: upstream's settings or a record cannot be read, or one of its tools cannot be run.

    """
    planned = {plan.upstream: plan.proposals for plan in plans}
    for proposal in chosen:
        if proposal.wave != 1:
            continue
        stores.tell(f"checking {proposal.name}")
        body = description.body(preparation.renewed(proposal).text)
        objects = stores.objects(proposal.upstream)
        made = change(objects, proposal, planned[proposal.upstream])
        findings = [*_own(proposal, tested=tested), *preparation.findings(proposal, desk, body)]
        refused = tuple(finding for finding in findings if _refuses(finding))
        yield Preview(
            proposal,
            preparation.title(proposal),
            body,
            difference(objects, made.before, made.after),
            refused,
            tuple(finding for finding in findings if finding not in refused),
        )


def _refuses(finding: LintFinding) -> bool:
    return finding.blocks and finding.rule not in _RECORDED


def _own(proposal: Proposal, *, tested: bool) -> Iterator[LintFinding]:
    """Check that each message says why, and that the pull request passes its tests without the rest of the stack."""
    for part in proposal.parts:
        body = part.patch.message.partition("\n")[2].strip()
        if trailers(part.patch.message):
            body = body.rpartition("\n\n")[0]
        if not body.strip():
            yield error("message", part.patch.subject, "has no text below its subject", "say in the patch's message why")
    if tested and (proposal.proof is None or proposal.proof.state is not ProofState.PASSES):
        state = "no proof names it" if proposal.proof is None else f"{proposal.proof.state.value}: {proposal.proof.reason}"
        yield error(
            "alone",
            "tests",
            f"its tests do not pass without the rest of the stack ({state})",
            "see `stack prove`, and `--split`",
        )


def write(made: Sequence[Preview], page: str, folder: Path) -> tuple[Path, ...]:
    """Write each pull request that is not refused into a folder of its own, and the page of all; replace an earlier preview.

    Raises:
        StackError: the folder holds files that no preview wrote, or cannot be written.

    """
    files = {Path(PAGE): page.encode()} | {
        preview.folder / name: data for preview in made if not preview.refused for name, data in _files(preview).items()
    }
    own_folder.replace(folder, files, "--preview")
    return tuple(folder / place for place in files)


def _files(preview: Preview) -> Mapping[str, bytes]:
    patches = {
        f"{number:04}-{series.slug(part.patch.subject)}.patch": part.patch.raw
        for number, part in enumerate(preview.proposal.parts, 1)
    }
    texts = {"branch": f"{preview.proposal.branch}\n", "title": f"{preview.title}\n", "body.md": preview.body}
    written = {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}
    return {**written, "change.diff": preview.diff, **patches}

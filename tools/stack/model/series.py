# SPDX-License-Identifier: Apache-2.0
"""`series.toml`: a named, ordered set of patches that carry one feature, over one or more upstreams."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

import tomlkit

from stack.model import document
from stack.model.document import Table

FILE = "series.toml"
NAME = r"[a-z0-9][a-z0-9-]*"
_PATCH_FILE = r"[a-z][a-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*\.patch"


class State(StrEnum):
    """Where a series stands upstream."""

    DRAFT = "draft"
    PENDING = "pending"
    SUBMITTED = "submitted"
    MERGED = "merged"
    DECLINED = "declined"
    INAPPROPRIATE = "inappropriate"


NEEDS_PULL = frozenset({State.SUBMITTED, State.MERGED})
NEEDS_REASON = frozenset({State.DECLINED, State.INAPPROPRIATE})


@dataclass(frozen=True, slots=True)
class PatchRef:
    """A patch's place: `file` is its path below the series' folder."""

    series: str
    upstream: str
    file: str

    @property
    def path(self) -> str:
        """The path below `stacks/`, which names the patch everywhere."""
        return f"{self.series}/{self.file}"


@dataclass(frozen=True, slots=True)
class Series:
    """One series as its `series.toml` says."""

    name: str
    title: str
    why: str
    state: State
    needs: tuple[str, ...] = ()
    pull: str | None = None
    reason: str | None = None
    drop_when: str | None = None
    acts_on: tuple[str, ...] = ()
    proves: tuple[str, ...] = ()
    patches: tuple[PatchRef, ...] = ()


def load(folder: Path) -> Series:
    """Read the `series.toml` of one folder; the folder's name is the series' name.

    Raises:
        StackError: anything unknown, missing or of the wrong form, with file and key.

    """
    table = document.load(folder / FILE)
    state = State(table.text("state", pattern="|".join(State), meaning="one of " + ", ".join(State)))
    series = Series(
        name=folder.name,
        title=table.text("title"),
        why=table.text("why"),
        state=state,
        needs=table.texts("needs"),
        pull=table.optional_text("pull", pattern=r"https?://\S+", meaning="the address of the pull request"),
        reason=table.optional_text("reason"),
        drop_when=table.optional_text("drop_when"),
        acts_on=table.texts("acts_on"),
        proves=table.texts("proves"),
        patches=tuple(_patch_ref(folder.name, patch) for patch in table.tables("patch")),
    )
    table.finish()
    if state in NEEDS_PULL and series.pull is None:
        raise table.error("pull", f"is missing: the state is {state}", "add the pull request's address")
    if state in NEEDS_REASON and series.reason is None:
        raise table.error("reason", f"is missing: the state is {state}", "add the reason")
    return series


def edited(text: str, patches: tuple[PatchRef, ...]) -> str:
    """The text of a `series.toml` with another list of patches; everything else stays as it is.

    A `[[patch]]` table that stays keeps its comments.
    """
    toml = tomlkit.parse(text)
    old = {(str(table["upstream"]), str(table["file"])): table for table in toml.get("patch", [])}
    if list(old) == [(patch.upstream, patch.file) for patch in patches]:
        return text
    toml.pop("patch", None)
    tables = tomlkit.aot()
    for patch in patches:
        table = old.get((patch.upstream, patch.file))
        if table is None:
            table = tomlkit.table()
            table["upstream"], table["file"] = patch.upstream, patch.file
        tables.append(table)
    if patches:
        toml["patch"] = tables
    return tomlkit.dumps(toml)


def slug(subject: str) -> str:
    """The file name, without ending, of a patch with this subject: `[Tag] Do it, now` gives `do-it-now`."""
    bare = re.sub(r"^(\s*\[[^\]]*\])+", "", subject)
    words = re.findall(r"[a-z0-9]+", bare.lower())
    name = "-".join(words)
    # A file name has 255 bytes at most; readable is shorter. Whole words only.
    while len(name) > 72 and "-" in name:
        name = name.rpartition("-")[0]
    return name[:72] or "patch"


def _patch_ref(series: str, table: Table) -> PatchRef:
    upstream = table.text("upstream", pattern=r"[a-z][a-z0-9-]*", meaning="the name of an upstream")
    file = table.text("file", pattern=_PATCH_FILE, meaning="<upstream>/<name>.patch")
    table.finish()
    if PurePosixPath(file).parts[0] != upstream:
        raise table.error("file", f"is {file!r}", f"a patch of {upstream} stands in {upstream}/")
    if re.match(r"\d+[-_]", PurePosixPath(file).name):
        raise table.error("file", f"is {file!r}", "a patch is named after its subject, never numbered")
    return PatchRef(series, upstream, file)

# SPDX-License-Identifier: Apache-2.0
"""Check that names which patches, recipes and compose files rely on exist in the trees at the pins."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import apply
from stack.carry.drift import blame, check_settings
from stack.carry.drift.named import Named, named, settings
from stack.carry.upstream_stores import Stores


@dataclass(frozen=True, slots=True)
class Finding:
    """A missing thing that the stack relies on. `source` is the patch or settings file, `path` and `line` are the place."""

    source: str
    upstream: str
    path: str
    line: int | None
    problem: str

    @property
    def place(self) -> str:
        """Return `path:line`, as editors read it."""
        return f"{self.path}:{self.line}" if self.line else self.path


def check(stores: Stores, files: Iterable[Path] = ()) -> tuple[Finding, ...]:
    """Find missing things that the patches, the stack's own recipes and compose files, and `files` rely on.

    Raises:
        StackError: a pinned source cannot be obtained, a patch does not apply, or a file cannot be read.

    """
    return (*_patches(stores), *_settings(stores, (*settings(stores.stack.root), *files)))


def _patches(stores: Stores) -> Iterator[Finding]:
    for pin in stores.stack.pins:
        patches = stores.stack.order(pin.upstream)
        if not patches:
            continue
        stores.tell(f"checking {pin.upstream}")
        base = stores.base(pin.upstream)
        objects = stores.objects(pin.upstream)
        tip = apply.chain(objects, base, patches)[-1]
        for patch, drift in blame.standing(objects, base, tip, patches):
            yield Finding(stores.stack.place(patch.ref.path), pin.upstream, drift.path, drift.line, drift.problem)


def _settings(stores: Stores, files: Iterable[Path]) -> Iterator[Finding]:
    references = [reference for file in files for reference in named(_shown(file, stores.stack.root), _text(file))]
    if not references:
        return
    for pin in stores.stack.pins:
        if pin.within is None:
            objects, tree = stores.objects(pin.upstream), stores.tip(pin.upstream)
            names = {reference.name for reference in references}
            flags = {name for name in names if name.startswith("-")}
            unknown = check_settings(objects, objects.tree_of(tree), names - flags, flags)
            problems = {setting.name: setting.problem for setting in unknown}
            for reference in references:
                if reference.name in problems:
                    yield _finding(reference, pin.upstream, problems[reference.name])


def _finding(reference: Named, upstream: str, problem: str) -> Finding:
    return Finding(reference.path, upstream, reference.path, reference.line, problem)


def _shown(file: Path, root: Path) -> str:
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failed:
        raise StackError(f"{file} cannot be read ({failed})", "name a text file that is there") from failed

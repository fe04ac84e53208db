# SPDX-License-Identifier: Apache-2.0
"""Write the files of a new stack, or one more pin into the files of an existing one.

Without a stack, each file appears whole, and `pins.toml` comes last: a folder without it is no stack, and the next `stack init`
goes on from there. With a stack, one switch changes all files, and `stack undo` takes it back.
"""

import os
import tempfile
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.base.files import Folder
from stack.carry import fitting_plugins, untrusted
from stack.model import document, new_stack, pins, switch
from stack.model import stack as stacks
from stack.model.pins import Pin
from stack.model.stack import FILE, FOLDER, Stack


def folder(root: Path | None, here: Path) -> Path:
    """Return the folder of the stack to begin or to extend: `root`, or else the current one.

    Raises:
        StackError: The current folder lies inside of a stack.

    """
    if root is not None:
        return root
    above = next((parent for parent in here.parents if (parent / pins.FILE).is_file()), None)
    if above is not None and not (here / pins.FILE).is_file():
        raise StackError(
            f"{here} lies in the stack {above}",
            f"add an upstream there: stack --root {above} init …; a new stack here: --root .",
        )
    return here


def existing(root: Path, upstream: str) -> Stack | None:
    """Load the stack of a folder, which may not have the upstream yet; return None if there is none.

    Raises:
        StackError: The upstream has a pin, or the stack is invalid.

    """
    if not os.path.lexists(root / pins.FILE):
        if root.exists():
            untrusted.check(root)
        return None
    untrusted.check(root)
    switch.recover(root)
    if not (root / FOLDER / FILE).exists():
        raise StackError(f"{root / pins.FILE} is there, but no {FOLDER}/{FILE}", 'write it: series = [] ("stacks/stack.toml")')
    stack = stacks.load(root)
    if upstream in stack.pins.names():
        shown = stack.pins.get(upstream).shown
        raise StackError(
            f"{upstream} has a pin already ({shown})",
            f"move it with its patches: stack rebase {upstream} --onto REV; only the pin: stack pins set {upstream} REV",
        )
    return stack


def write(root: Path, stack: Stack | None, pin: Pin, plugins: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Write the pin, in a new stack unless there is one, and name plug-ins; return the paths of the files that were written.

    Raises:
        StackError: The files cannot be written, or were changed meanwhile.

    """
    if stack is None:
        _check(new_stack.with_pin(None, pin), root)
        return _write_new(root, pin, plugins)
    text = document.read_text(root / pins.FILE, largest=pins.LARGEST)
    if pins.load(root / pins.FILE) != stack.pins:
        raise StackError(f"{root / pins.FILE} was changed while this command ran", "nothing was written: run it again")
    grown = new_stack.with_pin(text, pin)
    _check(grown, root)
    title = f"init {pin.upstream}"
    listed = {path: document.read_bytes(root / path) for path in (fitting_plugins.PATH,)}
    files_ = {pins.FILE: grown.encode()} | fitting_plugins.edited(stack, plugins, listed[fitting_plugins.PATH])
    return switch.apply(root, files_, title=title, expected={pins.FILE: text.encode()} | listed)


def _check(text: str, root: Path) -> None:
    """Refuse a text of pins that could not be read again: a tag, for example, may hold letters that pins.toml does not take."""
    with tempfile.TemporaryDirectory(prefix="stack-") as place:
        file = Path(place) / pins.FILE
        file.write_text(text, encoding="utf-8")
        try:
            pins.load(file)
        except StackError as bad:
            raise StackError(bad.problem.replace(str(file), str(root / pins.FILE)), bad.remedy) from bad


def _write_new(root: Path, pin: Pin, plugins: tuple[str, ...]) -> tuple[str, ...]:
    root.mkdir(parents=True, exist_ok=True)
    with files.opened(root) as top:
        if not files.lock_if_free(top.descriptor, root):
            raise StackError(f"another command begins a stack in {root}", "wait for it")
        if top.exists(pins.FILE):
            raise StackError(f"{root / pins.FILE} was written while this command ran", "nothing was changed: run it again")
        known = top.read(new_stack.IGNORE_FILE)  # refuses a link, before anything is written
        written = []
        with top.below(FOLDER, create=True) as below:
            if not below.exists(FILE):
                _put(below, FILE, new_stack.with_plugins(new_stack.STACK_FILE, plugins))
                written.append(f"{FOLDER}/{FILE}")
        text = new_stack.with_ignored(None if known is None else known.decode("utf-8", "surrogateescape"))
        if known is None or text.encode("utf-8", "surrogateescape") != known:
            _put(top, new_stack.IGNORE_FILE, text)
            written.append(new_stack.IGNORE_FILE)
        _put(top, pins.FILE, new_stack.with_pin(None, pin))
    return (pins.FILE, *written)


def _put(place: Folder, name: str, text: str) -> None:
    """Write a file that appears whole."""
    part = f".{name}.part"
    place.write(part, text.encode("utf-8", "surrogateescape"))
    place.move(part, place, name)
    place.sync()

# SPDX-License-Identifier: Apache-2.0
"""The tables of the lanes in `pins.toml`: add one, change the pins in one, and remove one; everything else stays as it is."""

from dataclasses import replace
from pathlib import Path

import tomlkit
from tomlkit.items import AbstractTable

from stack.base.errors import StackError
from stack.model import document
from stack.model import pins as all_pins
from stack.model.document import Table
from stack.model.pins import BASE, FILE, LANES, LARGEST, Pin, Pins

_HAND = 'write the tables of each lane as [lane."NAME".UPSTREAM], one below the other'


def parsed(text: str, lane: str | None) -> Pins:
    """Return the pins of a lane (None: the main pins) that a text of `pins.toml` holds.

    Raises:
        StackError: The text is not a valid `pins.toml`, or has no such lane.

    """
    if len(text.encode()) > LARGEST:
        raise StackError(f"{FILE} would be larger than {LARGEST // 2**10} KiB", "drop a lane that is no longer needed")
    try:
        table = Table(document.parse(text), file=Path(FILE))
    except ValueError as bad:
        raise StackError(f"{FILE}: {bad}", "mend the TOML there") from bad
    return all_pins.read(table, Path(FILE), lane)


def edited(text: str, lane: str, new: Pins) -> str:
    """Return the text of `pins.toml` with other pins in a lane; a pin that stays as it is gets no table of its own.

    Raises:
        StackError: The lane is missing, or its tables cannot be edited as they are written.

    """
    old, main = parsed(text, lane), parsed(text, None)
    changed = [pin for pin in new if not _same(old.get(pin.upstream), pin)]
    if not changed and new.base == old.base:
        return text
    toml = tomlkit.parse(text)
    table = toml[LANES][lane]
    for pin in changed:
        if pin.upstream not in table:
            _append(table, pin.upstream, tomlkit.table())
        _put(table[pin.upstream], pin, main.get(pin.upstream))
    if new.base is not None and new.base != old.base:
        all_pins.put_base(table, new.base)
    return _checked(tomlkit.dumps(toml), lane, new)


def begun(text: str, lane: str, new: Pins) -> str:
    """Return the text of `pins.toml` with a new lane at its end, which names all its pins.

    Raises:
        StackError: The name is taken, or no lane may have it.

    """
    main = parsed(text, None)
    all_pins.check_lane(lane, main.lanes)
    if lane in main.lanes:
        raise StackError(f"{FILE} has a lane {lane!r} already", f"show it: stack status --lane {lane}")
    if len(main.lanes) >= all_pins.MOST_LANES:
        raise StackError(f"{FILE} has {len(main.lanes)} lanes, and may not have more", "drop one that is no longer needed")
    parts = [text if not text or text.endswith("\n") else f"{text}\n"]
    for pin in new:
        table = tomlkit.table()
        _put(table, pin, main.get(pin.upstream))
        parts.append(f'\n[{LANES}."{lane}".{pin.upstream}]\n{tomlkit.dumps(table)}')
    if new.base is not None and new.base != main.base:
        table = tomlkit.table()
        holder = tomlkit.document()
        all_pins.put_base(holder, new.base)
        table.update(holder[BASE])
        parts.append(f'\n[{LANES}."{lane}".{BASE}]\n{tomlkit.dumps(table)}')
    return _checked("".join(parts), lane, new)


def alone(text: str, lane: str | None) -> str:
    """Return the text of a `pins.toml` that has the pins of a lane (None: the main pins) as its main pins, and no lanes.

    Raises:
        StackError: There is no such lane, or its tables cannot be written.

    """
    wanted, main = parsed(text, lane), parsed(text, None)
    if not main.lanes:
        return text
    toml = tomlkit.parse(text)
    del toml[LANES]
    for pin in wanted:
        held = main.get(pin.upstream)
        for key, now, was in (("git", pin.git, held.git), ("source", pin.stated_source, held.stated_source)):
            if now != was:
                toml[pin.upstream][key] = now
        all_pins.put_pin(toml[pin.upstream], pin, pin.tags)
    if wanted.base is not None:
        all_pins.put_base(toml, wanted.base)
    result = tomlkit.dumps(toml)
    now_pins = parsed(result, None)
    if (now_pins.upstreams, now_pins.base) != (wanted.upstreams, wanted.base):
        raise StackError(
            f"{FILE}: the pins of {'main' if lane is None else f'lane {lane!r}'} cannot be written by themselves", _HAND
        )
    return result


def dropped(text: str, lane: str) -> str:
    """Return the text of `pins.toml` without a lane.

    Raises:
        StackError: The lane is missing, or its tables cannot be removed as they are written.

    """
    before = parsed(text, lane)
    toml = tomlkit.parse(text)
    if len(before.lanes) == 1:
        del toml[LANES]
    else:
        del toml[LANES][lane]
    result = tomlkit.dumps(toml)
    kept = tuple(name for name in before.lanes if name != lane)
    for name in (None, *kept):
        was, now = parsed(text, name), parsed(result, name)
        if (was.upstreams, was.base, kept) != (now.upstreams, now.base, now.lanes):
            raise StackError(f"{FILE}: the tables of lane {lane!r} cannot be removed as they are written", _HAND)
    return result


def _same(pin: Pin, wanted: Pin) -> bool:
    """Compare pins. A lane cannot be without a rule for tags that the main pin states: it takes that one."""
    return replace(wanted, tags=wanted.tags or pin.tags) == pin


def _put(table: AbstractTable, pin: Pin, main: Pin) -> None:
    """Write where a lane's pin stands, and what it does not share with the main pin."""
    all_pins.put_pin(table, pin, pin.tags if pin.tags != main.tags or "tags" in table else None)


def _append(table: AbstractTable, key: str, value: AbstractTable) -> None:
    if isinstance(table, AbstractTable) and table.value.body:
        table.add(tomlkit.nl())
    table.add(key, value)


def _checked(text: str, lane: str, wanted: Pins) -> str:
    """Return the text if it holds the wanted pins.

    Raises:
        StackError: It does not: tomlkit has put them elsewhere, or the main pin has a key that the lane cannot be without.

    """
    now = parsed(text, lane)
    if now.base != wanted.base or not all(map(_same, now, wanted)):
        raise StackError(f"{FILE}: the tables of lane {lane!r} cannot be edited as they are written", _HAND)
    return text

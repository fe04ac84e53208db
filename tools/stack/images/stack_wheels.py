# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of an image that are the stack's own: the upstreams', modules of a JIT, and this tool's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.carry.upstream_stores import Stores
from stack.images import ahead, own
from stack.proof.compiling import layers
from stack.wheels import building
from stack.wheels.building import Built
from stack.wheels.decision import Decision, Mode, WheelRequest, decide


def build(
    stores: Stores, request: WheelRequest, machine: str, out: Path, tell: Progress, *, named: bool
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Build the wheels; return them by package, and the names of the modules that are left to the JIT.

    Args:
        stores: the upstreams.
        request: what to build. Its modules of a JIT are left out where there is no JIT, or no compiler for the processor.
        machine: the image's processor, as the kernel names it.
        out: the folder of the wheels.
        tell: gets the progress.
        named: whether the user has named the modules: then what would leave them out is an error.

    Raises:
        StackError: a wheel cannot be built.

    """
    tell("wheels")
    wanted, plain = request.ahead, replace(request, ahead=())
    decisions = decide(stores, plain)
    if any(item.mode is Mode.OVERLAY for item in decisions):
        plain = replace(plain, platforms=(machine,))
    request, cxx = _with_modules(stores, plain, wanted, decisions, machine, tell, named=named)
    left: tuple[str, ...] = ()
    with ahead.compiling(cxx):
        if (chosen := building.chosen(stores, request, decisions)) is not None:
            left = chosen.left
        built = [item for item in building.build(stores, request, decisions, out) if isinstance(item, Built)]
    for statement in out.glob(f"*{building.STATEMENT}"):
        statement.unlink()
    paths = [*(item.path for item in built), own.wheel(out)]
    by_package = {str(canonicalize_name(parse_wheel_filename(path.name)[0])): path for path in paths}
    if len(by_package) < len(paths):
        raise StackError(
            "several published wheels fit: " + ", ".join(path.name for path in paths),
            "no known release has several: report it",
        )
    return by_package, left


def _with_modules(
    stores: Stores,
    request: WheelRequest,
    wanted: tuple[str, ...],
    decisions: Sequence[Decision],
    machine: str,
    tell: Progress,
    *,
    named: bool,
) -> tuple[WheelRequest, str | None]:
    """Add the modules to compile ahead of time to a request; return it with their compiler.

    Raises:
        StackError: modules were named, and there is no JIT, or no compiler for the image's processor.

    """
    has_jit = any(layers.units(stores, decision.layers) is not None for decision in decisions)
    if not wanted or not (has_jit or named):
        return request, None
    cxx, package = ahead.compiler(machine), f"g++-{machine.replace('_', '-')}-linux-gnu"
    if cxx is None and named:
        raise StackError(f"--aot: no C++ compiler for {machine} is on PATH", f"apt-get install {package}, or name one in CXX")
    if cxx is None:
        tell(f"all modules are left to the JIT: no C++ compiler for {machine} is on PATH (apt-get install {package})")
        return request, None
    request = replace(request, ahead=wanted)
    decide(stores, request)  # it refuses modules of an upstream without a JIT
    return request, cxx

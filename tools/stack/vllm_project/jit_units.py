# SPDX-License-Identifier: Apache-2.0
"""List what FlashInfer's JIT would compile for one architecture, using its own code; run in the environment of proofs.

    python jit_units.py TREE WORK ARCHITECTURE < '["expression", …]' > units.json

Prints {"units": [{"module", "source", "command"}], "links": {module: [flags] or a sentence}, "made": {expression: [modules] or a
sentence}, "unlisted": {name: sentence}}.
The modules are those of FlashInfer's ahead-of-time build, further ones for SM12x (judged by their names), and those that the
expressions make.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path

Unlisted = dict[str, str]

OTHER_DEVICES = "No supported CUDA architectures found"
"""FlashInfer's error for a module that does not support the architecture."""


class WouldCompile(Exception):
    """Raised where upstream's code would compile: its request is known by then, and the next steps would need a GPU."""


def stop_before_compiling() -> None:
    """Replace the build step, so that modules are listed but not built."""
    core = importlib.import_module("flashinfer.jit.core")

    def stop(spec: object) -> None:
        raise WouldCompile(spec)

    for kind in {type(spec) for spec in core.jit_spec_registry.get_all_specs().values()} | {core.JitSpec}:
        kind.build_and_load = stop


def point_to_sources(tree: Path) -> None:
    """Make FlashInfer look for sources where a source tree has them; only a wheel build copies them into the package."""
    env = importlib.import_module("flashinfer.jit.env")
    packaged = tree.resolve() / "flashinfer" / "data"

    def moved(path: Path) -> Path:
        if packaged not in path.parents:
            return path
        inside = path.relative_to(packaged)
        vendored = tree / "3rdparty" / inside
        return vendored if (tree / "3rdparty" / inside.parts[0]).is_dir() else tree / inside

    for name, value in list(vars(env).items()):
        if isinstance(value, Path):
            setattr(env, name, moved(value))
        elif isinstance(value, list) and value and all(isinstance(item, Path) for item in value):
            setattr(env, name, [moved(item) for item in value])


def tolerate(unlisted: Unlisted) -> "dict[str, Callable[..., object]]":
    """Wrap generators, so that a failing one (it needs a GPU, a library, a download) only leaves out its own module.

    Returns the generators by name.
    """
    jit = importlib.import_module("flashinfer.jit")
    for module_info in pkgutil.walk_packages(jit.__path__, "flashinfer.jit."):
        with contextlib.suppress(Exception):
            importlib.import_module(module_info.name)
    wrapped: dict[str, Callable[..., object]] = {}
    for module in [loaded for name, loaded in list(sys.modules.items()) if name.startswith("flashinfer.jit")]:
        for name, value in list(vars(module).items()):
            if name.startswith("gen_") and name.endswith("_module") and callable(value):
                setattr(module, name, wrapped.setdefault(name, _tolerant(name, value, unlisted)))
    return wrapped


def _tolerant(name: str, generator: Callable[..., object], unlisted: Unlisted) -> Callable[..., object]:
    @functools.wraps(generator)
    def run(*args: object, **kwargs: object) -> object:
        try:
            return generator(*args, **kwargs)
        except Exception as failed:
            if OTHER_DEVICES not in str(failed):
                unlisted[name] = f"{type(failed).__name__}: {failed}"
            return types.SimpleNamespace(name=f"unlisted {name}")

    return run


def generate(generators: Iterable[tuple[str, Callable[..., object]]]) -> None:
    """Generate FlashInfer's ahead-of-time modules for the architecture, and SM12x generators that need no parameters.

    FlashInfer 0.6 builds its SM120 modules ahead of time for 12.0 only. Other generators would download their parts.
    """
    importlib.import_module("flashinfer.aot").register_default_modules()
    for generator in (selected for name, selected in generators if "sm12" in name):
        parameters = inspect.signature(generator).parameters.values()
        if all(
            parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            for parameter in parameters
        ):
            generator()


def make(expression: str) -> "list[str] | str":
    """Return the modules that an expression makes, or why it makes none."""
    registry = importlib.import_module("flashinfer.jit.core").jit_spec_registry
    before = set(registry.get_all_specs())
    try:
        names = {name: importlib.import_module(name) for name in ("torch", "flashinfer") if name in expression}
        _import_named(expression)
        with contextlib.suppress(WouldCompile):
            eval(expression, names)  # noqa: S307, the expression stands in the stack's own series.toml
    except Exception as failed:
        return f"{type(failed).__name__}: {failed}"
    return sorted(set(registry.get_all_specs()) - before) or "it makes no module that FlashInfer does not build ahead of time"


def _import_named(expression: str) -> None:
    """Import the modules that dotted names in an expression begin with: a package does not import all of its parts itself."""
    for dotted in re.findall(r"\b(?:torch|flashinfer)(?:\.\w+)+", expression):
        parts = dotted.split(".")
        for end in range(2, len(parts) + 1):
            try:
                importlib.import_module(".".join(parts[:end]))
            except ModuleNotFoundError:
                break


def units(unlisted: Unlisted) -> "list[dict[str, object]]":
    """Return the translation units of all modules that were made."""
    registry = importlib.import_module("flashinfer.jit.core").jit_spec_registry
    listed: list[dict[str, object]] = []
    for name, spec in registry.get_all_specs().items():
        if not hasattr(spec, "get_compile_commands"):
            unlisted[name] = "it is compiled by another compiler than nvcc"
            continue
        for entry in spec.get_compile_commands():
            listed.append({"module": name, "source": entry["file"], "command": shlex.split(entry["command"])})
    return listed


def links() -> "dict[str, list[str] | str]":
    """Return the linker's flags of each module, or why the host's compiler alone cannot link it."""
    registry = importlib.import_module("flashinfer.jit.core").jit_spec_registry
    return {name: _link(spec) for name, spec in registry.get_all_specs().items() if hasattr(spec, "get_compile_commands")}


def _link(spec: "object") -> "list[str] | str":
    """Read the linker's flags from the module's ninja file."""
    if getattr(spec, "embedded_cubin_factory", None) is not None:
        return "it embeds what another compiler makes"
    if getattr(spec, "needs_device_linking", False):
        return "its device code is linked, too"
    spec.write_ninja()  # type: ignore[attr-defined]
    text = spec.ninja_path.read_text().replace("$\n", " ")  # type: ignore[attr-defined]
    flags = re.search(r"^ldflags = (.*)$", text, re.MULTILINE)
    return shlex.split(flags[1]) if flags else "its ninja file names no flags"


def main() -> None:
    """Print the units as JSON."""
    tree, work, architecture = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    expressions = json.load(sys.stdin)
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = architecture
    os.environ["FLASHINFER_WORKSPACE_BASE"] = str(work)
    os.environ["FLASHINFER_DISABLE_VERSION_CHECK"] = "1"
    sys.path.insert(0, str(tree))
    unlisted: Unlisted = {}
    # Upstream code prints progress; only the answer may go to stdout.
    with contextlib.redirect_stdout(sys.stderr):
        point_to_sources(tree)
        generate(list(tolerate(unlisted).items()))
        stop_before_compiling()
        made = {expression: make(expression) for expression in expressions}
        listed = units(unlisted)
        linked = links()
    json.dump({"units": listed, "links": linked, "made": made, "unlisted": unlisted}, sys.stdout)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Answer the questions of the plug-in interface for vLLM, FlashInfer and CUTLASS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from stack.carry.drift.tree import Files
from stack.projects import Owner, Project, Read, Required, Tree, Unfit, UnitScript, Unknown, Use, WheelRules
from stack.vllm_project import backends, choices, flags

_REQUIREMENTS = ("requirements/cuda.txt",)
"""vLLM: `flashinfer-python==0.7.0.post1` in requirements/cuda.txt."""
_JIT = "flashinfer/jit/core.py"
"""The file by which a tree with FlashInfer's JIT is recognised."""
_HERE = Path(__file__).resolve().parent
_UNITS = UnitScript(_HERE / "jit_units.py", "FlashInfer", "flashinfer-jit-cache", _HERE / "jit_cache.py")
_OWNERS = tuple(
    Owner(prefix, name, (f"{name}/__init__.py", f"{name}/envs.py"), f"{name}/envs.py", ("*.py",))
    for prefix, name in (("VLLM_", "vllm"), ("FLASHINFER_", "flashinfer"))
)


class VllmProject(Project):
    """vLLM, and the projects that it is carried with."""

    def required(self, read: Read) -> Iterator[Required]:
        """Yield the requirements with an exact version."""
        for file in _REQUIREMENTS:
            for line in (read(file) or b"").decode("utf-8", "replace").splitlines():
                requirement = _requirement(line)
                exact = (
                    [spec.version for spec in requirement.specifier if spec.operator in ("==", "===")] if requirement else []
                )
                if requirement is not None and exact:
                    yield Required(requirement.name, exact[0], file)

    def owners(self) -> Sequence[Owner]:
        """Return the owners of `VLLM_*` and `FLASHINFER_*`."""
        return _OWNERS

    def commands(self) -> Sequence[tuple[str, ...]]:
        """Return `vllm serve`."""
        return (("vllm", "serve"),)

    def base_package(self) -> str:
        """Return torch: `requirements/cuda.txt` names its version."""
        return "torch"

    def unknown_flags(self, tree: Tree, given: Iterable[str]) -> Iterator[Unknown]:
        """Yield the flags of `vllm serve` that a tree does not know."""
        return flags.unknown(Files(tree.objects, tree.tree), given)

    def unknown_values(self, tree: Tree, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
        """Return the values of flags that a tree does not know."""
        return choices.unknown(Files(tree.objects, tree.tree), given)

    def unfit(self, tree: Tree, use: Use) -> Iterator[Unfit]:
        """Yield backends that do not run on a GPU, and types of KV cache that they do not take."""
        return backends.unfit(Files(tree.objects, tree.tree), use)

    def units(self, read: Read) -> UnitScript | None:
        """Return the script that asks FlashInfer's JIT."""
        return _UNITS if read(_JIT) is not None else None

    def wheel(self, upstream: str) -> WheelRules | None:
        """Return how the wheel of vLLM or FlashInfer is made."""
        from stack.vllm_project.wheels import RULES  # noqa: PLC0415  (it imports what only builds need)

        return RULES.get(upstream)


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:  # A comment, an option or a blank line.
        return None

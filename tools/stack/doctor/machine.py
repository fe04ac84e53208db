# SPDX-License-Identifier: Apache-2.0
"""Check a machine for serving: hardware, driver, compilers, caches and packages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from stack.doctor import rules
from stack.doctor.facts import CACHED, PLAIN, VOCABULARY, Facts
from stack.doctor.finding import Check, Found, Severity, fine, note, unknown, wrong
from stack.doctor.jit import Module, ModuleState

_DRIVERS = {12: 525, 13: 580}
"""First Linux driver of each CUDA release, by NVIDIA's "CUDA Compatibility", minor version compatibility."""
_CUDNN = 91400
"""First cuDNN with MXFP4 GEMMs on SM12x (FlashInfer 0.7, gemm/gemm_base.py)."""
_LOOKED = ("vllm", "flashinfer-python", "torch")
"""The packages whose requirements are checked."""
_SHOWN = 6


def _gpu(facts: Facts) -> Iterator[Found]:
    if not facts.machine.gpus and facts.is_nvidia:
        yield wrong(
            "the machine has an NVIDIA GPU, but nvidia-smi lists none",
            "install its driver, or lend the GPU to the container (docker run --gpus all)",
        )
    elif not facts.machine.gpus:
        yield note("there is no GPU: the CPU serves here")
    for gpu in facts.machine.gpus:
        memory = f"{gpu.memory / 10**9:.0f} GB" if gpu.memory else f"shares the machine's {facts.machine.memory / 10**9:.0f} GB"
        yield fine(f"{gpu.name}, compute capability {gpu.capability}, {memory}, driver {gpu.driver}")


def _driver(facts: Facts) -> Iterator[Found]:
    cuda = facts.python.torch.cuda if facts.python.torch is not None else None
    if not facts.machine.gpus or cuda is None:
        return
    wanted = Version(cuda)
    known = facts.machine.cuda
    if known is None:
        yield unknown("nvidia-smi does not say which CUDA its driver knows", f"torch is built for CUDA {cuda}")
    elif Version(known).major < wanted.major:
        least = _DRIVERS.get(wanted.major)
        yield wrong(
            f"driver {facts.machine.gpus[0].driver} knows CUDA {known}, torch is built for {cuda}",
            f"install a driver from {least} on" if least else f"install a driver for CUDA {cuda}",
        )
    elif Version(known) < wanted:
        yield note(
            f"driver {facts.machine.gpus[0].driver} knows CUDA {known}, torch is built for {cuda}: kernels that are compiled "
            "to PTX only do not load",
            f"install a driver for CUDA {cuda}",
        )
    else:
        yield fine(f"driver {facts.machine.gpus[0].driver} knows CUDA {known}, torch is built for {cuda}")


def _torch(facts: Facts) -> Iterator[Found]:
    python = facts.python
    version = python.version("torch")
    if python.problem:
        yield unknown(f"{python.path}: {python.problem}", "name the interpreter that serves with --python")
    elif version is None or python.torch is None:
        yield unknown(f"{python.path} has no torch", "name the interpreter that serves with --python")
    elif facts.machine.gpus and python.torch.cuda is None:
        yield wrong(
            f"torch {version} is a build for CPUs, and there is a GPU: something has replaced it",
            f"pip install --force-reinstall 'torch=={Version(version).public}' from an index that has builds for CUDA",
        )
    else:
        yield fine(f"torch {version} is built for {f'CUDA {python.torch.cuda}' if python.torch.cuda else 'CPUs'}")


def _cudnn(facts: Facts) -> Iterator[Found]:
    loaded = facts.python.torch.cudnn if facts.python.torch is not None else None
    if loaded is None:
        return
    shown = f"{loaded // 10000}.{loaded // 100 % 100}.{loaded % 100}"
    installed = next((name for name in facts.python.packages if name.startswith("nvidia-cudnn-cu")), "nvidia-cudnn-cu13")
    if facts.is_sm12x and loaded < _CUDNN:
        yield wrong(
            f"torch loads cuDNN {shown}, which has no MXFP4 GEMM for SM12x: that came with 9.14",
            f"pip install '{installed}>=9.14', and see that LD_LIBRARY_PATH names no older one",
        )
        return
    package = facts.python.version(installed)
    if package is not None and not package.startswith(shown):
        yield wrong(
            f"torch loads cuDNN {shown}, {installed} {package} is installed",
            "take other copies of cuDNN out of LD_LIBRARY_PATH",
        )
    else:
        yield fine(f"cuDNN {shown}")


def _architectures(facts: Facts) -> Iterator[Found]:
    value = facts.environment.get("FLASHINFER_CUDA_ARCH_LIST")
    if value is not None:
        yield from rules.architectures(value, facts.capability, facts.python.version("flashinfer-python"))


def _ptxas(facts: Facts) -> Iterator[Found]:
    for assembler in facts.ptxas:
        if assembler.knows is None:
            yield unknown(f"{assembler.owner} ptxas {assembler.path} does not say what it knows", "see whether it runs")
        elif assembler.knows:
            yield fine(f"{assembler.owner} ptxas {assembler.path} knows sm_121a")
        else:
            fix = "install CUDA 12.9 or newer, and set CUDA_HOME to it"
            if assembler.owner != "CUDA's":
                fix = (
                    "update Triton, or set TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH to the ptxas of CUDA 12.9 or newer"
                )
            problem = f"{assembler.owner} ptxas {assembler.path} does not know sm_121a"
            yield wrong(problem, fix) if facts.is_sm12x else note(f"{problem}: it compiles nothing for a DGX Spark", fix)
    if not facts.ptxas and facts.machine.gpus:
        yield unknown("there is no ptxas: FlashInfer and Triton compile nothing", "install CUDA's compiler, or set CUDA_HOME")


def _jit(facts: Facts) -> Iterator[Found]:
    by_state: dict[ModuleState, list[Module]] = {}
    for module in facts.modules:
        by_state.setdefault(module.state, []).append(module)
    if found := by_state.get(ModuleState.ORPHANED):
        yield wrong(f"compiled from sources that no longer exist: {_named(found)} ({found[0].why})", _removed(found))
    if found := by_state.get(ModuleState.HIDDEN):
        yield note(f"loaded although perhaps built from other sources, since {found[0].why}: {_named(found)}", _removed(found))
    if found := by_state.get(ModuleState.CHANGED):
        yield note(
            f"compiled again at the next start, since the installed sources changed: {_named(found)} ({found[0].why})",
            "delete nothing",
        )
    if found := by_state.get(ModuleState.UNFINISHED):
        yield note(f"not compiled completely: {_named(found)}", "delete nothing; the next start continues")
    if found := by_state.get(ModuleState.OTHER):
        yield note(f"never loaded, as {found[0].why}: {_named(found)}", _removed(found))
    if found := by_state.get(ModuleState.UNKNOWN):
        yield unknown(
            f"whether these were built from the installed sources: {_named(found)} ({found[0].why})", "pip install ninja"
        )
    if found := by_state.get(ModuleState.WHOLE):
        yield fine(f"in FlashInfer's JIT cache, built from the installed sources: {_named(found)}")


def _named(modules: list[Module]) -> str:
    names = list(dict.fromkeys(module.name for module in modules))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _removed(modules: list[Module]) -> str:
    return "rm -r " + " ".join(_quoted(str(module.folder)) for module in modules)


def _quoted(path: str) -> str:
    return path if re.fullmatch(r"[\w@%+=:,./-]+", path) else "'" + path.replace("'", "'\"'\"'") + "'"


def _jobs(facts: Facts) -> Iterator[Found]:
    found = rules.jobs(facts.environment.get("MAX_JOBS"), facts.available, facts.machine.cores)
    if facts.machine.gpus:
        yield from found
    elif "MAX_JOBS" in facts.environment:  # an image for GPUs sets it on every machine
        yield from (note(each.what, each.fix) if each.severity is Severity.WRONG else each for each in found)


def _memory(facts: Facts) -> Iterator[Found]:
    if not facts.is_unified:
        return
    if facts.utilization is not None:
        for found in rules.utilization(facts.utilization, facts.machine.memory, facts.available):
            taken = facts.utilization * facts.machine.memory > facts.available
            yield replace(found, fix="; or ".join(facts.frees)) if taken and facts.frees else found
    if "earlyoom" in facts.killers:
        yield note(
            "earlyoom runs: it ends a process when less than 10 % of memory and of swap are left, unless it was told otherwise",
            "leave more than that with --gpu-memory-utilization, or start it with -m 3 (/etc/default/earlyoom)",
        )


def _vocabulary(facts: Facts) -> Iterator[Found]:
    named = facts.environment.get("TIKTOKEN_ENCODINGS_BASE")
    embedded = facts.python.version("oss-harmony")
    older = facts.python.version("openai-harmony")
    if named is not None:
        yield _hashed(facts, "TIKTOKEN_ENCODINGS_BASE", PLAIN)
    elif embedded is not None:
        yield fine(f"oss-harmony {embedded} brings the vocabulary with it")
    elif older is None:
        yield unknown(
            f"{facts.python.path} has neither oss-harmony nor openai-harmony", "name the interpreter that serves with --python"
        )
    elif "TIKTOKEN_RS_CACHE_DIR" in facts.environment:
        yield _hashed(facts, "TIKTOKEN_RS_CACHE_DIR", CACHED)
    else:
        fix = f"install oss-harmony>=0.0.11, or put o200k_base.tiktoken as {CACHED} into a folder and name that in TIKTOKEN_RS_CACHE_DIR"
        problem = f"openai-harmony {older} downloads its vocabulary at the first start"
        offline = any(facts.environment.get(name) == "1" for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        yield wrong(f"{problem}, and this machine is offline", fix) if offline else note(problem, fix)


def _hashed(facts: Facts, variable: str, file: str) -> Found:
    place = f"{facts.environment[variable].rstrip('/')}/{file}"
    found = facts.hashes.get(variable)
    if found == VOCABULARY:
        return fine(f"{place} is o200k_base.tiktoken")
    fix = f"write o200k_base.tiktoken there (SHA-256 {VOCABULARY}), or unset {variable}"
    problem = f"is not o200k_base.tiktoken (SHA-256 {found})" if found else "cannot be read: harmony has no vocabulary"
    return wrong(f"{place} {problem}", fix)


def _pinned(facts: Facts) -> Iterator[Found]:
    if facts.python.problem:
        return
    packages = [one for one in (("vllm", "vllm"), ("flashinfer", "flashinfer-python")) if one[1] in facts.pins]
    if missing := [package for _, package in packages if facts.python.version(package) is None]:
        yield unknown(
            f"{facts.python.path} has no {' and no '.join(missing)}", "name the interpreter that serves with --python"
        )
    for upstream, package in packages:
        wanted, found = facts.pins[package], facts.python.version(package)
        if found is None:
            continue
        if (version := _version(found)) is None or version.public != wanted:
            yield wrong(
                f"{package} {found} is installed, the stack stands on {wanted}",
                f"stack build wheels {upstream}, and install what it builds",
            )
        elif version.local is None:
            yield note(
                f"{package} {found} is upstream's: the stack's patches are not in it",
                f"stack build wheels {upstream}, and install what it builds",
            )
        else:
            yield fine(f"{package} {found}")


def _required(facts: Facts) -> Iterator[Found]:
    missing: dict[str, None] = {}
    for name in _LOOKED:
        package = facts.python.packages.get(name)
        for text in package.requires if package is not None else ():
            wanted = _requirement(text, facts.python.marks)
            if wanted is None:
                continue
            found = facts.python.version(canonicalize_name(wanted.name))
            if found is None:
                missing[wanted.name] = None
            elif (version := _version(found)) is None or not wanted.specifier.contains(version, prereleases=True):
                yield wrong(
                    f"{name} {facts.python.version(name)} wants {wanted.name}{wanted.specifier}, {found} is installed",
                    f"pip install '{wanted.name}{wanted.specifier}'",
                )
    if missing:
        names = ", ".join([*missing][:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
        yield note(f"wanted and not installed: {names}", "install them where their feature is used")


def _requirement(text: str, marks: Mapping[str, str]) -> Requirement | None:
    """Parse a requirement without extras; None if it is invalid, or does not apply to that environment."""
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return None
    return wanted if wanted.marker is None or wanted.marker.evaluate({**marks, "extra": ""}) else None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _companions(facts: Facts) -> Iterator[Found]:
    """Check FlashInfer's companions: it refuses to be imported with companions of another version (jit/env.py, 0.7)."""
    own = facts.python.version("flashinfer-python")
    if own is None or (version := _version(own)) is None:
        return
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        found = facts.python.version(name)
        if found is not None and ((other := _version(found)) is None or other.public != version.public):
            yield wrong(
                f"{name} {found} beside flashinfer-python {own}: FlashInfer refuses to be imported",
                f"pip install '{name}=={version.public}', or uninstall it: what it brings is compiled at need",
            )


CHECKS: tuple[Check[Facts], ...] = (
    Check("gpu", "there is a GPU", _gpu),
    Check("driver", "no driver is needed", _driver),
    Check("torch", "torch is there", _torch),
    Check("cudnn", "no cuDNN is used", _cudnn),
    Check("architectures", "FLASHINFER_CUDA_ARCH_LIST is not set: FlashInfer asks the GPU", _architectures),
    Check("ptxas", "no assembler is used", _ptxas),
    Check("jit-cache", "FlashInfer has compiled nothing yet", _jit),
    Check("jobs", "nothing is compiled here", _jobs),
    Check("memory", "the GPU has its own memory, or no recipe is named", _memory),
    Check("vocabulary", "the tokenizer has its vocabulary", _vocabulary),
    Check("pins", "vLLM and FlashInfer are what the stack stands on", _pinned),
    Check("requirements", "packages are as vLLM, FlashInfer and torch want them", _required),
    Check("companions", "FlashInfer's companions are of its version", _companions),
)

# SPDX-License-Identifier: Apache-2.0
"""Tell by vLLM's sources which attention and MoE backends run on a GPU, and which types of KV cache they take."""

from collections.abc import Iterator, Mapping
from typing import Any

from stack.projects import Unfit, Use
from stack.vllm_project.classes import REGISTRY, Readable, Source
from stack.vllm_project.evaluation import UNKNOWN

_ORACLES = "vllm/model_executor/layers/fused_moe/oracle"
_FORMATS: Mapping[str, str] = {"mxfp4": "mxfp4.py", "nvfp4": "nvfp4.py", "fp8": "fp8.py"}
"""Formats of a checkpoint's experts with the files that choose their backends."""
_DEFAULT = "auto"


def unfit(files: Readable, use: Use) -> Iterator[Unfit]:
    """Yield the flags that cannot work for a use, by the sources; nothing where they do not say."""
    source = Source(files)
    yield from _attention(source, use)
    yield from _experts(source, use)


def _attention(source: "Source", use: Use) -> Iterator[Unfit]:
    name, kv = use.flags.get("--attention-backend", "").upper(), use.flags.get("--kv-cache-dtype", _DEFAULT)
    backends = source.backends()
    if name in backends:
        if why := _refuses(source, backends[name], use, kv):
            flag, problem = why
            yield Unfit(flag, f"{name} {problem}", tuple(_that_run(source, use, kv)))
    elif (why_not := source.elsewhere().get(name)) is not None:
        yield Unfit("--attention-backend", f"{name} {why_not} ({REGISTRY})", tuple(_that_run(source, use, kv)))
    elif not name and kv != _DEFAULT and use.is_whole and not any(_runs(source, path, use, kv) for path in backends.values()):
        yield Unfit("--kv-cache-dtype", f"no attention backend runs {_for(use)} with a cache of {kv}", ())


def _for(use: Use) -> str:
    return f"on compute capability {use.capability}{' with attention sinks' if use.has_sinks else ''}"


def _refuses(source: "Source", path: str, use: Use, kv: str) -> tuple[str, str] | None:
    """Return the flag that a backend refuses, and why; None if it runs, or if the sources do not say."""
    file = f" ({path.rpartition('.')[0].replace('.', '/')}.py)"
    if source.asked(path, "supports_compute_capability", [use.pair], use) is False:
        return "--attention-backend", f"does not run on compute capability {use.capability}{file}"
    if use.head_size is not None and source.asked(path, "supports_head_size", [use.head_size], use) is False:
        return "--attention-backend", f"has no kernel for heads of {use.head_size}{file}"
    if use.has_sinks and source.asked(path, "supports_sink", [], use) is False:
        return "--attention-backend", f"has no attention sinks, which the model has{file}"
    if source.asked(path, "supports_kv_cache_dtype", [kv], use) is False:
        return "--kv-cache-dtype", f"takes no KV cache of {kv} on compute capability {use.capability}{file}"
    return None


def _that_run(source: "Source", use: Use, kv: str) -> Iterator[str]:
    """Yield the backends that certainly run; none for a model that is not known, which may need attention of its own (MLA)."""
    if use.head_size is None:
        return iter(())
    found = (name for name, path in source.backends().items() if _runs(source, path, use, kv, certain=True))
    return (name for name in found if not name.endswith("_DIFFKV"))


def _runs(source: "Source", path: str, use: Use, kv: str, *, certain: bool = False) -> bool:
    """Tell whether a backend for usual attention may run; with `certain`, whether the sources say that it does."""
    asked: list[tuple[str, list[Any]]] = [("supports_compute_capability", [use.pair]), ("supports_kv_cache_dtype", [kv])]
    asked += [("supports_head_size", [use.head_size])] if use.head_size is not None else []
    asked += [("supports_sink", [])] if use.has_sinks else []
    if source.asked(path, "is_mla", [], use) is True or ".mla." in path or not path.startswith("vllm.v1."):
        return False
    answers = [source.asked(path, name, arguments, use) for name, arguments in asked]
    return all(answer is True or (answer is UNKNOWN and not certain) for answer in answers)


def _experts(source: "Source", use: Use) -> Iterator[Unfit]:
    name = use.flags.get("--moe-backend", _DEFAULT)
    if name == _DEFAULT:
        return
    chosen = _FORMATS.get(use.experts or "")
    mapped: list[list[str]] = []
    known: set[str] = set()
    for file in [chosen] if chosen else _FORMATS.values():
        table = source.table(f"{_ORACLES}/{file}")
        known |= {*table}
        if name in table:
            mapped += [source.kernels(f"{_ORACLES}/{file}", member) for member in table[name]]
    if chosen and known and name not in known:
        yield Unfit("--moe-backend", f"{name} is no backend for {use.experts} experts", tuple(sorted(known)))
        return
    classes = [path for paths in mapped for path in paths]
    if classes and all(mapped) and all(source.asked(path, "_supports_current_device", [], use) is False for path in classes):
        others = [
            other
            for file in ([chosen] if chosen else [])
            for other, members in source.table(f"{_ORACLES}/{file}").items()
            for member in members
            if any(
                source.asked(path, "_supports_current_device", [], use) is True
                for path in source.kernels(f"{_ORACLES}/{file}", member)
            )
        ]
        files = ", ".join(dict.fromkeys(f"{path.rpartition('.')[0].replace('.', '/')}.py" for path in classes[:1]))
        problem = f"{name} does not run on compute capability {use.capability} ({files})"
        yield Unfit("--moe-backend", problem, tuple(each for each in dict.fromkeys(others) if each != "emulation"))

# SPDX-License-Identifier: Apache-2.0
"""Reduce a verdict to what others need: hardware, versions, digests, cases and speeds. Anything that is not listed here is left out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from stack.model.verdict import Case, Gpu, Machine, Outcome, Verdict

_VERSIONS = ("stack", "python", "validation", "bench", "model", "server", "torch", "vllm", "flashinfer-python")
_VERSION = re.compile(r"(?:llama-benchy )?[0-9A-Za-z][0-9A-Za-z.+_-]{0,60}")
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")
_SYSTEM = re.compile(
    r"Linux [0-9]{1,3}(?:\.[0-9]{1,5}){1,3}(?:-[0-9]{1,6})?(?:-(?:nvidia|generic|aws|azure|gcp|oracle)(?:-64k)?)?"
)
_HARDWARE = re.compile(r"[A-Za-z0-9][\w ()@./,+-]{0,79}")
_NUMBERS = re.compile(r"[0-9.eE+ -]{1,4000}")
_WORD = re.compile(r"better|same|worse|not comparable")
_RECIPE = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_HIDDEN = "the reason is in the owner's own verdict"
_KNOWN = re.compile(
    "|".join(
        (
            "the server takes [0-9]+ tokens in a request, this size needs [0-9]+",
            r"no time is left of [0-9.]+ minutes: give it more with --minutes",
            "no request ended for [0-9]+ s",
            "nobody says which stack the server is of",
            "it was left out",
            "the prompt differs from token [0-9]+ on",
            "[0-9]+ of [0-9]+ requests",
            "it answers [0-9]{3}",
            r"[0-9.]+ tokens a second",
            "a longer answer's (?:content|reasoning) repeats itself without end",
            "the (?:answer|stream) (?:is empty|breaks off|has a wrong form)",
            "the (?:content|reasoning|stream|tokens of the answer|tokens of the prompt|identifier) is",
            "it does not answer",
            "no prompt of [0-9,]+ tokens was sent",
            "asked for the capital of France, it does not name Paris",
        )
    )
)
"""How reasons begin that are written in this package and hold no word of the server or the machine."""


def of(verdict: Verdict) -> Verdict:
    """Return the reduced verdict; it has a digest of its own.

    Left out are the CPU's flags, inputs, and the words of the server and of the system: of a reason only a known beginning is kept.
    """
    return Verdict(
        stack=verdict.stack,
        pins=verdict.pins,
        made=verdict.made,
        machine=_machine(verdict.machine),
        versions=MappingProxyType(dict(_versions(verdict.versions))),
        cases=tuple(_case(case) for case in verdict.cases),
        recipe=verdict.recipe if verdict.recipe is not None and _RECIPE.fullmatch(verdict.recipe) else None,
        weights=verdict.weights,
        whole=verdict.whole,
        image=verdict.image,
        gates=verdict.gates,
    )


def _machine(of: Machine) -> Machine:
    # Distributions put build hosts into a kernel's name.
    system = found[0] if (found := _SYSTEM.match(of.system)) else "Linux"
    return Machine(
        system=system,
        architecture=_plain(of.architecture),
        cpu=_plain(of.cpu),
        cores=of.cores,
        memory=of.memory,
        gpus=tuple(Gpu(_plain(gpu.name), gpu.capability, gpu.memory, _plain(gpu.driver)) for gpu in of.gpus),
        cuda=_plain(of.cuda) if of.cuda is not None else None,
    )


def _plain(text: str) -> str:
    return text if _HARDWARE.fullmatch(text) else "?"


def _versions(known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _VERSIONS:
        value = known.get(name)
        if value is None:
            continue
        if name == "model":
            # A server may name its model by a folder, in which a user's name stands.
            value = value if _MODEL.fullmatch(value) else value.rstrip("/").rpartition("/")[2]
        allowed = _MODEL if name == "model" else _VERSION
        yield name, value if allowed.fullmatch(value) else "?"


def _case(case: Case) -> Case:
    measured = {name: value for name, value in case.measured.items() if _is_allowed(name, value)}
    why = case.why if case.outcome is Outcome.PASSED else _reason(case.why)
    return replace(case, why=why, measured=MappingProxyType(measured), inputs=MappingProxyType({}))


def _is_allowed(name: str, value: float | str) -> bool:
    if not isinstance(value, str):
        return True
    return bool((_VERSION if name == "version" else _NUMBERS if name.endswith(" runs") else _WORD).fullmatch(value))


def _reason(why: str) -> str:
    """Return a reason as far as its words are known; a server may say anything."""
    known = _KNOWN.match(why)
    return known[0] if known else _HIDDEN

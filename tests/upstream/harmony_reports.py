# SPDX-License-Identifier: Apache-2.0
"""Public reports about gpt-oss's output that can be reproduced on the parser; docs/harmony-reports.md lists them with their outcome.

The inputs are shortened: the texts and names of the reports do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from harmony_client import CHAT, NO_TOOLS, Said, all_ways

FIRST = "<|channel|>analysis<|message|>Hm.<|end|>"
THEN = f"{FIRST}<|start|>assistant"
CALL = Said("Hm.", "", [("f", '{"a": 1}')])
ARGUMENTS = '<|message|>{"a": 1}<|call|>'
ANSWER = Said("Hm.", "Oui")


@dataclass(frozen=True)
class Report:
    """A report: where it stands, what the model wrote, and what a client has to get."""

    place: str
    text: str
    expected: Said
    tools: bool = True


REPORTS = [
    Report(
        "vllm 22403",
        f"{THEN}<|channel|>commentary<|message|>Let me see.<|end|>{THEN[len(FIRST) :]}<|channel|>final<|message|>Oui",
        Said("Hm.", "Let me see.\nOui"),
    ),
    Report("vllm 22519", f"{FIRST}assistant<|channel|>final<|message|>Oui<|return|>", ANSWER),
    Report("vllm 23167", f"{THEN}<|channel|>commentary<|message|>Oui<|end|>", ANSWER, tools=False),
    Report("vllm 23567, openai/harmony 38", f"{THEN}<|channel|>commentary\u2013commentary<|message|>Oui<|end|>", ANSWER),
    Report("vllm 23694", '<|channel|>final<|message|>{"issues":[]}<|return|>', Said("", '{"issues":[]}')),
    Report("vllm 23837", f'{THEN}<|channel|>commentary json<|message|>{{"a": 1}}<|end|>', Said("Hm.", '{"a": 1}')),
    Report("vllm 26083", f"{THEN}<|channel|>analysis to=functions.f <|constrain|>json{ARGUMENTS}", CALL),
    Report("vllm 27385", f"{THEN}<|channel|>analysis to=python code<|message|>1+1<|call|>", Said("Hm.\n1+1"), tools=False),
    Report(
        "vllm 28303, openai/harmony 82",
        f"{THEN}<|channel|>final I can't help with that.<|return|>",
        Said("Hm.", "I can't help with that."),
    ),
    Report("vllm 32587", f"{THEN} to=functions.f<|channel|>commentary<|channel|>commentary json{ARGUMENTS}", CALL),
    Report("vllm 41902, 45736", f'{THEN}<|channel|>final {{"a": 1}}<|return|>', Said("Hm.", '{"a": 1}')),
    Report("vllm 46464", f"{FIRST}<|return|> of<|start|>assistant<|channel|>final<|message|>Oui<|return|>", ANSWER),
    Report(
        "vllm 50690", f"{THEN}<|channel|>final<|message|>Oui<|return|><|return|><|start|>user<|message|>And?<|end|>", ANSWER
    ),
    Report("vllm 51616", f"{THEN}<|channel|>commentary to=mcp code<|message|>Oui<|call|>", ANSWER, tools=False),
    Report("vllm 51616", f"{THEN}<|channel|>final to=ms_output<|message|>Oui<|return|>", ANSWER, tools=False),
    Report("vllm 51977", f"{THEN}<|channel|>commentary with to=functions.f json{ARGUMENTS}", CALL),
    Report(
        "chatwise-releases 970", f"{THEN}<|channel|>commentary to=use_mcp_tool <|constrain|>json<|message|>Oui<|call|>", ANSWER
    ),
    Report("llama.cpp 15181", f"{THEN} to=functions.f<|channel|>commentary <|constrain|>json{ARGUMENTS}", CALL),
    Report(
        "llama.cpp 27720",
        f"<|channel|>??<|message|>Hm.<|end|>{THEN[len(FIRST) :]}<|channel|>final<|message|>Oui<|return|>",
        ANSWER,
    ),
    Report("llama.cpp 27720", f"{THEN}<|channel|>commentary?commentary?<|message|>Oui<|end|>", ANSWER),
    Report("llama.cpp 27720", f"{THEN}<|channel|>commentary to=assistant<|channel|>commentary?<|message|>Oui<|end|>", ANSWER),
    Report("lmstudio-bug-tracker 942", f"{THEN}<|channel|>commentary to=functions.f<|constrain|>json{ARGUMENTS}", CALL),
    Report("tenstorrent/vllm 386", f"{FIRST}<|start|>assistantassistant<|channel|>final<|message|>Oui<|return|>", ANSWER),
    Report("tenstorrent/vllm 386", f"{FIRST}<|start|><|start|>assistant<|channel|>final<|message|>Oui<|return|>", ANSWER),
    Report("tenstorrent/vllm 386", f"{THEN}<|channel|><|message|>Oui<|return|>", ANSWER),
    Report("vllm-mlx 562", f"{THEN}<|channel|>analysis to=functions.f code{ARGUMENTS}", CALL),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.place)
def test_what_was_reported_is_right(report: Report) -> None:
    for said in all_ways(report.text, CHAT if report.tools else NO_TOOLS):
        assert said == report.expected

# SPDX-License-Identifier: Apache-2.0
"""Judge the text of an answer: tokens that should not be there, one token without end, repetition."""

import re
from collections.abc import Iterator
from itertools import groupby

from stack.doctor.finding import Found, wrong
from stack.doctor.loops import loop
from stack.doctor.server.shown import seen_in, shown

_CONTROL = re.compile(r"<\|(?:start|end|channel|message|return|call|constrain|im_start|im_end|eot_id|endoftext|tool_call)\|>")
_THINK = re.compile(r"</?(?:[a-z]{1,8}:)?think(?:ing)?>|\[/?THINK\]|◁/?think▷", re.IGNORECASE)
_CHANNELS = re.compile(r"assistant(?:final|analysis|commentary)|^\s{0,9}(?:analysis|commentary)(?=[A-Z])")
_GLUED = re.compile(r"([^\W_]{1,12}?|[^\w\s]{1,3}[^\W_]{1,8}?)\1{15,}")
REPEATS = "an answer repeats itself"
_READ = 20_000
"""Characters of a text that are judged."""
_FEW, _MANY = 4, 20
"""Least number of exclamation marks that come from NaN: as the whole text, and in a row within other text."""
_SHORT, _RUN = 8, 40
"""Least length of a run of one character that is a loop: as the whole text, and within other text."""
_WORDS = 8
"""Least number of times that a word in a row is a loop."""
_RULES = frozenset("-=_*.~#─━═ \n\t")
"""Characters that lines of tables and headings repeat."""
NAN_FIX = (
    "most often the kernels of a quantization compute NaN: choose another backend (--linear-backend, --moe-backend; `stack doctor --log` "
    "names those that run), and --dtype bfloat16 in place of float16; VLLM_COMPUTE_NANS_IN_LOGITS=1 counts such requests in /metrics"
)
_LOOP_FIX = (
    "most often wrong kernels, a damaged checkpoint or another model's chat template: see which MoE, linear and attention backends the "
    "log names (stack doctor --log FILE)"
)
_THINK_FIX = (
    "most often the reasoning parser is missing: --reasoning-parser of this model (such as qwen3, deepseek_r1, glm45; SGLang has the "
    "same flag, llama-server --reasoning-format)"
)
_CHANNEL_FIX = (
    "most often harmony's parser is not used: --reasoning-parser openai_gptoss for gpt-oss (SGLang: gpt-oss; llama-server: --jinja); "
    "with it, see which MoE and linear backends the log names"
)
_ENDS_FIX = (
    "most often the wrong chat template or parser for this model, or generation_config.json lacks its end token; "
    "with both right, see which MoE and linear backends the log names"
)


def garbled(content: str, reasoning: str = "") -> Iterator[Found]:
    """Report the first thing that makes an answer unusable, whatever was asked."""
    content, reasoning = content[:_READ], reasoning[:_READ]
    found = leaked(content) or leaked(reasoning, thinks=True)
    if found is None:
        found = next((each for text in (content, reasoning) if (each := repeated(text)) is not None), None)
    if found is not None:
        yield found


def leaked(text: str, *, thinks: bool = False) -> Found | None:
    """Report control tokens, channels, and reasoning in a text. `thinks`: it is the reasoning."""
    if found := _CONTROL.search(text):
        fix = _CHANNEL_FIX if "channel" in text or "message" in text else _ENDS_FIX
        return seen_in(
            wrong(f"an answer has control tokens in it, {found[0]}: {shown(text)}", fix),
            "vllm-project/vllm#32587",
            "NVIDIA/TensorRT-LLM#9256",
        )
    if thinks:
        return None
    if _CHANNELS.search(text):
        what = f"an answer has the model's channels in it, as text: {shown(text)}"
        return seen_in(wrong(what, _CHANNEL_FIX), "vllm-project/vllm#32587", "NVIDIA/TensorRT-LLM#9256")
    if found := _THINK.search(text):
        what = f"`content` has the model's reasoning in it, with its mark {found[0]}: {shown(text)}"
        return seen_in(wrong(what, _THINK_FIX), "vllm-project/vllm#45687", "vllm-project/vllm#38212")
    return None


def repeated(text: str) -> Found | None:
    """Report one token without end, and the mark of NaN: token 0, which is `!` in most vocabularies."""
    text = text[:_READ]
    stripped = text.strip()
    if (len(stripped) >= _FEW and not stripped.strip("!")) or "!" * _MANY in text:
        what = f"an answer is nothing but `!`, the token 0 that comes out of NaN: {shown(stripped)}"
        if stripped.strip("!"):
            what = f"an answer turns into `!` without end, the token 0 that comes out of NaN: {shown(stripped)}"
        return seen_in(wrong(what, NAN_FIX), "vllm-project/vllm#22881", "vllm-project/vllm#47367")
    if unit := _one_token(stripped):
        found = wrong(f"{REPEATS}, one token without end ({shown(unit, 20)}): {shown(stripped)}", _LOOP_FIX)
        return seen_in(found, "vllm-project/vllm#52938", "sgl-project/sglang#24321")
    if (phrase := loop(text)) is not None:
        return seen_in(wrong(f"{REPEATS}: {shown(phrase)}", _LOOP_FIX), "NVIDIA/dgx-spark-playbooks#76")
    return None


def _one_token(text: str) -> str:
    """Return the character or the word that a text repeats; empty if there is none."""
    if len(text) >= _SHORT and len(set(text)) == 1:
        return text[0]
    letter, length = _longest(text)
    if length >= _RUN and (letter not in _RULES or 2 * length > len(text)):
        return letter
    if glued := _GLUED.search(text):
        return glued[1]
    word, times = _longest(text.split())
    return word if times >= _WORDS and word.strip("|-:=*_.") else ""


def _longest(items: "str | list[str]") -> tuple[str, int]:
    """Return the item that comes most often in a row, and how often."""
    return max(((item, sum(1 for _ in run)) for item, run in groupby(items)), key=lambda pair: pair[1], default=("", 0))

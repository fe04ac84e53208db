# SPDX-License-Identifier: Apache-2.0
"""Rules for a stranger's recipe: which variables and flags are kept, and why others are not.

No reason repeats a value: it may be a secret.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_SECRET = re.compile(
    r"(?:(?<!TIK)TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:$|_)|(?:^|_)(?:PASS|PWD|AUTH|PAT|COOKIE)(?:$|_)",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"(?:VLLM|FLASHINFER|NCCL|GLOO|UCX|OMP|TORCH|TIKTOKEN)_\w+|PYTORCH_\w*ALLOC_CONF|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER"
    r"|CUTE_DSL_ARCH|HF_HUB_OFFLINE|MAX_JOBS|NVIDIA_VISIBLE_DEVICES|PYTHONHASHSEED",
    re.ASCII,
)
"""Variables of the server and its libraries."""
_LOADERS = re.compile(
    r"(?:LD|DYLD)_\w+|PYTHON(?!HASHSEED|UNBUFFERED)\w+|BASH_ENV|ENV|PATH"
    r"|\w*(?:PLUGIN|TUNER|MODULE|COMPILER|NVCC|PTXAS|LIBRAR|INJECTION|INSECURE|COMMAND|CUBIN|LOCATION)\w*"
    r"|\w+(?:FLAGS|_CLS|_CLASS|_LIB|_SO)",
    re.ASCII,
)
"""Variables that load code, or choose which code is loaded."""
_FILES = re.compile(r"\w*(?:_PATH|_DIR|_FILE|FOLDER|_ROOT|_HOME|CONF_FILE)(?:$|_)\w*|\w+_CACHE|\w+_BASE", re.ASCII)
_OPENING = frozenset(
    {
        "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_USE_MODELSCOPE", "VLLM_MEDIA_CONNECTOR",
        "VLLM_USAGE_STATS_SERVER", "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY", "VLLM_DP_MASTER_IP", "NCCL_COMM_ID",
    }
)  # fmt: skip
"""Variables that open the server, or take data from or to somewhere else."""
_SWITCH = re.compile(r"\d{1,9}|true|false|yes|no|on|off", re.IGNORECASE | re.ASCII)
"""A value that can name nothing, so that a variable which is not known here does no harm with it."""
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?::\w+)?", re.ASCII)
_CODE_FILE = re.compile(r".*\.(?:so|py|pyc|dll)", re.DOTALL)
_CODE = frozenset(
    {
        "--middleware", "--worker-cls", "--worker-extension-cls", "--scheduler-cls", "--logits-processors",
        "--reasoning-parser-plugin", "--tool-parser-plugin", "--io-processor-plugin",
    }
)  # fmt: skip
"""Flags that name Python code to load."""
_OPENS = frozenset({"--allowed-local-media-path"})
_KEYS = frozenset({"--api-key", "--hf-token"})
_WHOLE = frozenset({"--reasoning-parser"})
"""Flags with which a longer one begins; any other beginning of a flag stands for the flag itself."""
_OF_MODULES = re.compile(r"module|plugin|_cls$|_class$", re.IGNORECASE)
_OPERATORS = frozenset({"splitting_ops", "custom_ops"})
"""Keys of a configuration whose values name operators, in the form of a module."""
_IN_A_FILE = "a key in a file is no secret: set it where the server starts"
_LOADED = "the server would load the code that it names"
_ODD = re.compile(r"module|plugin|_cls\b|token\b|secret|password|\bkey|://", re.IGNORECASE)


_GUARDS = frozenset(
    {"--host", "--uds", "--api-key", "--allowed-origins", "--allow-credentials", "--ssl-keyfile", "--ssl-certfile"}
)
"""Flags that say who may reach the server."""
_BRINGS = frozenset({"--trust-remote-code", "--model", "--config", "--tokenizer", "--hf-config-path", "--chat-template"})
"""Flags that bring the code, the templates or the settings of somebody else."""


def is_secret(name: str) -> bool:
    """Tell whether a variable is one that holds a secret."""
    return _SECRET.search(name) is not None


def variable(name: str, value: str) -> str | None:
    """Return why a variable is not kept; None if it is. A secret is none of these reasons: see `is_secret`."""
    if _LOADERS.fullmatch(name):
        return "it chooses which code the server loads"
    if name in _OPENING:
        return "it opens the server, or takes data from or to somewhere else"
    if _SWITCH.fullmatch(value):
        return None
    return _named(name, value) if _KNOWN.fullmatch(name) else "it is not known to be harmless"


def _named(name: str, value: str) -> str | None:
    """Return why a variable of the server is not kept, for what its value names."""
    if "://" in value:
        return "it names an address"
    if name.startswith("TIKTOKEN_"):  # the encodings of gpt-oss lie in a folder; what is read there is checked by its hash
        return None
    if "/" in value or _FILES.fullmatch(name) or _CODE_FILE.fullmatch(value) or _MODULE.fullmatch(value):
        return "it names a file or a module"
    return None


def flag(name: str, value: str | None) -> str | None:
    """Return why a flag of `vllm serve` is not kept; None if it is."""
    if _means(name, _KEYS) or _is_key(name):
        return _IN_A_FILE
    if _means(name, _CODE):
        return _LOADED
    if _means(name, _OPENS):
        return "clients could do more than ask with it"
    return None if value is None else _valued(name, value)


def correction(text: str) -> str | None:
    """Return why a rule of a stranger must not write this flag; None if it may."""
    name, _, value = text.replace("=", " ", 1).partition(" ")
    long = f"--{name.lstrip('-').replace('_', '-').removeprefix('no-')}"
    if _means(long, _GUARDS | _BRINGS):
        return "it changes who may reach the server, or what it loads"
    return flag(long, value.strip() or None)


def removal(name: str) -> str | None:
    """Return why a rule of a stranger must not take out this flag or variable; None if it may."""
    long = f"--{name.lstrip('-').replace('_', '-').removeprefix('no-')}" if name.startswith("-") else name
    if long in _GUARDS or is_secret(name) or _is_key(long):
        return "it changes who may reach the server"
    return None


def _valued(name: str, value: str) -> str | None:
    """Return why a flag is not kept, for its value."""
    if "://" in value:
        return "it names an address"
    if name == "--distributed-executor-backend" and _MODULE.fullmatch(value):
        return _LOADED
    key = name.partition(".")[2].rpartition(".")[2]
    return _configuration({key: _parsed(value)} if key else _parsed(value))


def _means(name: str, flags: frozenset[str]) -> bool:
    """Tell whether a flag is one of these, or the beginning of one: the parser of arguments takes it for that."""
    return name in flags or (len(name) > 5 and name not in _WHOLE and any(each.startswith(name) for each in flags))


def _is_key(name: str) -> bool:
    """Tell whether the last word of a flag names a secret; --long-prefill-token-threshold has a number."""
    return (
        re.search(r"(?:^|[-_.])(?:token|(?:api)?key|secret|pass|password|passwd|credentials?|auth)$", name.lower()) is not None
    )


def _parsed(value: str) -> Any:
    if value[:1] not in "{[":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"module": "a.b"} if _ODD.search(value) else ""  # what cannot be read is judged by its words


def _configuration(content: Any) -> str | None:
    """Return why a flag's configuration is not kept."""
    for key, value in _pairs(content):
        if is_secret(key) and isinstance(value, str):
            return _IN_A_FILE
        if not isinstance(value, str) or not key:
            continue
        if _OF_MODULES.search(key) or _CODE_FILE.fullmatch(value) or (key not in _OPERATORS and _MODULE.fullmatch(value)):
            return _LOADED
    return None


def _pairs(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration at any depth, each with the key that it stands under."""
    rest: list[tuple[str, Any]] = [("", content)]
    while rest:
        key, value = rest.pop()
        if isinstance(value, dict):
            rest += value.items()
        elif isinstance(value, list):
            rest += ((key, each) for each in value)
        else:
            yield key, value

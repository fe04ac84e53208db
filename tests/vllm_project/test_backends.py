# SPDX-License-Identifier: Apache-2.0
"""Small functions are evaluated for a GPU; whatever depends on anything else stays unknown."""

import ast
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from stack.projects import Use
from stack.vllm_project import backends, evaluation
from stack.vllm_project.evaluation import UNKNOWN, Scope

EXPRESSIONS = [
    ("capability >= DeviceCapability(8, 0)", True),
    ("capability >= DeviceCapability(8, 0) and capability <= DeviceCapability(12, 0)", False),
    ("capability == DeviceCapability(major=12, minor=1)", True),
    ("(capability.major, capability.minor) in ((12, 0), (12, 1))", True),
    ("capability.major in [9, 10]", False),
    ("capability.to_int() >= 121", True),
    ("current_platform.is_cuda() and current_platform.has_device_capability(90)", True),
    ("current_platform.is_device_capability_family(120)", True),
    ("current_platform.is_device_capability((10, 0))", False),
    ("current_platform.is_rocm()", False),
    ("current_platform.get_device_capability() < (12, 0)", False),
    ("current_platform.asked_by_name()", UNKNOWN),
    ("has_library()", UNKNOWN),
    ("has_library() and False", False),
    ("has_library() or True", True),
    ("not has_library()", UNKNOWN),
    ("kind.startswith('fp8')", True),
    ("kind.upper() == 'FP8'", UNKNOWN),
    ("kind in cls.kinds", True),
    ("kind < 3", UNKNOWN),
    ("1 // 0 == 0", UNKNOWN),
    ("bool(kind) if capability.minor else has_library()", True),
    ("[each for each in kind]", UNKNOWN),
]


def scope(**values: Any) -> Scope:
    return Scope(
        (12, 1), {"capability": (12, 1), "kind": "fp8_e4m3", **values}, lambda name: {"kinds": ("fp8_e4m3",)}.get(name, UNKNOWN)
    )


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS)
def test_an_expression(text: str, value: Any) -> None:
    assert evaluation.value_of(ast.parse(text, mode="eval").body, scope()) is value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return True", True),
        ("'why'\n p = current_platform\n return p.is_cuda()", True),
        ("if kind == 'x':\n  return False\n return True", True),
        ("if has_library():\n  return False\n return False", False),
        ("if has_library():\n  return False\n return True", UNKNOWN),
        ("if has_library():\n  pass\n elif kind:\n  return False\n return False", False),
        ("for each in kind:\n  return True\n return True", UNKNOWN),
        ("pass", None),
    ],
)
def test_a_function(body: str, value: Any) -> None:
    made = ast.parse(f"def asked():\n {body}\n").body[0]
    assert isinstance(made, ast.FunctionDef)
    assert evaluation.result(made, scope()) is value


@pytest.mark.parametrize(
    "text",
    [
        "'a' * 3000000",
        "b'a' * 3000000",
        "3000000 * 'a'",
        "(0,) * 3000000",
        "[0] * 3000000",
        "'%03000000d' % 1",
        "b'%03000000d' % 1",
        "(2 ** 16) * 1",
        "1 << 3000000",
        "f'{1:03000000d}'",
        f"{'a' * 3000!r} + {'a' * 3000!r}",
        "(2, 'x').to_int() + ('x', 2).to_int()",
        f"DeviceCapability({2**64}, 0).to_int()",
    ],
)
def test_a_large_value_is_unknown(text: str) -> None:
    assert evaluation.value_of(ast.parse(text, mode="eval").body, scope()) is UNKNOWN


@pytest.mark.parametrize("step", ["x * x", "x + x", "(x, x)", "DeviceCapability(x, x).to_int() * x"])
@pytest.mark.parametrize("first", ["3", "'a'", "(1, 2)"])
def test_a_value_that_grows_with_each_line_is_unknown(first: str, step: str) -> None:
    lines = [f"x = {first}", *[f"x = {step}"] * 70, "return x"]
    made = ast.parse("def asked():\n" + "".join(f" {line}\n" for line in lines)).body[0]
    assert isinstance(made, ast.FunctionDef)
    assert evaluation.result(made, scope()) is UNKNOWN


def test_small_values_are_joined() -> None:
    assert evaluation.value_of(ast.parse("'a' + 'b'", mode="eval").body, scope()) == "ab"
    assert evaluation.value_of(ast.parse("(1,) + (2,)", mode="eval").body, scope()) == (1, 2)
    assert evaluation.value_of(ast.parse("7 * 3 % 4 - 1.5", mode="eval").body, scope()) == -0.5


BASE = """
class AttentionBackend:
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "bfloat16"]
    def get_supported_head_sizes(cls): return []
    def supports_head_size(cls, head_size):
        sizes = cls.get_supported_head_sizes()
        return (not sizes) or head_size in sizes
    def supports_kv_cache_dtype(cls, kv_cache_dtype): return kv_cache_dtype in cls.supported_kv_cache_dtypes
    def supports_compute_capability(cls, capability): return True
    def supports_sink(cls): return False
    def is_mla(cls): return False
"""
ATTENTION = "vllm/v1/attention/backends"
MOE = "vllm/model_executor/layers/fused_moe"
TREE = {
    "vllm/v1/attention/backend.py": BASE,
    f"{ATTENTION}/registry.py": """
class AttentionBackendEnum(Enum):
    WIDE = "vllm.v1.attention.backends.wide.WideBackend"
    OLD = "vllm.v1.attention.backends.old.OldBackend"
    ODD = "vllm.v1.attention.backends.odd.OddBackend"
    ROCM_X = "vllm.v1.attention.backends.rocm.RocmBackend"
    NONE = ""
""",
    f"{ATTENTION}/wide.py": """
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.attention.utils import fits
class WideBackend(AttentionBackend):
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "fp8"]
    def supports_kv_cache_dtype(cls, kv_cache_dtype):
        if kv_cache_dtype == "nvfp4":
            return fits(kv_cache_dtype)
        return super().supports_kv_cache_dtype(kv_cache_dtype)
    def supports_sink(cls): return True
    def get_supported_head_sizes(cls): return [64, 128]
""",
    "vllm/v1/attention/utils.py": "def fits(kind):\n    return current_platform.is_device_capability_family(100)\n",
    f"{ATTENTION}/old.py": """
from vllm.v1.attention.backend import AttentionBackend
class OldBackend(AttentionBackend):
    def supports_compute_capability(cls, capability): return capability.major in [9, 10]
""",
    f"{ATTENTION}/odd.py": "class OddBackend(Unread):\n    pass\n",
    f"{MOE}/oracle/mxfp4.py": f"""
def backend_to_kernel_cls(backend):
    if backend == Kind.A:
        from {MOE.replace("/", ".")}.experts.a import AExperts
        return [AExperts]
    elif backend in (Kind.B, Kind.C):
        from {MOE.replace("/", ".")}.experts.a import BExperts
        return [BExperts]
def map_mxfp4_backend(name):
    mapping = {{"first": Kind.A, "second": [Kind.B, Kind.C], "third": Kind.D}}
    return mapping.get(name)
""",
    f"{MOE}/experts/a.py": """
class AExperts:
    def _supports_current_device(): return current_platform.is_device_capability_family(100)
class BExperts:
    def _supports_current_device(): return current_platform.is_cuda()
""",
}


@dataclass(frozen=True)
class Tree:
    files: Mapping[str, str]

    def read(self, path: str) -> bytes | None:
        return self.files[path].encode() if path in self.files else None

    def is_file(self, path: str) -> bool:
        return path in self.files


def refused(
    *, experts: str | None = "mxfp4", is_whole: bool = True, capability: str = "12.1", **flags: str
) -> list[tuple[str, str, tuple[str, ...]]]:
    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    use = Use(given, capability, 64, True, experts, is_whole)
    return [(each.flag, each.problem.partition(" (")[0], each.instead) for each in backends.unfit(Tree(TREE), use)]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"attention_backend": "OLD"}, ("--attention-backend", "OLD does not run on compute capability 12.1", ("WIDE",))),
        (
            {"attention_backend": "old", "capability": "9.0"},
            ("--attention-backend", "OLD has no attention sinks, which the model has", ("WIDE",)),
        ),
        (
            {"attention_backend": "WIDE", "kv_cache_dtype": "nvfp4"},
            ("--kv-cache-dtype", "WIDE takes no KV cache of nvfp4 on compute capability 12.1", ()),
        ),
        ({"attention_backend": "ROCM_X"}, ("--attention-backend", "ROCM_X is for another kind of processor", ("WIDE",))),
        ({"attention_backend": "NONE"}, ("--attention-backend", "NONE has no implementation for language models", ("WIDE",))),
        ({"moe_backend": "first"}, ("--moe-backend", "first does not run on compute capability 12.1", ("second",))),
        ({"moe_backend": "first", "experts": None}, ("--moe-backend", "first does not run on compute capability 12.1", ())),
        ({"moe_backend": "other"}, ("--moe-backend", "other is no backend for mxfp4 experts", ("first", "second", "third"))),
    ],
)
def test_what_cannot_work(flags: dict[str, Any], problem: tuple[str, str, tuple[str, ...]]) -> None:
    assert refused(**flags) == [problem]


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"attention_backend": "WIDE", "kv_cache_dtype": "fp8"},
        {"attention_backend": "WIDE", "kv_cache_dtype": "nvfp4", "capability": "10.0"},
        {"attention_backend": "ODD", "kv_cache_dtype": "nvfp4"},
        {"attention_backend": "MISSING"},
        {"kv_cache_dtype": "nvfp4"},
        {"moe_backend": "second"},
        {"moe_backend": "third"},
        {"moe_backend": "auto"},
        {"moe_backend": "other", "experts": None},
        {"moe_backend": "first", "capability": "10.0"},
    ],
)
def test_what_may_work(flags: dict[str, Any]) -> None:
    assert refused(**flags) == []


def test_a_cache_that_no_backend_takes() -> None:
    files = {path: text for path, text in TREE.items() if "odd" not in path} | {
        f"{ATTENTION}/registry.py": TREE[f"{ATTENTION}/registry.py"].replace("ODD =", "ROCM_ODD =")
    }
    use = Use({"--kv-cache-dtype": "nvfp4"}, "12.1", 64, True, "mxfp4", is_whole=True)
    (found,) = backends.unfit(Tree(files), use)
    assert found.problem == "no attention backend runs on compute capability 12.1 with attention sinks with a cache of nvfp4"


def test_a_tree_of_another_kind_refuses_nothing() -> None:
    use = Use(
        {"--attention-backend": "OLD", "--moe-backend": "first", "--kv-cache-dtype": "x"},
        "12.1",
        64,
        True,
        "mxfp4",
        is_whole=True,
    )
    assert [*backends.unfit(Tree({}), use)] == []
    assert [*backends.unfit(Tree({f"{ATTENTION}/registry.py": "class AttentionBackendEnum(:"}), use)] == []


def test_classes_that_inherit_from_each_other_end() -> None:
    files = {
        f"{ATTENTION}/registry.py": f"class AttentionBackendEnum:\n    A = '{ATTENTION.replace('/', '.')}.a.A'\n",
        f"{ATTENTION}/a.py": "class A(B):\n    def supports_sink(cls): return cls.supports_sink()\nclass B(A):\n    pass\n",
    }
    use = Use({"--attention-backend": "A"}, "12.1", 64, True, None, is_whole=True)
    assert [*backends.unfit(Tree(files), use)] == []


def test_functions_with_endless_ways_end() -> None:
    ways = "".join(f"        if unknown({at}):\n            cls.a{(at + 1) % 9}()\n" for at in range(40))
    methods = "".join(
        f"    def a{at}(cls):\n{ways}        return cls.a{(at + 1) % 9}() or cls.a{(at + 2) % 9}()\n" for at in range(9)
    )
    files = {
        f"{ATTENTION}/registry.py": f"class AttentionBackendEnum:\n    A = '{ATTENTION.replace('/', '.')}.a.A'\n",
        f"{ATTENTION}/a.py": f"class A:\n{methods}    def supports_sink(cls):\n        return cls.a0()\n",
    }
    began = time.process_time()
    assert [*backends.unfit(Tree(files), Use({"--attention-backend": "A"}, "12.1", 64, True, None, is_whole=True))] == []
    assert time.process_time() - began < 10


def test_no_backend_is_advised_for_a_model_that_is_not_known() -> None:
    (found,) = backends.unfit(Tree(TREE), Use({"--attention-backend": "OLD"}, "12.1"))
    assert found.instead == ()

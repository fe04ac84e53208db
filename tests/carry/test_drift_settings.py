# SPDX-License-Identifier: Apache-2.0
"""Variables and flags of recipes and compose files."""

import pytest

from stack.carry.drift import Unknown, check_settings
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, Entry

from .trees import Scratch

ENGINE = """\
class EngineArgs:
    not_a_flag: int = 1

    @staticmethod
    def add_cli_args(parser):
        group = parser.add_argument_group("model")
        group.add_argument("--max-model-len", **kwargs["max_model_len"])
        group.add_argument("--enable-prefix-caching", "-epc", action=BooleanOptionalAction)
        group.add_argument(
            "--tensor-parallel-size",
            "-tp",
        )
        group.add_argument("--compilation-config", "-cc")
        warn("--not-a-flag is gone")
"""
FRONTEND = """\
from vllm.entrypoints.base import Base

@config
class BaseFrontendArgs(Base):
    chat_template: str | None = None

@config
class FrontendArgs(BaseFrontendArgs):
    api_key: list[str] | None = None
    plain = 1

def make_arg_parser(parser):
    parser.add_argument("--headless", action="store_true")
"""
UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/envs.py": 'environment = {\n    "VLLM_PORT": lambda: 1,\n}\n',
    "vllm/engine/arg_utils.py": ENGINE,
    "vllm/entrypoints/cli/serve.py": "",
    "vllm/entrypoints/base.py": "class Base:\n    root_path: str = ''\n",
    "vllm/entrypoints/somewhere/cli_args.py": FRONTEND,
    "vllm/entrypoints/else/cli_args.py": "def other():\n    pass\n",
    "vllm/platforms/cpu.py": 'def update(parser):\n    parser.add_argument("--cpu-only")\n',
    "vllm/utils/argparse_utils.py": "",
}


def tree(scratch: Scratch, files: dict[str, str]) -> TreeId:
    write = scratch.objects.write_blob
    return scratch.objects.replaced(EMPTY_TREE, {path: Entry(0o100644, write(text.encode())) for path, text in files.items()})


def unknown(scratch: Scratch, *given: str, files: dict[str, str] | None = None) -> list[str]:
    variables, flags = [name for name in given if name[0] != "-"], [name for name in given if name[0] == "-"]
    return [found.name for found in check_settings(scratch.objects, tree(scratch, files or UPSTREAM), variables, flags)]


@pytest.mark.parametrize(
    "name",
    [
        *("--max-model-len", "--max_model_len", "--max-model-len=4096", "--max-model", "-tp", "-epc", "--tensor-parallel-size"),
        *(
            "--enable-prefix-caching",
            "--no-enable-prefix-caching",
            "--compilation-config.mode=3",
            "-cc.mode",
            "-O3",
            "-O",
            "--help",
        ),
        *("--api-key", "--chat-template", "--root-path", "--headless", "--cpu-only"),
        *("VLLM_PORT", "FLASHINFER_GONE", "HF_HOME", "NCCL_DEBUG", "MODEL", "model-name"),
    ],
)
def test_known(scratch: Scratch, name: str) -> None:
    assert unknown(scratch, name) == []


@pytest.mark.parametrize(
    "name",
    [
        "--max-model-lenn",
        "--swap-space=4",
        "--not-a-flag",
        "--plain",
        "--no-swap",
        "--disable-prefix-caching",
        "-xx",
        "--c",
        "VLLM_GONE",
    ],
)
def test_unknown(scratch: Scratch, name: str) -> None:
    assert unknown(scratch, name) == [name]


def test_the_nearest_is_named(scratch: Scratch) -> None:
    found = check_settings(scratch.objects, tree(scratch, UPSTREAM), ["VLLM_PORTS"], ["--max-modl-len=1"])
    assert found == (
        Unknown(
            "VLLM_PORTS",
            "nothing in this tree reads the environment variable VLLM_PORTS: the nearest is VLLM_PORT",
            "VLLM_PORT",
        ),
        Unknown(
            "--max-modl-len=1",
            "`vllm serve` has no flag --max-modl-len in this tree: the nearest is --max-model-len",
            "--max-model-len",
        ),
    )


def test_a_parser_that_pairs_enable_with_disable(scratch: Scratch) -> None:
    parser = {"vllm/utils/argparse_utils.py": 'PAIRS = {"--enable-": "--disable-"}\n'}
    assert unknown(scratch, "--disable-prefix-caching", files=UPSTREAM | parser) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def make_arg_parser(parser):\n    pass\n",
        FRONTEND.replace("class BaseFrontendArgs(Base)", "class BaseFrontendArgs(Lost)"),
        FRONTEND.replace("class BaseFrontendArgs(Base)", "class BaseFrontendArgs(make())"),
        "def make_arg_parser(:\n",
    ],
)
def test_flags_that_cannot_be_checked_are_not_passed_over(scratch: Scratch, text: str) -> None:
    files = UPSTREAM | {"vllm/entrypoints/somewhere/cli_args.py": text}
    (found,) = check_settings(scratch.objects, tree(scratch, files), [], ["--headless"])
    assert "not declared where they used to be" in found.problem


def test_another_projects_tree_has_no_say_in_flags(scratch: Scratch) -> None:
    assert unknown(scratch, "--anything", "VLLM_GONE", files={"flashinfer/__init__.py": ""}) == []
    assert unknown(scratch, "FLASHINFER_GONE", files={"flashinfer/__init__.py": ""}) == ["FLASHINFER_GONE"]

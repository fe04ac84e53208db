# SPDX-License-Identifier: Apache-2.0
"""Drift in Python: each check seen failing, and staying silent where it cannot know."""

import textwrap
from collections.abc import Mapping

import pytest

from stack.carry.drift import Drift, check
from stack.carry.drift.outline import LARGEST
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, Entry

from .trees import Scratch

UPSTREAM = {
    "setup.py": 'ext_modules.append(CMakeExtension(name="vllm._moe_X"))\nCMakeExtension(name="vllm.flash._fa2")\n',
    "CMakeLists.txt": "define_extension_target(\n  _spin\n  DESTINATION vllm)\n",
    ".gitignore": "# made\nlib/\n/vllm/_made.py\nvllm/made/*\n!vllm/made/kept.py\nvllm/deep/**/gen.py\n",
    "vllm/__init__.py": "from .engine import Engine as Engine\n",
    "vllm/engine.py": """\
        import typing
        from typing import TYPE_CHECKING, overload

        import numpy as np

        from vllm.utils import helper, tools

        if TYPE_CHECKING:
            from vllm.types import Request
        try:
            import fast
            SPEED = 2
        except ImportError as failed:
            SPEED = 1
        for _index in range(3):
            (TABLE := {})
        with open("x") as handle:
            first, *others = handle
        match SPEED:
            case {"a": captured, **rest}:
                pass

        _state = None

        def set_state(value):
            global _state, _late
            _state = _late = value

        class Engine:
            def __init__(self, model, *, depth=1):
                pass

            def step(self, tokens):
                pass

            @classmethod
            def make(cls, model):
                pass

            @staticmethod
            def plan(size):
                pass

        def run(model, tokens, depth=1, *, fast=False):
            pass
        """,
    "vllm/types.pyi": "class Request: ...\n",
    "vllm/utils/__init__.py": "from .helpers import *\nfrom . import tools\nfrom vllm.engine import run as start\n",
    "vllm/utils/helpers.py": "def helper(a, b=2):\n    pass\n",
    "vllm/utils/tools.py": "def cut(text):\n    pass\n",
    "vllm/utils/quantization/quant_utils.py": "def scaled():\n    pass\n",
    "vllm/lazy.py": "def __getattr__(name):\n    return 1\n",
    "vllm/filled.py": "for n in 'ab':\n    globals()[n] = 1\n",
    "vllm/outer.py": "from torch import *\n",
    "vllm/ring.py": "from vllm.gnir import *\n",
    "vllm/gnir.py": "from vllm.ring import *\n",
    "vllm/broken.py": "def f(:\n",
    "vllm/space/inner.py": "x = 1\n",
    "vllm/made/__init__.py": "",
    "vllm/flash/__init__.py": "",
    "vllm/platforms.so": "",
    "vllm/envs.py": 'environment = {\n    "VLLM_PORT": lambda: 1,\n}\n\ndef __getattr__(name):\n    return environment[name]()\n',
    "tests/__init__.py": "",
    "tests/utils.py": "def fixture():\n    pass\n",
    "scripts/common.py": "def say():\n    pass\n",
    "docker/README": "no package: `import docker` is another project's\n",
}


def tree(scratch: Scratch, files: dict[str, str]) -> TreeId:
    write = scratch.objects.write_blob
    return scratch.objects.replaced(
        EMPTY_TREE, {path: Entry(0o100644, write(textwrap.dedent(text).encode())) for path, text in files.items()}
    )


def marked(text: str) -> tuple[str, frozenset[int]]:
    """A file whose added lines begin with `+`."""
    lines = textwrap.dedent(text).splitlines()
    added = frozenset(number for number, line in enumerate(lines, 1) if line.startswith("+"))
    return "\n".join(line[1:] if line[:1] in "+ " else line for line in lines) + "\n", added


def checked(
    scratch: Scratch,
    text: str,
    path: str = "vllm/mine.py",
    *,
    changed: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
    mine_before: str | None = None,
) -> tuple[Drift, ...]:
    """What is found in one patched file; `changed` is what the new upstream has otherwise, `before` what the old one had."""
    content, added = marked(text)
    new, old = {**UPSTREAM, **(changed or {})}, {**UPSTREAM, **(before or {})}
    then = tree(scratch, {**old, path: mine_before if mine_before is not None else content}) if before is not None else None
    now = tree(scratch, {**new, path: content})
    found = check(scratch.objects, now, {path: added}, before=then)
    if then is not None:
        # With the upstream's own tree most files are not read whole: that must find the same.
        own = "".join(f"{line}\n" for number, line in enumerate(content.splitlines(), 1) if number not in added)
        for upstream in ({**new, path: own}, new):
            assert check(scratch.objects, now, {path: added}, before=then, upstream=tree(scratch, upstream)) == found
    return found


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("from vllm.gone import f", "there is no module vllm.gone"),
        ("import vllm.gone", "there is no module vllm.gone"),
        ("import vllm.gone.deep as deep", "there is no module vllm.gone.deep (vllm.gone is gone)"),
        ("import vllm.engine, vllm.gone", "there is no module vllm.gone"),
        ("from .gone import f", "there is no module vllm.gone"),
        ("from . import gone", "vllm has no gone"),
        ("from vllm import gone", "vllm has no gone"),
        ("from vllm.engine import Gone", "vllm.engine has no Gone"),
        ("from vllm.utils import gone", "vllm.utils has no gone"),
        ("from vllm.engine import runs", "vllm.engine has no runs: the nearest name there is run"),
        ("from vllm.utils import cut", "vllm.utils has no cut: it is defined in vllm/utils/tools.py"),
        (
            "from vllm.utils.quant_utils import scaled",
            "no module vllm.utils.quant_utils: the nearest is vllm.utils.quantization.quant_utils",
        ),
        ("from vllm.space import outer", "vllm.space has no outer"),
        ("from vllm.engine.inner import x", "there is no module vllm.engine.inner"),
        ("from tests.utils import gone", "tests.utils has no gone"),
        ("def f():\n+    from vllm.gone import g", "there is no module vllm.gone"),
        ("if True:\n+    from vllm.gone import g", "there is no module vllm.gone"),
        ("try:\n+    from vllm.gone import g\n+except ImportError:\n+    g = None", "there is no module vllm.gone"),
        (
            "try:\n+    from vllm.gone import g\n+except ImportError:\n+    from vllm.gone2 import g",
            "there is no module vllm.gone",
        ),
        ("from vllm.made.kept import x", "there is no module vllm.made.kept"),
        ("import vllm.utils as u\n+u.gone()", "module vllm.utils has no gone"),
        ("import vllm.utils.tools\n+vllm.utils.tools.gone()", "module vllm.utils.tools has no gone"),
        ("import vllm.utils.tools\n+vllm.utils.gone.cut()", "module vllm.utils has no gone"),
        ("from vllm import utils\n+print(utils.gone)", "module vllm.utils has no gone"),
        ("from vllm.utils import tools\n+x = [tools.gone for _ in ()]", "module vllm.utils.tools has no gone"),
        ("from vllm import utils\n+utils.tools.gone.more()", "module vllm.utils.tools has no gone"),
        ("def f(:", "this is no valid Python"),
        ("x = (", "this is no valid Python"),
    ],
)
def test_found(scratch: Scratch, line: str, problem: str) -> None:
    found = checked(scratch, f"+{line}\n")
    assert found, line
    assert problem in found[0].problem
    assert found[0].path == "vllm/mine.py"
    assert found[0].line is not None


@pytest.mark.parametrize(
    "line",
    [
        "import torch, vllmx.gone",
        "from torch.gone import x",
        "import docker.errors",
        "from vllm import engine, Engine, utils, lazy",
        "from vllm import __version__",
        "from vllm.engine import SPEED, TABLE, handle, first, others, captured, rest, failed, Request, np, _state, _late, fast, _index",
        "from vllm.utils import helper, tools, helpers, start",
        "from vllm.utils import *",
        "from vllm.types import Request",
        "from vllm.lazy import anything",
        "from vllm.filled import a",
        "from vllm.outer import Tensor",
        "from vllm.ring import anything",
        "from vllm.broken import f",
        "from vllm.space import inner",
        "import vllm.space.inner",
        "from . import engine\n+from .utils import helper\n+from .utils.tools import cut",
        "from ... import far",
        "import vllm._C\n+from vllm import _moe_C, _C_stable_libtorch\n+import vllm.platforms",
        "import vllm._moe_X\n+from vllm.flash import _fa2\n+import vllm._spin",
        "from vllm._version import version\n+from vllm._made import x\n+from vllm.made import extra\n+from vllm.made.extra import y",
        "from vllm.api_pb2 import Message",
        "try:\n+    from vllm.gone import g\n+except ImportError:\n+    from vllm.utils import helper as g",
        "try:\n+    from vllm.gone import g\n+except Exception:\n+    from triton import g",
        "import vllm.utils as u\n+u.helper()\n+u.tools.cut()\n+u.anew = 1",
        "import vllm.utils as u\n+def f(u):\n+    u.gone()",
        "import vllm.utils as u\n+if hasattr(u, 'gone'):\n+    u.gone()",
        "import vllm.utils as u\n+u.gone = 1\n+u.gone()",
        "import vllm.utils as u\n+import torch as u\n+u.gone()",
        "from vllm.engine import Engine\n+Engine.gone()",
        "from vllm import lazy\n+lazy.gone()",
        "from vllm.engine import np\n+np.gone()",
        "from vllm.engine import tools\n+tools.cut()",
        "x = 'import vllm.gone'\n+# from vllm.gone import x",
        r"x = '\d'",
    ],
)
def test_silent(scratch: Scratch, line: str) -> None:
    assert checked(scratch, f"+{line}\n") == ()


def test_a_package_that_is_gone_is_named(scratch: Scratch) -> None:
    line = "from vllm.model_executor.layers.quantization.quant_utils import scaled_dequantize"
    new = "vllm/model_executor/layers/quantization/utils/quant_utils.py"
    (found,) = checked(scratch, f" import os\n+{line}\n", changed={new: "def scaled_dequantize():\n    pass\n"})
    assert found.line == 2
    assert "the nearest is vllm.model_executor.layers.quantization.utils.quant_utils" in found.problem


def test_only_added_lines_count(scratch: Scratch) -> None:
    text = """\
         import vllm.gone
         from vllm.engine import (
        +    Engine,
             Gone,
         )
         from vllm.gone import x
         from vllm.engine import (
             run,
        +    Lost,
         )
        """
    assert [(drift.line, drift.problem.partition(":")[0]) for drift in checked(scratch, text)] == [
        (9, "vllm.engine has no Lost")
    ]


def test_a_line_that_names_the_module_answers_for_all_of_its_names(scratch: Scratch) -> None:
    assert [drift.line for drift in checked(scratch, "+from vllm.engine import (\n     Lost,\n )\n")] == [2]


def test_an_import_that_fails_is_told_once(scratch: Scratch) -> None:
    text = "+from vllm import gone\n+from vllm.lost import run\n+gone.f()\n+run(1)\n"
    assert [drift.line for drift in checked(scratch, text)] == [1, 2]


@pytest.mark.parametrize("path", ["scripts/mine.py", "scripts/deep/mine.py", "tests/deep/mine.py"])
def test_scripts_and_tests_see_the_package(scratch: Scratch, path: str) -> None:
    assert len(checked(scratch, "+from vllm.gone import f\n", path)) == 1
    assert checked(scratch, "+from vllm.engine import run\n+import pytest\n", path) == ()


def test_a_script_sees_what_lies_beside_it(scratch: Scratch) -> None:
    assert checked(scratch, "+from common import say\n", "scripts/mine.py") == ()
    assert len(checked(scratch, "+from common import shout\n", "scripts/mine.py")) == 1
    assert checked(scratch, "+from common import shout\n") == ()


def test_a_package_does_not_see_its_own_folder(scratch: Scratch) -> None:
    assert checked(scratch, "+import engine.gone\n+from utils import gone\n") == ()


def test_an_archive_may_lack_what_lies_beside_the_sources(scratch: Scratch) -> None:
    line = "+from tests.conftest import gone\n"
    assert len(checked(scratch, line, "tests/test_mine.py")) == 1
    assert checked(scratch, line, "tests/test_mine.py", changed={"PKG-INFO": ""}) == ()
    had = {"tests/conftest.py": "gone = 1\n"}
    assert len(checked(scratch, line, "tests/test_mine.py", changed={"PKG-INFO": ""}, before=had)) == 1


def test_the_tree_before_decides_what_is_in_doubt(scratch: Scratch) -> None:
    line = "+import vllm._old_C\n"
    assert checked(scratch, line) == ()
    assert checked(scratch, line, before={}) == ()
    assert len(checked(scratch, line, before={"setup.py": 'CMakeExtension(name="vllm._old_C")\n'})) == 1


def test_a_submodule_can_hold_anything(scratch: Scratch) -> None:
    objects = scratch.objects
    content, added = marked(
        "+import vllm.vendored.x\n+from vllm.vendored import y\n+from vllm.linked import scaled\n+import vllm.away.b, vllm.ring1.c\n"
    )
    base = tree(scratch, {**UPSTREAM, "vllm/mine.py": content})
    entries = {
        "vllm/vendored": Entry(0o160000, "1" * 40),
        "vllm/linked.py": Entry(0o120000, objects.write_blob(b"utils/quantization/quant_utils.py")),
        "vllm/away": Entry(0o120000, objects.write_blob(b"../../outside")),
        "vllm/ring1": Entry(0o120000, objects.write_blob(b"ring1")),
    }
    assert check(objects, objects.replaced(base, entries), {"vllm/mine.py": added}) == ()


def test_links_are_followed(scratch: Scratch) -> None:
    objects = scratch.objects
    content, added = marked("+from vllm.tied.tools import cut\n+from vllm.tied.tools import gone\n")
    base = tree(scratch, {**UPSTREAM, "vllm/mine.py": content})
    linked = objects.replaced(base, {"vllm/tied": Entry(0o120000, objects.write_blob(b"utils"))})
    assert [drift.line for drift in check(objects, linked, {"vllm/mine.py": added})] == [2]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (" import os\n+print(sys.path)\n", [2]),
        (" import os\n def f():\n+    return helper(lost.x)\n", [3, 3]),
        (" import os\n+print(os.path, __file__, len, __name__)\n", []),
        (" import os\n+from vllm.engine import *\n+print(SPEED)\n", []),
        (" import os\n+try:\n+    print(unicode)\n+except NameError:\n+    pass\n", []),
        (" import os\n def f(a, *b, **c):\n+    return [a, b, c, [d for d in ()]]\n", []),
        (" import os\n def f():\n     late = 1\n+print(late)\n", []),
        (" print(filled_in)\n+print(filled_in_too)\n", []),
        ("+print(filled_in)\n", []),
        (" import os\n globals()['x'] = 1\n+print(x)\n", []),
        (" import os\n class C:\n     __x = 1\n     def f(self):\n+        return __x\n", []),
    ],
)
def test_names_that_the_file_no_longer_binds(scratch: Scratch, text: str, lines: list[int]) -> None:
    assert [drift.line for drift in checked(scratch, text)] == lines


def test_a_name_that_the_file_bound_before(scratch: Scratch) -> None:
    had = {"before": {}, "mine_before": "import os, sys\nprint(sys.path)\n"}
    (found,) = checked(scratch, " import os\n+print(sys.path)\n", **had)  # type: ignore[arg-type]
    assert "nothing in this file binds sys" in found.problem
    assert checked(scratch, " import os\n+print(other.path)\n", **had) == ()  # type: ignore[arg-type]


CALLS = " from vllm.engine import Engine, run\n from vllm import engine\n import vllm.utils as u\n def local(a):\n     pass\n x = other = {}\n"


@pytest.mark.parametrize(
    ("call", "new", "problem"),
    [
        ("run(1, 2)", "def run(model, tokens, depth, *, fast=False):", "it needs 'depth'"),
        ("run(1, 2, 3)", "def run(model, tokens, *, fast=False):", "it takes 2 positional arguments, the call gives 3"),
        ("run(1, 2, fast=True)", "def run(model, tokens, depth=1):", "it has no parameter 'fast'"),
        ("run(1, 2)", "def run(model, tokens, depth=1, *, fast):", "it needs 'fast'"),
        ("run(1, 2, depth=3)", "def run(model, depth, tokens=1, *, fast=False):", "'depth' is given twice"),
        ("run(\n+    1,\n+    2,\n+)", "def run(model, tokens, depth, *, fast=False):", "it needs 'depth'"),
        ("run(*x, fast=True)", "def run(model, tokens, depth=1):", "it has no parameter 'fast'"),
        ("run(1, **x)", "def run(*, tokens):", "it takes 0 positional arguments"),
        ("engine.run(1, 2)", "def run(model, tokens, depth):", "it needs 'depth'"),
        ("u.start(1, 2)", "def run(model, tokens, depth):", "it needs 'depth'"),
        ("run(1, 2)", "def run(model, tokens, depth=1, *, fast=True):", None),
        ("run(1, 2)", "def run(model: int, tokens: list, depth: int = 1) -> int:", None),
        ("run(1, 2)", "def run(*args, **kwargs):", None),
        ("run(*x)", "def run(model, tokens, depth):", None),
        ("run(**x)", "def run(model, tokens, depth):", None),
        ("run(1, 2)", "@wrapped\ndef run(model, tokens, depth):", None),
        ("run(1)", "def run(model, tokens, depth):", None),
        ("other.run(1, 2)", "def run(model, tokens, depth):", None),
    ],
)
def test_calls_of_changed_functions(scratch: Scratch, call: str, new: str, problem: str | None) -> None:
    old = textwrap.dedent(UPSTREAM["vllm/engine.py"])
    changed = old.replace("def run(model, tokens, depth=1, *, fast=False):", new)
    assert changed != old
    found = checked(scratch, f"{CALLS}+{call}\n", changed={"vllm/engine.py": changed}, before={})
    assert [problem in drift.problem for drift in found if problem] == [True] * (problem is not None)
    assert bool(found) == (problem is not None)
    assert checked(scratch, f"{CALLS}+{call}\n", changed={"vllm/engine.py": changed}) == ()


@pytest.mark.parametrize(
    ("call", "old", "new"),
    [
        ("Engine(1)", "def __init__(self, model, *, depth=1):", "def __init__(self, model, *, depth):"),
        ("engine.Engine(1, depth=2)", "def __init__(self, model, *, depth=1):", "def __init__(self, model):"),
        ("Engine.make(1)", "def make(cls, model):", "def make(cls, model, size):"),
        ("Engine.plan(1)", "def plan(size):", "def plan(size, depth):"),
    ],
)
def test_calls_of_changed_classes(scratch: Scratch, call: str, old: str, new: str) -> None:
    changed = textwrap.dedent(UPSTREAM["vllm/engine.py"]).replace(old, new)
    (found,) = checked(scratch, f"{CALLS}+{call}\n", changed={"vllm/engine.py": changed}, before={})
    assert "this call no longer fits Engine" in found.problem
    assert checked(scratch, f"{CALLS}+{call}\n", before={}) == ()


OWN = """\
     def local(a{own}):
         pass

     class Thing:
         def work(self, a{method}):
             pass

         def all(self):
    +        self.work(1)
    +        local(1)
    +        (lambda local: local())(1)

     class Other:
         def work(self, a, b):
    +        self.unknown(1)
"""


@pytest.mark.parametrize(
    ("now", "lines"),
    [({"own": "", "method": ""}, []), ({"own": ", b", "method": ""}, []), ({"own": "", "method": ", b"}, [9])],
)
def test_calls_within_a_file(scratch: Scratch, now: dict[str, str], lines: list[int]) -> None:
    before = marked(OWN.format(own="", method=""))[0]
    assert [drift.line for drift in checked(scratch, OWN.format(**now), before={}, mine_before=before)] == lines


def test_a_call_within_a_file(scratch: Scratch) -> None:
    text = " def local(a, b):\n     pass\n+local(1)\n"
    (found,) = checked(scratch, text, before={}, mine_before="def local(a):\n    pass\nlocal(1)\n")
    assert found == Drift("vllm/mine.py", 3, "this call no longer fits local: it needs 'b'; it takes (a, b) now")


def test_an_added_keyword_in_the_upstreams_call(scratch: Scratch) -> None:
    new = textwrap.dedent(UPSTREAM["vllm/engine.py"]).replace(
        "run(model, tokens, depth=1, *, fast=False)", "run(model, tokens, size)"
    )
    text = " from vllm.engine import run\n run(\n     1, 2, 3,\n+    fast=True,\n )\n"
    was = "from vllm.engine import run\nrun(\n    1, 2,\n    fast=True,\n)\n"
    (found,) = checked(scratch, text, changed={"vllm/engine.py": new}, before={}, mine_before=was)
    assert (found.line, "no parameter 'fast'" in found.problem) == (4, True)


def test_python_that_is_newer_than_this_one_is_left_alone(scratch: Scratch) -> None:
    newer = {"pyproject.toml": '[project]\nrequires-python = ">=3.99"\n'}
    assert checked(scratch, "+whatever comes\n", changed=newer) == ()
    assert len(checked(scratch, "+whatever comes\n", changed={"pyproject.toml": 'requires-python = ">=3.9"\n'})) == 1


@pytest.mark.parametrize("text", ["+x = " + "(" * 5000 + "\n", "+x = " + "-" * 50000 + "1\n", "+x = '\0'\n"])
def test_sources_made_to_hurt_are_told_or_left(scratch: Scratch, text: str) -> None:
    assert len(checked(scratch, text)) <= 1


def test_huge_files_are_left_alone(scratch: Scratch) -> None:
    assert checked(scratch, "+import vllm.gone\n" + f" {'#' * 99}\n" * (LARGEST // 100)) == ()


def test_files_that_are_gone_are_left_alone(scratch: Scratch) -> None:
    assert check(scratch.objects, tree(scratch, UPSTREAM), {"vllm/none.py": frozenset({1}), "vllm": frozenset({1})}) == ()

# SPDX-License-Identifier: Apache-2.0
"""A small upstream that is built as vLLM is: a setup.py that runs CMake for a device, targets, versions from the environment.

Its one extension adds two numbers, from two sources; the patch changes one of them.
"""

from pathlib import Path

from ..proof.compiling.small import export
from ..store.factories import Remote

SETUP = """
import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class build(build_ext):
    def build_extensions(self):
        place = Path(self.build_temp)
        place.mkdir(parents=True, exist_ok=True)
        here = Path(__file__).parent
        flags = [f"-DVLLM_TARGET_DEVICE={os.environ['VLLM_TARGET_DEVICE']}", f"-DVLLM_PYTHON_EXECUTABLE={sys.executable}"]
        subprocess.check_call(["cmake", "-G", "Ninja", str(here), *flags], cwd=place)
        subprocess.check_call(["cmake", "--build", ".", f"-j{os.environ['MAX_JOBS']}", "--target=adder"], cwd=place)
        out = Path(self.get_ext_fullpath("vllm.adder")).parents[1]
        subprocess.check_call(["cmake", "--install", ".", "--prefix", str(out.absolute()), "--component", "adder"], cwd=place)


assert "VLLM_USE_PRECOMPILED" not in os.environ
version = os.environ["VLLM_VERSION_OVERRIDE"]
Path("vllm/_version.py").write_text(f"__version__ = version = {version!r}\\n")
setup(
    name="vllm",
    version=version,
    packages=["vllm"],
    ext_modules=[Extension("vllm.adder", [], py_limited_api=True)],
    cmdclass={"build_ext": build},
)
"""
CMAKE = """
cmake_minimum_required(VERSION 3.26)
project(small LANGUAGES CXX)
function(define_extension_target name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".abi3.so")
  install(TARGETS ${name} LIBRARY DESTINATION vllm COMPONENT ${name})
endfunction()
define_extension_target(
  adder csrc/adder.cpp csrc/offset.cpp)
if(VLLM_TARGET_DEVICE STREQUAL "cuda")
  include(FetchContent)
  # Not this: GIT_REPOSITORY https://example.org/comment.git GIT_TAG none
  set(REVISION "v9.9")
  if(DEFINED ENV{SMALL_SRC_DIR})
    FetchContent_Declare(tiles SOURCE_DIR $ENV{SMALL_SRC_DIR})
  else()
    FetchContent_Declare(tiles GIT_REPOSITORY @TILES@ GIT_TAG ${REVISION})
  endif()
endif()
"""
ADDER = """
#ifndef MORE
#define MORE 0
#endif
extern "C" int offset();
extern "C" int add(int a) { return a + offset() + MORE; }
"""
OFFSET = 'extern "C" int offset() { return 1; }\n'
PYPROJECT = """
[build-system]
requires = ["setuptools==80.9.0", "wheel==0.45.1", "cmake==4.4.4", "ninja==1.13.2", "torch==2.13.0; sys_platform == 'none'"]
build-backend = "setuptools.build_meta"
"""


def build(place: Path, tiles: str = "file:///nowhere/tiles.git") -> Path:
    """Make the remote and the stack; returns the stack's folder. `tiles`: a repository that its CMake would clone."""
    remote = Remote(place / "remote")
    files = {
        "setup.py": SETUP,
        "CMakeLists.txt": CMAKE.replace("@TILES@", tiles),
        "pyproject.toml": PYPROJECT,
        "csrc/adder.cpp": ADDER,
        "csrc/offset.cpp": OFFSET,
        "vllm/__init__.py": "",
        "vllm/_version.py": "__version__ = version = '1.0'\n",
    }
    base = remote.commit({path: text.encode() for path, text in files.items()})
    remote.tag("v1.0")
    remote.commit({"csrc/offset.cpp": OFFSET.replace("1", "41").encode()}, "Add more")
    series = place / "root/stacks/adding"
    export(remote, base, series / "vllm")
    (series / "series.toml").write_text(
        'title = "t"\nwhy = "w"\nstate = "pending"\n[[patch]]\nupstream = "vllm"\nfile = "vllm/add-more.patch"\n'
    )
    (place / "root/stacks/stack.toml").write_text('series = ["adding"]\n')
    (place / "root/pins.toml").write_text(
        f'[vllm]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{base}"\narchive = {{ package = "vllm", version = "1.0" }}\n'
    )
    return place / "root"

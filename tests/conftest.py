# SPDX-License-Identifier: Apache-2.0
"""Property tests draw the same examples in every run, so that a run can be repeated; STACK_TEST_RANDOM=1 draws new ones."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# A background job of a shell ignores SIGINT, and a program under nohup ignores SIGHUP. Their children inherit that. Tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# BLAS with one thread a process, as the suite has it: with more of them than processors they wait for each other. It is read when
# numpy is imported, which the first tests do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: thousands of items are made, and all of them stay to the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


# Proofs run under the upstream's own pytest, which has no hypothesis and needs none.
if "STACK_PROOF_TREE" not in os.environ:
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True)
    settings.register_profile("random", print_blob=True)
    settings.load_profile("random" if os.environ.get("STACK_TEST_RANDOM") else "repeatable")

    from tests import json_documents, keeping
    from tests.longest_first import LongestFirst

    class Proofs:
        """Each module `test_*.py` of tests/upstream is a proof: it is collected as `proving` says, and not imported here."""

        @staticmethod
        def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
            if module_path.parent != Path(__file__).with_name("upstream"):
                return None
            from tests.upstream import proving  # noqa: PLC0415

            return proving.ProofFile.from_parent(parent, path=module_path)

    def pytest_configure(config: pytest.Config) -> None:
        """Give tests the fixture `keep`, check JSON documents, collect proofs, and start the longest tests first."""
        config.pluginmanager.register(keeping)
        config.pluginmanager.register(json_documents)
        config.pluginmanager.register(Proofs)
        config.pluginmanager.register(LongestFirst(config))

    @pytest.fixture(autouse=True, scope="session")
    def patient_steps() -> Iterator[None]:
        """No step of a command gets a line of its own because the machine is busy."""
        from stack.cli import progress_lines  # noqa: PLC0415
        from tests import forked  # noqa: PLC0415

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(progress_lines, "_PATIENCE", forked.PATIENCE)
            yield


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the identities of the tests' checkouts out of the user's state folder."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield

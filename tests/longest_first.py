# SPDX-License-Identifier: Apache-2.0
"""Start the longest kernel tests and proofs first, by the seconds that earlier runs measured.

Processes that share the tests then end at nearly the same time. xdist hands tests out in their order with
`--dist load --maxschedchunk 1`.
"""

from typing import Any

import pytest

from stack.store import cache as places
from stack.store import results
from tests.keeping import KEPT

MARKERS = ("kernels", "proofs")
_NAME = results.key({"seconds of": " ".join(MARKERS)})


class LongestFirst:
    """A plugin of pytest. The process that the user started reads and writes the seconds and passes them to its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_worker = hasattr(config, "workerinput")
        self.store = results.results(places.root(), "seconds")
        self.known: dict[str, float] = config.workerinput["seconds"] if self.is_worker else self.store.get(_NAME) or {}
        self.measured: dict[str, float] = {}
        self.untold: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Every worker has to collect in the same order."""
        node.workerinput["seconds"] = self.known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put marked tests first. One that was never measured may take long."""
        marked = [item for item in items if any(item.get_closest_marker(one) for one in MARKERS)]
        others = [item for item in items if not any(item.get_closest_marker(one) for one in MARKERS)]
        items[:] = sorted(marked, key=lambda item: -self.known.get(item.nodeid, float("inf"))) + others

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the seconds of a test's phases. They tell nothing if it failed, or took what was kept."""
        if any(one in report.keywords for one in MARKERS):
            self.measured[report.nodeid] = self.measured.get(report.nodeid, 0.0) + report.duration
            if not report.passed or (KEPT, True) in report.user_properties:
                self.untold.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keep the seconds for the next run."""
        told = {test: seconds for test, seconds in self.measured.items() if test not in self.untold}
        if told and not self.is_worker:
            self.store.put(_NAME, {**(self.store.get(_NAME) or {}), **told})

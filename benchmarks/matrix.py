# SPDX-License-Identifier: Apache-2.0
"""How many jobs, minutes and dollars forks take in a year of upstream releases: a simulation from measured times.

    python benchmarks/matrix.py [--forks 1,10,100] [--lanes 5] [--releases 14] [--markdown]

Each fork has its lanes. A release moves one lane, so that only the jobs of that lane have other inputs; in every other night the patches of
some lanes change. Without kept results every night runs every job of every lane. Waiting time comes from a queue: the jobs of a night are
given to the machines in order, each to the one that is free first.
"""

import argparse
import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NIGHTS = 365


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one kind in a lane: how many, and the minutes of one. `gpu`: it needs a rented one."""

    name: str
    count: int
    minutes: float
    gpu: bool = False
    lanes: bool = True


# Minutes of two idle cores (Intel Xeon, family 6, model 207), November 2026.
KINDS = (
    Kind("proofs", 10, 1.8 / 10),  # CONTRIBUTING.md: 1.8 minutes for the proofs of all ten series, 4 s unchanged
    Kind("wheels", 1, 1.5),  # CONTRIBUTING.md has no number of its own: the overlay with a warm cache, rounded up
    Kind("kernels, CPU", 1, 187 / 60, lanes=False),  # docs/validate.md: kernels 3:07
    Kind("servers, CPU", 1, 247 / 60, lanes=False),  # docs/validate.md: serve --no-prove 4:07
    Kind(
        "kernels, GPU", 1, 30.0, gpu=True, lanes=False
    ),  # assumed: the archive is made for machines that are lent for half an hour
)
START = 1.5
"""Minutes in which a hosted runner starts, installs the tool and restores its cache: assumed."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars a minute: assumptions, with their sources in docs/matrix.md. `cpu`: a hosted runner; `gpu`: a rented H100."""

    cpu: float
    gpu: float


@dataclass(frozen=True, slots=True)
class Year:
    """The work of a year: jobs that ran, minutes of processors and GPUs, the longest night in minutes, and its share in the queue."""

    jobs: int
    cpu: float
    gpu: float
    longest: float
    waiting: float

    def dollars(self, prices: Prices) -> float:
        """Its cost."""
        return self.cpu * prices.cpu + self.gpu * prices.gpu


def changed(forks: int, lanes: int, releases: int, edits: float, chance: random.Random) -> Iterator[list[int]]:
    """Yield, for each night, how many lanes of each fork have other inputs: after a release one of every fork, else after edits."""
    out = {*chance.sample(range(NIGHTS), releases)}
    for night in range(NIGHTS):
        yield [
            min(lanes, (night in out) + (lanes if chance.random() < edits else 0))  # a common patch is in all lanes
            for _ in range(forks)
        ]


def jobs(fresh: int, lanes: int, group: int, *, keeps: bool) -> Iterator[tuple[float, bool]]:
    """Yield minutes, and whether it needs a GPU, of each job of a fork's night in which `fresh` of its lanes have other inputs."""
    for kind in KINDS:
        places = lanes if kind.lanes else 1
        new = min(fresh, places) if keeps else places
        machines = -(-kind.count // group)  # `stack matrix --group`: several series in one job
        yield from [(START + kind.minutes * kind.count / machines, kind.gpu)] * (machines * new)


def simulate(
    forks: int, lanes: int, releases: int, edits: float, machines: int, group: int, *, keeps: bool, seed: int = 40
) -> Year:
    """Simulate a year.

    Args:
        forks: How many share the runners.
        lanes: Those of each fork.
        releases: Upstream's in the year; each one moves one lane of every fork.
        edits: The share of nights after which the patches of a fork have changed, in all its lanes.
        machines: How many jobs run at once, of all forks together.
        group: How many series one job proves.
        keeps: Jobs with the same inputs are not repeated.
        seed: Of the nights.

    """
    chance = random.Random(seed)
    count, cpu, gpu, longest, waiting = 0, 0.0, 0.0, 0.0, 0.0
    for night in changed(forks, lanes, releases, edits, chance):
        queue = [each for fresh in night for each in jobs(fresh, lanes, group, keeps=keeps)]
        count += len(queue)
        cpu += sum(minutes for minutes, needs in queue if not needs)
        gpu += sum(minutes for minutes, needs in queue if needs)
        end = _finished([minutes for minutes, _ in queue], machines)
        if end > longest:
            longest, waiting = end, 1 - max((minutes for minutes, _ in queue), default=0.0) / end
    return Year(count, cpu, gpu, longest, waiting)


def _finished(minutes: Sequence[float], machines: int) -> float:
    free = [0.0] * machines
    for each in sorted(minutes, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", default="1,10,100", help="numbers of forks that share the runners, with commas between")
    parser.add_argument("--lanes", type=int, default=5)
    parser.add_argument(
        "--releases", type=int, default=14, help="upstream's releases in the year: as many as vLLM had minor ones"
    )
    parser.add_argument(
        "--edits", type=float, default=0.1, help="the share of nights after which a fork's patches have changed"
    )
    parser.add_argument("--machines", type=int, default=20, help="jobs at once: what GitHub gives an account without a plan")
    parser.add_argument("--cpu-price", type=float, default=0.008, help="dollars a minute of a hosted runner with two cores")
    parser.add_argument("--gpu-price", type=float, default=0.05, help="dollars a minute of a rented H100")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    prices = Prices(given.cpu_price, given.gpu_price)
    rows = [
        (
            "forks",
            "kept results",
            "series in a job",
            "jobs",
            "CPU minutes",
            "GPU minutes",
            "dollars",
            "longest night, min",
            "of it in the queue",
        )
    ]
    for forks in map(int, given.forks.split(",")):
        for keeps, group in ((False, 1), (True, 1), (True, 10)):
            year = simulate(forks, given.lanes, given.releases, given.edits, given.machines, group, keeps=keeps)
            rows.append(
                (
                    str(forks),
                    "yes" if keeps else "no",
                    str(group),
                    f"{year.jobs:,}",
                    f"{year.cpu:,.0f}",
                    f"{year.gpu:,.0f}",
                    f"{year.dollars(prices):,.0f}",
                    f"{year.longest:,.0f}",
                    f"{year.waiting:.0%}",
                )
            )
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |" if given.markdown else "  ".join(cell.rjust(18) for cell in row))
        if given.markdown and number == 0:
            print("|" + "---|" * len(row))
    parts = {kind.name: kind.count * (given.lanes if kind.lanes else 1) * (START + kind.minutes) for kind in KINDS}
    starts = sum(kind.count * (given.lanes if kind.lanes else 1) * START for kind in KINDS)
    print(
        f"\nminutes of a whole list: {', '.join(f'{name} {minutes:.0f}' for name, minutes in parts.items())}; {starts:.0f} are starts"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

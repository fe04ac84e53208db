# SPDX-License-Identifier: Apache-2.0
"""Show the results of `stack watch`: on the terminal, and as JSON."""

from typing import TYPE_CHECKING

from stack.base.text import counted
from stack.cli.common import print_table
from stack.cli.sentences import say
from stack.model.pins import MAIN
from stack.watch.night import counted_rows

if TYPE_CHECKING:
    from stack.forge.services import Service
    from stack.watch.own_repository import OwnRepository
    from stack.watch.proof_file import Proved
    from stack.watch.running import Watched
    from stack.watch.status import Standing
    from stack.watch.workflow import Written

_NEXT = {
    "github": ("in the repository's settings, under Actions, General, allow GitHub Actions to create pull requests",),
    "forgejo": ("make a token that may write the repository and its issues, and keep it as the secret STACK_WATCH_TOKEN",),
    "gitlab": (
        "make a project access token (role Developer, scope api), and keep it as the CI/CD variable STACK_WATCH_TOKEN; make the variable "
        "masked, protected, and limited to the environment stack-watch",
        "make a pipeline schedule with the description stack-watch and the variable STACK_WATCH=true",
    ),
}
"""Steps that are left to the user after `init`, by the kind of forge."""


def print_written(written: "Written", kind: str) -> None:
    """Print what `init` wrote, and what is left to do."""
    if written.include:
        say(f"add this to {written.path.parents[1] / '.gitlab-ci.yml'}:")
        say(written.include.rstrip())
    if not written.changed:
        say(f"{written.path} is up to date")
        return
    for path in (written.path, *written.beside):
        say(f"wrote {path}")
    it = "them" if written.beside else "it"
    say(f"next: commit {it} and push {it} to your default branch")
    for line in _NEXT[kind]:
        say(line)


def print_proved(each: "Proved") -> None:
    """Print how the proofs of one upstream ended."""
    lane = "" if each.lane == MAIN else f", lane {each.lane}"
    if each.release is None:
        say(f"{each.upstream}{lane}: no newer release takes all patches and keeps all guards")
        return
    say(f"{each.upstream} {each.release}{lane}: {counted(len(each.proofs), 'proof')}")
    for sentence in each.proofs:
        say(f"  {sentence}")


def print_watched(each: "Watched", *, dry_run: bool) -> None:
    """Print the result for one upstream."""
    if each.night is not None:
        for trial in each.night.trials:
            counts = ", ".join(f"{number} {outcome.value}" for outcome, number in trial.counts.items())
            say(f"{each.upstream} {trial.pinned} to {trial.revision}, lane {trial.lane}: {counts or 'no patches'}")
        if not each.night.trials:
            say(f"{each.upstream}: nothing newer")
        names = dict.fromkeys(row.name for _, row in each.night.open)
        if names:
            say(f"{counted_rows(names)} for a person: {', '.join(names)}")
    for write in each.writes:
        say(f"{'would ' if dry_run else ''}{write}")
    if not each.writes and each.problem is None:
        say(f"{each.upstream}: nothing to write")


def watched_json(each: "Watched") -> dict[str, object]:
    """Return the result for one upstream as JSON."""
    return {
        "upstream": each.upstream,
        "needs_person": each.night is not None and each.night.needs_person,
        "trials": [
            {
                "lane": trial.lane,
                "aim": trial.aim.name.lower(),
                "pinned": trial.pinned,
                "revision": trial.revision,
                "outcomes": {outcome.value: number for outcome, number in trial.counts.items()},
                "open": [row.name for row in trial.open],
                "unmet": list(trial.unmet),
            }
            for trial in (each.night.trials if each.night is not None else ())
        ],
        "issue": each.issue,
        "pull": each.pulls.get(MAIN),
        "release": each.releases.get(MAIN),
        "lanes": [
            {"lane": lane, "pull": each.pulls.get(lane), "release": release}
            for lane, release in each.releases.items()
            if lane != MAIN
        ],
        "writes": list(each.writes),
        "problem": str(each.problem) if each.problem is not None else None,
    }


def standing_json(own: "OwnRepository", service: "Service", found: "Standing") -> dict[str, object]:
    """Return the state of the nightly run as JSON."""
    runs = found.runs
    return {
        "repository": own.repository.shown,
        "forge": service.kind.value,
        "needs_person": found.needs_person,
        "runs": None
        if runs is None
        else {
            "last": runs.began,
            "hours": runs.hours,
            "conclusion": runs.conclusion,
            "failures": runs.failures,
            "overdue": runs.overdue,
        },
        "upstreams": [
            {
                "upstream": issue.upstream,
                "issue": issue.number,
                "state": issue.state.value if issue.state is not None else None,
                "written": issue.written,
                "days": issue.days,
                "late": issue.late,
            }
            for issue in found.issues
        ],
    }


def print_standing(own: "OwnRepository", found: "Standing") -> None:
    """Print the state of the nightly run."""
    runs = found.runs
    if runs is None:
        say(f"{own.repository.shown} has no workflow that runs it:", "stack watch init")
    elif runs.began is None:
        say(f"the workflow of {own.repository.shown} has not run yet")
    else:
        how = runs.conclusion or "has not ended"
        say(f"last run {runs.began}, {counted(runs.hours or 0, 'hour')} ago: {how}")
        if runs.failures:
            say(f"{counted(runs.failures, 'run')} failed since the last good one")
        if runs.overdue:
            say("it is overdue: look at the workflow's page, and whether it is disabled")
    rows = [
        (
            issue.upstream,
            f"#{issue.number} {issue.state.value}" if issue.number is not None and issue.state is not None else "none",
            issue.written or "",
            "" if issue.days is None else counted(issue.days, "day"),
            "late" if issue.late else "",
        )
        for issue in found.issues
    ]
    print_table(("upstream", "issue", "written", "age", ""), rows)

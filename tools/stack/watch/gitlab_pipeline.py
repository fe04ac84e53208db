# SPDX-License-Identifier: Apache-2.0
"""The nightly jobs for GitLab: a file that `.gitlab-ci.yml` includes."""

from collections.abc import Iterator

from stack.forge.gitlab import SCHEDULE
from stack.watch.workflow_parts import BY_HAND, FOR_THIS_FORGE, HELPER, Nightly

PLACE = ".gitlab/stack-watch.yml"
MAIN = ".gitlab-ci.yml"
ENVIRONMENT = "stack-watch"
"""The environment of the job that writes: a variable for this environment is given to no other job."""
VARIABLE = "STACK_WATCH_TOKEN"
SWITCH = "STACK_WATCH"
"""The variable of the schedule that starts the jobs."""
INCLUDE = f"""\
# Written by `stack watch init --gitlab`.

include:
  - local: {PLACE}
"""
_HERE = ".stack-watch"
_PROOFS = f"{_HERE}/proofs.json"
_STACK = f"{_HERE}/venv/bin/stack"


def text(made: Nightly) -> str:
    """Return the file with the jobs."""
    return "\n".join(_lines(made)) + "\n"


def _lines(made: Nightly) -> Iterator[str]:
    yield "# Written by `stack watch init --gitlab`: carries the stack to new releases every night. See docs/watch.md of git-carry."
    yield BY_HAND.rstrip().replace("pull request", "merge request")
    yield f"# The schedule is called {SCHEDULE}, runs at {made.hour:02}:{made.minute:02} (UTC), and has the variable {SWITCH}=true."
    yield ".stack-watch:"
    if made.image is not None:
        yield f"  image: {made.image}"
    if made.runner:
        yield f"  tags: [{', '.join(made.runner)}]"
    yield from (
        "  timeout: 5 hours",
        "  interruptible: false",
        "  rules:",
        "    - if: >-",
        '        ($CI_PIPELINE_SOURCE == "schedule" || $CI_PIPELINE_SOURCE == "web")',
        f'        && ${SWITCH} == "true" && $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH',
        "  before_script:",
        "    - |",
        f"      python3 -m venv --clear {_HERE}/venv ||",
        "        { apt-get update -qq && apt-get install -qq --yes git python3-venv && "
        f"python3 -m venv --clear {_HERE}/venv; }}",
        f"    - {_HERE}/venv/bin/python -m pip install --quiet {made.install}",
    )
    if made.prove:
        yield from _prove(made)
    yield from _watch(made)


def _prove(made: Nightly) -> Iterator[str]:
    yield from (
        "",
        "stack-watch-prove: # runs upstream's code, so it gets no token",
        "  extends: .stack-watch",
        "  allow_failure: true # the other job runs also without proofs",
        *_cache(made, "stack-watch-proofs"),
        "  script:",
        "    - |",
        f'      test -z "${VARIABLE}" || {{',
        f'        echo "{VARIABLE} must be limited to the environment {ENVIRONMENT}: this job must not get it" >&2',
        "        exit 1",
        "      }",
        f"    - {_STACK} --root './{made.folder}' --cache {_HERE}/cache watch prove --output {_PROOFS}",
        "  artifacts:",
        f"    paths: [{_PROOFS}]",
        "    expire_in: 1 day",
    )


def _watch(made: Nightly) -> Iterator[str]:
    yield from ("", "stack-watch:", "  extends: .stack-watch")
    yield from (
        "  environment:",
        f"    name: {ENVIRONMENT} # the token is a variable of this environment only",
        "    action: access",
    )
    yield from ("  resource_group: stack-watch # one at a time",)
    if made.prove:  # no cache, no old checkout: the job with upstream's code could change both, .git/config too
        yield from ("  needs: [stack-watch-prove]", "  variables:", "    GIT_STRATEGY: clone")
    else:
        yield from ("  needs: []", *_cache(made, "stack-watch"))
    yield from (
        "  script:",
        "    - |",
        '      git remote set-url --push origin "$CI_SERVER_URL/$CI_PROJECT_PATH.git"',
        f'      export GITLAB_TOKEN="${VARIABLE}" GITLAB_API_URL="$CI_API_V4_URL"',
        f"      # {FOR_THIS_FORGE}",
        '      export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="credential.$CI_SERVER_URL.helper"',
        f"      export GIT_CONFIG_VALUE_0={HELPER.format(user='stack-watch', variable='GITLAB_TOKEN')}",
        f"      {_STACK} --root './{made.folder}' --cache {_HERE}/cache watch run --gitlab"
        f"{f' --proofs {_PROOFS}' if made.prove else ''} ||",
        "        test $? -eq 1 # 1: the issue says what needs a person",
    )


def _cache(made: Nightly, prefix: str) -> Iterator[str]:
    yield from ("  cache:", "    key:", f"      prefix: {prefix}", f"      files: [{made.folder}pins.toml]")
    yield f"    paths: [{_HERE}/cache]"

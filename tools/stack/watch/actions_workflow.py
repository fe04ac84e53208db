# SPDX-License-Identifier: Apache-2.0
"""The nightly workflow for GitHub, and for Forgejo, which takes the same form."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from stack.forge.actions import CACHE, CHECKOUT
from stack.watch.workflow_parts import BY_HAND, FOR_THIS_FORGE, HELPER, Nightly

_MIRROR = "https://data.forgejo.org/"
"""Forgejo's copies of the actions, with the same commits."""
_STACK = '"$RUNNER_TEMP/stack/bin/stack"'
_PROOFS = '"$RUNNER_TEMP/proofs.json"'


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What differs between the two."""

    option: str
    actions: str
    token: str
    variable: str
    user: str
    rights: bool
    settings: tuple[str, ...] = ()
    venv: str = 'python3 -m venv "$RUNNER_TEMP/stack"'


_GITHUB = _Dialect("--github", "", "${{ github.token }}", "GH_TOKEN", "x-access-token", rights=True)
_FORGEJO = _Dialect(
    "--forgejo",
    _MIRROR,
    "${{ secrets.STACK_WATCH_TOKEN }}",
    "FORGEJO_TOKEN",
    "stack-watch",
    rights=False,
    settings=("FORGEJO_API_URL: ${{ github.api_url }}",),
    # The usual images of Forgejo's runners are Debian's with node: they have no python3-venv.
    venv=(
        'python3 -m venv "$RUNNER_TEMP/stack" ||\n'
        "            { apt-get update -qq && apt-get install -qq --yes git python3-venv && "
        'python3 -m venv --clear "$RUNNER_TEMP/stack"; }'
    ),
)


def github(made: Nightly) -> str:
    """Return the workflow for GitHub."""
    return "\n".join(_lines(made, _GITHUB)) + "\n"


def forgejo(made: Nightly) -> str:
    """Return the workflow for Forgejo."""
    return "\n".join(_lines(made, _FORGEJO)) + "\n"


def _lines(made: Nightly, way: _Dialect) -> Iterator[str]:
    yield f"# Written by `stack watch init {way.option}`: carries the stack to new releases every night. See docs/watch.md of git-carry."
    yield BY_HAND.rstrip()
    yield from (
        "name: stack-watch",
        "on:",
        "  schedule:",
        f'    - cron: "{made.minute} {made.hour} * * *"',
        "  workflow_dispatch:",
    )
    if way.rights:
        yield "permissions: {}"
    yield from ("concurrency:", "  group: stack-watch", "  cancel-in-progress: false", "jobs:")
    if made.prove:
        yield from _prove(made, way)
    yield from _watch(made, way)


def _prove(made: Nightly, way: _Dialect) -> Iterator[str]:
    yield from ("  prove: # runs upstream's code, so it writes nothing and no step gets a token", *_job(made))
    if way.rights:
        yield from ("    permissions:", "      contents: read")
    yield from ("    outputs:", "      proofs: ${{ steps.prove.outputs.proofs }}", "    steps:")
    yield from (*_checkout(way), *_cache(made, way, "stack-watch-proofs"), *_install(made, way))
    yield from (
        "      - name: Run the proofs on the newest release",
        "        id: prove",
        "        run: |",
        f"          {_STACK} --root './{made.folder}' watch prove --output {_PROOFS}",
        f'          echo "proofs=$(base64 -w 0 {_PROOFS})" >> "$GITHUB_OUTPUT"',
    )


def _watch(made: Nightly, way: _Dialect) -> Iterator[str]:
    yield from ("  watch:", *_job(made))
    if made.prove:
        yield from ("    needs: prove", "    if: ${{ !cancelled() }} # also without proofs")
    if way.rights:
        yield from (
            "    permissions:",
            "      actions: read # sees its own runs, so that the issue needs no date",
            "      contents: write # pushes branches below stack-watch/",
            "      issues: write # keeps one issue for each upstream",
            "      pull-requests: write # opens draft pull requests",
        )
    yield from ("    steps:", *_checkout(way))
    if not made.prove:  # the job with upstream's code could fill a cache for this one
        yield from _cache(made, way, "stack-watch")
    yield from _install(made, way)
    if made.prove:
        yield from (
            "      - name: Take the results of the proofs",
            "        continue-on-error: true # they may be too long, since upstream's code could write them",
            "        env:",
            "          PROOFS: ${{ needs.prove.outputs.proofs }}",
            "        run: |",
            f"          printf '%s' \"$PROOFS\" | base64 -d > {_PROOFS}",
        )
    yield from (
        "      - name: Carry the stack to new releases",
        "        env:",
        f"          {way.variable}: {way.token}",
        *(f"          {setting}" for setting in way.settings),
        '          GIT_CONFIG_COUNT: "1"',
        f"          # {FOR_THIS_FORGE}",
        "          GIT_CONFIG_KEY_0: credential.${{ github.server_url }}.helper",
        f"          GIT_CONFIG_VALUE_0: {HELPER.format(user=way.user, variable=way.variable)}",
        "        run: |",
        f"          {_STACK} --root './{made.folder}' watch run {way.option}{f' --proofs {_PROOFS}' if made.prove else ''} ||",
        "            test $? -eq 1 # 1: the issue says what needs a person",
    )


def _job(made: Nightly) -> Iterator[str]:
    yield f"    runs-on: {made.runner[0] if len(made.runner) == 1 else json.dumps(list(made.runner))}"
    yield "    timeout-minutes: 300"


def _checkout(way: _Dialect) -> Iterator[str]:
    yield f"      - uses: {way.actions}{CHECKOUT}"
    yield "        with:"
    yield "          persist-credentials: false # git asks for the token only where it pushes"


def _cache(made: Nightly, way: _Dialect, prefix: str) -> Iterator[str]:
    start = f"{prefix}-${{{{ runner.os }}}}-"
    pins = f"${{{{ hashFiles('{made.folder}pins.toml') }}}}-"
    yield f"      - uses: {way.actions}{CACHE}"
    yield from ("        with:", "          path: ~/.cache/stack", f"          key: {start}{pins}${{{{ github.run_id }}}}")
    yield from ("          restore-keys: |", f"            {start}{pins}", f"            {start}")


def _install(made: Nightly, way: _Dialect) -> Iterator[str]:
    yield from ("      - name: Install stack", "        run: |", f"          {way.venv}")
    yield f'          "$RUNNER_TEMP/stack/bin/python" -m pip install --quiet {made.install}'

# SPDX-License-Identifier: Apache-2.0
"""The texts of the files with which a CI runs the jobs."""

_CHECKOUT = """\
      - uses: {checkout}
        with:
          persist-credentials: false
"""
_INSTALL = """\
      - name: Install stack
        run: |
          python3 -m venv "$RUNNER_TEMP/stack"
          "$RUNNER_TEMP/stack/bin/python" -m pip install --quiet 'git-carry=={version}'
"""
_RUN = """\
      - name: Run the job
        working-directory: ./{folder}
        env:
          COMMAND: ${{{{ matrix.command }}}}
        run: PATH="$RUNNER_TEMP/stack/bin:$PATH" bash -c "$COMMAND"
      - name: Keep what it leaves
        if: always() && matrix.outputs != ''
        uses: {upload}
        with:
          name: stack-${{{{ matrix.name }}}}
          path: {folder}${{{{ matrix.outputs }}}}
          include-hidden-files: true
          if-no-files-found: ignore
"""
GITHUB = (
    """\
# Written by `stack matrix init --github`: runs the jobs of `stack matrix`. See docs/matrix.md of git-carry.
# A workflow of yours calls it: jobs: {{ stack: {{ uses: ./.github/workflows/stack-matrix.yml }} }}
# Nothing runs on hardware of your own for a pull request, of a fork or not: a stranger's code would run there.
name: stack-matrix
on:
  workflow_call:
    inputs:
      gates:
        description: Gates of validation/gates.toml that the verdicts have to pass, with blanks between
        type: string
        default: "{gates}"
  workflow_dispatch:
    inputs:
      gates:
        description: Gates of validation/gates.toml that the verdicts have to pass, with blanks between
        type: string
        default: "{gates}"
permissions: {{}}
jobs:
  list:
    runs-on: {runner}{list_if}
    timeout-minutes: 15
    permissions:
      contents: read
    outputs:
      hosted: ${{{{ steps.list.outputs.hosted }}}}
      own: ${{{{ steps.list.outputs.own }}}}
    steps:
"""
    + _CHECKOUT
    + _INSTALL
    + """\
      - name: List the jobs
        id: list
        run: |
          hosted=$("$RUNNER_TEMP/stack/bin/stack" --root './{folder}' matrix --github --where hosted{arguments})
          own=$("$RUNNER_TEMP/stack/bin/stack" --root './{folder}' matrix --github --where own{arguments})
          printf 'hosted=%s\\nown=%s\\n' "$hosted" "$own" >> "$GITHUB_OUTPUT"
  hosted:
    name: ${{{{ matrix.name }}}}
    needs: list
    if: needs.list.outputs.hosted != '{{"include":[]}}'
    strategy:
      fail-fast: false
      matrix: ${{{{ fromJSON(needs.list.outputs.hosted) }}}}
    runs-on: ${{{{ matrix.runner }}}}
    timeout-minutes: 350
    permissions:
      contents: read
    steps:
"""
    + _CHECKOUT
    + """\
      - uses: {cache}
        with:
          path: ~/.cache/stack
          key: stack-matrix-${{{{ matrix.name }}}}-${{{{ hashFiles('{folder}pins.toml') }}}}-${{{{ github.run_id }}}}
          restore-keys: |
            stack-matrix-${{{{ matrix.name }}}}-${{{{ hashFiles('{folder}pins.toml') }}}}-
            stack-matrix-${{{{ matrix.name }}}}-
"""
    + _INSTALL
    + _RUN
    + """\
  own:
    name: ${{{{ matrix.name }}}}
    needs: list
    if: {trusted} && needs.list.outputs.own != '{{"include":[]}}'
    strategy:
      fail-fast: false
      matrix: ${{{{ fromJSON(needs.list.outputs.own) }}}}
    runs-on: ${{{{ matrix.runner }}}}
    timeout-minutes: 350
    permissions:
      contents: read
    steps:
"""
    + _CHECKOUT
    + _INSTALL
    + _RUN
    + """\
  verdict:
    needs: [list, hosted, own]
    if: always() && needs.list.result == 'success'
    runs-on: {runner}
    timeout-minutes: 60
    permissions:
      contents: read
    steps:
      - name: Check that no job failed
        env:
          FAILED: ${{{{ contains(needs.*.result, 'failure') || contains(needs.*.result, 'cancelled') }}}}
        run: test "$FAILED" = false
      - uses: {checkout}
        if: inputs.gates != ''
        with:
          persist-credentials: false
      - uses: {download}
        if: inputs.gates != ''
        with:
          pattern: stack-kernels-*
          path: ${{{{ runner.temp }}}}/verdicts
          merge-multiple: true
      - uses: {download}
        if: inputs.gates != ''
        with:
          pattern: stack-servers-*
          path: ${{{{ runner.temp }}}}/verdicts
          merge-multiple: true
      - name: Install stack
        if: inputs.gates != ''
        run: |
          python3 -m venv "$RUNNER_TEMP/stack"
          "$RUNNER_TEMP/stack/bin/python" -m pip install --quiet 'git-carry=={version}'
      - name: Judge the verdicts
        if: inputs.gates != ''
        env:
          GATES: ${{{{ inputs.gates }}}}
        run: |
          for gate in $GATES; do
            "$RUNNER_TEMP/stack/bin/stack" --root './{folder}' verdict require --gate "$gate" "$RUNNER_TEMP"/verdicts/*.json
          done
"""
)

GITLAB = """\
# Written by `stack matrix init --gitlab`: runs the jobs of `stack matrix`. See docs/matrix.md of git-carry.
# Your .gitlab-ci.yml includes it: include: [{{ local: .gitlab/stack-matrix.yml }}]
# A merge request never starts it: a stranger's code would run on your hardware.
stack-matrix-list:
  stage: build
  image: {image}
  rules:
    - if: $CI_PIPELINE_SOURCE == "push" || $CI_PIPELINE_SOURCE == "schedule" || $CI_PIPELINE_SOURCE == "web"
  script:
{install}
    - stack matrix --gitlab{arguments} > "$CI_PROJECT_DIR/stack-matrix-jobs.yml"
  artifacts:
    paths: [stack-matrix-jobs.yml]
    expire_in: 1 week
stack-matrix:
  stage: test
  needs: [stack-matrix-list]
  rules:
    - if: $CI_PIPELINE_SOURCE == "push" || $CI_PIPELINE_SOURCE == "schedule" || $CI_PIPELINE_SOURCE == "web"
  trigger:
    include:
      - artifact: stack-matrix-jobs.yml
        job: stack-matrix-list
    strategy: depend
"""

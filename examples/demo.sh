#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rebases a copy of our stack from the pinned releases to the next ones, on the real sources, and shows what happened.
# The checkout stays as it was: everything is done in a temporary folder with `stack --root`.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
cp -R "$here/pins.toml" "$here/pyproject.toml" "$here/stacks" "$here/kernels" "$here/tests" "$here/validation" "$copy/"

# Shows a command as one would type it in the stack's own folder, then runs it on the copy.
show() {
    printf '\n$ %s\n' "$*"
    shift
    stack --root "$copy" "$@"
}

cd "$here"
show stack status
show stack pins verify
show stack lint
# FlashInfer has to move along, says vLLM v0.33.0: nothing is changed, exit code 1.
show stack rebase vllm --onto v0.33.0 || test $? -eq 1
show stack rebase vllm --onto v0.33.0 --with-required
show stack pins show
show stack lint
show stack undo
show stack pins show

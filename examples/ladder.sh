#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Carries examples/fork-v0.17.1 through every release to vLLM v0.33.0, on the real sources, and says what became of each patch.
# The example stays as it is: a copy is worked on, and nothing is switched.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

cat <<END
This downloads, where it is not in the cache yet: the source archives of 24 vLLM releases (0.9 GB) and 34 FlashInfer
releases (0.5 GB), torch for the CPU (0.2 GB; where pip finds no CPU build, the registry's with its CUDA libraries, 3 to
5 GB) and what the proofs import. All of it stays in the cache (\$STACK_CACHE, else the user's cache folder), with the
trees that the proofs ran on: some 8 GB. With all of that there, it took 14 to 35 minutes on two busy cores, 12 to 15 of them of
processor time.
END

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
cp -R "$here/examples/fork-v0.17.1/." "$copy/"
set -- rebase vllm --onto v0.33.0 --with-required --through auto --prove --dry-run
printf '\n$ stack %s\n' "$*"
stack --root "$copy" "$@"

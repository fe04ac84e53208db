#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans our stack as pull requests on the next releases, on the real sources. It only reads.
set -eu
cd -- "$(dirname -- "$0")/.."
printf '\n$ %s\n' 'stack export-pr --no-tests --onto vllm=v0.33.0 --onto flashinfer=v0.7.2.post1'
stack export-pr --no-tests --onto vllm=v0.33.0 --onto flashinfer=v0.7.2.post1

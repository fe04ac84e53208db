#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A fork of a project that no package registry knows: a C program in git, whose releases are named release-1.27.1 and so on.
# Begins a stack for it and tries its patches on the next release.
. "$(dirname -- "$0")/common.sh"

# Upstream: three releases.
repository upstream
mkdir upstream/src
seq 1 60 | sed 's|.*|static int limit_&(void) { return &; }|' > upstream/src/serve.c
commit upstream "Serve"
git -C upstream tag release-1.27.1

# Our fork: a branch with two commits on release-1.27.1.
git clone --quiet upstream my-fork
git -C my-fork checkout --quiet -b my-branch release-1.27.1
line my-fork/src/serve.c 10 'static int limit_10(void) { return 512; }'
commit my-fork "Raise the tenth limit"
line my-fork/src/serve.c 40 'static int limit_40(void) { return 4096; }'
commit my-fork "Raise the fortieth limit"

# The second release has one of our fixes; the third has moved the lines of the other one.
line upstream/src/serve.c 40 'static int limit_40(void) { return 4096; }'
commit upstream "serve: a higher limit for large answers"
git -C upstream tag release-1.28.0
sed -i '1i #include <stddef.h>' upstream/src/serve.c
commit upstream "serve: include what is used"
git -C upstream tag release-1.31.4

mkdir stack-of-my-fork
cd stack-of-my-fork
show stack init serve --git ../upstream --tag release-1.27.1 --reference ../my-fork

# The commits of the branch become patches of one series.
show stack import ../my-fork my-branch --series limits

show stack rebase serve --onto release-1.31.4 --through auto --dry-run
next stack rebase serve --onto release-1.31.4 --through auto

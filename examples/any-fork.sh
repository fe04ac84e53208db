#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Begins a stack for a project that no package registry knows, and tries its patches on the next release. The project is made here:
# a C program in git, whose releases are named release-1.27.1 and so on. Nothing is downloaded.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT INT TERM
cd "$place"
export STACK_CACHE="$place/cache" XDG_STATE_HOME="$place/state"
for role in AUTHOR COMMITTER; do
    export "GIT_${role}_NAME=Ada" "GIT_${role}_EMAIL=ada@example.org"
done

# Shows a command as one would type it, then runs it.
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# change REPOSITORY NUMBER TEXT SUBJECT: replaces one line of its program, in a commit.
change() {
    sed -i "$2s|.*|$3|" "$1/src/serve.c"
    git -C "$1" commit --quiet --all --signoff --message "$4"
}

# Upstream: three releases. The last one has our fix by then, and has moved the code that our other patch changes.
git init --quiet --initial-branch=main upstream
mkdir upstream/src
seq 1 60 | sed 's|.*|static int limit_&(void) { return &; }|' > upstream/src/serve.c
git -C upstream add src
git -C upstream commit --quiet --message "Serve"
git -C upstream tag release-1.27.1

# Our fork: a branch with two commits on release-1.27.1.
git clone --quiet upstream my-fork
git -C my-fork checkout --quiet -b my-branch release-1.27.1
change my-fork 10 'static int limit_10(void) { return 512; }' "Raise the tenth limit"
change my-fork 40 'static int limit_40(void) { return 4096; }' "Raise the fortieth limit"

change upstream 40 'static int limit_40(void) { return 4096; }' "serve: a higher limit for large answers"
git -C upstream tag release-1.28.0
sed -i '1i #include <stddef.h>' upstream/src/serve.c
git -C upstream commit --quiet --all --message "serve: include what is used"
git -C upstream tag release-1.31.4

mkdir stack-of-my-fork
cd stack-of-my-fork
show stack init serve --git ../upstream --tag release-1.27.1 --reference ../my-fork

# The commits of the branch become patches of one series.
show stack import ../my-fork my-branch --series limits

show stack rebase serve --onto release-1.31.4 --through auto --dry-run

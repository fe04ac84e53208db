#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A branch with 40 commits on three topics, in the order in which they were written, becomes three series.
. "$(dirname -- "$0")/common.sh"

# Upstream: a server with one file per topic. The next release adds a line to one of them and changes one.
repository upstream
mkdir upstream/src
for topic in tls cache log; do
    seq 1 200 | sed "s|.*|int ${topic}_&(void) { return &; }|" > "upstream/src/$topic.c"
done
commit upstream "Serve"
git -C upstream tag v2.0
sed -i '7i /* Answers are kept from here on. */' upstream/src/cache.c
line upstream/src/tls.c 5 'int tls_5(void) { return 1005; }'
commit upstream "Say from where on answers are kept, and close the fifth session"
git -C upstream tag v2.1

# Our fork: every commit changes a line of its topic. Commit 8 is about the log, but changes a file of the cache, too.
git clone --quiet upstream my-fork
git -C my-fork checkout --quiet -b ours v2.0
number=0
while [ $number -lt 40 ]; do
    number=$((number + 1))
    case $((number % 3)) in
        0) topic=tls ;;
        1) topic=cache ;;
        2) topic=log ;;
    esac
    line "my-fork/src/$topic.c" $((number * 4 - 3)) "int ${topic}_$((number * 4 - 3))(void) { return $((1000 + number)); }"
    [ $number -ne 8 ] || line my-fork/src/cache.c 25 "int cache_25(void) { return log_29(); }"
    commit my-fork "[$topic] Tune line $((number * 4 - 3))"
done

mkdir stack
cd stack
show stack init server --git ../upstream --tag v2.0

# The series is the word in brackets. `log` needs `cache`: one of its commits changes a line that a commit of `cache` changed.
show stack import ../my-fork ours --by prefix

show stack rebase server --onto v2.1 --dry-run
next stack rebase server --onto v2.1

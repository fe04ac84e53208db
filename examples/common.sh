# SPDX-License-Identifier: Apache-2.0
# What the examples share. Each one makes its own small upstream and fork in a temporary folder and removes it at the end.
# EXAMPLE_DIR=DIR works in the new folder DIR and keeps it.
set -eu

if [ -n "${EXAMPLE_DIR:-}" ]; then
    mkdir "$EXAMPLE_DIR"
    place=$(CDPATH= cd -- "$EXAMPLE_DIR" && pwd)
else
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    trap 'exit 130' INT TERM
fi
cd "$place"

# The examples use a cache of their own, and none of your git settings.
export STACK_CACHE="$place/cache" XDG_STATE_HOME="$place/state" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
for role in AUTHOR COMMITTER; do
    export "GIT_${role}_NAME=Ada" "GIT_${role}_EMAIL=ada@example.org"
done
hour=10

# repository DIR: make an empty git repository.
repository() {
    git init --quiet --initial-branch=main "$1"
}

# commit DIR SUBJECT: commit everything in DIR. The dates are fixed, so that the commits have the same ids in every run.
commit() {
    hour=$((hour + 1))
    date="2026-03-0$((hour / 24 + 1))T$((hour % 24)):00:00Z"
    git -C "$1" add --all
    GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git -C "$1" commit --quiet --message "$2"
}

# line FILE NUMBER TEXT: replace one line.
line() {
    sed -i "$2s|.*|$3|" "$1"
}

# show COMMAND...: print a command as you would type it, then run it.
show() {
    printf '\n$'
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9_.,:/=@+-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@"
}

# next COMMAND: print the command that you would type now.
next() {
    printf '\nnext: %s\n' "$*"
}

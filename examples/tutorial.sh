#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of docs/tutorial.md and prints what the page shows. Each part begins with a line "# NAME".
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$here/common.sh"
# Commits have the same ids in every run.
export GIT_AUTHOR_DATE=2026-03-03T10:00:00Z GIT_COMMITTER_DATE=2026-03-03T10:00:00Z

# part NAME: begin a part of the page.
part() {
    printf '\n# %s\n' "$1"
}

# write FILE: write standard input to FILE, and show it as you would type it.
write() {
    cat > "$1"
    printf '\n$ cat > %s <<END\n%s\nEND\n' "$1" "$(cat "$1")"
}

"$here/tutorial-project.sh" try
cd try

part project
show ls
show git -C my-slugs log --oneline v1.0..ours

part init
mkdir stack
printf '\n$ mkdir stack && cd stack\n'
cd stack
show stack init slugs --git ../slugs --tag v1.0

part import
show stack import ../my-slugs ours --by 'german=*umlauts*' --by 'checks=*empty*' --by 'limits=*long*'

part look
show stack status
show cat stacks/limits/series.toml

part proofs
mkdir proofs
write proofs/german.py <<'END'
from slugs import slug
assert slug("Große Äpfel") == "grosse-aepfel"
END
write proofs/limits.py <<'END'
from slugs import slug
assert len(slug("long " * 50)) <= 60
END
write proofs/checks.py <<'END'
from slugs import unique
try:
    unique(" ", set())
except ValueError:
    pass
else:
    raise SystemExit("an empty title is taken")
END

part proves
for name in german checks limits; do
    sed -i '/^state/a proves = [{ run = "PYTHONPATH=. python3 $STACK_ROOT/proofs/'$name'.py", paths = ["proofs"] }]' "stacks/$name/series.toml"
done
show grep proves stacks/german/series.toml stacks/checks/series.toml stacks/limits/series.toml
show stack prove

part commit
show git init --quiet
show git add --all
show git commit --quiet --message "Begin with v1.0"

part dry-run
# Exit code 1: a patch needs a person.
show stack rebase slugs --onto v2.0 --through auto --dry-run || test $? -eq 1

part workspace
show stack rebase slugs --onto v2.0 --through auto --workspace ../resolve || test $? -eq 1
show git -C ../resolve diff

part continue
sed -i '/^<<<<<<</,/^>>>>>>>/c\    return text.strip("-")[:60] or "untitled"' ../resolve/slugs.py
show git -C ../resolve add slugs.py
show stack rebase --continue ../resolve

part proved
show stack status
show stack prove

part undo
show stack undo
show stack redo

show git add --all
show git commit --quiet --message "Move to v2.0"

part edit
show stack checkout slugs ../tree
sed -i 's|"ß": "ss"|"ß": "ss", "ø": "oe"|' ../tree/slugs.py
show git -C ../tree diff -U0
show git -C ../tree commit --quiet --all --message "Write ø as oe" --trailer "Stack-Series: german"
show stack refresh slugs ../tree

part export
show git -C ../my-slugs fetch --quiet --tags
show stack export slugs --branch carried --to ../my-slugs
show git -C ../my-slugs log --oneline v2.0..carried

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A library that was copied into vendor/ years ago and edited in place. The edits become patches, and the copy becomes the
# next release with the same edits.
. "$(dirname -- "$0")/common.sh"

# The library has two releases.
repository zipper
mkdir zipper/src zipper/doc zipper/tests
seq 1 40 | sed 's|.*|int deflate_&(void) { return &; }|' > zipper/src/deflate.c
seq 1 40 | sed 's|.*|int inflate_&(void) { return &; }|' > zipper/src/inflate.c
echo 'How to use zipper.' > zipper/doc/manual.txt
echo 'true' > zipper/tests/run
commit zipper "Zip"
git -C zipper tag v1.0

# The application has a copy of v1.0, without the tests, and with three edits.
mkdir -p app/vendor/zipper
git -C zipper archive v1.0 src doc | tar -x -C app/vendor/zipper
line app/vendor/zipper/src/deflate.c 10 'int deflate_10(void) { return 512; }'
line app/vendor/zipper/src/inflate.c 10 'int inflate_10(void) { return 512; }'
echo 'Our copy: ask us, not them.' >> app/vendor/zipper/doc/manual.txt

sed -i '1i #include <zip.h>' zipper/src/deflate.c
commit zipper "Include what is used"
git -C zipper tag v1.1

mkdir stack
cd stack
show stack init zipper --git ../zipper --tag v1.0

# One patch for each top-level folder that differs. What the copy left out stays left out of the patches.
show stack import --patched-tree ../app/vendor/zipper --series ours
show stack rebase zipper --onto v1.1

# The new release with the edits takes the place of the old copy.
show stack checkout zipper ../tree
rm -r ../app/vendor/zipper/src ../app/vendor/zipper/doc
git -C ../tree archive HEAD src doc | tar -x -C ../app/vendor/zipper
show grep -rn -e 512 -e zip.h -e 'Our copy' ../app/vendor/zipper
next git -C ../tree rebase -i stack-base

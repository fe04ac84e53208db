#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder with patches of every kind: a git diff, a mail, and what `diff -u` writes, with and without a leading folder.
# One of them was made for an older release and does not apply: it is left aside with the reason.
. "$(dirname -- "$0")/common.sh"

repository upstream
mkdir upstream/src
seq 1 40 | sed 's|.*|parse &|' > upstream/src/parse.txt
seq 1 40 | sed 's|.*|print &|' > upstream/src/print.txt
commit upstream "Parse and print"
git -C upstream tag v1.0
sed -i '1i parse 0' upstream/src/parse.txt
commit upstream "Parse from 0"
git -C upstream tag v1.1

# Nobody knows any more how each of the patches was made.
mkdir patches
cat > patches/01-parse-twice.diff <<'END'
diff --git a/src/parse.txt b/src/parse.txt
--- a/src/parse.txt
+++ b/src/parse.txt
@@ -9,3 +9,3 @@
 parse 9
-parse 10
+parse 10 twice
 parse 11
END
cat > patches/02-colour.eml <<'END'
From: Grace <grace@example.org>
Date: Mon, 2 Mar 2026 10:00:00 +0000
Subject: [PATCH 2/7] Print in colour

The tenth line is the one that people look for.
---
--- a/src/print.txt
+++ b/src/print.txt
@@ -9,3 +9,3 @@
 print 9
-print 10
+print 10 in red
 print 11
END
cat > patches/03-later.patch <<'END'
--- src/parse.txt.orig	2026-03-02 10:00:00
+++ src/parse.txt	2026-03-02 10:05:00
@@ -29,3 +29,3 @@
 parse 29
-parse 30
+parse 30 later
 parse 31
END
cat > patches/04-old.patch <<'END'
--- a/src/print.txt
+++ b/src/print.txt
@@ -19,3 +19,3 @@
 print 19
-print 20 of v0.9
+print 20 of ours
 print 21
END

mkdir stack
cd stack
show stack init parser --git ../upstream --tag v1.0

# The exit code is 1, since one patch needs a person.
show stack import ../patches --series fixes || test $? -eq 1
show cat fixes-not-imported/reasons.txt
next stack rebase parser --onto v1.1

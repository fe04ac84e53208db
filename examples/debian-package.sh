#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The patches of a Debian source package become a series. Without an argument, the package is a small one that is made here.
# With the name of a package, it is that one, by `apt-get source`, which needs a line `deb-src` in apt's sources:
#
#     examples/debian-package.sh rsync
. "$(dirname -- "$0")/common.sh"
package=${1:-greet}
name=$(printf '%s' "${package%%=*}" | tr '.+' '--')

if [ $# -gt 0 ]; then
    # Upstream's sources without debian/ become a git repository with one commit.
    (apt-get source --quiet=2 --download-only "$package" &&
        dpkg-source --no-check --skip-patches -x ./*.dsc source) >&2
    version=$(sed -n '1s|.*(\([0-9]*:\)\{0,1\}\(.*\)).*|\2|p' source/debian/changelog | sed 's|-[^-]*$||; s|[+~].*||')
    repository upstream
    cp -R source/. upstream
    rm -rf upstream/debian upstream/.pc
    git -C upstream add --all --force
    commit upstream "$name $version"
    git -C upstream tag "v$version"
else
    # Upstream has two releases. The second one has the fix that Debian took from it.
    version=1.2
    repository upstream
    seq 1 30 | sed 's|.*|greeting &|' > upstream/greet.txt
    printf 'all:\n\tinstall greet.txt /usr/local/share\n' > upstream/Makefile
    commit upstream "Greet"
    git -C upstream tag v1.2
    line upstream/greet.txt 20 'greeting 20, spelled right'
    sed -i '1i A greeting for everyone.' upstream/greet.txt
    commit upstream "Spell the twentieth greeting"
    git -C upstream tag v1.3

    # The source package: patches, their order in `series`, and their history in headers (DEP-3).
    mkdir -p source/debian/patches
    printf '# Debian only\nprefix.patch -p1\nspelling.patch\nfriendly.patch -p0\n' > source/debian/patches/series
    cat > source/debian/patches/prefix.patch <<'END'
Description: Install into /usr
 Files of packages belong there.
Author: Grace <grace@example.org>
Forwarded: not-needed
Last-Update: 2026-01-10
--- a/Makefile
+++ b/Makefile
@@ -1,2 +1,2 @@
 all:
-	install greet.txt /usr/local/share
+	install greet.txt $(DESTDIR)/usr/share
END
    cat > source/debian/patches/spelling.patch <<'END'
Description: Spell the twentieth greeting
Origin: backport, https://example.org/greet/commit/1f0c2a9
Applied-Upstream: 1.3
--- a/greet.txt
+++ b/greet.txt
@@ -19,3 +19,3 @@
 greeting 19
-greeting 20
+greeting 20, spelled right
 greeting 21
END
    cat > source/debian/patches/friendly.patch <<'END'
Description: Be friendlier in the tenth greeting
Author: Lin <lin@example.org>
Forwarded: https://example.org/greet/pull/7
--- greet.txt
+++ greet.txt
@@ -9,3 +9,3 @@
 greeting 9
-greeting 10
+greeting 10, my friend
 greeting 11
END
fi

mkdir stack
cd stack
show stack init "$name" --git ../upstream --tag "v$version"
show stack import ../source --series debian
show stack status
if [ $# -eq 0 ]; then
    show stack rebase greet --onto v1.3 --dry-run
    next stack rebase greet --onto v1.3
else
    next stack checkout "$name" ../tree
fi

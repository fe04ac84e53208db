#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install those of the packages in a list that the system lacks: install.sh FILE
set -eu
lacking=
while read -r package; do
    case $(dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null) in
        "install ok installed") ;;
        *) lacking="$lacking $package" ;;
    esac
done < "$1"
[ -n "$lacking" ] || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update
# shellcheck disable=SC2086 # a list of names
apt-get install --yes --no-install-recommends $lacking
# What names the hour, and what is only kept to be faster, would make each build another image.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache /var/log/apt /var/log/dpkg.log \
    /var/log/alternatives.log /var/cache/debconf/*-old
find /usr/lib/python3* /usr/share -name __pycache__ -prune -exec rm -rf {} +

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Serve, once what is installed is what the image was built of. STACK_UNCHECKED=1 serves all the same.
set -eu
case "${1:-}" in
    "" | -*) set -- vllm serve "$@" ;;
esac
for package in $STACK_PACKAGES; do
    if ! said=$(stack wheel inspect "$package" 2>&1); then
        printf '%s\n' "$said" >&2
        if [ "${STACK_UNCHECKED:-}" != 1 ]; then
            echo "$package is not what this image was built of: pull it again, or set STACK_UNCHECKED=1 to serve all the same" >&2
            exit 1
        fi
    fi
done
exec "$@"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Serve, once what is installed is what the image was built of, and nothing is wrong with the machine. STACK_UNCHECKED=1 serves all the same.
# STACK_RECIPE names the recipe that is served: its share of the memory is held against what is free. STACK_KEEP_FREE=GB kills the server when
# less memory and swap than that is left.
set -eu
case "${1:-}" in
    "" | -*) set -- vllm serve "$@" ;;
esac
refuse() {
    if [ "${STACK_UNCHECKED:-}" != 1 ]; then
        echo "$1, or set STACK_UNCHECKED=1 to serve all the same" >&2
        exit 1
    fi
}
for package in $STACK_PACKAGES; do
    if ! said=$(stack wheel inspect "$package" 2>&1); then
        printf '%s\n' "$said" >&2
        refuse "$package is not what this image was built of: pull it again"
    fi
done
# A recipe that this image does not know is its owner's own.
if [ -n "${STACK_RECIPE:-}" ] && ! stack --root /opt/stack/share/stack recipe show "$STACK_RECIPE" > /dev/null 2>&1; then
    STACK_RECIPE=
fi
if ! said=$(stack --root /opt/stack/share/stack doctor --python /opt/stack/bin/python \
    ${STACK_RECIPE:+--recipe "$STACK_RECIPE"} 2>&1); then
    printf '%s\n' "$said" >&2
    refuse "stack doctor finds that something is wrong: mend it"
fi
# A machine whose CPU and GPU share the memory freezes when it runs out of it: the server is killed before, and the container stays, so that
# the engine does not start it again.
if [ "${STACK_KEEP_FREE:-0}" != 0 ]; then
    exec python -P -m stack.serving.guarded "$STACK_KEEP_FREE" "$@"
fi
exec "$@"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of docs/spark.md that need no GPU, and prints what the page shows. Each part begins with a line "# NAME".
set -eu
cd "$(dirname -- "$0")/.."

# part NAME COMMAND: begin a part of the page, and run its command.
part() {
    printf '\n# %s\n\n$ %s\n' "$1" "$2"
    $2
}

part look 'stack status'
part recipe 'stack recipe show gpt-oss-120b-spark'
part check 'stack recipe check gpt-oss-120b-spark'
part limit 'stack roofline gpt-oss-120b-spark --context 2048'
part plan 'stack build wheels --plan'
part command 'stack serve gpt-oss-120b-spark --dry-run'

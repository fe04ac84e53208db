#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run with the Python sources below /src (one folder a package: /src/vllm) in place of the installed ones. What is compiled stays
# the installed wheel's: each package becomes links to it, with links to the mounted sources laid over them. New files need a restart.
set -eu
site=$(python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
work=$(mktemp -d)
for source in /src/*/; do
    package=$(basename "$source")
    cp -rs "$site/$package" "$work/"
    cp -rsf "$source." "$work/$package/"
done
export PYTHONPATH="$work" PYTHONDONTWRITEBYTECODE=1
exec "${@:-bash}"

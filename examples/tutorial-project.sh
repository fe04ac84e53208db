#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the project and the fork of docs/tutorial.md in the new folder DIR:
#
#     examples/tutorial-project.sh DIR
EXAMPLE_DIR=${1:?name a new folder} . "$(dirname -- "$0")/common.sh"

# Upstream: a Python module with three releases.
repository slugs
cat > slugs/slugs.py <<'END'
"""Turn titles into the last part of an address."""

import re


def slug(title):
    """Return the slug of a title: "Hello, World!" gives "hello-world"."""
    text = title.lower()
    text = re.sub(r"[^a-z0-9]+", "-", text)
    return text.strip("-")


def unique(title, taken):
    """Return a slug that is not taken yet, with a number if need be."""
    number, wanted = 1, slug(title)
    while wanted in taken:
        number += 1
        wanted = f"{slug(title)}-{number}"
    return wanted
END
commit slugs "Release 1.0"
git -C slugs tag v1.0

# Our fork: three commits on v1.0.
git clone --quiet slugs my-slugs
git -C my-slugs checkout --quiet -b ours
sed -i 's|^    text = title.lower()|&.translate(UMLAUTS)|' my-slugs/slugs.py
sed -i 's|^import re$|&\n\nUMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})|' my-slugs/slugs.py
commit my-slugs "Write umlauts as two letters"
sed -i 's|^    number, wanted = .*|    if not title.strip():\n        raise ValueError("a title is empty")\n&|' my-slugs/slugs.py
commit my-slugs "Refuse empty titles"
sed -i 's|^    return text.strip("-")|&[:60]|' my-slugs/slugs.py
commit my-slugs "Cut long slugs"

# Release 1.1 refuses empty titles, too. Release 2.0 changes the line that cuts long slugs in our fork.
sed -i 's|^    number, wanted = .*|    if not title.strip():\n        raise ValueError("a title is empty")\n&|' slugs/slugs.py
commit slugs "unique: a title has to have letters"
git -C slugs tag v1.1
sed -i 's|^    return text.strip("-")|& or "untitled"|' slugs/slugs.py
commit slugs "slug: never return nothing"
sed -i '2a # See https://slugs.example.org for the rules.\n' slugs/slugs.py
commit slugs "Say where the rules are"
git -C slugs tag v2.0

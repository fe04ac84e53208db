#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A fork of a JavaScript package. Its proofs are commands: `node` runs a test of the stack and upstream's own tests.
. "$(dirname -- "$0")/common.sh"

repository slugs
cat > slugs/package.json <<'END'
{ "name": "slugs", "version": "1.4.0", "main": "index.js", "scripts": { "test": "node test.js" } }
END
cat > slugs/index.js <<'END'
"use strict";

/** Turn a title into the last part of an address. */
function slug(title) {
  return title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

module.exports = { slug };
END
cat > slugs/test.js <<'END'
const assert = require("node:assert");
const { slug } = require("./index.js");
assert.equal(slug("Hello, World!"), "hello-world");
END
commit slugs "Release 1.4.0"
git -C slugs tag v1.4.0

git clone --quiet slugs my-slugs
git -C my-slugs checkout --quiet -b ours
sed -i 's|    .toLowerCase()|    .toLowerCase()\n    .replace(/ß/g, "ss")|' my-slugs/index.js
commit my-slugs "Write ß as ss"

# The next release has a function before the one that our patch changes.
sed -i '2a /** Tell whether text is a slug. */\nconst isSlug = (text) => slug(text) === text;\n' slugs/index.js
sed -i 's|{ slug }|{ slug, isSlug }|' slugs/index.js
sed -i 's|1.4.0|1.5.0|' slugs/package.json
commit slugs "Release 1.5.0"
git -C slugs tag v1.5.0

mkdir stack
cd stack
show stack init slugs --git ../slugs --tag v1.4.0
show stack import ../my-slugs ours --series german

# The proof: a test that fails without the patch. It runs in the folder of the carried tree.
mkdir proofs
cat > proofs/german.js <<'END'
const assert = require("node:assert");
const { slug } = require(process.cwd());
assert.equal(slug("Große Straße"), "grosse-strasse");
END
sed -i '/^state/a proves = [{ run = "node test.js \&\& node $STACK_ROOT/proofs/german.js", paths = ["proofs/german.js"] }]' \
    stacks/german/series.toml
show grep proves stacks/german/series.toml
show stack prove

# The same on the next release: had upstream made the change in its own words, the patch would have landed by behaviour.
show stack rebase slugs --onto v1.5.0 --prove
next stack checkout slugs ../tree

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A fork of a Rust crate. The proof is `cargo test` with a test that the stack keeps.
. "$(dirname -- "$0")/common.sh"

repository lengths
mkdir lengths/src
printf '[package]\nname = "lengths"\nversion = "1.0.0"\nedition = "2021"\n' > lengths/Cargo.toml
cat > lengths/src/lib.rs <<'END'
//! Lengths in metres.

/// Read a length such as "3 ft".
pub fn read(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    match unit {
        "m" => Some(number),
        "ft" => Some(number * 0.3048),
        _ => None,
    }
}
END
commit lengths "Release 1.0.0"
git -C lengths tag v1.0.0

# Our fork adds a unit.
git clone --quiet lengths my-lengths
git -C my-lengths checkout --quiet -b ours
sed -i 's|^        "ft" => .*|&\n        "in" => Some(number * 0.0254),|' my-lengths/src/lib.rs
commit my-lengths "Read inches"

# The next release puts another function in front.
sed -i '2a /// Metres in a kilometre.\npub const KILOMETRE: f64 = 1000.0;\n' lengths/src/lib.rs
sed -i 's|1.0.0|1.1.0|' lengths/Cargo.toml
commit lengths "Release 1.1.0"
git -C lengths tag v1.1.0

mkdir stack
cd stack
show stack init lengths --git ../lengths --tag v1.0.0
show stack import ../my-lengths ours --series inches

# The proof: a test that fails without the patch. The command copies it into the carried tree, which is thrown away afterwards.
mkdir proofs
cat > proofs/inches.rs <<'END'
#[test]
fn inches_are_read() {
    assert_eq!(lengths::read("10 in"), Some(0.254));
}
END
sed -i '/^state/a proves = [{ run = "cp -r $STACK_ROOT/proofs tests \&\& cargo test --quiet --offline", paths = ["proofs"] }]' \
    stacks/inches/series.toml
show grep proves stacks/inches/series.toml
show stack prove
show stack rebase lengths --onto v1.1.0 --prove
next stack export lengths --am ../patches

# A crate of the protocol alone (api, fleet, handoff, drain, kmm, and the model check), which builds in a fraction of the time. Sourced by
# `mutants.sh` and `sample.sh`, at the root of the tree. SCRATCH: where it is made and built (default: a folder in the target directory, and
# that directory). Two of them never share one: cargo would take what was built of the first for the second.
# shellcheck shell=bash
root=$PWD
[[ -z ${SCRATCH:-} ]] || CARGO_TARGET_DIR=$SCRATCH/target
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
scratch=${SCRATCH:-$CARGO_TARGET_DIR/mutants}
mkdir -p "$scratch"

# Made anew, as the tree is.
small() {
    local part
    rm -rf "$scratch/small"
    mkdir -p "$scratch/small/src" "$scratch/small/tests"
    for part in api fleet handoff drain kmm; do
        cp -a "$root/src/$part" "$scratch/small/src/"
    done
    cp -a "$root/tests/model" "$root/tests/kmm" "$scratch/small/tests/"
    cp -a "$root/docs" "$root/Cargo.lock" "$scratch/small/"
    printf '//! The protocol alone.\npub mod api;\npub mod drain;\npub mod fleet;\npub mod handoff;\npub mod kmm;\n' >"$scratch/small/src/lib.rs"
    # Optimised itself, over the dependencies as every other build in this target directory has them.
    awk '
        /^\[/ { skip = ($0 ~ /^\[\[(test|bench|bin)\]\]/) }
        /^default-run/ { print "autotests = false\nautobins = false"; next }
        !skip { print }
        END {
            print "\n[[test]]\nname = \"model\"\npath = \"tests/model/main.rs\""
            print "\n[profile.dev.package.lockkeeper]\nopt-level = 2\ndebug = false"
        }
    ' "$root/Cargo.toml" >"$scratch/small/Cargo.toml"
}

# The two test programs: $unit and $model. What the compiler says is in $scratch/build.log.
build() {
    (cd "$scratch/small" && CARGO_TERM_COLOR=never cargo test --no-run --lib --test model --message-format short) >"$scratch/build.log" 2>&1 || return
    unit=$(program 'unittests src/lib.rs') model=$(program 'tests/model/main.rs')
}

program() {
    sed -n "s|^ *[A-Z][a-z]* $1 (\(.*\))$|\1|p" "$scratch/build.log" | tail -1
}

#!/usr/bin/env bash
# Planted mistakes: each tests/mutants/NAME.patch is one mistake of the protocol, with its story in its head. Each is applied in a scratch copy
# and must be caught, by name: first by the unit tests of `handoff` and `drain`, then by the model, then by scenarios and simulated seeds. The
# first two are tried on a crate of the protocol alone (api, fleet, handoff, drain), which builds in a fraction of the time.
#
#   tests/mutants.sh [NAME...]      all of them, or these. Exit 1 when one survives, or its patch does not apply any more.
# SCRATCH: where the copies and their builds are (default: a folder in the target directory). EACH=1: show what each stage says, even after
# a mistake has been caught.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
root=$PWD
scratch=${SCRATCH:-${CARGO_TARGET_DIR:-$root/target}/planted}
case $scratch in /*) ;; *) scratch=$root/$scratch ;; esac
mkdir -p "$scratch/small"
export CARGO_TARGET_DIR=${PLANTED_TARGET:-$scratch/build} CARGO_INCREMENTAL=1
names=("$@")
((${#names[@]})) || for patch in tests/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done

# The protocol alone: its four folders, the model, and no other test.
small() {
    local part
    mkdir -p "$scratch/small/src" "$scratch/small/tests"
    for part in api fleet handoff drain; do
        rm -rf "$scratch/small/src/$part"
        cp -a "$root/src/$part" "$scratch/small/src/"
    done
    rm -rf "$scratch/small/tests/model" "$scratch/small/docs"
    cp -a "$root/tests/model" "$scratch/small/tests/"
    cp -a "$root/docs" "$root/Cargo.lock" "$scratch/small/"
    printf '//! The protocol alone.\npub mod api;\npub mod drain;\npub mod fleet;\npub mod handoff;\n' >"$scratch/small/src/lib.rs"
    awk '
        /^\[/ { skip = ($0 ~ /^\[\[(test|bench|bin)\]\]/) }
        /^default-run/ { print "autotests = false\nautobins = false"; next }
        !skip { print }
        END { print "\n[[test]]\nname = \"model\"\npath = \"tests/model/main.rs\"" }
    ' "$root/Cargo.toml" >"$scratch/small/Cargo.toml"
}

# The whole crate, for what the small one does not catch.
whole() {
    rm -rf "$scratch/whole"
    mkdir -p "$scratch/whole"
    git ls-files -z | tar --null -T - -c | tar -x -C "$scratch/whole"
}

# The first named test that failed, with the invariant if it says one.
first_failure() {
    local test rule
    test=$(grep -oE '^test .* \.\.\. FAILED' "$1" | head -1 | sed -e 's/^test //' -e 's/ \.\.\. FAILED//')
    rule=$(grep -oE '^ *(I[0-9]+|L1): .*|I[0-9]+: [a-zA-Z ,]*' "$1" | head -1 | sed 's/^ *//')
    [[ -z $test ]] && test=$(grep -oE '^error(\[E[0-9]+\])?: .*' "$1" | head -1)
    printf '%s%s' "$test" "${rule:+ ($rule)}"
}

stage() { # NAME LOG COMMAND...
    local log=$2
    shift 2
    nice -n 3 timeout 900 "$@" >"$log" 2>&1
}

survivors=0 stale=0
printf '%-28s %-9s %s\n' mutant 'caught by' 'which'
for name in "${names[@]}"; do
    patch=$root/tests/mutants/$name.patch log=$scratch/$name
    small
    if ! (cd "$scratch/small" && patch -p1 --dry-run --fuzz=2 <"$patch" && patch -p1 --fuzz=2 <"$patch") >"$log.apply" 2>&1; then
        printf '%-28s %-9s %s\n' "$name" STALE "its patch does not apply any more"
        stale=$((stale + 1))
        continue
    fi
    if ! (cd "$scratch/small" && stage "$name" "$log.unit" cargo test --release --lib -- handoff drain); then
        if grep -qE '^error(\[E[0-9]+\])?: (could not compile|aborting)' "$log.unit"; then
            printf '%-28s %-9s %s\n' "$name" STALE "it does not compile: $(first_failure "$log.unit")"
            stale=$((stale + 1))
            continue
        fi
        printf '%-28s %-9s %s\n' "$name" unit "$(first_failure "$log.unit")"
        [[ -n ${EACH:-} ]] || continue
    fi
    if ! (cd "$scratch/small" && stage "$name" "$log.model" cargo test --release --test model -- holds --nocapture); then
        printf '%-28s %-9s %s\n' "$name" model "$(first_failure "$log.model")"
        continue
    elif [[ -n ${EACH:-} ]] && ! grep -q 'test result: ok' "$log.unit"; then
        continue
    fi
    whole
    (cd "$scratch/whole" && patch -p1 --fuzz=2 <"$patch") >>"$log.apply" 2>&1
    if ! (cd "$scratch/whole" && stage "$name" "$log.scenarios" cargo test --release --test scenarios); then
        printf '%-28s %-9s %s\n' "$name" scenario "$(first_failure "$log.scenarios")"
        continue
    fi
    (cd "$scratch/whole" && cargo build --release --quiet) >"$log.build" 2>&1
    if ! (cd "$scratch/whole" && stage "$name" "$log.seeds" tests/sweep.sh "$CARGO_TARGET_DIR/release/lockkeeper" 1 5); then
        printf '%-28s %-9s %s\n' "$name" seeds "$(tail -1 "$log.seeds")"
        continue
    fi
    printf '%-28s %-9s %s\n' "$name" NOTHING "it survives"
    survivors=$((survivors + 1))
done
echo "${#names[@]} planted, $survivors survive, $stale are stale"
((survivors + stale == 0))

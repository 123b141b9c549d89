#!/usr/bin/env bash
# Draws N of the mutants that cargo-mutants knows of the protocol's own code (src/handoff, src/drain), by a seed, and tries each with the unit
# tests of those two folders. `tests/mutants/sample.sh [SEED] [N]`; SURVIVORS.md says what a survivor of the last draw means.
# It changes files in place: run it in a copy of the tree. The same seed draws the same mutants of the same source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seed=${1:-2026} count=${2:-210}
out=${OUT:-target/mutants-$seed}
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
mkdir -p "$out"
scope=(--no-config -f 'src/handoff/**/*.rs' -f 'src/drain/**/*.rs' -e 'src/handoff/tests/**' -e 'src/drain/testing.rs')
cargo mutants --list "${scope[@]}" | LC_ALL=C sort >"$out/all"
# A stream of bytes that only the seed decides.
bytes() { local n=0; while :; do printf '%s %s' "$seed" "$n" | sha256sum; n=$((n + 1)); done; }
shuf -n "$count" --random-source=<(bytes) "$out/all" | LC_ALL=C sort >"$out/drawn"
echo "seed $seed: $(wc -l <"$out/drawn") of $(wc -l <"$out/all") mutants"
{
    echo 'examine_re = ['
    sed -e 's/[][().*+?^$|{}\\]/\\&/g' -e "s/.*/'''^&\$''',/" "$out/drawn"
    echo ']'
} >"$out/config.toml"
nice -n "${NICE:-15}" cargo mutants --in-place --baseline=skip --timeout 120 --config "$out/config.toml" --output "$out" \
    "${scope[@]:1}" --cargo-arg=--lib -- -- handoff drain

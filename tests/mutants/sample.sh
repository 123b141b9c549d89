#!/usr/bin/env bash
# Draws N of the mutants that cargo-mutants knows of the protocol's own code (src/handoff, src/drain), by a seed, and tries each with the unit
# tests of those two folders, then, if these let it pass, with the model check: `tests/mutants/sample.sh [SEED] [N]`. README.md says what a
# survivor of the last draw means. All are built at once (together.py); a mutant that does not compile is left out, and said. The same seed
# draws the same mutants of the same source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/mutants/small.sh
source tests/mutants/small.sh
seed=${1:-1130} count=${2:-290}
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
scope=(--no-config -f 'src/handoff/**/*.rs' -f 'src/drain/**/*.rs' -e 'src/handoff/tests/**' -e 'src/drain/testing.rs')
cargo mutants --list "${scope[@]}" | LC_ALL=C sort >"$scratch/all"
cargo mutants --list --json "${scope[@]}" >"$scratch/all.json"
# A stream of bytes that only the seed decides; it ends when nobody reads it any more.
bytes() { local n=0; while printf '%s %s' "$seed" "$n" | sha256sum 2>/dev/null; do n=$((n + 1)); done; }
shuf -n "$count" --random-source=<(bytes) "$scratch/all" | LC_ALL=C sort >"$scratch/drawn"
echo "seed $seed: $(wc -l <"$scratch/drawn") of $(wc -l <"$scratch/all") mutants"
left_out=
while :; do
    small
    tests/mutants/together.py "$scratch/small" "$scratch/list" --drawn "$scratch/all.json" "$scratch/drawn" --left-out "$left_out"
    build && break
    more=$(tests/mutants/together.py "$scratch/small" "$scratch/list" --broken "$scratch/build.log")
    [[ -n $more ]] || { cat "$scratch/build.log"; exit 1; }
    echo "do not compile: $more"
    left_out+=${left_out:+,}$more
done
echo "$(wc -l <"$scratch/list") compile"
# Without a mutant nothing fails, or what follows would say nothing.
LOCKKEEPER_MUTANT=0 "$unit" handoff drain >"$scratch/none.log" 2>&1 || { cat "$scratch/none.log"; exit 1; }
tests/mutants/run.py "$scratch/list" unit="$unit:handoff:drain" model="$model:holds"

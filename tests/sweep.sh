#!/usr/bin/env bash
# tests/sweep.sh BINARY [FROM TO [PROFILE...]]: the headless demo over seeds and fault profiles, each run twice.
# SCENARIO=kernel-module (or csi, kmm) says which.
# Every node must be upgraded, nothing failed, disrupted or violated, and both runs must have written the same event log.
# Prints a line per profile and, for a run that falls short, the one command that replays it. Ends with 'N passed, N failed'.
set -euo pipefail
binary=${1:?usage: tests/sweep.sh BINARY [FROM TO [PROFILE...]]}
from=${2:-1} to=${3:-200}
shift $(($# < 3 ? $# : 3))
profiles=("${@:-none}")
[ $# -gt 0 ] || profiles=(none flaky hostile)
scenario=${SCENARIO:-kernel-module}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# One seed, twice. Writes its verdict to a file: the last word of the file is `ok` or `no`.
one() {
  local profile=$1 seed=$2 first second command out="$results/$1.$2"
  command="$binary demo --headless --scenario $scenario --faults $profile --seed $seed -o json"
  first=$($command --event-log "$out.a" 2>"$out.err" | tail -n 1) || true
  second=$($command --event-log "$out.b" 2>>"$out.err" | tail -n 1) || true
  local nodes upgraded
  nodes=$(sed -n 's/.*"nodes":\([0-9]*\).*/\1/p' <<<"$first")
  upgraded=$(sed -n 's/.*"upgraded":\([0-9]*\).*/\1/p' <<<"$first")
  local why=
  [ -n "$nodes" ] && [ "$nodes" = "$upgraded" ] || why="upgraded ${upgraded:-?} of ${nodes:-?}"
  for zero in failed disruptions violations; do
    grep -q "\"$zero\":0[,}]" <<<"$first" || why="$why, $zero not 0"
  done
  [ "$first" = "$second" ] || why="$why, two results"
  cmp -s "$out.a" "$out.b" || why="$why, two event logs"
  rm -f "$out.a" "$out.b"
  if [ -z "$why" ]; then
    echo "$first ok" >"$out"
  else
    { echo "SHORT ($why): $command"; head -n 3 "$out.err"; echo "$first"; echo no; } >"$out"
  fi
}

passed=0 failed=0
for profile in "${profiles[@]}"; do
  began=$SECONDS
  for seed in $(seq "$from" "$to"); do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    one "$profile" "$seed" &
  done
  wait
  good=0
  for seed in $(seq "$from" "$to"); do
    if [ "$(tail -c 3 "$results/$profile.$seed")" = ok ]; then
      good=$((good + 1))
    else
      failed=$((failed + 1))
      grep -v '^no$' "$results/$profile.$seed"
    fi
  done
  passed=$((passed + good))
  echo "$profile: $good of $((to - from + 1)) seeds, each twice, in $((SECONDS - began)) s"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

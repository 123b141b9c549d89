#!/usr/bin/env bash
# Planted mistakes: each tests/mutants/NAME.patch is one mistake of the protocol, with its story in its head. Each must be caught, by name: by
# the unit tests of `handoff` and `drain`, else by the model check. All are built at once, on a crate of the protocol alone; which one lives is
# chosen when it runs. Nothing of this is in the shipped code.
#
#   tests/mutants.sh [NAME...]      all of them, or these. Exit 1 when one survives, does not compile, or does not apply any more.
# EACH=1: the model check is asked too about what a unit test has caught already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/mutants/small.sh
source tests/mutants/small.sh
small
tests/mutants/together.py "$scratch/small" "$scratch/list" --patches tests/mutants
build || { cat "$scratch/build.log"; exit 1; }
for name; do
    grep -P "\t$name$" "$scratch/list" || { echo "no such planted mistake: $name" >&2; exit 2; }
done | sort -u >"$scratch/asked"
(($# == 0)) || mv "$scratch/asked" "$scratch/list"
# Without a mistake nothing fails, or what follows would say nothing.
LOCKKEEPER_MUTANT=0 "$unit" handoff drain >"$scratch/none.log" 2>&1 || { cat "$scratch/none.log"; exit 1; }
tests/mutants/run.py "$scratch/list" unit="$unit:handoff:drain" model="$model:holds"

#!/usr/bin/env python3
"""Runs a build that `together.py` has made once per mutant, and says by which named test each is caught.

run.py LIST STAGE=EXECUTABLE[:ARGUMENT...]... : LIST has `number<TAB>name`; the stages are tried in order until one catches it, all of them
with EACH=1. A mutant that runs away is stopped after CPU_SECONDS (300) of its own time, and counts as caught. NUMBERS=1,2 tries only those.
Exit 1 when one survives.
"""

import os
import re
import resource
import subprocess
import sys

listing, stages = sys.argv[1], [argument.split("=", 1) for argument in sys.argv[2:]]
each = os.environ.get("EACH")
limit = int(os.environ.get("CPU_SECONDS", "300"))
only = {int(number) for number in os.environ.get("NUMBERS", "").split(",") if number}
BEGINS = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ")
RULE = re.compile(r"\b(I\d+|L1): ")


def caught(executable, arguments, number):
    """The first test that fails, with the invariant that it names, if any; None: all pass."""
    command = [executable, "--test-threads=1", "--nocapture", *arguments]
    environment = {**os.environ, "LOCKKEEPER_MUTANT": str(number), "RUST_BACKTRACE": "0"}
    bound = lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    test = rule = None
    with subprocess.Popen(
        command, env=environment, preexec_fn=bound, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        for line in run.stdout:
            begins = BEGINS.match(line)
            test, rule = (begins.group(1), None) if begins else (test, rule)
            rule = rule or RULE.search(line)
            # What a test prints stands between its name and its result.
            if line.rstrip().endswith("FAILED") and (begins or line.strip() == "FAILED"):
                run.kill()
                return f"{test} ({rule.group(1)})" if rule else test
    if run.returncode < 0:
        return "it runs away and is stopped"
    return f"exit code {run.returncode}" if run.returncode else None


survivors = []
mutants = [line.rstrip("\n").split("\t", 1) for line in open(listing)]
mutants = [(int(number), name) for number, name in mutants if not only or int(number) in only]
for number, name in mutants:
    found = []
    for stage, what in stages:
        executable, *arguments = what.split(":")
        by = caught(executable, arguments, number)
        if by:
            found.append(f"{stage}: {by}")
            if not each:
                break
    if not found:
        survivors.append(name)
    print(number, name, "; ".join(found) or "NOTHING: it survives", sep="\t", flush=True)
print(f"{len(mutants)} mutants, {len(survivors)} survive")
sys.exit(bool(survivors))

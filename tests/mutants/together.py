#!/usr/bin/env python3
"""All mutants in one build: each function that one of them changes keeps its own body, and has one beside it per mutant, chosen by
LOCKKEEPER_MUTANT when it runs. What takes hours with a build each takes minutes.

together.py TREE LIST --patches FOLDER             the planted mistakes of FOLDER
together.py TREE LIST --drawn ALL.json DRAWN       the mutants of cargo-mutants that DRAWN names
    [--left-out NUMBER,NUMBER]                     without these
together.py TREE LIST --broken LOG                 changes nothing: the numbers of the mutants that LOG, of a build, says do not compile

Changes TREE in place; LIST gets `number<TAB>name`. A patch that does not apply, or changes anything but a function's body, ends it. A drawn
mutant that cannot live beside the original (a const function, an opaque return type) is left out and said.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict

HEAD = re.compile(r"^([ \t]*)(?:pub(?:\([^)]*\))? )?fn (\w+)", re.M)
HOOK = """
/// Which mutant lives; 0: none.
pub fn mutant() -> u32 {
    static LIVES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *LIVES.get_or_init(|| std::env::var("LOCKKEEPER_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0))
}
"""


def functions(text):
    """{(name, which of that name): (start of the body, its end)}; braces in literals are taken to be balanced."""
    found, seen = {}, {}
    for match in HEAD.finditer(text):
        opening = text.find("{", match.end())
        if opening < 0 or ";" in text[match.end() : opening].split(")")[-1]:
            continue
        depth, at = 0, opening
        while at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
        name = match.group(2)
        seen[name] = seen.get(name, 0) + 1
        found[(name, seen[name])] = (opening, at)
    return found


def planted(tree, folder, arms):
    names = sorted(name[:-6] for name in os.listdir(folder) if name.endswith(".patch"))
    stale = []
    for number, name in enumerate(names, 1):
        patch = os.path.abspath(f"{folder}/{name}.patch")
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copytree(f"{tree}/src", f"{scratch}/src")
            if subprocess.run(["patch", "-p1", "-s", "-f", "-d", scratch, "-i", patch]).returncode:
                stale.append(f"{name} does not apply")
                continue
            for file in sorted(set(re.findall(r"^\+\+\+ b/(\S+)", open(patch).read(), re.M))):
                old, new = open(f"{tree}/{file}").read(), open(f"{scratch}/{file}").read()
                before, after = functions(old), functions(new)
                put = old
                for key, (start, end) in sorted(before.items(), key=lambda it: -it[1][0]):
                    body = new[slice(*after[key])] if key in after else None
                    if body is not None and body != old[start:end]:
                        arms[file][(start, end)].append((number, body))
                        put = put[:start] + body + put[end:]
                if put != new:
                    stale.append(f"{name} changes more of {file} than bodies of functions")
    if stale:
        sys.exit("\n".join(stale))
    return dict(enumerate(names, 1))


def drawn(tree, all_json, wanted, left_out, arms):
    wanted = {line.rstrip("\n") for line in open(wanted)}
    mutants = sorted((it for it in json.load(open(all_json)) if it["name"] in wanted), key=lambda it: it["name"])
    names = {}
    for number, mutant in enumerate(mutants, 1):
        if number in left_out:
            continue
        file = mutant["file"]
        text = open(f"{tree}/{file}").read()
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        # Columns count characters from 1.
        place = lambda at: starts[at["line"] - 1] + at["column"] - 1
        begin, end = (place(mutant["function"]["span"][side]) for side in ("start", "end"))
        first, last = (place(mutant["span"][side]) for side in ("start", "end"))
        name = mutant["function"]["function_name"].split("::")[-1].split(">")[-1].strip()
        opening = text.index("{", max(text.find(f"fn {name}", begin, end), begin))
        head = text[begin:opening]
        if "const fn" in head or "-> impl" in head or first < opening or last > end:
            print(f"left out: {number} {mutant['name']}")
            continue
        body = text[opening:first] + mutant["replacement"] + text[last:end]
        if first == opening and not mutant["replacement"].startswith("{") or not body.lstrip().startswith("{"):
            body = "{" + body + "}"
        arms[file][(opening, end)].append((number, body))
        names[number] = mutant["name"]
    return names


def broken(tree, log):
    """Which arm each error of the compiler stands in."""
    numbers = set()
    for file, line, column in re.findall(r"^(src/\S+?):(\d+):(\d+): error", open(log).read(), re.M):
        lines = open(f"{tree}/{file}").read().split("\n")[: int(line)]
        lines[-1] = lines[-1][: int(column)]
        arms = re.findall(r"/\*M(\d+)\*/", "\n".join(lines))
        numbers.update(arms[-1:])
    return sorted(numbers - {"0"}, key=int)


parser = argparse.ArgumentParser()
parser.add_argument("tree")
parser.add_argument("listing")
parser.add_argument("--patches")
parser.add_argument("--drawn", nargs=2)
parser.add_argument("--left-out", default="")
parser.add_argument("--broken")
given = parser.parse_args()
if given.broken:
    print(",".join(broken(given.tree, given.broken)))
    sys.exit()
arms = defaultdict(lambda: defaultdict(list))
if given.patches:
    names = planted(given.tree, given.patches, arms)
else:
    left_out = {int(number) for number in given.left_out.split(",") if number}
    names = drawn(given.tree, *given.drawn, left_out, arms)
for file, bodies in arms.items():
    text = open(f"{given.tree}/{file}").read()
    for (start, end), of in sorted(bodies.items(), reverse=True):
        choices = "".join(f"/*M{number}*/ {number} => {body}\n" for number, body in of)
        text = text[:start] + "{ match crate::mutant() {\n" + choices + "/*M0*/ _ => " + text[start:end] + "\n} }" + text[end:]
    open(f"{given.tree}/{file}", "w").write(text)
open(f"{given.tree}/src/lib.rs", "a").write(HOOK)
open(given.listing, "w").write("".join(f"{number}\t{name}\n" for number, name in sorted(names.items())))
print(f"{len(names)} mutants in one build")

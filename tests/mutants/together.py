#!/usr/bin/env python3
"""All drawn mutants of cargo-mutants in one build: each mutated function keeps its own body, and has one beside it per mutant, chosen by
LOCKKEEPER_MUTANT when it runs. What `sample.sh` does in hours of building takes minutes.

together.py TREE ALL.json DRAWN OUT [NUMBERS]: changes TREE in place; OUT lists `number<TAB>name`. Mutants that cannot live beside the original
(a const function, an opaque return type) are left out and said; so are NUMBERS, of mutants that do not compile.
"""

import json
import sys
from collections import defaultdict

tree, all_json, drawn, out = sys.argv[1:5]
left_out = set(sys.argv[5].split(",")) if len(sys.argv) > 5 else set()
wanted = {line.rstrip("\n") for line in open(drawn)}
mutants = [m for m in json.load(open(all_json)) if m["name"] in wanted]
by_file = defaultdict(list)
for number, mutant in enumerate(sorted(mutants, key=lambda m: m["name"]), 1):
    by_file[mutant["file"]].append((number, mutant))

HOOK = """
/// Which mutant lives; 0: none.
pub fn mutant() -> u32 {
    static LIVES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *LIVES.get_or_init(|| std::env::var("LOCKKEEPER_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0))
}
"""


def offsets(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def place(starts, lines, at):
    # Columns count characters from 1.
    return starts[at["line"] - 1] + at["column"] - 1


with open(out, "w") as listing:
    for file, all_of in sorted(by_file.items()):
        path = f"{tree}/{file}"
        text = open(path).read()
        starts = offsets(text)
        functions = defaultdict(list)
        for number, mutant in all_of:
            span = mutant["function"]["span"]
            functions[(place(starts, text, span["start"]), place(starts, text, span["end"]))].append((number, mutant))
        for (begin, end), of in sorted(functions.items(), reverse=True):
            item = text[begin:end]
            sign = item.find("fn " + of[0][1]["function"]["function_name"].split("::")[-1].split(">")[-1].strip())
            sign = max(sign, 0)
            opening = item.index("{", sign)
            head, body = item[:opening], item[opening:]
            if "const fn" in head or "-> impl" in head:
                for _, mutant in of:
                    print("left out:", mutant["name"])
                continue
            arms = []
            for number, mutant in of:
                if str(number) in left_out:
                    continue
                cut = mutant["span"]
                first = place(starts, text, cut["start"]) - begin - opening
                last = place(starts, text, cut["end"]) - begin - opening
                if first < 0 or last > len(body):
                    print("left out:", mutant["name"])
                    continue
                changed = body[:first] + mutant["replacement"] + body[last:]
                if first == 0 and not changed.startswith("{"):
                    changed = "{" + changed + "}"
                # The body's own text starts a block.
                if not changed.lstrip().startswith("{"):
                    changed = "{" + changed + "}"
                arms.append(f"/*M{number}*/ {number} => {changed}\n")
                listing.write(f"{number}\t{mutant['name']}\n")
            if arms:
                item = head + "{ match crate::mutant() {\n" + "".join(arms) + "/*M0*/ _ => " + body + "\n} }"
                text = text[:begin] + item + text[end:]
        open(path, "w").write(text)

lib = f"{tree}/src/lib.rs"
text = open(lib).read()
if "pub fn mutant()" not in text:
    open(lib, "w").write(text + HOOK)

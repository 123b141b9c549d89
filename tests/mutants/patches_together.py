#!/usr/bin/env python3
"""All planted mistakes in one build: each function that a patch changes keeps its own body, and has the patched one beside it, chosen by
LOCKKEEPER_MUTANT when it runs. The quick way of what `mutants.sh` does one build at a time.

patches_together.py TREE PATCHES OUT: changes TREE in place; OUT lists `number<TAB>name`. A patch that does not apply is said, exit 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

tree, patches, out = sys.argv[1:4]
HEAD = re.compile(r"^([ \t]*)(?:pub(?:\([^)]*\))? )?fn (\w+)", re.M)


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


names = sorted(name[:-6] for name in os.listdir(patches) if name.endswith(".patch"))
arms, stale = {}, []
with tempfile.TemporaryDirectory() as scratch, open(out, "w") as listing:
    for number, name in enumerate(names, 1):
        copy = f"{scratch}/{number}"
        shutil.copytree(f"{tree}/src", f"{copy}/src")
        patch = f"{patches}/{name}.patch"
        if subprocess.run(["patch", "-p1", "--fuzz=2", "-s", "-d", copy, "-i", os.path.abspath(patch)]).returncode:
            stale.append(name)
            continue
        for file in sorted(set(re.findall(r"^\+\+\+ b/(\S+)", open(patch).read(), re.M))):
            old, new = open(f"{tree}/{file}").read(), open(f"{copy}/{file}").read()
            before, after = functions(old), functions(new)
            for key, (start, end) in before.items():
                body = new[slice(*after[key])] if key in after else None
                if body is not None and body != old[start:end]:
                    arms.setdefault((file, key), []).append((number, body))
        listing.write(f"{number}\t{name}\n")
        shutil.rmtree(copy)

for file in sorted({file for file, _ in arms}):
    text = open(f"{tree}/{file}").read()
    spans = functions(text)
    for key, (start, end) in sorted(spans.items(), key=lambda it: -it[1][0]):
        mine = arms.get((file, key))
        if mine:
            bodies = "".join(f"/*M{number}*/ {number} => {body}\n" for number, body in mine)
            text = text[:start] + "{ match crate::mutant() {\n" + bodies + "/*M0*/ _ => " + text[start:end] + "\n} }" + text[end:]
    open(f"{tree}/{file}", "w").write(text)

hook = """
/// Which mistake lives; 0: none.
pub fn mutant() -> u32 {
    static LIVES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *LIVES.get_or_init(|| std::env::var("LOCKKEEPER_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0))
}
"""
open(f"{tree}/src/lib.rs", "a").write(hook)
print(f"{len(names)} patches, stale: {stale or 'none'}")
sys.exit(bool(stale))

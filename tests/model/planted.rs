//! Planted mistakes (`tests/mutants/*.patch`) stay in step with the code: each still applies, tells its story, and is in the table of what
//! caught it. Whether each is caught is `tests/mutants.sh`'s to say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Name and text of each patch.
fn patches() -> BTreeMap<String, String> {
    let folder = root().join("tests/mutants");
    let all = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    all.map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "patch"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            (path.file_stem().unwrap().to_string_lossy().into_owned(), text)
        })
        .collect()
}

/// One place that a patch changes: what it looks for, and what it puts there.
struct Hunk {
    file: String,
    old: String,
    new: String,
}

fn hunks(patch: &str) -> Vec<Hunk> {
    let mut file = String::new();
    let mut hunks: Vec<Hunk> = Vec::new();
    // Lines that are still to come of the hunk's old and new text, as its head says.
    let (mut old_left, mut new_left) = (0, 0);
    for line in patch.lines() {
        if let Some(hunk) = hunks.last_mut().filter(|_| old_left + new_left > 0) {
            let (sign, text) = line.split_at_checked(1).unwrap_or((" ", ""));
            if sign != "+" {
                hunk.old += &format!("{text}\n");
                old_left -= 1;
            }
            if sign != "-" {
                hunk.new += &format!("{text}\n");
                new_left -= 1;
            }
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file = path.split('\t').next().unwrap_or_default().to_owned();
        } else if let Some(head) = line.strip_prefix("@@ -") {
            let counts: Vec<usize> = head
                .split(" @@")
                .next()
                .into_iter()
                .flat_map(|ranges| ranges.split(" +"))
                .map(|range| range.split_once(',').map_or(1, |(_, count)| count.parse().unwrap()))
                .collect();
            (old_left, new_left) = (counts[0], counts[1]);
            hunks.push(Hunk { file: file.clone(), old: String::new(), new: String::new() });
        }
    }
    assert_eq!(old_left + new_left, 0, "a hunk ends before its lines do");
    hunks
}

#[test]
fn planted_mistakes_still_apply() {
    let mut stale = Vec::new();
    for (name, text) in patches() {
        let hunks = hunks(&text);
        assert!(!hunks.is_empty(), "{name}.patch changes nothing");
        for Hunk { file, old, new } in hunks {
            assert!(old != new, "{name}.patch: a hunk in {file} changes nothing");
            let code = fs::read_to_string(root().join(&file)).unwrap_or_else(|why| panic!("{name}.patch: {file}: {why}"));
            let places = code.matches(&old).count();
            if places != 1 {
                stale
                    .push(format!("tests/mutants/{name}.patch: {places} places in {file} have the text that it changes:\n{old}"));
            }
        }
    }
    assert!(
        stale.is_empty(),
        "make these patches anew, so that they plant the same mistake in today's code:\n{}",
        stale.join("\n")
    );
}

#[test]
fn each_planted_mistake_says_what_goes_wrong_and_what_caught_it() {
    let table = fs::read_to_string(root().join("tests/mutants/README.md")).unwrap();
    let rows: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once("` | "))
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, rest)| (name, rest.trim_end_matches('|').split('|').map(str::trim).collect()))
        .collect();
    let patches = patches();
    for (name, text) in &patches {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(head.len() >= 2 && head[0] == format!("# {name}"), "{name}.patch begins with its name and its story");
        let row = rows.get(&**name).unwrap_or_else(|| panic!("{name} is not in tests/mutants/README.md"));
        assert!(row.len() >= 3 && row[1..].iter().any(|by| !by.is_empty()), "{name}: nothing is said to catch it: {row:?}");
    }
    let gone: BTreeSet<&str> = rows.into_keys().filter(|name| !patches.contains_key(*name)).collect();
    assert!(gone.is_empty(), "in tests/mutants/README.md without a patch: {gone:?}");
}

//! Where two answers differ, and which differences are explained: those that a row of `docs/simulator.md` names.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::answer::Answer;

/// A difference: its path (`code`, `headers`, `.spec.x`) and what each server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub path: String,
    pub what: String,
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".into(), Value::to_string)
}

pub fn values(real: &Value, sim: &Value, path: &str, out: &mut Vec<Difference>) {
    match (real, sim) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let path = format!("{path}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(x), Some(y)) => values(x, y, &path, out),
                    (x, y) => out.push(Difference { path, what: format!("real {}, simulated {}", shown(x), shown(y)) }),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (x, y)) in a.iter().zip(b).enumerate() {
                values(x, y, &format!("{path}[{n}]"), out);
            }
        }
        (x, y) if x == y => {}
        (x, y) => out.push(Difference { path: path.to_owned(), what: format!("real {x}, simulated {y}") }),
    }
}

pub fn answers(real: &Answer, sim: &Answer) -> Vec<Difference> {
    let mut out = Vec::new();
    if real.code != sim.code {
        // The rest follows from that.
        let told = |answer: &Answer| match answer.body.get("message") {
            Some(message) => format!("{} ({message})", answer.code),
            None => answer.code.to_string(),
        };
        return vec![Difference { path: "code".into(), what: format!("real {}, simulated {}", told(real), told(sim)) }];
    }
    if real.headers != sim.headers {
        let what = format!("real {:?}, simulated {:?}", real.headers, sim.headers);
        out.push(Difference { path: "headers".into(), what });
    }
    values(&real.body, &sim.body, "", &mut out);
    out
}

/// One line of `explained.jsonl`.
#[derive(Debug, Deserialize)]
struct Explained {
    id: String,
    /// Beginnings of paths; `*` stands for any text without a dot.
    #[serde(default)]
    at: Vec<String>,
    /// Holds for every request, not only for those that name it.
    #[serde(default)]
    everywhere: bool,
    /// Holds for drawn sequences.
    #[serde(default)]
    drawn: bool,
}

/// The known differences, and which were met.
#[derive(Debug)]
pub struct Known {
    by_id: BTreeMap<String, Explained>,
    met: BTreeMap<String, usize>,
}

fn fits(pattern: &str, path: &str) -> bool {
    // An event of a watch is numbered.
    let path = path.strip_prefix('[').and_then(|p| p.split_once(']')).map_or(path, |(_, rest)| rest);
    let mut steps = path.split('.');
    pattern.split('.').all(|wanted| {
        steps.next().is_some_and(|have| match wanted.split_once('*') {
            Some((head, tail)) => have.starts_with(head) && have.ends_with(tail),
            None => have == wanted || have.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('[')),
        })
    })
}

impl Known {
    pub fn read() -> Self {
        let by_id = super::data("explained.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("explained.jsonl: {line}: {e}")))
            .map(|row: Explained| (row.id.clone(), row))
            .collect();
        Self { by_id, met: BTreeMap::new() }
    }

    /// The id that explains it: one of those that the request names (with paths of its own, if it has), or one that holds everywhere.
    pub fn id_for(&self, named: &BTreeMap<String, Vec<String>>, difference: &Difference) -> Option<String> {
        let row = self.by_id.values().find(|row| {
            let own = named.get(&row.id);
            let paths = own.filter(|own| !own.is_empty()).unwrap_or(&row.at);
            (row.everywhere || own.is_some()) && paths.iter().any(|p| fits(p, &difference.path))
        })?;
        Some(row.id.clone())
    }

    /// Those that each line of a drawn sequence may show.
    pub fn drawn(&self) -> BTreeMap<String, Vec<String>> {
        self.by_id.values().filter(|row| row.drawn).map(|row| (row.id.clone(), Vec::new())).collect()
    }

    pub fn count(&mut self, id: &str) {
        *self.met.entry(id.to_owned()).or_default() += 1;
    }

    /// As [`Known::id_for`], and counts it.
    pub fn explains(&mut self, named: &BTreeMap<String, Vec<String>>, difference: &Difference) -> bool {
        let id = self.id_for(named, difference);
        if let Some(id) = &id {
            self.count(id);
        }
        id.is_some()
    }

    pub fn ids(&self) -> BTreeSet<&str> {
        self.by_id.keys().map(String::as_str).collect()
    }

    /// How often each id explained something.
    pub fn met(&self) -> &BTreeMap<String, usize> {
        &self.met
    }

    /// Ids in the data that no row explains.
    pub fn unknown<'a>(&self, ids: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
        ids.filter(|id| !self.by_id.contains_key(*id)).collect()
    }

    pub fn unmet(&self) -> Vec<&str> {
        self.by_id.keys().filter(|id| !self.met.contains_key(*id)).map(String::as_str).collect()
    }
}

/// The ids in the first column of the table of `docs/simulator.md` whose head begins with `id`.
pub fn documented() -> BTreeSet<String> {
    super::data("../../../docs/simulator.md")
        .lines()
        .skip_while(|line| !line.starts_with("| id |"))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(id, _)| id.to_owned())
        .collect()
}

/// Events of a watch: one by one, and how many.
pub fn events(real: &[Value], sim: &[Value], out: &mut Vec<Difference>) {
    let named = |events: &[Value]| -> Vec<String> {
        let one = |e: &Value| {
            let text = |path: &str| e.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            format!("{} {} {}", text("/type"), text("/object/metadata/name"), text("/object/metadata/resourceVersion"))
        };
        events.iter().map(one).collect()
    };
    let (a, b) = (named(real), named(sim));
    if a != b {
        out.push(Difference { path: "events".into(), what: format!("real {a:?}, simulated {b:?}") });
        return;
    }
    for (n, (real, sim)) in real.iter().zip(sim).enumerate() {
        values(real, sim, &format!("[{n}]"), out);
    }
}

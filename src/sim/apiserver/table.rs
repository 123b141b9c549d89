//! `kubectl get` output: meta.k8s.io/v1 Tables. Owns rows, ages and the columns of custom resources; a builtin kind's columns are `columns`'s.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns;
use super::resource::Resource;
use super::write::meta_str;

/// One column after the name.
pub struct Column {
    pub name: String,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: i64,
    /// `string`, `integer`, `boolean`, `date`, ...
    pub kind: String,
    pub get: Getter,
}

pub enum Getter {
    /// A JSON path of an `additionalPrinterColumns` entry.
    Path(String),
    With(fn(&Value, Timestamp) -> Value),
}

fn columns(resource: &Resource) -> Vec<Column> {
    let Some(custom) = &resource.custom else { return columns::of(&resource.group, &resource.plural) };
    if custom.columns.is_empty() {
        return vec![columns::age_column()];
    }
    let column = |c: &super::crd::Column| Column {
        name: c.name.clone(),
        priority: c.priority,
        kind: c.kind.clone(),
        get: Getter::Path(c.path.clone()),
    };
    custom.columns.iter().map(column).collect()
}

/// How long ago, as a real server writes it.
pub fn age(then: &str, now: Timestamp) -> String {
    let Ok(then) = then.parse::<Timestamp>() else { return "<unknown>".into() };
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let both = |many: i64, unit: char, rest: i64, small: char| {
        if rest == 0 { format!("{many}{unit}") } else { format!("{many}{unit}{rest}{small}") }
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => both(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => both(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => both(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => both(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// The first value that a column's path finds: steps `.name`, `['name']`, `[0]`, `[*]` and `[?(@.a.b=="c")]`.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = vec![object];
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inside) => inside.split_once(']')?,
            None => {
                let name = rest.strip_prefix('.').unwrap_or(rest);
                let end = name.find(['.', '[']).unwrap_or(name.len());
                (&name[..end], &name[end..])
            }
        };
        let unquoted = step.trim_matches(['\'', '"']);
        let filter = step.strip_prefix("?(@.").and_then(|test| test.strip_suffix(')')?.split_once("=="));
        found = match filter {
            Some((field, wanted)) => {
                let wanted = wanted.trim().trim_matches(['\'', '"']);
                let items = found.iter().filter_map(|it| it.as_array()).flatten();
                items.filter(|it| find(it, field.trim()).and_then(Value::as_str) == Some(wanted)).collect()
            }
            None if step == "*" => found.iter().filter_map(|it| it.as_array()).flatten().collect(),
            None => {
                let pick = |it: &&'a Value| match step.parse::<usize>() {
                    Ok(index) if it.is_array() => it.get(index),
                    _ => it.get(unquoted),
                };
                found.iter().filter_map(pick).collect()
            }
        };
        rest = after;
    }
    found.first().copied()
}

/// A custom resource's cell; null when there is nothing of the column's type.
fn cell(kind: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Value::Null };
    match kind {
        "date" => value.as_str().map_or(Value::Null, |then| age(then, now).into()),
        "integer" => value.as_i64().or_else(|| value.as_f64().map(|n| n as i64)).map_or(Value::Null, Value::from),
        "number" => value.as_f64().map_or(Value::Null, Value::from),
        "boolean" => value.as_bool().map_or(Value::Null, Value::from),
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_owned).into(),
    }
}

fn row(columns: &[Column], object: &Value, whole: bool, now: Timestamp) -> Value {
    let mut cells = Vec::with_capacity(columns.len());
    for column in columns {
        cells.push(match &column.get {
            Getter::Path(path) => cell(&column.kind, find(object, path), now),
            Getter::With(get) => get(object, now),
        });
    }
    let shown = if whole {
        object.clone()
    } else {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
    };
    json!({"cells": cells, "object": shown})
}

/// A Table of these objects, with the metadata of their list.
pub fn of(resource: &Resource, objects: &[Value], whole: bool, metadata: Value, now: Timestamp) -> Value {
    assemble(columns(resource), objects, whole, metadata, now)
}

fn assemble(mut columns: Vec<Column>, objects: &[Value], whole: bool, metadata: Value, now: Timestamp) -> Value {
    if !columns.iter().any(|column| column.name == "Name") {
        columns.insert(0, columns::name_column());
    }
    let definitions: Vec<Value> = columns
        .iter()
        .map(|c| {
            let format = if c.name == "Name" { "name" } else { "" };
            json!({"name": c.name, "type": c.kind, "format": format, "description": "", "priority": c.priority})
        })
        .collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(&columns, object, whole, now)).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

/// A Table of a `Scale`.
pub fn of_scale(scale: &Value, whole: bool, now: Timestamp) -> Value {
    let metadata = json!({"resourceVersion": meta_str(scale, "resourceVersion")});
    assemble(columns::of("autoscaling", "scales"), std::slice::from_ref(scale), whole, metadata, now)
}

/// A Table of one object.
pub fn of_one(resource: &Resource, object: &Value, whole: bool, now: Timestamp) -> Value {
    let metadata = json!({"resourceVersion": meta_str(object, "resourceVersion")});
    of(resource, std::slice::from_ref(object), whole, metadata, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubernetes_writes_them() {
        let now: Timestamp = "2026-06-15T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| age(&(now - jiff::SignedDuration::from_secs(seconds)).to_string(), now);
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (601, "10m"),
            (185, "3m5s"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (800_000, "9d"),
            (63_072_000, "2y"),
            (64_000_000, "2y10d"),
            (260_000_000, "8y"),
        ] {
            assert_eq!(ago(seconds), text, "{seconds}");
        }
        assert_eq!(age("", now), "<unknown>");
    }

    #[test]
    fn paths_of_columns_find_the_first_value() {
        let object = json!({
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}], "b": [{"kind": "x"}]},
            "metadata": {"labels": {"a.b/c": "l"}},
        });
        let text = |path: &str| find(&object, path).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert_eq!(text(".status.b[0].kind"), "x");
        assert_eq!(text("status.conditions[?(@.type==\"B\")].status"), "False");
        assert_eq!(text(".status.conditions[*].type"), "A");
        assert_eq!(text(".metadata.labels['a.b/c']"), "l");
        assert_eq!(text(".status.b[7].kind"), "");
        assert_eq!(text(".status.conditions["), "");
    }

    #[test]
    fn a_custom_resource_s_cells_are_of_their_columns_types() {
        let now: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
        assert_eq!(cell("date", Some(&json!("2026-01-01T00:00:00Z")), now), "30s");
        assert_eq!(cell("integer", Some(&json!(3)), now), 3);
        assert_eq!(cell("integer", Some(&json!("3")), now), Value::Null);
        assert_eq!(cell("string", Some(&json!({"a": 1})), now), "{\"a\":1}");
        assert_eq!(cell("string", None, now), Value::Null);
    }
}

//! Label and field selectors: the full grammar of the query strings, and matching against stored objects.

use std::borrow::Cow;

use serde_json::Value;

use super::grammar;
use super::refusal::Refusal;
use super::resource::Resource;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

/// A parsed `labelSelector` and `fieldSelector`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selectors {
    labels: Vec<Requirement>,
    /// (path, value, equal)
    fields: Vec<(String, String, bool)>,
}

/// A string at a dotted path; absent is the empty string, booleans as `true` and `false`. Every object that a list or a watch looks at is asked, so
/// texts are not copied.
fn text_at<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    let mut at = object;
    for step in path.split('.').filter(|s| !s.is_empty()) {
        match at.get(step) {
            Some(next) => at = next,
            None => return Cow::Borrowed(""),
        }
    }
    match at {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("true"),
        Value::Bool(false) => Cow::Borrowed("false"),
        Value::Number(n) => Cow::Owned(n.to_string()),
        _ => Cow::Borrowed(""),
    }
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        match self {
            Self::Exists(key) => label(object, key).is_some(),
            Self::Missing(key) => label(object, key).is_none(),
            Self::In(key, values) => label(object, key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(key, values) => label(object, key).is_none_or(|v| values.iter().all(|x| x != v)),
            Self::Greater(key, n) => label(object, key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
            Self::Less(key, n) => label(object, key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
        }
    }
}

fn supported_fields(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => {
            &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "reportingController", "type"]
        }
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

impl Selectors {
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = grammar::parse(labels).map_err(Refusal::bad_request)?;
        let mut out = Self { labels, ..Self::default() };
        for term in fields.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let (path, value, equal) = if let Some((p, v)) = term.split_once("!=") {
                (p, v, false)
            } else if let Some((p, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (p, v, true)
            } else {
                return Err(Refusal::bad_request(format!("invalid selector: '{fields}'; can't understand '{term}'")));
            };
            let known = path == "metadata.name"
                || (path == "metadata.namespace" && resource.namespaced)
                || supported_fields(resource).contains(&path)
                || resource.custom.as_ref().is_some_and(|c| c.selectable_fields.iter().any(|f| f == path));
            let own_fields = !supported_fields(resource).is_empty() || resource.is_custom();
            if !known && !own_fields {
                let only = "only \"metadata.name\", \"metadata.namespace\"";
                return Err(Refusal::bad_request(format!("{path:?} is not a known field selector: {only}")));
            }
            if !known {
                return Err(Refusal::bad_request(format!("field label not supported: {path}")));
            }
            // Events are stored under their core names.
            let stored_path = match path.strip_prefix("regarding.") {
                Some(rest) => format!("involvedObject.{rest}"),
                None if path == "reportingController" => "reportingComponent".into(),
                None => path.to_owned(),
            };
            out.fields.push((stored_path, value.to_owned(), equal));
        }
        Ok(out)
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|r| r.matches(object))
            && self.fields.iter().all(|(path, value, equal)| {
                let mut found = text_at(object, if path == "source" { "source.component" } else { path });
                if path == "spec.unschedulable" && found.is_empty() {
                    found = Cow::Borrowed("false");
                }
                (found == value.as_str()) == *equal
            })
    }

    /// The value that `path=value` demands, so that an index can be used; not an empty one, which watches have no slot for.
    pub fn required(&self, path: &str) -> Option<&str> {
        self.demanded(path).filter(|value| !value.is_empty())
    }

    /// As [`Selectors::required`], also an empty one: what has no such field.
    pub fn demanded(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|(p, _, equal)| *equal && p == path).map(|(_, v, _)| v.as_str())
    }
}

/// The name that a field selector asks for, if it asks for one.
pub fn only_name(fields: &str) -> Option<String> {
    let value = fields.split(',').find_map(|term| term.trim().strip_prefix("metadata.name="))?;
    Some(value.trim_start_matches('=').to_owned()).filter(|name| !name.is_empty())
}

/// Does a `LabelSelector` object (matchLabels, matchExpressions) match? `None` and null match nothing, `{}` all.
pub fn label_selector_matches(selector: Option<&Value>, object: &Value) -> bool {
    let Some(Value::Object(selector)) = selector else {
        return false;
    };
    let labels_ok = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(k, v)| label(object, k).is_some_and(|have| v.as_str() == Some(have))));
    let expressions_ok = selector.get("matchExpressions").and_then(Value::as_array).is_none_or(|list| {
        list.iter().all(|e| {
            let key = e.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            let values = e
                .get("values")
                .and_then(Value::as_array)
                .map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                .unwrap_or_default();
            match e.get("operator").and_then(Value::as_str) {
                Some("In") => Requirement::In(key, values).matches(object),
                Some("NotIn") => Requirement::NotIn(key, values).matches(object),
                Some("Exists") => Requirement::Exists(key).matches(object),
                Some("DoesNotExist") => Requirement::Missing(key).matches(object),
                _ => false,
            }
        })
    });
    labels_ok && expressions_ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::apiserver::resource::Registry;
    use serde_json::json;

    #[test]
    fn the_label_grammar_is_understood() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let object = json!({"metadata": {"labels": {"a": "1", "b/c": "x"}}});
        let yes = ["a", "a=1", "a==1", "a in (1, 2)", "a notin (3)", "!z", "z!=1", "a>0", "a<2", "a,b/c=x", "z notin (1)"];
        let no = ["!a", "a=2", "a!=1", "z", "a in (3)", "a>1", "a,z"];
        for text in yes {
            assert!(Selectors::parse(pods, text, "").unwrap().matches(&object), "{text}");
        }
        for text in no {
            assert!(!Selectors::parse(pods, text, "").unwrap().matches(&object), "{text}");
        }
        assert!(Selectors::parse(pods, "a b", "").is_err());
    }

    #[test]
    fn unknown_field_labels_are_refused() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let refused = Selectors::parse(pods, "", "spec.foo=1").unwrap_err();
        assert_eq!(refused.code, 400);
        assert!(refused.message.ends_with("field label not supported: spec.foo"), "{}", refused.message);
        let nodes = registry.find("", "v1", "nodes").unwrap();
        let open = Selectors::parse(nodes, "", "spec.unschedulable=false").unwrap();
        assert!(open.matches(&json!({"spec": {}})));
        assert!(!open.matches(&json!({"spec": {"unschedulable": true}})));
    }
}

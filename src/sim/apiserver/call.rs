//! One request, parsed: path, query, media types, who asks. Knows the shape of Kubernetes URLs, nothing of objects.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jiff::Timestamp;
use serde_json::Value;

use super::convert::Form;
use super::protobuf;
use super::refusal::{Cause, Refusal};
use super::resource::{Registry, Resource};

/// Who sends requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The client's own name: in the log, for faults and for crashes.
    pub client: String,
    /// The Kubernetes user name.
    pub user: String,
    pub groups: Vec<String>,
}

impl Identity {
    /// A client whose user carries the same name, member of `system:masters`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { client: name.clone(), user: name, groups: vec!["system:masters".into(), "system:authenticated".into()] }
    }

    /// Another user under this client name, without special groups.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self.groups = vec!["system:authenticated".into()];
        self
    }

    /// The user of a service account.
    pub fn service_account(client: impl Into<String>, namespace: &str, name: &str) -> Self {
        Self {
            client: client.into(),
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ],
        }
    }

    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The parsed query string.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|p| !p.is_empty())
            .map(|p| {
                let (k, v) = p.split_once('=').unwrap_or((p, ""));
                (percent_decode(k), percent_decode(v))
            })
            .collect();
        Self { pairs }
    }
    pub fn get(&self, key: &str) -> &str {
        self.pairs.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v.as_str())
    }
    pub fn on(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1")
    }
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).parse().ok()
    }
    /// `dryRun=All`.
    pub fn dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

/// A request for a resource.
#[derive(Debug, Clone)]
pub struct Call {
    pub verb: Verb,
    pub resource: Arc<Resource>,
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty, or `status`, `scale`, `eviction`, `binding`, `finalize`.
    pub sub: String,
    pub query: Query,
    pub form: Form,
    pub patch: Option<PatchType>,
    pub who: Identity,
    /// The field manager of writes.
    pub manager: String,
    pub body: Bytes,
    /// The body is YAML.
    pub yaml: bool,
    /// When the server got it. A fault may hold it up until long after its sender has given it up.
    pub came: Timestamp,
}

impl Call {
    pub fn body_json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        if self.yaml {
            let text = std::str::from_utf8(&self.body).unwrap_or_default();
            return serde_saphyr::from_str(text).map_err(|e| Refusal::bad_request(format!("error decoding YAML: {e}")));
        }
        serde_json::from_slice(&self.body).map_err(|e| {
            let message = match self.verb {
                Verb::Patch => "invalid JSON patch".to_owned(),
                Verb::Delete | Verb::DeleteCollection => format!("couldn't get version/kind; json parse error: {e}"),
                _ => format!("the object provided is unrecognized (must be of type {}): {e}", self.resource.kind),
            };
            Refusal::bad_request(message)
        })
    }

    /// `dryRun=All`; a deletion with a body goes by that alone.
    pub fn dry_run(&self) -> bool {
        let elsewhere = matches!(self.verb, Verb::Delete | Verb::DeleteCollection) && !self.body.is_empty();
        !elsewhere && self.query.dry_run()
    }

    /// `pods`, `pods/status`, `daemonsets.apps`.
    pub fn resource_name(&self) -> String {
        let base = self.resource.group_resource();
        if self.sub.is_empty() { base } else { format!("{base}/{}", self.sub) }
    }

    /// The form of the version in the path, whatever the answer's media type.
    pub fn form_of_path(&self) -> Form {
        Form::plain(&self.resource)
    }

    pub fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

/// What a path asks for.
#[derive(Debug)]
pub enum Target {
    Resource {
        resource: Arc<Resource>,
        namespace: String,
        name: String,
        sub: String,
    },
    /// Everything that is no resource: discovery, health, version.
    Other,
}

pub fn route(registry: &Registry, path: &str) -> Result<Target, Refusal> {
    let parts: Vec<String> = path.split('/').filter(|p| !p.is_empty()).map(percent_decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Ok(Target::Other),
    };
    let (namespace, plural, name, sub) = match rest {
        [] => return Ok(Target::Other),
        ["namespaces", ns, sub @ ("status" | "finalize")] if group.is_empty() => ("", "namespaces", *ns, *sub),
        ["namespaces", ns] if group.is_empty() => ("", "namespaces", *ns, ""),
        ["namespaces", ns, plural] => (*ns, *plural, "", ""),
        ["namespaces", ns, plural, name] => (*ns, *plural, *name, ""),
        ["namespaces", ns, plural, name, sub] => (*ns, *plural, *name, *sub),
        [plural] => ("", *plural, "", ""),
        [plural, name] => ("", *plural, *name, ""),
        [plural, name, sub] => ("", *plural, *name, *sub),
        _ => return Err(Refusal::no_such_path()),
    };
    let unknown = || {
        // A group of custom kinds alone answers nothing but its resources.
        let group_known = registry.all().any(|r| r.group == group && r.version == version && !r.is_custom());
        if group_known { Refusal::no_such_path() } else { Refusal::no_such_group() }
    };
    let resource = registry.find(group, version, plural).ok_or_else(unknown)?.clone();
    if resource.namespaced == namespace.is_empty() && !name.is_empty() {
        return Err(Refusal::no_such_path());
    }
    if !resource.namespaced && !namespace.is_empty() {
        return Err(Refusal::no_such_path());
    }
    if resource.is_pod() && matches!(sub, "log" | "exec" | "attach" | "portforward" | "proxy") {
        let message = format!(
            "the simulated cluster runs no containers: there is no {sub} of a pod. What a pod does is told by its sim.lockkeeper.dev annotations"
        );
        return Err(Refusal::new(501, "NotImplemented", message));
    }
    let known = match sub {
        "" => true,
        "status" => resource.has.status,
        "scale" => resource.has.scale || resource.custom.as_ref().is_some_and(|c| c.scale.is_some()),
        "eviction" | "binding" => resource.is_pod(),
        "finalize" => resource.is("", "namespaces"),
        _ => false,
    };
    if !known && resource.is_custom() {
        return Err(Refusal::not_found(&resource, name));
    }
    if !known {
        return Err(Refusal::no_such_path());
    }
    Ok(Target::Resource { resource, namespace: namespace.into(), name: name.into(), sub: sub.into() })
}

/// The verb of a method on a resource path.
pub fn verb(method: &Method, named: bool, sub: &str, query: &Query) -> Result<Verb, Refusal> {
    Ok(match (method.as_str(), named) {
        ("GET", true) if matches!(sub, "eviction" | "binding") => return Err(Refusal::method_not_allowed()),
        ("GET", true) => Verb::Get,
        ("GET", false) if query.on("watch") => Verb::Watch,
        ("GET", false) => Verb::List,
        ("POST", false) => Verb::Create,
        ("POST", true) if matches!(sub, "eviction" | "binding") => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) if sub.is_empty() => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return Err(Refusal::method_not_allowed()),
    })
}

pub fn patch_type(headers: &HeaderMap, resource: &Resource) -> Result<PatchType, Refusal> {
    let sent = headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let plain = sent.split(';').next().unwrap_or_default().trim();
    match plain {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !resource.is_custom() => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(PatchType::Apply),
        "application/strategic-merge-patch+json" => Err(Refusal::no_such_patch()),
        _ => Err(Refusal::unsupported_media_type()),
    }
}

/// Parameters that must be numbers, and options that have few values.
pub fn check_parameters(verb: Verb, query: &Query) -> Result<(), Refusal> {
    for name in ["limit", "timeoutSeconds", "gracePeriodSeconds"] {
        let text = query.get(name);
        if !text.is_empty() && text.parse::<i64>().is_err() {
            return Err(Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")));
        }
    }
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        Verb::Get | Verb::List | Verb::Watch => return Ok(()),
    };
    let mut causes = Vec::new();
    let (dry_run, validation) = (query.get("dryRun"), query.get("fieldValidation"));
    if !matches!(dry_run, "" | "All") {
        causes.push(Cause::unsupported("dryRun", &serde_json::json!([dry_run]), &["All"]));
    }
    if kind != "DeleteOptions" && !matches!(validation, "" | "Ignore" | "Strict" | "Warn") {
        causes.push(Cause::unsupported("fieldValidation", &validation.into(), &["", "Ignore", "Strict", "Warn"]));
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::bad_options(kind, &causes)) }
}

/// A body as JSON or YAML (true), whatever it came as; patches have types of their own. Custom resources have no protobuf.
pub fn body(headers: &HeaderMap, resource: &Resource, body: Bytes) -> Result<(Bytes, bool), Refusal> {
    let sent = headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
    if sent.contains("cbor") || (sent.contains("protobuf") && resource.is_custom()) {
        let message =
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
        return Err(Refusal::new(415, "UnsupportedMediaType", message));
    }
    if sent.contains("protobuf") && !body.is_empty() {
        let json = protobuf::to_json(&body).map_err(|why| Refusal::bad_request(why.to_string()))?;
        return Ok((Bytes::from(json.to_string()), false));
    }
    Ok((body, sent.starts_with("application/yaml")))
}

/// The field manager: the parameter, else the user agent up to the first slash, else the client's name.
pub fn field_manager(query: &Query, headers: &HeaderMap, who: &Identity) -> String {
    let given = query.get("fieldManager");
    if !given.is_empty() {
        return given.to_owned();
    }
    let agent = headers.get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let short = agent.split('/').next().unwrap_or_default();
    if short.is_empty() { who.client.clone() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        let registry = Registry::builtin();
        let ask = |path: &str| match route(&registry, path) {
            Ok(Target::Resource { resource, namespace, name, sub }) => {
                format!("{} {namespace}/{name} {sub}", resource.group_resource())
            }
            Ok(Target::Other) => "other".into(),
            Err(refusal) => refusal.code.to_string(),
        };
        assert_eq!(ask("/api/v1/nodes/n1"), "nodes /n1 ");
        assert_eq!(ask("/api/v1/namespaces/a"), "namespaces /a ");
        assert_eq!(ask("/api/v1/namespaces/a/pods/p/eviction"), "pods a/p eviction");
        assert_eq!(ask("/api/v1/pods"), "pods / ");
        assert_eq!(ask("/apis/apps/v1/namespaces/a/daemonsets/d/status"), "daemonsets.apps a/d status");
        assert_eq!(ask("/apis/apps/v1/namespaces/a/daemonsets/d/eviction"), "404");
        assert_eq!(ask("/apis/none/v1/things"), "404");
        assert_eq!(ask("/api/v1/namespaces/a/pods/p/log"), "501");
        assert_eq!(ask("/apis"), "other");
        assert_eq!(ask("/api/v1/pods/p"), "404");
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%2Fb+in+%281%29&watch=true&limit=5");
        assert_eq!(query.get("labelSelector"), "a/b in (1)");
        assert!(query.on("watch"));
        assert_eq!(query.number("limit"), Some(5));
    }
}

//! Sequences of requests as text: reading them, and the short names of their paths. What they mean is told in `sequences/README.md`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::Request;

/// A name and its requests, on a namespace (and names) of its own.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    pub name: String,
    pub steps: Vec<Step>,
}

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// As written, for messages.
    pub text: String,
    pub line: usize,
    /// `@x`: the answer's name.
    pub label: String,
    /// `as:viewer`; admin otherwise.
    pub user: String,
    /// `accept:table`.
    pub accept: String,
    /// `~id` or `~id(.path,.path)`: differences that are explained.
    pub explained: BTreeMap<String, Vec<String>>,
    pub verb: String,
    pub path: String,
    pub body: String,
}

struct Kind {
    short: &'static str,
    group_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
}

const fn kind(short: &'static str, group_version: &'static str, plural: &'static str, kind: &'static str) -> Kind {
    Kind { short, group_version, plural, kind, namespaced: true }
}

const fn cluster(short: &'static str, group_version: &'static str, plural: &'static str, kind: &'static str) -> Kind {
    Kind { short, group_version, plural, kind, namespaced: false }
}

const KINDS: &[Kind] = &[
    kind("cm", "v1", "configmaps", "ConfigMap"),
    kind("po", "v1", "pods", "Pod"),
    kind("secret", "v1", "secrets", "Secret"),
    kind("sa", "v1", "serviceaccounts", "ServiceAccount"),
    kind("pvc", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    cluster("no", "v1", "nodes", "Node"),
    cluster("ns", "v1", "namespaces", "Namespace"),
    cluster("pv", "v1", "persistentvolumes", "PersistentVolume"),
    kind("ds", "apps/v1", "daemonsets", "DaemonSet"),
    kind("deploy", "apps/v1", "deployments", "Deployment"),
    kind("rs", "apps/v1", "replicasets", "ReplicaSet"),
    kind("sts", "apps/v1", "statefulsets", "StatefulSet"),
    kind("cr", "apps/v1", "controllerrevisions", "ControllerRevision"),
    kind("job", "batch/v1", "jobs", "Job"),
    kind("pdb", "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    kind("lease", "coordination.k8s.io/v1", "leases", "Lease"),
    kind("role", "rbac.authorization.k8s.io/v1", "roles", "Role"),
    kind("rolebinding", "rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
    cluster("clusterrole", "rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole"),
    cluster("clusterrolebinding", "rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding"),
    cluster("va", "storage.k8s.io/v1", "volumeattachments", "VolumeAttachment"),
    cluster("csidriver", "storage.k8s.io/v1", "csidrivers", "CSIDriver"),
    cluster("csinode", "storage.k8s.io/v1", "csinodes", "CSINode"),
    cluster("sc", "storage.k8s.io/v1", "storageclasses", "StorageClass"),
    cluster("pc", "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass"),
    kind("claim", "resource.k8s.io/v1", "resourceclaims", "ResourceClaim"),
    cluster("crd", "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"),
    cluster("ssar", "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    cluster("sar", "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview"),
    kind("w", "likeness.example/v1", "widgets", "Widget"),
    kind("w2", "likeness.example/v2", "widgets", "Widget"),
    kind("g", "likeness.example/v1", "gadgets", "Gadget"),
    cluster("cw", "likeness.example/v1", "clusterwidgets", "ClusterWidget"),
];

/// All sequences of one file. Lines that begin with a blank go on with the one before.
pub fn parse(file: &str, text: &str) -> Vec<Sequence> {
    let mut out: Vec<Sequence> = Vec::new();
    let mut lets: Vec<(String, String)> = Vec::new();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        match lines.last_mut() {
            Some((_, before)) if line.starts_with([' ', '\t']) => {
                before.push(' ');
                before.push_str(line.trim());
            }
            _ => lines.push((n + 1, line.trim_end().to_owned())),
        }
    }
    for (line, text) in lines {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(name) = text.strip_prefix("== ") {
            out.push(Sequence { name: format!("{file}: {name}"), steps: Vec::new() });
            continue;
        }
        let mut text = text;
        for (name, value) in lets.iter().rev() {
            text = text.replace(&format!("$({name})"), value);
        }
        if let Some((name, value)) = text.strip_prefix("let ").and_then(|l| l.split_once(" = ")) {
            lets.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let sequence = out.last_mut().unwrap_or_else(|| panic!("{file}:{line}: a request before the first `== name`"));
        sequence.steps.push(step(line, &text));
    }
    out
}

/// A list in parentheses after a name, or none.
fn in_parentheses(text: &str) -> (String, Vec<String>) {
    match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((id, list)) => (id.to_owned(), list.split(',').map(str::to_owned).collect()),
        None => (text.to_owned(), Vec::new()),
    }
}

pub fn step(line: usize, text: &str) -> Step {
    let mut out = Step { text: text.to_owned(), line, ..Step::default() };
    let mut rest = text;
    let verb = loop {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = more;
        if let Some(label) = word.strip_prefix('@') {
            out.label = label.to_owned();
        } else if let Some(user) = word.strip_prefix("as:") {
            out.user = user.to_owned();
        } else if let Some(kind) = word.strip_prefix("accept:") {
            out.accept = accept(kind);
        } else if let Some(id) = word.strip_prefix('~') {
            let (id, paths) = in_parentheses(id);
            out.explained.insert(id, paths);
        } else {
            break word;
        }
    };
    out.verb = verb.to_owned();
    let body = [" {", " [", " |"].iter().filter_map(|start| rest.find(start)).min().unwrap_or(rest.len());
    let (path, body) = rest.split_at(body);
    out.path = path.trim().to_owned();
    out.body = body.trim().trim_start_matches('|').trim().to_owned();
    out
}

fn accept(kind: &str) -> String {
    match kind {
        "metadata" => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1".into(),
        "metadatalist" => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1".into(),
        other => other.to_owned(),
    }
}

fn encoded(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// A short path with everything put in, and its kind: `cm/a?x=y` becomes `/api/v1/namespaces/NS/configmaps/a?x=y`.
fn url(short: &str, namespace: &str) -> (String, Option<(&'static Kind, String)>) {
    let (path, query) = short.split_once('?').unwrap_or((short, ""));
    let query: Vec<String> = query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) => format!("{key}={}", encoded(value)),
            None => pair.to_owned(),
        })
        .collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    if path.starts_with('/') {
        return (format!("{path}{query}"), None);
    }
    let (everywhere, path) = path.strip_prefix("*/").map_or((false, path), |rest| (true, rest));
    let mut parts = path.split('/');
    let short = parts.next().unwrap_or_default();
    let kind = KINDS.iter().find(|k| k.short == short).unwrap_or_else(|| panic!("no short name {short:?} (in {path:?})"));
    let rest: Vec<&str> = parts.collect();
    let root = if kind.group_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{}", kind.group_version) };
    let scope = if kind.namespaced && !everywhere { format!("/namespaces/{namespace}") } else { String::new() };
    let tail: String = rest.iter().map(|r| format!("/{r}")).collect();
    let name = rest.first().copied().unwrap_or_default().to_owned();
    (format!("{root}{scope}/{}{tail}{query}", kind.plural), Some((kind, name)))
}

/// What answers have told so far.
#[derive(Debug, Default)]
pub struct Memory {
    values: BTreeMap<String, [String; 3]>,
}

impl Memory {
    pub fn keep(&mut self, name: &str, body: &Value) {
        let text = |key: &str| body.pointer(&format!("/metadata/{key}")).and_then(Value::as_str).unwrap_or_default().to_owned();
        if !name.is_empty() && !text("resourceVersion").is_empty() {
            self.values.insert(name.to_owned(), [text("resourceVersion"), text("uid"), text("continue")]);
        }
    }

    /// Puts `$(x.rv)`, `$(x.uid)`, `$(x.continue)` and `$(ns)` in. What is not known becomes something that fits nothing.
    fn fill(&self, text: &str, namespace: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("$(") {
            let (name, more) = after.split_once(')').unwrap_or((after, ""));
            out.push_str(before);
            out.push_str(&match name.rsplit_once('.') {
                None if name == "ns" => namespace.to_owned(),
                Some((of, field)) => {
                    // `$(x.rv?)`: nothing when it is not known.
                    let (field, maybe) = field.strip_suffix('?').map_or((field, false), |f| (f, true));
                    let at = ["rv", "uid", "continue"].iter().position(|f| *f == field);
                    let known = self.values.get(of).zip(at).and_then(|(values, at)| values.get(at)).cloned();
                    known.unwrap_or_else(|| match field {
                        _ if maybe => String::new(),
                        "uid" => "00000000-0000-0000-0000-000000000000".into(),
                        "rv" => "1".into(),
                        _ => String::new(),
                    })
                }
                None => panic!("no such name: $({name}) in {text}"),
            });
            rest = more;
        }
        out + rest
    }
}

/// YAML (flow or JSON) as JSON.
fn body_of(text: &str) -> Value {
    serde_json::from_str(text)
        .ok()
        .or_else(|| serde_saphyr::from_str(text).ok())
        .unwrap_or_else(|| panic!("neither JSON nor YAML: {text}"))
}

fn complete(body: &mut Value, kind: &Kind, name: &str) {
    let Some(fields) = body.as_object_mut() else { return };
    fields.entry("apiVersion").or_insert_with(|| kind.group_version.into());
    fields.entry("kind").or_insert_with(|| kind.kind.into());
    if !name.is_empty()
        && let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.entry("name").or_insert_with(|| name.into());
    }
}

impl Step {
    /// The name under which the answer is kept: `cm/a`.
    pub fn object(&self, namespace: &str) -> String {
        let path = Memory::default().fill(self.path.split('?').next().unwrap_or_default(), namespace);
        let path = path.replace(&format!("{namespace}-"), "");
        path.split('/').take(2).collect::<Vec<_>>().join("/")
    }

    pub fn request(&self, memory: &Memory, namespace: &str) -> Request {
        let (path, body) = (memory.fill(&self.path, namespace), memory.fill(&self.body, namespace));
        let (mut at, kind) = url(&path, namespace);
        let method = match self.verb.as_str() {
            "new" | "post" => "POST",
            "put" => "PUT",
            "get" | "list" | "watch" => "GET",
            "delete" => "DELETE",
            "merge" | "strategic" | "patch" | "apply" => "PATCH",
            other => other,
        };
        let content = match self.verb.as_str() {
            "new" | "post" | "put" | "delete" => "json",
            "merge" | "strategic" | "patch" | "apply" => self.verb.as_str(),
            _ => "",
        };
        let mut content = content.to_owned();
        if self.verb == "watch" {
            at.push_str(if at.contains('?') { "&watch=true" } else { "?watch=true" });
        }
        let body = match (&kind, body.as_str()) {
            (_, "") if !matches!(self.verb.as_str(), "new" | "put") => {
                content.clear();
                String::new()
            }
            // Sent as it stands.
            (None, text) if text.starts_with('"') => body_of(text).as_str().unwrap_or_default().to_owned(),
            (None, text) => body_of(text).to_string(),
            (Some((kind, name)), text) => {
                let mut body = if text.is_empty() { json!({}) } else { body_of(text) };
                let sub = path.split('?').next().unwrap_or_default().split('/').filter(|p| !p.is_empty()).count() > 2;
                match self.verb.as_str() {
                    "new" if !sub => {
                        let (path, query) = at.split_once('?').map_or((at.as_str(), None), |(p, q)| (p, Some(q)));
                        let collection = path.strip_suffix(&format!("/{name}")).unwrap_or(path).to_owned();
                        at = query.map_or(collection.clone(), |q| format!("{collection}?{q}"));
                        complete(&mut body, kind, name);
                    }
                    "post" if !sub => complete(&mut body, kind, ""),
                    "put" | "apply" if !path.contains("/scale") => complete(&mut body, kind, name),
                    _ => {}
                }
                body.to_string()
            }
        };
        Request { method: method.into(), at, kind: content, accept: self.accept.clone(), body }
    }
}

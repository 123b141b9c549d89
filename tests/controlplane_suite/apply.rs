//! Requests of plain JSON as somebody, and what the server said to them.

use kube::Client;
use serde_json::{Value, json};

use crate::support::controlplane::{ControlPlane, User};

/// Whether a write is to stay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    Yes,
    /// Checked like any other, and not kept.
    No,
}

/// The server's refusal: HTTP code and message.
#[derive(Debug)]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

impl Refused {
    pub fn says(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.message.contains(word))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// Somebody who writes.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    /// Who admin pretends to be.
    user: Option<&'static str>,
    manager: &'static str,
}

impl Caller {
    /// One of the users that the control plane knows.
    pub async fn new(plane: &ControlPlane, user: User) -> Caller {
        Caller { client: plane.client(user).await, user: None, manager: "test" }
    }

    /// Anybody else: a user of this name without groups.
    pub async fn named(plane: &ControlPlane, user: &'static str) -> Caller {
        Caller { client: plane.client(User::Admin).await, user: Some(user), manager: "test" }
    }

    /// The same, who calls himself this in managed fields.
    pub fn manager(mut self, manager: &'static str) -> Caller {
        self.manager = manager;
        self
    }

    /// Applies an object, taking over every field that it names; strict about fields that the schema does not know.
    pub async fn apply(&self, object: &Value, stay: Stay) -> Result<Value, Refused> {
        let query = format!("?fieldManager={}&force=true&fieldValidation=Strict{}", self.manager, dry_run(stay));
        self.send("PATCH", &format!("{}{query}", path(object)), "application/apply-patch+yaml", object).await
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value, stay: Stay) -> Result<Value, Refused> {
        let path = path(object);
        let collection = path.rsplit_once('/').map_or(path.as_str(), |(collection, _)| collection);
        let query = format!("?fieldManager={}&fieldValidation=Strict{}", self.manager, dry_run(stay));
        self.send("POST", &format!("{collection}{query}"), "application/json", object).await
    }

    /// Reads what is at a path.
    pub async fn get(&self, path: &str) -> Result<Value, Refused> {
        self.send("GET", path, "application/json", &Value::Null).await
    }

    /// Sends a JSON merge patch to a path.
    pub async fn merge(&self, path: &str, patch: &Value, stay: Stay) -> Result<Value, Refused> {
        let query = format!("?fieldManager={}{}", self.manager, dry_run(stay));
        self.send("PATCH", &format!("{path}{query}"), "application/merge-patch+json", patch).await
    }

    /// Deletes an object, or all of a collection.
    pub async fn delete(&self, path: &str, options: Value, stay: Stay) -> Result<Value, Refused> {
        let mut body = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"});
        for (field, value) in options.as_object().into_iter().flatten() {
            edit(&mut body, &format!("/{field}"), value.clone());
        }
        self.send("DELETE", &format!("{path}?{}", dry_run(stay)), "application/json", &body).await
    }

    /// What the server thinks that this user may do. `resource` is `resource.group/subresource` as kubectl writes it, with the
    /// namespace before it if there is one: `lockkeeper-system:leases.coordination.k8s.io`.
    pub async fn may(&self, verb: &str, resource: &str) -> bool {
        let (namespace, resource) = resource.split_once(':').unwrap_or(("", resource));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
            }},
        });
        let answer =
            self.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json", &review).await;
        answer.expect("a review of one's own access").pointer("/status/allowed") == Some(&json!(true))
    }

    async fn send(&self, method: &str, uri: &str, content_type: &str, body: &Value) -> Result<Value, Refused> {
        let mut request = http::Request::builder().method(method).uri(uri).header("content-type", content_type);
        if let Some(user) = self.user {
            request = request.header("impersonate-user", user).header("impersonate-group", "system:authenticated");
        }
        let request = request.body(serde_json::to_vec(body).expect("JSON")).expect("request");
        match self.client.request(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(Refused { code: status.code, message: status.message }),
            Err(error) => panic!("{method} {uri}: {error}"),
        }
    }
}

fn dry_run(stay: Stay) -> &'static str {
    if stay == Stay::No { "&dryRun=All" } else { "" }
}

/// The path of an object, of the kinds that these tests use.
pub fn path(object: &Value) -> String {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (word("/apiVersion"), word("/kind"));
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let namespace = match word("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{api_version}{namespace}/{}s/{}", kind.to_lowercase(), word("/metadata/name"))
}

/// Sets what a JSON pointer names, making objects on the way; null removes it.
pub fn edit(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let mut words = pointer.trim_start_matches('/').split('/').map(|word| word.replace("~1", "/").replace("~0", "~")).peekable();
    while let Some(word) = words.next() {
        if at.is_null() {
            *at = json!({});
        }
        let fields = at.as_object_mut().unwrap_or_else(|| panic!("{pointer}: no object before {word}"));
        if words.peek().is_none() {
            if value.is_null() {
                fields.remove(&word);
            } else {
                fields.insert(word, value);
            }
            return;
        }
        at = fields.entry(word).or_insert(Value::Null);
    }
}

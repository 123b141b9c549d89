//! What a request is about, read from its method and path alone: the gate, the log and the counters all judge by this one reading.

use http::{Method, Uri};

/// The verb that RBAC knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Not a Kubernetes verb: `HEAD`, `OPTIONS` and the like.
    Other,
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
            Self::Other => "other",
        }
    }

    pub fn changes_something(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request's target: `/api/v1/namespaces/ns/pods/p/eviction`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub verb: Verb,
    /// Empty: the core group, or no API path at all.
    pub group: String,
    /// Plural; for other paths the path itself (`/version`).
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    /// `dryRun=All`: the server stores nothing.
    pub dry_run: bool,
}

impl Target {
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |wanted: &[&str]| query.split('&').any(|pair| wanted.contains(&pair));
        let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
        let group = match segments.next() {
            Some("api") => segments.next().map(|_version| String::new()),
            Some("apis") => segments.next().map(str::to_owned).and_then(|group| segments.next().map(|_version| group)),
            _ => None,
        };
        let rest: Vec<&str> = segments.collect();
        let (group, namespace, rest) = match (group, rest.as_slice()) {
            // `namespaces/ns` and its own subresources are the Namespace itself.
            (Some(group), ["namespaces", namespace, tail @ ..])
                if !tail.is_empty() && !matches!(tail, ["status" | "finalize"]) =>
            {
                (group, (*namespace).to_owned(), tail.to_vec())
            }
            (Some(group), tail) if !tail.is_empty() => (group, String::new(), tail.to_vec()),
            _ => (String::new(), String::new(), vec![uri.path()]),
        };
        let mut rest = rest.into_iter().map(str::to_owned);
        let resource = rest.next().unwrap_or_default();
        let name = rest.next().unwrap_or_default();
        let subresource = rest.next().unwrap_or_default();
        let verb = match *method {
            Method::GET if has(&["watch=true", "watch=1"]) => Verb::Watch,
            Method::GET if name.is_empty() && !resource.starts_with('/') => Verb::List,
            Method::GET => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if name.is_empty() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => Verb::Other,
        };
        Self { verb, group, resource, namespace, name, subresource, dry_run: has(&["dryRun=All"]) }
    }

    /// Bodies of such requests have no end: they are not collected, and only their headers have a time limit.
    pub fn is_stream(&self) -> bool {
        self.verb == Verb::Watch
            || (self.resource == "pods" && matches!(self.subresource.as_str(), "log" | "exec" | "attach" | "portforward"))
    }

    /// `SelfSubjectAccessReview` and its kin: created, but nothing is stored.
    pub fn is_self_review(&self) -> bool {
        self.verb == Verb::Create
            && matches!(
                (self.group.as_str(), self.resource.as_str()),
                ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                    | ("authentication.k8s.io", "selfsubjectreviews")
            )
    }

    /// `pods`, `pods/eviction`, `nodehandoffs.lockkeeper.dev/status`.
    pub fn resource_word(&self) -> String {
        let mut word = self.resource.clone();
        if !self.group.is_empty() {
            word = format!("{word}.{}", self.group);
        }
        if self.subresource.is_empty() { word } else { format!("{word}/{}", self.subresource) }
    }

    /// `pod ns/name (eviction)`, `node n1`.
    pub fn object_word(&self) -> String {
        let kind = super::kubectl::singular(&self.resource);
        let mut word = match (self.namespace.is_empty(), self.name.is_empty()) {
            (_, true) if self.namespace.is_empty() => kind.to_owned(),
            (_, true) => format!("{kind} in {}", self.namespace),
            (true, false) => format!("{kind} {}", self.name),
            (false, false) => format!("{kind} {}/{}", self.namespace, self.name),
        };
        if !self.subresource.is_empty() {
            word = format!("{word} ({})", self.subresource);
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, uri: &str) -> Target {
        Target::of(&method, &uri.parse().unwrap())
    }

    #[test]
    fn reads_paths_of_every_shape() {
        let eviction = of(Method::POST, "/api/v1/namespaces/ns/pods/p/eviction");
        assert_eq!(
            (eviction.verb, eviction.resource_word().as_str(), eviction.object_word().as_str()),
            (Verb::Create, "pods/eviction", "pod ns/p (eviction)")
        );
        let list = of(Method::GET, "/api/v1/pods?limit=500");
        assert_eq!((list.verb, list.resource.as_str(), list.name.as_str()), (Verb::List, "pods", ""));
        assert_eq!(of(Method::GET, "/api/v1/pods?watch=true&x=1").verb, Verb::Watch);
        let namespace = of(Method::GET, "/api/v1/namespaces/kube-system");
        assert_eq!(
            (namespace.verb, namespace.resource.as_str(), namespace.name.as_str()),
            (Verb::Get, "namespaces", "kube-system")
        );
        let status = of(Method::PUT, "/apis/lockkeeper.dev/v1alpha1/namespaces/ns/nodehandoffs/gpu.n1/status");
        assert_eq!(status.resource_word(), "nodehandoffs.lockkeeper.dev/status");
        assert_eq!(of(Method::GET, "/version").verb, Verb::Get);
        assert_eq!(of(Method::DELETE, "/api/v1/namespaces/ns/pods").verb, Verb::DeleteCollection);
        assert!(of(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews").is_self_review());
        assert!(of(Method::PATCH, "/api/v1/nodes/n1?dryRun=All").dry_run);
    }
}

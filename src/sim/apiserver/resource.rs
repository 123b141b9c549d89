//! The table of served resources: names, scope, subresources and the per-kind switches of the generic handler.
//! Owns what differs between kinds as data; behaviour is in the handler's files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::crd::CustomSchema;

/// One served resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Index of the table that stores it; versions of one kind share it.
    pub table: usize,
    pub has: Switches,
    /// Schema, rules and columns of a custom resource.
    pub custom: Option<Arc<CustomSchema>>,
}

/// What the generic handler does for a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    pub status: bool,
    pub scale: bool,
    /// `metadata.generation` moves with the spec.
    pub generation: bool,
    /// DELETE answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// PUT of an absent object creates it.
    pub create_on_update: bool,
    /// PUT without resourceVersion is accepted.
    pub unconditional_update: bool,
    /// Only POST exists (reviews).
    pub create_only: bool,
    /// A create keeps the sent status (Node).
    pub status_on_create: bool,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
    /// `daemonsets.apps`, `pods`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
    /// `DaemonSet.apps`, `Pod`.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
    /// The Go name of the kind inside of a server: `core.Pod`.
    pub fn internal_kind(&self) -> String {
        let group = self.group.split('.').next().unwrap_or_default();
        format!("{}.{}", if group.is_empty() { "core" } else { group }, self.kind)
    }
    /// Where a real server keeps an object in etcd; some messages show it.
    pub fn storage_path(&self, namespace: &str, name: &str) -> String {
        let folder = match (self.group.as_str(), self.plural.as_str()) {
            ("", "nodes") => "minions".to_owned(),
            ("", "services") => "services/specs".to_owned(),
            (_, "leases") => "leases".to_owned(),
            ("apiextensions.k8s.io", _) => format!("{}/{}", self.group, self.plural),
            _ if self.is_custom() => format!("{}/{}", self.group, self.plural),
            _ => self.plural.clone(),
        };
        let scope = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        format!("/registry/{folder}/{scope}{name}")
    }
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
    pub fn is_pod(&self) -> bool {
        self.is("", "pods")
    }
    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }
}

const S: u16 = 1; // status subresource
const G: u16 = 2; // generation
const O: u16 = 4; // delete returns the object
const U: u16 = 8; // unconditional update
const C: u16 = 16; // create on update
const R: u16 = 32; // review: create only
const K: u16 = 64; // status kept on create
const X: u16 = 128; // scale
const CLUSTER: u16 = 256;

/// (group, version, plural, singular, kind, short names, categories, flags)
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str, u16);

#[rustfmt::skip]
const BUILTIN: &[Row] = &[
    ("", "v1", "namespaces", "namespace", "Namespace", "ns", "", S | O | U | CLUSTER),
    ("", "v1", "nodes", "node", "Node", "no", "", S | U | K | CLUSTER),
    ("", "v1", "pods", "pod", "Pod", "po", "all", S | G | O | U),
    ("", "v1", "events", "event", "Event", "ev", "", U | C),
    ("", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", "pvc", "", S | O | U),
    ("", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", "pv", "", S | O | U | CLUSTER),
    ("", "v1", "configmaps", "configmap", "ConfigMap", "cm", "", U),
    ("", "v1", "secrets", "secret", "Secret", "", "", U),
    ("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", "sa", "", O | U),
    ("", "v1", "services", "service", "Service", "svc", "all", S | U),
    ("events.k8s.io", "v1", "events", "event", "Event", "ev", "", U | C),
    ("coordination.k8s.io", "v1", "leases", "lease", "Lease", "", "", C),
    ("apps", "v1", "daemonsets", "daemonset", "DaemonSet", "ds", "all", S | G | U),
    ("apps", "v1", "controllerrevisions", "controllerrevision", "ControllerRevision", "", "", U),
    ("apps", "v1", "deployments", "deployment", "Deployment", "deploy", "all", S | G | U | X),
    ("apps", "v1", "replicasets", "replicaset", "ReplicaSet", "rs", "all", S | G | U | X),
    ("apps", "v1", "statefulsets", "statefulset", "StatefulSet", "sts", "all", S | G | U | X),
    ("batch", "v1", "jobs", "job", "Job", "", "all", S | G | U),
    ("policy", "v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", "pdb", "", S | G),
    ("storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass", "sc", "", O | U | CLUSTER),
    ("storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver", "", "", O | CLUSTER),
    ("storage.k8s.io", "v1", "csinodes", "csinode", "CSINode", "", "", O | CLUSTER),
    ("storage.k8s.io", "v1", "volumeattachments", "volumeattachment", "VolumeAttachment", "", "", S | O | CLUSTER),
    ("resource.k8s.io", "v1", "resourceclaims", "resourceclaim", "ResourceClaim", "", "", S | O | U),
    ("resource.k8s.io", "v1", "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate", "", "", O | U),
    ("resource.k8s.io", "v1", "resourceslices", "resourceslice", "ResourceSlice", "", "", G | O | U | CLUSTER),
    ("resource.k8s.io", "v1", "deviceclasses", "deviceclass", "DeviceClass", "", "", G | O | U | CLUSTER),
    ("scheduling.k8s.io", "v1", "priorityclasses", "priorityclass", "PriorityClass", "pc", "", G | U | CLUSTER),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "clusterrole", "ClusterRole", "", "", U | C | CLUSTER),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", "", "", U | C | CLUSTER),
    ("rbac.authorization.k8s.io", "v1", "roles", "role", "Role", "", "", U | C),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "rolebinding", "RoleBinding", "", "", U | C),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy", "", "api-extensions", S | G | CLUSTER),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding", "", "api-extensions", G | CLUSTER),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition", "crd,crds", "api-extensions", S | G | CLUSTER),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview", "", "", R | CLUSTER),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview", "", "", R | CLUSTER),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview", "", "", R | CLUSTER),
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", "", "", R | CLUSTER),
];

/// All served resources, found by group, version and plural name.
#[derive(Debug, Default)]
pub struct Registry {
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
    /// One entry per table, in the order of registration.
    pub tables: Vec<Arc<Resource>>,
}

fn words(text: &str) -> Vec<String> {
    text.split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

impl Registry {
    pub fn builtin() -> Self {
        let mut out = Self::default();
        for &(group, version, plural, singular, kind, short, categories, flags) in BUILTIN {
            let on = |bit: u16| flags & bit != 0;
            // Both event groups show the same objects.
            let table = (group == "events.k8s.io")
                .then(|| out.find("", "v1", "events").map(|r| r.table))
                .flatten()
                .unwrap_or(out.tables.len());
            out.add(Resource {
                group: group.into(),
                version: version.into(),
                plural: plural.into(),
                singular: singular.into(),
                kind: kind.into(),
                short_names: words(short),
                categories: words(categories),
                namespaced: !on(CLUSTER),
                table,
                has: Switches {
                    status: on(S),
                    scale: on(X),
                    generation: on(G),
                    delete_returns_object: on(O),
                    create_on_update: on(C),
                    unconditional_update: on(U),
                    create_only: on(R),
                    status_on_create: on(K),
                },
                custom: None,
            });
        }
        out
    }

    /// Adds or replaces one version of a resource.
    pub fn add(&mut self, resource: Resource) -> Arc<Resource> {
        let resource = Arc::new(resource);
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        if resource.table == self.tables.len() {
            self.tables.push(resource.clone());
        } else if resource.is_custom()
            && let Some(slot) = self.tables.get_mut(resource.table)
        {
            *slot = resource.clone();
        }
        self.by_path.insert(key, resource.clone());
        resource
    }

    /// Stops serving all versions of a resource; its table stays, empty.
    pub fn remove(&mut self, group: &str, plural: &str) {
        self.by_path.retain(|(g, _, p), _| !(g == group && p == plural));
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Any served version of `plural.group`, or of a plural name alone (the first group that has it).
    pub fn find_any(&self, resource: &str) -> Option<&Arc<Resource>> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.by_path
            .values()
            .find(|r| r.plural == plural && r.group == group)
            .or_else(|| self.by_path.values().find(|r| r.plural == plural && group.is_empty()))
    }

    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_path.values().find(|r| r.kind == kind && r.api_version() == api_version)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }
}

//! The one way to write to a cluster: one method per operation, each guarded by its precondition and by the fence, none of them retried.
//! What a result means for a handoff is decided elsewhere.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::policy::v1::Eviction,
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions},
};
use serde_json::{Map, Value, json};

use super::{
    call::Call,
    decoding,
    error::{CallError, Refusal, RefusalClass},
    handle::{Cluster, WriteCap},
    kinds::served,
};
use crate::{
    api::{ComponentKey, MANAGER, NodeComponentStatus, NodeHandoffSpec, NodeHandoffStatus, ObjectKey, Uid, keys::FINALIZER},
    fleet::{
        event::{Kind, Record},
        records::Str,
    },
    handoff::action::{HandoffRef, NodeChange, NodePatch, PodRef},
};

/// The longest a fenced write may take: less than what lies between the holder's renew deadline and the lease's end for everybody else.
pub const WRITE_LIMIT: Duration = Duration::from_secs(4);

/// Whether a write may be sent now. The text says why not: the lease is lost, or its renewal is overdue.
pub type Fence = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The outcome of one write.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// Done; the object as the server returned it, unless it returns none (evictions, immediate deletes, dry runs of kinds without record).
    Applied(Option<Box<Record>>),
    /// The object is not what the decision was made on: observe and decide again.
    Conflict {
        message: String,
    },
    /// The object, or that UID of it, does not exist.
    Gone,
    AlreadyExists,
    /// The server refuses it as things stand; [`Refusal::class`] says which kind of refusal.
    Refused(Refusal),
    /// Sent, but whether it was applied is not known: observe again before anything else.
    Unknown {
        code: Option<u16>,
        message: String,
    },
    /// Not sent: read-only, or the fence is shut.
    NotSent {
        why: String,
    },
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Applied(_) => f.write_str("done"),
            Self::Conflict { message } => write!(f, "it has changed meanwhile ({message}); look again"),
            Self::Gone => f.write_str("it does not exist any more"),
            Self::AlreadyExists => f.write_str("it exists already"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unknown { message, .. } => write!(f, "whether it was done is not known ({message}); look again"),
            Self::NotSent { why } => write!(f, "not sent: {why}"),
        }
    }
}

impl Written {
    /// A stable word for metrics and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applied(_) => "Applied",
            Self::Conflict { .. } => "Conflict",
            Self::Gone => "Gone",
            Self::AlreadyExists => "AlreadyExists",
            Self::Refused(refusal) => refusal.class().word(),
            Self::Unknown { .. } => "Unknown",
            Self::NotSent { .. } => "NotSent",
        }
    }

    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied(_))
    }

    fn of(result: Result<bytes::Bytes, CallError>, kind: Option<Kind>) -> Self {
        match result {
            Ok(body) => match kind {
                None => Self::Applied(None),
                Some(kind) => match decoding::object(kind, &body) {
                    Ok(record) => Self::Applied(Some(Box::new(record))),
                    Err(bad) => {
                        Self::Unknown { code: None, message: format!("applied, but the answer does not decode: {}", bad.why) }
                    }
                },
            },
            Err(error) => Self::failed(error),
        }
    }

    pub(super) fn failed(error: CallError) -> Self {
        match error {
            CallError::ReadOnly(refused) => Self::NotSent { why: refused.to_string() },
            CallError::NotAccepted { why, .. } => Self::NotSent { why: why.to_string() },
            CallError::Refused { refusal, .. } => match refusal.class() {
                RefusalClass::AlreadyExists => Self::AlreadyExists,
                RefusalClass::Conflict => Self::Conflict { message: refusal.message },
                RefusalClass::NotFound => Self::Gone,
                RefusalClass::ServerError => Self::Unknown { code: Some(refusal.code), message: refusal.to_string() },
                _ => Self::Refused(*refusal),
            },
            other => Self::Unknown { code: None, message: other.to_string() },
        }
    }
}

/// Writes to one cluster. Needs a [`WriteCap`], which read-only mode does not give out. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    cluster: Cluster,
    fence: Fence,
    why: Arc<str>,
    dry_run: bool,
}

impl Writer {
    /// Every write of it asks the fence first. The engine's fence is `Keeper::fence`; [`open`] is for what needs no lease: specs of
    /// NodeHandoffs and NodeComponents, which any number of people may write.
    pub fn new(cluster: &Cluster, _cap: WriteCap, fence: Fence) -> Self {
        Self { cluster: cluster.clone(), fence, why: "".into(), dry_run: false }
    }

    /// The same, with a sentence for the log of writes.
    pub fn because(&self, why: &str) -> Self {
        Self { why: why.into(), ..self.clone() }
    }

    /// The same, but the server stores nothing (`dryRun=All`): it validates, admits and answers.
    pub fn dry_run(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// One merge patch with the node's UID and resourceVersion: nothing of it is applied unless the node is the one that was seen.
    pub async fn patch_node(&self, patch: &NodePatch) -> Written {
        let uri = served(Kind::Node).object("", patch.node.as_str());
        self.send(Call::merge_patch(self.query(&uri), &node_patch_body(patch)), Some(Kind::Node)).await
    }

    /// A `policy/v1` eviction of the pod in the state in which it was seen: a pod that changed since is [`Written::Conflict`], another
    /// one under its name [`Written::Gone`]. The server spends the budget before it looks at either, so read the pod first.
    ///
    /// `Api::evict` is not used: it writes `delete_options`, which servers ignore, so that neither UID nor grace period would count.
    pub async fn evict(&self, pod: &PodRef, grace_seconds: Option<u32>) -> Written {
        let uri = format!("{}/eviction", served(Kind::Pod).object(&pod.key.namespace, &pod.key.name));
        let eviction = eviction(pod, grace_seconds, self.dry_run);
        match serde_json::to_value(&eviction) {
            Ok(body) => pinned(self.send(Call::post(self.query(&uri), &body), None).await),
            Err(error) => Written::NotSent { why: error.to_string() },
        }
    }

    /// DELETE of the pod in the state in which it was seen, with its own grace period.
    pub async fn delete_pod(&self, pod: &PodRef) -> Written {
        self.delete(Kind::Pod, &pod.key, pinned_to(pod), None).await
    }

    /// DELETE with UID, background propagation.
    pub async fn delete_daemon_set(&self, key: &ObjectKey, uid: &Uid) -> Written {
        self.delete(Kind::DaemonSet, key, uid_only(uid), Some("Background")).await
    }

    /// Deleting a handoff is asking for its abort; with our finalizer on it, it stays until the node is restored.
    pub async fn delete_handoff(&self, key: &ObjectKey, uid: &Uid) -> Written {
        self.delete(Kind::Handoff, key, uid_only(uid), None).await
    }

    /// POST of a complete pod. A taken name is [`Written::AlreadyExists`], a missing namespace [`Written::Gone`].
    pub async fn create_pod(&self, body: &Value) -> Written {
        self.create(Kind::Pod, body).await
    }

    /// POST of a complete DaemonSet; as a dry run it validates a component's templates.
    pub async fn create_daemon_set(&self, body: &Value) -> Written {
        self.create(Kind::DaemonSet, body).await
    }

    pub async fn create_handoff(&self, key: &ObjectKey, spec: &NodeHandoffSpec) -> Written {
        let mut body = typed("NodeHandoff", key);
        body["spec"] = json!(spec);
        self.create(Kind::Handoff, &body).await
    }

    /// POST of a NodeComponent made by hand or adopted.
    pub async fn create_component(&self, body: &Value) -> Written {
        self.create(Kind::Component, body).await
    }

    /// A merge patch of the whole spec with UID and resourceVersion; fields left out of `spec` are taken off the object too.
    pub async fn patch_handoff_spec(&self, of: &HandoffRef, spec: &NodeHandoffSpec) -> Written {
        let mut fields = json!({"version": null, "position": null, "pauseAfter": null, "overrides": null, "reason": null});
        if let (Some(fields), Value::Object(new)) = (fields.as_object_mut(), json!(spec)) {
            fields.extend(new);
        }
        let body = json!({"metadata": {"uid": of.uid, "resourceVersion": of.resource_version}, "spec": fields});
        self.send(Call::merge_patch(self.query(&handoff(&of.key)), &body), Some(Kind::Handoff)).await
    }

    /// The finalizer that keeps a handoff until its node is restored. Others' finalizers stay: `present` are those seen on the object.
    pub async fn set_handoff_finalizer(&self, of: &HandoffRef, present: &[Str], wanted: bool) -> Written {
        let body = finalizers(&of.uid, &of.resource_version, present, wanted);
        self.send(Call::merge_patch(self.query(&handoff(&of.key)), &body), Some(Kind::Handoff)).await
    }

    /// PUT of the status, with UID and resourceVersion: what the new status leaves out is gone.
    pub async fn put_handoff_status(&self, of: &HandoffRef, status: &NodeHandoffStatus) -> Written {
        let mut body = typed("NodeHandoff", &of.key);
        body["metadata"]["uid"] = json!(of.uid);
        body["metadata"]["resourceVersion"] = json!(of.resource_version);
        body["status"] = json!(status);
        self.send(Call::put(self.query(&format!("{}/status", handoff(&of.key))), &body), Some(Kind::Handoff)).await
    }

    pub async fn put_component_status(
        &self,
        key: &ComponentKey,
        uid: &Uid,
        resource_version: &str,
        status: &NodeComponentStatus,
    ) -> Written {
        let mut body = typed("NodeComponent", key);
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(resource_version);
        body["status"] = json!(status);
        self.send(Call::put(self.query(&format!("{}/status", component(key))), &body), Some(Kind::Component)).await
    }

    pub async fn set_component_finalizer(
        &self,
        key: &ComponentKey,
        uid: &Uid,
        resource_version: &str,
        present: &[Str],
        wanted: bool,
    ) -> Written {
        let body = finalizers(uid, resource_version, present, wanted);
        self.send(Call::merge_patch(self.query(&component(key)), &body), Some(Kind::Component)).await
    }

    /// A merge patch of a component's spec (`{"rollout": {"paused": true}}`), with UID and resourceVersion.
    pub async fn patch_component_spec(&self, key: &ComponentKey, uid: &Uid, resource_version: &str, spec: &Value) -> Written {
        let body = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}, "spec": spec});
        self.send(Call::merge_patch(self.query(&component(key)), &body), Some(Kind::Component)).await
    }

    async fn create(&self, kind: Kind, body: &Value) -> Written {
        let namespace = body.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let uri = served(kind).collection(namespace);
        self.send(Call::post(self.query(&uri), body), Some(kind)).await
    }

    async fn delete(&self, kind: Kind, key: &ObjectKey, preconditions: Preconditions, propagation: Option<&str>) -> Written {
        let options = DeleteOptions {
            preconditions: Some(preconditions),
            propagation_policy: propagation.map(str::to_owned),
            ..DeleteOptions::default()
        };
        let uri = served(kind).object(&key.namespace, &key.name);
        match serde_json::to_value(&options) {
            Ok(body) => pinned(self.send(Call::delete(self.query(&uri), &body), None).await),
            Err(error) => Written::NotSent { why: error.to_string() },
        }
    }

    async fn send(&self, call: Call, kind: Option<Kind>) -> Written {
        if let Err(why) = (self.fence)() {
            return Written::NotSent { why };
        }
        Written::of(self.cluster.call(call.limit(WRITE_LIMIT).why(&self.why)).await, kind)
    }

    fn query(&self, uri: &str) -> String {
        format!("{uri}?fieldManager={MANAGER}{}", if self.dry_run { "&dryRun=All" } else { "" })
    }
}

/// Another object has the name now: the one whose UID was given is gone.
fn pinned(written: Written) -> Written {
    match written {
        // Two checks in the server say it, each in its own words.
        Written::Conflict { message }
            if message.contains("UID in the precondition") || message.contains("UID in precondition") =>
        {
            Written::Gone
        }
        other => other,
    }
}

/// The fence of writes that need no lease.
pub fn open() -> Fence {
    Arc::new(|| Ok(()))
}

fn handoff(key: &ObjectKey) -> String {
    served(Kind::Handoff).object(&key.namespace, &key.name)
}

fn component(key: &ObjectKey) -> String {
    served(Kind::Component).object(&key.namespace, &key.name)
}

fn typed(kind: &str, key: &ObjectKey) -> Value {
    json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": kind, "metadata": {"namespace": key.namespace, "name": key.name}})
}

fn finalizers(uid: &Uid, resource_version: &str, present: &[Str], wanted: bool) -> Value {
    let mut finalizers: Vec<&str> = present.iter().map(|name| &**name).filter(|name| *name != FINALIZER).collect();
    if wanted {
        finalizers.push(FINALIZER);
    }
    json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}})
}

fn uid_only(uid: &Uid) -> Preconditions {
    Preconditions { uid: Some(uid.to_string()), resource_version: None }
}

fn pinned_to(pod: &PodRef) -> Preconditions {
    Preconditions { uid: Some(pod.uid.to_string()), resource_version: Some(pod.resource_version.to_string()) }
}

fn eviction(pod: &PodRef, grace_seconds: Option<u32>, dry_run: bool) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            namespace: Some(pod.key.namespace.to_string()),
            name: Some(pod.key.name.to_string()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: grace_seconds.map(i64::from),
            preconditions: Some(pinned_to(pod)),
            dry_run: dry_run.then(|| vec!["All".to_owned()]),
            ..DeleteOptions::default()
        }),
    }
}

/// Nothing but what is to change, under the UID and resourceVersion of the node that was seen.
fn node_patch_body(patch: &NodePatch) -> Value {
    let (mut labels, mut annotations, mut spec) = (Map::new(), Map::new(), Map::new());
    for change in &patch.changes {
        match change {
            NodeChange::Label { key, value } => labels.insert(key.clone(), json!(value)),
            NodeChange::Annotation { key, value } => annotations.insert(key.clone(), json!(value)),
            // Absent, not false, as `kubectl uncordon` leaves it: nobody owns the field then.
            NodeChange::Unschedulable(closed) => {
                spec.insert("unschedulable".to_owned(), if *closed { json!(true) } else { Value::Null })
            }
        };
    }
    let mut metadata = json!({"uid": patch.uid, "resourceVersion": patch.resource_version});
    for (part, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[part] = Value::Object(map);
        }
    }
    let mut body = json!({ "metadata": metadata });
    if !spec.is_empty() {
        body["spec"] = Value::Object(spec);
    }
    body
}

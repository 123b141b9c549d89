//! Slim records: the fields of each kind that the actors use, and nothing else.

use super::informer::Kind;
use super::quantity::Amounts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub type Map = BTreeMap<String, String>;

/// A kind of record: where it lives and how it is identified.
pub trait Record: serde::de::DeserializeOwned + Clone + Send + Sync + 'static {
    const KIND: Kind;
    fn meta(&self) -> &Meta;
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: Option<String>,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub labels: Map,
    pub annotations: Map,
    pub owner_references: Vec<Owner>,
    pub finalizers: Vec<String>,
}

impl Meta {
    /// `namespace/name`, or `name` of a cluster-scoped object.
    #[must_use]
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    #[must_use]
    pub fn ns(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that controls this object.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

macro_rules! record {
    ($name:ident, $api:literal, $plural:literal, $namespaced:literal) => {
        impl Record for $name {
            const KIND: Kind = Kind { api_version: $api, kind: stringify!($name), plural: $plural, namespaced: $namespaced };
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    };
}

/// Metadata alone, of whatever kind a store is made for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Bare {
    pub metadata: Meta,
}
record!(Bare, "v1", "", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<String>,
}

/// The status of the condition of this type.
#[must_use]
pub fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}
record!(Pod, "v1", "pods", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    pub node_selector: Map,
    pub affinity: Affinity,
    pub tolerations: Vec<Toleration>,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub restart_policy: String,
    pub termination_grace_period_seconds: Option<i64>,
    pub resource_claims: Vec<PodClaim>,
    pub volumes: Vec<Value>,
    pub host_network: bool,
    pub scheduler_name: String,
    pub scheduling_gates: Vec<Value>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    pub node_affinity: NodeAffinity,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeTerm>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    pub match_expressions: Vec<Requirement>,
    pub match_fields: Vec<Requirement>,
}

/// `key operator values`, of node selectors and label selectors alike.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Map,
    pub match_expressions: Vec<Requirement>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: Option<String>,
    pub resources: Resources,
    pub volume_mounts: Vec<MountName>,
    pub volume_devices: Vec<MountName>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct MountName {
    pub name: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Resources {
    pub requests: Amounts,
    pub limits: Amounts,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    pub name: String,
    pub resource_claim_name: Option<String>,
    pub resource_claim_template_name: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
    pub nominated_node_name: String,
    pub start_time: Option<String>,
    pub container_statuses: Vec<ContainerStatus>,
    pub resource_claim_statuses: Vec<ClaimStatus>,
    pub extended_resource_claim_status: Option<ExtendedClaimStatus>,
}

/// The claim that stands for extended resources which a DRA driver serves.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedClaimStatus {
    pub resource_claim_name: String,
    pub request_mappings: Vec<RequestMapping>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestMapping {
    pub resource_name: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    pub restart_count: i64,
    pub ready: bool,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    pub name: String,
    pub resource_claim_name: Option<String>,
}

impl Pod {
    /// Succeeded or Failed.
    #[must_use]
    pub fn terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    #[must_use]
    pub fn ready(&self) -> bool {
        condition(&self.status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    }

    /// The node that this pod is on, or is made for (DaemonSet pods name it in `matchFields`).
    #[must_use]
    pub fn target_node(&self) -> Option<&str> {
        if !self.spec.node_name.is_empty() {
            return Some(&self.spec.node_name);
        }
        let terms = self.spec.affinity.node_affinity.required.as_ref()?;
        let fields = terms.node_selector_terms.iter().flat_map(|term| &term.match_fields);
        fields
            .filter(|field| field.key == "metadata.name" && field.operator == "In")
            .find_map(|field| field.values.first())
            .map(String::as_str)
    }

    /// Effective request of each resource: the larger of all containers together and of each init container. What a claim stands for is no
    /// request of a device plugin's resource any more.
    #[must_use]
    pub fn requests(&self) -> Amounts {
        let mut sum = Amounts::default();
        for container in &self.spec.containers {
            sum.add(&container.requests());
        }
        let mut sidecars = Amounts::default();
        let mut peak = Amounts::default();
        for init in &self.spec.init_containers {
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&init.requests());
                peak.max(&sidecars);
            } else {
                let mut with = init.requests();
                with.add(&sidecars);
                peak.max(&with);
            }
        }
        sum.add(&sidecars);
        sum.max(&peak);
        for mapping in self.status.extended_resource_claim_status.iter().flat_map(|status| &status.request_mappings) {
            sum.set(&mapping.resource_name, 0);
        }
        sum
    }
}

impl Container {
    /// Requests, with limits as the default (extended resources are often written as limits only).
    #[must_use]
    pub fn requests(&self) -> Amounts {
        let mut all = self.resources.limits.clone();
        for (name, amount) in self.resources.requests.iter() {
            all.set(name, amount);
        }
        all
    }
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Node {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}
record!(Node, "v1", "nodes", false);

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub conditions: Vec<Condition>,
    pub capacity: Amounts,
    pub allocatable: Amounts,
    pub volumes_in_use: Vec<String>,
    pub node_info: NodeInfo,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    #[serde(rename = "bootID")]
    pub boot_id: String,
    pub kernel_version: String,
}

impl Node {
    /// Status of the Ready condition: `True`, `False`, `Unknown` or empty.
    #[must_use]
    pub fn ready(&self) -> &str {
        condition(&self.status.conditions, "Ready").map_or("", |ready| ready.status.as_str())
    }
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Lease {
    pub metadata: Meta,
    pub spec: LeaseSpec,
}
record!(Lease, "coordination.k8s.io/v1", "leases", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub renew_time: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Namespace {
    pub metadata: Meta,
    pub status: Phase,
    pub spec: NamespaceSpec,
}
record!(Namespace, "v1", "namespaces", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NamespaceSpec {
    pub finalizers: Vec<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Phase {
    pub phase: String,
}

/// What the controllers with pod templates have in common.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    pub replicas: Option<i64>,
    pub selector: LabelSelector,
    pub template: Value,
    pub update_strategy: Strategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<usize>,
    pub service_name: String,
    pub pod_management_policy: String,
    pub volume_claim_templates: Vec<Value>,
    pub completions: Option<i64>,
    pub parallelism: Option<i64>,
    pub backoff_limit: Option<i64>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: RollingUpdate,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    pub max_unavailable: Option<Value>,
    pub max_surge: Option<Value>,
}

macro_rules! workload {
    ($name:ident, $api:literal, $plural:literal) => {
        #[derive(Deserialize, Clone, Debug, Default)]
        #[serde(default)]
        pub struct $name {
            pub metadata: Meta,
            pub spec: WorkloadSpec,
            pub status: Value,
        }
        record!($name, $api, $plural, true);
    };
}
workload!(DaemonSet, "apps/v1", "daemonsets");
workload!(ReplicaSet, "apps/v1", "replicasets");
workload!(Deployment, "apps/v1", "deployments");
workload!(StatefulSet, "apps/v1", "statefulsets");
workload!(Job, "batch/v1", "jobs");

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ControllerRevision {
    pub metadata: Meta,
    pub revision: i64,
    pub data: Value,
}
record!(ControllerRevision, "apps/v1", "controllerrevisions", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PodDisruptionBudget {
    pub metadata: Meta,
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}
record!(PodDisruptionBudget, "policy/v1", "poddisruptionbudgets", true);

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    pub min_available: Option<Value>,
    pub max_unavailable: Option<Value>,
    pub selector: Option<LabelSelector>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    pub disruptions_allowed: i64,
    pub current_healthy: i64,
    pub desired_healthy: i64,
    pub expected_pods: i64,
    pub disrupted_pods: Map,
    pub conditions: Vec<Condition>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ResourceClaim {
    pub metadata: Meta,
    pub spec: Value,
    pub status: ResourceClaimStatus,
}
record!(ResourceClaim, "resource.k8s.io/v1", "resourceclaims", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    pub allocation: Option<Allocation>,
    pub reserved_for: Vec<Consumer>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    pub devices: AllocatedDevices,
    pub node_selector: Option<NodeSelector>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct AllocatedDevices {
    pub results: Vec<DeviceResult>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    pub request: String,
    pub driver: String,
    pub pool: String,
    pub device: String,
    /// Looks at the device beside its owner.
    pub admin_access: bool,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    pub resource: String,
    pub name: String,
    pub uid: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    pub metadata: Meta,
    pub spec: Value,
}
record!(ResourceClaimTemplate, "resource.k8s.io/v1", "resourceclaimtemplates", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct DeviceClass {
    pub metadata: Meta,
    pub spec: Value,
}
record!(DeviceClass, "resource.k8s.io/v1", "deviceclasses", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ResourceSlice {
    pub metadata: Meta,
    pub spec: SliceSpec,
}
record!(ResourceSlice, "resource.k8s.io/v1", "resourceslices", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    pub driver: String,
    pub node_name: Option<String>,
    pub all_nodes: bool,
    pub node_selector: Option<NodeSelector>,
    pub pool: PoolName,
    pub devices: Vec<MountName>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PoolName {
    pub name: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    pub metadata: Meta,
    pub spec: ClaimVolume,
}
record!(PersistentVolumeClaim, "v1", "persistentvolumeclaims", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    pub volume_name: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PersistentVolume {
    pub metadata: Meta,
    pub spec: Value,
}
record!(PersistentVolume, "v1", "persistentvolumes", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct CSINode {
    pub metadata: Meta,
    pub spec: Value,
}
record!(CSINode, "storage.k8s.io/v1", "csinodes", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct CSIDriver {
    pub metadata: Meta,
    pub spec: Value,
}
record!(CSIDriver, "storage.k8s.io/v1", "csidrivers", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct VolumeAttachment {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
}
record!(VolumeAttachment, "storage.k8s.io/v1", "volumeattachments", false);

//! NodeComponent: what is coupled to a node, which version nodes shall run, and the policy of its handoffs.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Phase, duration::Duration};

/// A component coupled to a node's kernel or hardware, and the policy by which nodes are handed from one version of it to the next.
///
/// Creating one is root on the matched nodes: it holds pod templates.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "lockkeeper.dev",
    version = "v1alpha1",
    kind = "NodeComponent",
    namespaced,
    status = "NodeComponentStatus",
    shortname = "nc",
    category = "lockkeeper",
    derive = "PartialEq",
    doc = "A component coupled to a node's kernel or hardware, and the policy by which nodes are handed from one version of it to the next.",
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.rollout.mode"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.total"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.nodes.current"),
    printcolumn(name = "Queued", type_ = "integer", json_path = ".status.nodes.queued"),
    printcolumn(name = "In progress", type_ = "integer", json_path = ".status.nodes.inProgress"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.nodes.blocked"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.nodes.failed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Driver", type_ = "string", json_path = ".spec.csiNodePlugin.driver", priority = 1),
    printcolumn(name = "KMM module", type_ = "string", json_path = ".spec.kernelModule.kmmModule.name", priority = 1),
    validation = Rule::new("self.metadata.name.size() <= 52").message("a component's name is at most 52 characters long: it is part of label keys")
)]
#[x_kube(
    validation = Rule::new("has(self.kernelModule) != has(self.csiNodePlugin)").message("a component is exactly one of kernelModule and csiNodePlugin"),
    validation = Rule::new("has(self.kernelModule) || !has(self.version)").message("csiNodePlugin takes no version: what its nodes shall run is the current revision of its DaemonSet").field_path(".version"),
    validation = Rule::new("!has(self.kernelModule) || !has(self.kernelModule.daemonSets) || has(self.version)").message("kernelModule.daemonSets needs a version").field_path(".version"),
    validation = Rule::new("!has(self.kernelModule) || !has(self.kernelModule.kmmModule) || !has(self.version)").message("kernelModule.kmmModule takes no version: what its nodes shall run is the version in the Module").field_path(".version"),
    validation = Rule::new("has(self.kernelModule) == has(oldSelf.kernelModule) && (!has(self.kernelModule) || !has(oldSelf.kernelModule) || has(self.kernelModule.kmmModule) == has(oldSelf.kernelModule.kmmModule))").message("a component never becomes one of another kind: make another one"),
    validation = Rule::new("!has(self.kernelModule) || !has(oldSelf.kernelModule) || !has(self.version) || !has(oldSelf.version) || self.version != oldSelf.version || self.kernelModule == oldSelf.kernelModule").message("what a version contains never changes: give the new content a new version").field_path(".kernelModule"),
    validation = Rule::new("!has(self.csiNodePlugin) || !has(self.drain) || !has(self.drain.cordon) || self.drain.cordon != 'Never'").message("a node whose CSI nodeplugin is replaced must be closed meanwhile: drain.cordon is not Never").field_path(".drain.cordon")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeComponentSpec {
    /// Of `kernelModule.daemonSets` alone: the aim of new handoffs, a legal, non-empty label value. What a version contains never changes: a
    /// new content needs a new version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_VALUE))]
    pub version: String,
    /// Exactly one of this and `csiNodePlugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_module: Option<KernelModule>,
    /// Exactly one of this and `kernelModule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi_node_plugin: Option<CsiNodePlugin>,
    /// Nodes that carry the component; empty means every node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub rollout: Rollout,
    #[serde(default)]
    pub drain: DrainPolicy,
    /// The longest a handoff may stay in a phase before it is Failed. Phases left out keep their default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "deadlines")]
    pub deadlines: BTreeMap<Phase, Duration>,
    #[serde(default)]
    pub verify: Verify,
}

/// What a label value may be, without the empty one.
pub(super) const LABEL_VALUE: &str = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$";
const DNS_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentKind {
    KernelModule,
    /// A kernel module that KMM loads.
    KmmModule,
    CsiNodePlugin,
}

impl NodeComponentSpec {
    pub fn kind(&self) -> ComponentKind {
        match &self.kernel_module {
            _ if self.csi_node_plugin.is_some() => ComponentKind::CsiNodePlugin,
            Some(KernelModule { kmm_module: Some(_), .. }) => ComponentKind::KmmModule,
            _ => ComponentKind::KernelModule,
        }
    }
}

/// The nodeplugin of a CSI driver: the pods of an OnDelete DaemonSet, replaced one node at a time. The aim is the DaemonSet's current revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiNodePlugin {
    /// The driver's name as it is registered: `cephfs.csi.ceph.com`.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_NAME))]
    pub driver: String,
    /// The DaemonSet of its nodeplugin, in the component's namespace. Left out: the one there that registers the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub daemon_set: Option<String>,
    /// Which pods leave a node before its plugin pod is replaced.
    #[serde(default)]
    pub drain: VolumeDrain,
    /// Of drivers that lockkeeper does not know: a volume with any of these `volumeAttributes` lives in the plugin pod and dies with it,
    /// one with none of them does not. Left out: every volume may.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub at_risk_attributes: BTreeMap<String, String>,
    /// How long to wait after the last pod has gone, where the driver needs no attachment and so nothing in the API tells when its volumes
    /// are unmounted.
    #[serde(default = "settle")]
    pub settle: Duration,
    /// Nothing is replaced: every pod with a volume of the driver leaves the node once, so that it is mounted anew (after a key rotation).
    /// Each new word is one such round; handoffs aim at it in the place of a revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_VALUE))]
    pub remount: Option<String>,
}

fn settle() -> Duration {
    Duration::from_secs(15)
}

/// Which users of a driver's volumes leave a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeDrain {
    /// Those whose mount dies with the plugin pod.
    #[default]
    AtRisk,
    /// All that use a volume of the driver.
    All,
    /// None: the operator knows that no mount dies.
    None,
}

/// A kernel module and what gives its devices to pods. Of `daemonSets` this whole block is kept, per version, on the version's loader DaemonSet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("has(self.daemonSets) != has(self.kmmModule)").message("a kernelModule is exactly one of daemonSets, its own, and kmmModule, which KMM loads"),
    validation = Rule::new("self.unloadBy == 'Reboot' || !has(self.daemonSets) || has(self.daemonSets.unload)").message("unloadBy Pod needs daemonSets.unload: loaders never unload on TERM, so nothing else would take the module out").field_path(".daemonSets.unload"),
    validation = Rule::new("!has(self.kmmModule) || self.unloadBy != 'Reboot'").message("KMM unloads by a pod as soon as the version label goes: unloadBy Reboot cannot be kept with kmmModule").field_path(".unloadBy"),
    validation = Rule::new("!has(self.kmmModule) || !has(oldSelf.kmmModule) || self.kmmModule.name == oldSelf.kmmModule.name").message("a component never follows another Module: make another one").field_path(".kmmModule.name")
)]
#[serde(rename_all = "camelCase")]
pub struct KernelModule {
    /// lockkeeper loads it. Exactly one of this and `kmmModule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_sets: Option<DaemonSets>,
    /// Kernel Module Management loads it; what nodes shall run is the version in the Module. Exactly one of this and `daemonSets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kmm_module: Option<KmmModule>,
    pub devices: Devices,
    /// How the module leaves the kernel: by the `unload` pod, or only with a reboot.
    #[serde(default)]
    pub unload_by: UnloadBy,
}

impl KernelModule {
    /// The `unload` template; KMM unloads with a pod of its own.
    pub fn unload(&self) -> Option<&serde_json::Value> {
        self.daemon_sets.as_ref().and_then(|sets| sets.unload.as_ref())
    }
}

/// A `Module` of Kernel Module Management, with a version, in the component's namespace. Of KMM's things lockkeeper writes the nodes' label
/// `kmm.node.kubernetes.io/version-module.<namespace>.<name>` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KmmModule {
    /// The Module's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSets {
    /// PodTemplateSpec of the pod that loads the module. It must never unload on TERM.
    #[schemars(schema_with = "pod_template")]
    pub loader: serde_json::Value,
    /// PodTemplateSpec of the device plugin or DRA driver. It must wait for its module in an init container.
    #[schemars(schema_with = "pod_template")]
    pub device_plugin: serde_json::Value,
    /// PodTemplateSpec of the pod that unloads the module, checks that it is out, and only then exits 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template")]
    pub unload: Option<serde_json::Value>,
}

/// How a pod is known to use the module's device: any one of these makes it a claimant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("(has(self.resourceNames) && self.resourceNames.size() > 0) || (has(self.draDrivers) && self.draDrivers.size() > 0) || has(self.podSelector)").message("devices names none: resourceNames, draDrivers or podSelector must, or no claimant is ever seen"),
    validation = Rule::new("has(self.podSelector) == (has(self.podNamespaces) && self.podNamespaces.size() > 0)").message("podSelector and podNamespaces need one another").field_path(".podNamespaces")
)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Extended resources (`vendor.com/gpu`) that the device plugin advertises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("self.all(name, name.contains('/') && !name.contains('kubernetes.io/') && !name.startsWith('requests.'))").message("resourceNames holds extended resources only: vendor.example/name, not one of Kubernetes' own"))]
    pub resource_names: Vec<String>,
    /// DRA drivers whose allocated claims hold the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63), regex(pattern = DNS_NAME)))]
    pub dra_drivers: Vec<String>,
    /// Pods that use the device without a claim. Never empty; `podNamespaces` is required beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub pod_namespaces: Vec<String>,
}

/// The label selector of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)").message("an empty podSelector means every pod"))]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)").message("In and NotIn need values, Exists and DoesNotExist take none").field_path(".values"))]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    pub operator: LabelOperator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnloadBy {
    #[default]
    Pod,
    /// File-system modules and others that never leave a running kernel. Everything drainable leaves the node first.
    Reboot,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Manual: a person makes each NodeHandoff. Auto: the engine makes one for every node that is not on `spec.version`.
    pub mode: RolloutMode,
    /// Whether nodes without any version (new ones too) get `spec.version` by themselves. They are trusted to carry no other version.
    pub install: InstallMode,
    /// How many nodes of this component may be admitted at once.
    #[schemars(range(min = 1))]
    pub max_unavailable: u32,
    /// After this many failed handoffs nothing new is admitted.
    #[schemars(range(min = 1))]
    pub max_failures: u32,
    /// How many nodes are handed over and soaked before the others are admitted.
    pub canary: u32,
    /// The time between a handoff's end and the next one's start.
    pub soak: Duration,
    /// How many versions keep their DaemonSets though no node uses them.
    pub keep_versions: u32,
    /// When handoffs may start; empty means always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub windows: Vec<Window>,
    /// True: nothing new is admitted; what runs goes on.
    pub paused: bool,
    /// What to do with a queued handoff that a PodDisruptionBudget blocks for good.
    pub blocked: BlockedPolicy,
    /// True: nodes that are NotReady or cordoned by others count against `maxUnavailable`.
    pub count_foreign: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            mode: RolloutMode::Manual,
            install: InstallMode::Auto,
            max_unavailable: 1,
            max_failures: 1,
            canary: 1,
            soak: Duration::from_secs(60),
            keep_versions: 2,
            windows: Vec::new(),
            paused: false,
            blocked: BlockedPolicy::Wait,
            count_foreign: false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutMode {
    #[default]
    Manual,
    Auto,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstallMode {
    #[default]
    Auto,
    Manual,
}

/// What the queue does with a node whose drain can never succeed as things stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BlockedPolicy {
    /// It keeps its turn; the queue waits.
    #[default]
    Wait,
    /// It stays queued and open, named as blocked; the next node is taken.
    Skip,
}

const WINDOW_START: &str = "^((Mon|Tue|Wed|Thu|Fri|Sat|Sun)([-,](Mon|Tue|Wed|Thu|Fri|Sat|Sun))* )?([01][0-9]|2[0-3]):[0-5][0-9]$";

/// A time of the day at which handoffs may start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// `HH:MM`, with days of the week before it if not every day: `22:00`, `Sat,Sun 08:30`, `Mon-Fri 22:00`.
    #[schemars(regex(pattern = WINDOW_START))]
    pub start: String,
    pub duration: Duration,
    /// IANA name; UTC when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainPolicy {
    pub cordon: CordonPolicy,
    /// The longest a drain may take; the deadline of Draining when set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Seconds; left out, each pod's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<u32>,
    /// Consent to lose emptyDir volumes of claimants.
    pub delete_empty_dir_data: bool,
    /// Consent to evict claimants that no controller brings back.
    pub evict_unmanaged: bool,
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self {
            cordon: CordonPolicy::Auto,
            timeout: None,
            grace_period: None,
            delete_empty_dir_data: false,
            evict_unmanaged: false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CordonPolicy {
    /// Cordon unless the node has no claimant and none can come (own extended resources or DRA only).
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verify {
    /// How long plugin and allocatable must stay good, as seen by one process, before the node is trusted.
    pub stable_for: Duration,
}

impl Default for Verify {
    fn default() -> Self {
        Self { stable_for: Duration::from_secs(10) }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeComponentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What nodes shall run: `spec.version`, the version in the Module, or the current revision of the DaemonSet (its `remount` word, if
    /// there is one). Left out while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub nodes: NodeCounts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionCount>,
    /// `Ready`, `Progressing`, `SpecChangedWithoutVersion`, `Invalid`, `FailureBudgetSpent`, `Anomaly`; of a csiNodePlugin `StaleMounts` too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    pub total: u32,
    /// On `status.version`, ready.
    pub current: u32,
    pub queued: u32,
    pub in_progress: u32,
    pub blocked: u32,
    pub failed: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionCount {
    pub version: String,
    pub nodes: u32,
}

/// A condition as in `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// RFC 3339. Moves only when `status` does.
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

fn pod_template(_: &mut SchemaGenerator) -> Schema {
    // A full PodTemplateSpec schema is about 350 kB each; the template is validated by a dry-run create of its DaemonSet instead.
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn deadlines(generator: &mut SchemaGenerator) -> Schema {
    let phases: BTreeMap<&str, Schema> =
        Phase::ALL.into_iter().map(|phase| (phase.as_str(), generator.subschema_for::<Duration>())).collect();
    json_schema!({"type": "object", "properties": phases})
}

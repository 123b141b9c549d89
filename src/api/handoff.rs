//! NodeHandoff: one node going from one version of a component to another. The operator writes spec, the engine writes status.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::component::{Condition, CsiNodePlugin, DrainPolicy, LABEL_VALUE, UnloadBy, Verify};
use super::duration::Duration;

/// One node going from one version of a component to another. Named `<component>.<node>`, in the component's namespace.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "lockkeeper.dev",
    version = "v1alpha1",
    kind = "NodeHandoff",
    namespaced,
    status = "NodeHandoffStatus",
    shortname = "nh",
    category = "lockkeeper",
    derive = "PartialEq",
    doc = "One node going from one version of a component to another.",
    selectable = ".spec.component",
    selectable = ".spec.node",
    printcolumn(name = "Component", type_ = "string", json_path = ".spec.component"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.run.from"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.phaseSince"),
    printcolumn(name = "Blocker", type_ = "string", json_path = ".status.blockers[0].kind"),
    printcolumn(name = "Position", type_ = "integer", json_path = ".spec.position", priority = 1),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".spec.attempt", priority = 1),
    printcolumn(name = "Requested by", type_ = "string", json_path = ".spec.requestedBy", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == self.spec.component + '.' + self.spec.node").message("a handoff's name is its component, a dot, and its node: one per component and node")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeHandoffSpec {
    /// Immutable.
    #[schemars(length(min = 1, max = 52))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("component is immutable: make another handoff"))]
    pub component: String,
    /// Immutable.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("node is immutable: make another handoff"))]
    pub node: String,
    /// The version to hand over to; of a csiNodePlugin the revision (`controller-revision-hash`). Left out for a kernelModule only when a
    /// person took the version off the node: it then ends Held, out of service. Left out for a csiNodePlugin: whatever revision is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_VALUE))]
    pub version: Option<String>,
    /// Place in the operator's queue; lower goes first, those without one go last, by node name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i32>,
    #[serde(default)]
    pub action: HandoffAction,
    /// Raise it to try again after Failed or Aborted.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("attempt only rises: each number is one try, and its end stays in the history"))]
    pub attempt: u32,
    /// Phases after which the handoff is Held until `action` is Run again (or the phase is taken from this list).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pause_after: Vec<Phase>,
    /// Pods that may be deleted although their PodDisruptionBudget does not allow an eviction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub overrides: Vec<Override>,
    /// Who asks, for readers; the audit log is the proof. `label` is lockkeeper's own word for a handoff that follows the node's version label:
    /// it takes its version from the label, closes no node and evicts nobody. Who asks for a version writes another word.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub requested_by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HandoffAction {
    #[default]
    Run,
    /// Stop after the phase that runs, and wait.
    Hold,
    /// Restore the node while the loader label is there; after that, wait for a choice.
    Abort,
    /// One of the choices after an abort or a failure: end it as it stands, the node stays as it is and is named.
    Leave,
}

/// `requestedBy` of a handoff that a label edit made, and of one that a first install made.
pub const BY_LABEL: &str = "label";
pub const BY_INSTALL: &str = "install";
pub const BY_ROLLOUT: &str = "rollout";
/// `requestedBy` of a handoff that takes the version off a node because its component is being deleted.
pub const BY_REMOVAL: &str = "removal";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    #[schemars(length(min = 1))]
    pub pod_uid: String,
    #[schemars(length(min = 1))]
    pub reason: String,
    /// RFC 3339; the override is void afterwards.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
}

/// Where a handoff stands. Which phases a kind uses is one table in `handoff/phases.rs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    #[default]
    Queued,
    Preflight,
    Cordoning,
    Draining,
    Detaching,
    StoppingPlugin,
    Unloading,
    AwaitingReboot,
    /// `csiNodePlugin`: in the place of StoppingPlugin to StartingPlugin.
    ReplacingPod,
    Held,
    Loading,
    StartingPlugin,
    Verifying,
    /// `csiNodePlugin`: DaemonSet pods whose mounts died with the old plugin pod.
    RestartingUsers,
    Uncordoning,
    Done,
    Failed,
    Aborted,
}

impl Phase {
    pub const ALL: [Self; 18] = [
        Self::Queued,
        Self::Preflight,
        Self::Cordoning,
        Self::Draining,
        Self::Detaching,
        Self::StoppingPlugin,
        Self::Unloading,
        Self::AwaitingReboot,
        Self::ReplacingPod,
        Self::Held,
        Self::Loading,
        Self::StartingPlugin,
        Self::Verifying,
        Self::RestartingUsers,
        Self::Uncordoning,
        Self::Done,
        Self::Failed,
        Self::Aborted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Preflight => "Preflight",
            Self::Cordoning => "Cordoning",
            Self::Draining => "Draining",
            Self::Detaching => "Detaching",
            Self::StoppingPlugin => "StoppingPlugin",
            Self::Unloading => "Unloading",
            Self::AwaitingReboot => "AwaitingReboot",
            Self::ReplacingPod => "ReplacingPod",
            Self::Held => "Held",
            Self::Loading => "Loading",
            Self::StartingPlugin => "StartingPlugin",
            Self::Verifying => "Verifying",
            Self::RestartingUsers => "RestartingUsers",
            Self::Uncordoning => "Uncordoning",
            Self::Done => "Done",
            Self::Failed => "Failed",
            Self::Aborted => "Aborted",
        }
    }

    /// Nothing more happens without a new attempt or target.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Aborted)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHandoffStatus {
    pub phase: Phase,
    /// RFC 3339, the API server's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<String>,
    /// What cannot be found again later; written, with the finalizer, before the first write to the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whether the cordon is ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonRecord>,
    /// Copies of the node's desired label and record, given back to a node that was deleted and made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<NodeCopy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<BlockerRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// The last ten ends of earlier attempts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Ended>,
    /// Of a Held handoff: the phase that follows when it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Phase>,
    /// Why it is Failed, Aborted or Held: a stable word and a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The unload pod's results of this run that were not exit 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unload: Option<UnloadRecord>,
    /// Pods whose eviction was accepted in this run, by UID: never evicted twice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<String>,
    /// `csiNodePlugin`: PersistentVolumes that pods of this run used and that must be unmounted before the plugin pod goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// `Complete`, `Failed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// UID of the NodeComponent that it is queued for: one made again under that name is another, and what was asked of the earlier one
    /// is not asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_uid: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub attempt: u32,
    /// None: the node is taken out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node's desired label when this attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// The component's `spec.version` when this attempt began: an automatic rollout leaves a person's handoff alone until it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<String>,
    pub policy: RunPolicy,
    /// Allocatable of the component's resources before anything was touched, by resource name; DRA: device counts by driver.
    #[serde(default)]
    pub baseline: std::collections::BTreeMap<String, i64>,
    pub node_uid: String,
    pub boot_id: String,
    /// Raised by whoever takes the lease: a paused former leader then conflicts.
    pub epoch: i64,
    pub started_at: String,
    /// The attempt follows a label that a person moved: it closes no node and evicts nobody, whatever is asked for meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_label: bool,
    /// The handoff was being deleted when this attempt began: a person chose to go on, so the deletion no longer means abort.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// `kmmModule`: UID of the node's NodeModulesConfig; another one has forgotten what this one had recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kmm_config: Option<String>,
}

/// The policy at the start: a handoff ends under the policy it began with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunPolicy {
    pub drain: DrainPolicy,
    pub deadlines: std::collections::BTreeMap<Phase, Duration>,
    pub verify: Verify,
    pub unload_by: UnloadBy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi_node_plugin: Option<CsiNodePlugin>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CordonRecord {
    /// True: lockkeeper set `spec.unschedulable`. False: somebody else had.
    pub ours: bool,
    pub at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCopy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// The text of the `loaded` annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockerRecord {
    /// Stable word, such as `DisruptionBudget`.
    pub kind: String,
    /// `Kind namespace/name` of the object that is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    pub message: String,
    pub since: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub phase: Phase,
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// An observed fact that ended a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    pub phase: Phase,
    pub fact: String,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable word, such as `LabelEdited` or `DeadlineExceeded`.
    pub word: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnloadRecord {
    pub tries: u32,
    /// UID of the last pod whose result is counted here.
    pub pod: String,
    /// Result of the last try.
    pub exit_code: i32,
    pub message: String,
    /// RFC 3339: no new try before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}

//! Pods: who owns them, where they are, what devices they ask for, and, for our own pods, how their containers fare.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    Context, Slim,
    meta::{RawCondition, RawMeta, ready},
    text::{All, Extended, List, MIRROR, Map, Text, timestamp},
    volumes,
};
use crate::{
    api::{NodeName, keys},
    fleet::{csi::HOLDER, event::Record, records::*},
    kmm::keys as kmm,
};

pub(super) struct Pod;

#[derive(Deserialize)]
pub(super) struct RawPod<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
    #[serde(borrow)]
    containers: List<RawContainer<'a>>,
    #[serde(borrow)]
    init_containers: List<RawContainer<'a>>,
    #[serde(borrow)]
    ephemeral_containers: List<RawContainer<'a>>,
    #[serde(borrow)]
    overhead: Extended<'a>,
    #[serde(borrow)]
    resource_claims: List<RawClaimEntry<'a>>,
    #[serde(borrow)]
    volumes: List<RawVolume<'a>>,
    #[serde(borrow)]
    tolerations: List<RawToleration<'a>>,
    #[serde(borrow)]
    node_selector: Option<&'a RawValue>,
    #[serde(borrow)]
    affinity: Option<&'a RawValue>,
    priority: Option<i32>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawContainer<'a> {
    #[serde(borrow)]
    resources: RawResources<'a>,
    #[serde(borrow)]
    restart_policy: Text<'a>,
    #[serde(borrow)]
    pub volume_mounts: Option<&'a RawValue>,
    #[serde(borrow)]
    pub volume_devices: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawResources<'a> {
    #[serde(borrow)]
    requests: Extended<'a>,
    #[serde(borrow)]
    limits: Extended<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawClaimEntry<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    resource_claim_name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawVolume<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    empty_dir: Option<IgnoredAny>,
    ephemeral: Option<IgnoredAny>,
    #[serde(borrow)]
    persistent_volume_claim: Option<RawVolumeClaim<'a>>,
    #[serde(borrow)]
    csi: Option<volumes::RawCsi<'a>>,
    #[serde(borrow)]
    host_path: Option<volumes::RawHostPath<'a>>,
    aws_elastic_block_store: Option<IgnoredAny>,
    gce_persistent_disk: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawVolumeClaim<'a> {
    #[serde(borrow)]
    claim_name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawToleration<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    #[serde(borrow)]
    effect: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    #[serde(borrow)]
    nominated_node_name: Text<'a>,
    #[serde(borrow)]
    start_time: Text<'a>,
    #[serde(borrow)]
    conditions: List<RawCondition<'a>>,
    #[serde(borrow)]
    container_statuses: Option<&'a RawValue>,
    #[serde(borrow)]
    init_container_statuses: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_claim_statuses: List<RawClaimEntry<'a>>,
    #[serde(borrow)]
    extended_resource_claim_status: Option<RawClaimEntry<'a>>,
}

impl RawVolume<'_> {
    /// The CSI driver that serves an in-tree source in its place.
    fn migrated_driver(&self) -> Option<&'static str> {
        let sources = [
            (&self.aws_elastic_block_store, volumes::AWS_EBS),
            (&self.gce_persistent_disk, volumes::GCE_PD),
            (&self.azure_disk, volumes::AZURE_DISK),
            (&self.azure_file, volumes::AZURE_FILE),
            (&self.cinder, volumes::CINDER),
            (&self.vsphere_volume, volumes::VSPHERE),
            (&self.portworx_volume, volumes::PORTWORX),
        ];
        sources.into_iter().find_map(|(source, driver)| source.as_ref().and(Some(driver)))
    }
}

impl Slim for Pod {
    type Raw<'a> = RawPod<'a>;

    fn record(mut raw: RawPod<'_>, context: &mut Context) -> Result<Record, String> {
        let key = raw.metadata.key(context)?;
        let meta = raw.metadata.meta(context)?;
        let (spec, status) = (&raw.spec, &raw.status);
        let phase = match &*status.phase {
            "Running" => PodPhase::Running,
            "Succeeded" => PodPhase::Succeeded,
            "Failed" => PodPhase::Failed,
            "Unknown" => PodPhase::Unknown,
            _ => PodPhase::Pending,
        };
        let ours = raw.metadata.label(keys::COMPONENT).is_some();
        let of_kmm = raw.metadata.label(kmm::MODULE_NAME).or_else(|| raw.metadata.label(kmm::IMAGE_OWNER)).is_some();
        let mut extra = PodExtra {
            resources: effective_requests(&spec.containers, &spec.init_containers, &spec.overhead, context),
            annotations: raw.metadata.our_annotations(context),
            ..PodExtra::default()
        };
        if of_kmm {
            extra.annotations.extend(raw.metadata.worker_annotations(context));
        }
        claims(&raw, &mut extra, context);
        extra.volumes = pod_volumes(&raw, context);
        if spec.node_name.is_empty() {
            where_to(&raw, &mut extra, context);
        }
        if phase == PodPhase::Failed {
            (extra.reason, extra.message) = (context.text(&status.reason), context.own(&status.message));
        }
        let registers = spec.volumes.iter().filter_map(|volume| volume.host_path.as_ref()).any(volumes::RawHostPath::is_registry);
        if ours || registers || !extra.volumes.is_empty() {
            extra.start_time = timestamp(&status.start_time);
        }
        if !extra.volumes.is_empty() {
            // Volumes are mounted before the sandbox is made; without that condition the kubelet's first look at the pod is what there is.
            let sandboxed = status.conditions.iter().find(|it| &*it.kind == "PodReadyToStartContainers" && &*it.status == "True");
            extra.mounted = sandboxed.and_then(RawCondition::since).or(extra.start_time);
        }
        let owner = raw.metadata.owner(context);
        // It serves mounts though it registers nothing.
        let holds = owner.as_ref().is_some_and(|owner| owner.is_daemon_set() && owner.name.contains(HOLDER));
        if ours || registers || of_kmm || holds {
            extra.containers = containers(status.init_container_statuses, true, context);
            extra.containers.extend(containers(status.container_statuses, false, context));
        }
        extra.grace = spec.termination_grace_period_seconds.filter(|seconds| *seconds != 30);
        let flags = PodFlags {
            ours,
            of_kmm,
            registers,
            mirror: raw.metadata.annotations.get(MIRROR).is_some(),
            empty_dir: spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            tolerates_cordon: spec.tolerations.iter().any(RawToleration::tolerates_cordon),
            tolerates_all: spec.tolerations.iter().any(RawToleration::tolerates_all),
            unschedulable: status.conditions.iter().any(|c| &*c.kind == "PodScheduled" && &*c.status == "False"),
        };
        let record = PodRecord {
            node: (!spec.node_name.is_empty()).then(|| NodeName::from(context.text(&spec.node_name))),
            owner,
            ready: Ready { heartbeat: None, ..ready(&status.conditions) },
            priority: spec.priority.unwrap_or(0),
            extra: (extra != PodExtra::default()).then(|| Box::new(extra)),
            labels: raw.metadata.labels(context),
            key,
            meta,
            phase,
            flags,
        };
        Ok(Record::Pod(record))
    }
}

impl RawToleration<'_> {
    fn tolerates_cordon(&self) -> bool {
        let key = match &*self.key {
            "" => &*self.operator == "Exists",
            "node.kubernetes.io/unschedulable" => &*self.operator == "Exists" || self.value.is_empty(),
            _ => false,
        };
        key && matches!(&*self.effect, "" | "NoSchedule")
    }

    fn tolerates_all(&self) -> bool {
        self.key.is_empty() && &*self.operator == "Exists" && self.effect.is_empty()
    }
}

/// Effective requests of extended resources above 0: the containers and sidecars together, or the largest step of the init containers
/// if that is more. Limits count where a request is left out, as the API server defaults it so. A quantity that does not parse asks
/// for at least one: better a claimant too many.
pub(super) fn effective_requests(
    containers: &[RawContainer<'_>],
    inits: &[RawContainer<'_>],
    overhead: &Extended<'_>,
    context: &mut Context,
) -> BTreeMap<Str, i64> {
    let mut names: Vec<&str> = Vec::new();
    for container in containers.iter().chain(inits) {
        for (name, _) in container.resources.requests.0.iter().chain(&container.resources.limits.0) {
            if !names.contains(&&**name) {
                names.push(name);
            }
        }
    }
    let mut effective = BTreeMap::new();
    for name in names {
        let mut sidecars = 0i64;
        let mut largest_step = 0i64;
        for init in inits {
            let request = init.request(name);
            largest_step = largest_step.max(sidecars.saturating_add(request));
            if &*init.restart_policy == "Always" {
                sidecars = sidecars.saturating_add(request);
            }
        }
        let together = containers.iter().fold(sidecars, |sum, container| sum.saturating_add(container.request(name)));
        let total = together.max(largest_step).saturating_add(overhead.get(name).flatten().unwrap_or(0));
        if total > 0 {
            effective.insert(context.text(name), total);
        }
    }
    effective
}

impl RawContainer<'_> {
    fn request(&self, name: &str) -> i64 {
        let asked = self.resources.requests.get(name).or_else(|| self.resources.limits.get(name));
        asked.map_or(0, |quantity| quantity.unwrap_or(1).max(0))
    }
}

/// Claims in every form: by name, by template (its name is in the status once it exists), and the one made for extended resources.
fn claims(raw: &RawPod<'_>, extra: &mut PodExtra, context: &mut Context) {
    for entry in &*raw.spec.resource_claims {
        if !entry.resource_claim_name.is_empty() {
            extra.claims.push(context.text(&entry.resource_claim_name));
            continue;
        }
        match raw.status.resource_claim_statuses.iter().find(|status| *status.name == *entry.name) {
            // No name in the status of an entry: the pod needs no claim for it.
            Some(status) if status.resource_claim_name.is_empty() => {}
            Some(status) => extra.claims.push(context.text(&status.resource_claim_name)),
            None => extra.unresolved_claims.push(context.text(&entry.name)),
        }
    }
    if let Some(claim) = raw.status.extended_resource_claim_status.as_ref().filter(|claim| !claim.resource_claim_name.is_empty())
    {
        extra.claims.push(context.text(&claim.resource_claim_name));
    }
}

/// Every volume that can be a CSI driver's: claims, generic ephemeral ones, inline ones, and in-tree ones that a driver serves.
fn pod_volumes(raw: &RawPod<'_>, context: &mut Context) -> Vec<PodVolume> {
    let mut all: Vec<PodVolume> = Vec::new();
    for volume in &*raw.spec.volumes {
        let source = if let Some(claim) = &volume.persistent_volume_claim {
            PodVolumeSource::Claim { claim: context.text(&claim.claim_name), ephemeral: false }
        } else if volume.ephemeral.is_some() {
            let claim = context.text(&format!("{}-{}", &*raw.metadata.name, &*volume.name));
            PodVolumeSource::Claim { claim, ephemeral: true }
        } else if let Some(inline) = &volume.csi {
            PodVolumeSource::Inline(inline.source(context))
        } else if let Some(driver) = volume.migrated_driver() {
            PodVolumeSource::Migrated { driver: context.text(driver) }
        } else {
            continue;
        };
        all.push(PodVolume { name: context.text(&volume.name), source, used: false });
    }
    if !all.is_empty() {
        let spec = &raw.spec;
        let containers = spec.containers.iter().chain(&*spec.init_containers).chain(&*spec.ephemeral_containers);
        let used = containers.flat_map(volumes::used_names).collect::<Vec<_>>();
        all.iter_mut().for_each(|volume| volume.used = used.iter().any(|name| **name == *volume.name));
    }
    all
}

/// Where an unbound pod may go.
fn where_to(raw: &RawPod<'_>, extra: &mut PodExtra, context: &mut Context) {
    extra.nominated_node =
        Some(&*raw.status.nominated_node_name).filter(|name| !name.is_empty()).map(|name| NodeName::from(context.text(name)));
    if let Some(selector) = raw.spec.node_selector {
        let selector = serde_json::from_str::<Map<'_, All>>(selector.get()).unwrap_or_default();
        extra.node_selector = selector.pairs.iter().map(|(key, value)| (context.text(key), context.text(value))).collect();
    }
    if let Some(affinity) = raw.spec.affinity.and_then(|raw| serde_json::from_str::<RawAffinity<'_>>(raw.get()).ok()) {
        let fields = affinity.terms().iter().flat_map(|term| term.match_fields.iter());
        let names = fields.filter(|field| &*field.key == "metadata.name" && &*field.operator == "In");
        extra.affinity_nodes =
            names.flat_map(|field| field.values.iter()).map(|name| NodeName::from(context.text(name))).collect();
    }
}

/// The required part of a node affinity; also used for the templates of DaemonSets.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawAffinity<'a> {
    #[serde(borrow)]
    node_affinity: Option<RawNodeAffinity<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RawNodeSelector<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawNodeSelector<'a> {
    #[serde(borrow)]
    pub node_selector_terms: List<RawTerm<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTerm<'a> {
    #[serde(borrow)]
    pub match_fields: List<RawRequirement<'a>>,
    #[serde(borrow)]
    pub match_expressions: List<RawRequirement<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RawRequirement<'a> {
    #[serde(borrow)]
    pub key: Text<'a>,
    #[serde(borrow)]
    pub operator: Text<'a>,
    #[serde(borrow)]
    pub values: List<Text<'a>>,
}

impl<'a> RawAffinity<'a> {
    pub fn terms(&self) -> &[RawTerm<'a>] {
        let required = self.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        required.map_or(&[], |required| &required.node_selector_terms)
    }
}

fn containers(raw: Option<&RawValue>, init: bool, context: &mut Context) -> Vec<ContainerRecord> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct RawContainerStatus<'a> {
        #[serde(borrow)]
        name: Text<'a>,
        ready: Option<bool>,
        restart_count: Option<i32>,
        #[serde(borrow)]
        state: RawState<'a>,
        #[serde(borrow)]
        last_state: RawState<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct RawState<'a> {
        #[serde(borrow)]
        waiting: Option<RawDetail<'a>>,
        #[serde(borrow)]
        running: Option<RawDetail<'a>>,
        #[serde(borrow)]
        terminated: Option<RawDetail<'a>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct RawDetail<'a> {
        #[serde(borrow)]
        reason: Text<'a>,
        #[serde(borrow)]
        message: Text<'a>,
        exit_code: Option<i32>,
        #[serde(borrow)]
        started_at: Text<'a>,
        #[serde(borrow)]
        finished_at: Text<'a>,
    }
    let statuses = raw.and_then(|raw| serde_json::from_str::<List<RawContainerStatus<'_>>>(raw.get()).ok()).unwrap_or_default();
    let state = |state: &RawState<'_>, context: &mut Context| match state {
        RawState { terminated: Some(it), .. } => ContainerState::Terminated {
            // Without a code nothing is proven: not 0.
            exit_code: it.exit_code.unwrap_or(-1),
            reason: context.text(&it.reason),
            message: context.own(&it.message),
            finished: timestamp(&it.finished_at),
        },
        RawState { running: Some(it), .. } => ContainerState::Running { since: timestamp(&it.started_at) },
        RawState { waiting: Some(it), .. } => {
            ContainerState::Waiting { reason: context.text(&it.reason), message: context.own(&it.message) }
        }
        RawState { .. } => ContainerState::Unknown,
    };
    let record = |status: &RawContainerStatus<'_>, context: &mut Context| ContainerRecord {
        name: context.text(&status.name),
        init,
        ready: status.ready.unwrap_or(false),
        restarts: status.restart_count.unwrap_or(0),
        state: state(&status.state, context),
        last_exit: status.last_state.terminated.as_ref().and_then(|it| it.exit_code),
        last_message: context.own(status.last_state.terminated.as_ref().map(|it| &*it.message).unwrap_or_default()),
    };
    statuses.iter().map(|status| record(status, context)).collect()
}

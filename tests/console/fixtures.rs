//! Pictures made by hand: a small fleet in every state that a handoff can be in, and large ones for the bench.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use lockkeeper::{
    api::{
        ComponentKey, NodeComponentSpec, NodeHandoffSpec, NodeHandoffStatus, NodeName, ObjectKey, Phase, Version,
        handoff::{HandoffAction, Proof, Reason, Run, RunPolicy, Step},
        keys::{CordonOwners, Loaded},
    },
    engine::picture::{LeadershipView, Mode, Picture, WriteLogEntry},
    fleet::{records::*, view::*},
    handoff::{
        action::{Action, Evidence, Op, Subject},
        verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
    },
};

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub fn gpu() -> ComponentKey {
    ObjectKey::new("drivers", "gpu")
}

fn meta(uid: &str) -> Meta {
    Meta { uid: uid.into(), resource_version: "1".into(), created: Some(ago(86_400)), deletion: None }
}

/// A node as it will stand in the picture.
#[derive(Clone)]
pub struct NodeBuilder {
    view: NodeView,
    occupancy: Occupancy,
    verdict: Option<Verdict>,
}

pub fn node(name: &str) -> NodeBuilder {
    let record = NodeRecord {
        name: name.into(),
        meta: meta(&format!("uid-{name}")),
        labels: Labels::default(),
        annotations: BTreeMap::new(),
        unschedulable: false,
        unschedulable_managers: Vec::new(),
        taints: Vec::new(),
        ready: Ready { status: ReadyStatus::True, since: Some(ago(7_500)), heartbeat: None },
        boot_id: "b00t-1".into(),
        kernel: "6.12.0-55.el10".into(),
        allocatable: [("vendor.com/gpu".into(), 8)].into(),
        images: Vec::new(),
        csi_volumes: Vec::new(),
    };
    let view = NodeView {
        name: name.into(),
        record: Some(Arc::new(record)),
        lease: None,
        cordon: None,
        pods: Vec::new(),
        components: BTreeMap::new(),
    };
    let occupancy = Occupancy {
        selected: true,
        labels: NodeLabels::default(),
        loader_pods: Vec::new(),
        plugin_pods: Vec::new(),
        unload_pods: Vec::new(),
        claimants: Vec::new(),
        incoming: Vec::new(),
        reserved_claims: Vec::new(),
        slices: BTreeMap::new(),
        allocatable: [("vendor.com/gpu".into(), 8)].into(),
        handoff: None,
        csi: None,
        kmm: None,
    };
    NodeBuilder { view, occupancy, verdict: None }.on("1.0")
}

impl NodeBuilder {
    /// Runs a version, ready.
    pub fn on(mut self, version: &str) -> Self {
        let version = Some(Version::from(version));
        self.occupancy.labels = NodeLabels {
            desired: version.clone(),
            loader: version.clone(),
            plugin: version.clone(),
            ready: version.clone(),
            loaded: version.map(|version| Loaded { version, stopped_boot: None }),
            ..NodeLabels::default()
        };
        self
    }

    pub fn bare(mut self) -> Self {
        self.occupancy.labels = NodeLabels::default();
        self
    }

    pub fn uid(mut self, uid: &str) -> Self {
        let mut record = (**self.view.record.as_ref().unwrap()).clone();
        record.meta.uid = uid.into();
        self.view.record = Some(Arc::new(record));
        self
    }

    pub fn pods(mut self, count: usize) -> Self {
        for at in 0..count {
            let pod = pod(&format!("train-{}-{at}", self.view.name), &self.view.name);
            self.occupancy.claimants.push(Claimant {
                pod: Arc::new(pod),
                why: ClaimReason::Resource { name: "vendor.com/gpu".into(), quantity: 1 },
                class: ClaimantClass::Evictable,
            });
        }
        self
    }

    pub fn unmanaged(mut self) -> Self {
        if let Some(claimant) = self.occupancy.claimants.first_mut() {
            claimant.class = ClaimantClass::Unmanaged;
            Arc::make_mut(&mut claimant.pod).owner = None;
        }
        self
    }

    pub fn cordoned(mut self) -> Self {
        let mut record = (**self.view.record.as_ref().unwrap()).clone();
        record.unschedulable = true;
        self.view.record = Some(Arc::new(record));
        self.view.cordon = Some(Ok(CordonOwners { owners: vec![gpu().to_string()] }));
        self
    }

    /// A handoff to 2.0 that has come to `phase`, twelve seconds per step.
    pub fn handoff(mut self, phase: Phase) -> Self {
        const ORDER: [Phase; 10] = [
            Phase::Preflight,
            Phase::Cordoning,
            Phase::Draining,
            Phase::Detaching,
            Phase::StoppingPlugin,
            Phase::Unloading,
            Phase::Loading,
            Phase::StartingPlugin,
            Phase::Verifying,
            Phase::Uncordoning,
        ];
        let reached = match phase {
            Phase::Queued => 0,
            Phase::Failed | Phase::Held | Phase::Aborted => 6,
            Phase::Done => ORDER.len(),
            phase => ORDER.iter().position(|other| *other == phase).unwrap() + 1,
        };
        let start = 12 * reached as i64;
        let steps: Vec<Step> = ORDER[..reached]
            .iter()
            .enumerate()
            .map(|(at, step)| Step {
                phase: *step,
                started_at: ago(start - 12 * at as i64).to_string(),
                finished_at: (at + 1 < reached || phase == Phase::Done).then(|| ago(start - 12 * (at as i64 + 1)).to_string()),
            })
            .collect();
        let run = (reached > 0).then(|| Run {
            attempt: 1,
            target: Some("2.0".into()),
            from: Some("1.0".into()),
            desired: None,
            aim: None,
            by_label: false,
            resumed: false,
            kmm_config: None,
            policy: RunPolicy::default(),
            baseline: [("vendor.com/gpu".to_owned(), 8)].into(),
            node_uid: format!("uid-{}", self.view.name),
            boot_id: "b00t-1".into(),
            epoch: 3,
            started_at: ago(start).to_string(),
        });
        let status = NodeHandoffStatus {
            phase,
            phase_since: Some(ago(if phase == Phase::Queued { 95 } else { 12 }).to_string()),
            run,
            steps,
            ..NodeHandoffStatus::default()
        };
        let spec = NodeHandoffSpec {
            component: "gpu".into(),
            node: self.view.name.to_string(),
            version: Some("2.0".into()),
            position: None,
            action: HandoffAction::Run,
            attempt: 1,
            pause_after: Vec::new(),
            overrides: Vec::new(),
            requested_by: "ada".into(),
            reason: String::new(),
        };
        let name = format!("gpu.{}", self.view.name);
        self.occupancy.handoff = Some(Arc::new(HandoffRecord {
            key: ObjectKey::new("drivers", name.as_str()),
            meta: meta(&format!("uid-{name}")),
            generation: 1,
            spec: Ok(spec),
            status,
            finalizers: Vec::new(),
        }));
        self
    }

    /// The handoff has come to its phase, and is asked for once more: in the queue, with what its status still has of the attempt before.
    pub fn asked_again(mut self) -> Self {
        let mut handoff = (**self.occupancy.handoff.as_ref().unwrap()).clone();
        handoff.status.phase = Phase::Queued;
        let proof =
            |step: &Step| Proof { phase: step.phase, fact: format!("{} had its proof", step.phase), at: step.started_at.clone() };
        handoff.status.proofs = handoff.status.steps.iter().map(proof).collect();
        handoff.spec.as_mut().unwrap().attempt += 1;
        self.occupancy.handoff = Some(Arc::new(handoff));
        self
    }

    pub fn action(mut self, action: HandoffAction) -> Self {
        let mut handoff = (**self.occupancy.handoff.as_ref().unwrap()).clone();
        handoff.spec.as_mut().unwrap().action = action;
        self.occupancy.handoff = Some(Arc::new(handoff));
        self
    }

    pub fn failed(mut self, word: &str, message: &str) -> Self {
        let mut handoff = (**self.occupancy.handoff.as_ref().unwrap()).clone();
        handoff.status.reason = Some(Reason { word: word.into(), message: message.into() });
        self.occupancy.handoff = Some(Arc::new(handoff));
        self
    }

    pub fn waits(mut self, kind: BlockerKind, object: ObjectRef, message: &str, next: &str) -> Self {
        let phase = self.occupancy.handoff.as_ref().map_or(Phase::Queued, |handoff| handoff.status.phase);
        self.verdict = Some(Verdict::Wait(Wait {
            phase,
            since: ago(12),
            blockers: vec![Blocker { kind, object, message: message.into(), since: ago(12) }],
            recheck: None,
            next: next.into(),
        }));
        self
    }

    pub fn acts(mut self, why: &str) -> Self {
        let op = Op::Evict { pods: Vec::new(), grace_seconds: None };
        self.verdict = Some(Verdict::Act(Box::new(Action { op, evidence: Evidence::Fresh, why: why.into() })));
        self
    }

    pub fn garbage(mut self, value: &str) -> Self {
        self.occupancy.labels.garbage.push(lockkeeper::api::keys::Garbage {
            key: "lockkeeper.dev/loaded.drivers.gpu".into(),
            value: value.into(),
            why: "expected JSON".into(),
        });
        self
    }
}

pub fn pod(name: &str, node: &NodeName) -> PodRecord {
    PodRecord {
        key: ObjectKey::new("ml", name),
        meta: meta(&format!("uid-{name}")),
        labels: Arc::new([("app".into(), "train".into())].into()),
        owner: Some(Owner { kind: "ReplicaSet".into(), name: "train".into(), uid: "uid-rs".into(), is_apps: true }),
        node: Some(node.clone()),
        phase: PodPhase::Running,
        ready: Ready { status: ReadyStatus::True, since: None, heartbeat: None },
        flags: PodFlags::default(),
        priority: 0,
        extra: None,
    }
}

/// A picture as it will be shown.
#[derive(Clone)]
pub struct Scene {
    pub picture: Picture,
}

fn component(key: &ComponentKey, version: &str) -> ComponentView {
    let spec: NodeComponentSpec = serde_json::from_value(serde_json::json!({
        "version": version,
        "kernelModule": {
            "daemonSets": {
                "loader": {},
                "devicePlugin": {"spec": {"initContainers": [{"name": "wait"}]}},
                "unload": {},
            },
            "devices": {"resourceNames": ["vendor.com/gpu"]},
        },
    }))
    .unwrap();
    let block = Arc::new(spec.kernel_module.clone().unwrap());
    let versions = ["1.0", version]
        .into_iter()
        .map(|version| {
            let version = Version::from(version);
            let view = VersionView {
                version: version.clone(),
                block: block.clone(),
                content: "c".into(),
                loader: Some(Arc::new(daemon_set(key, "loader", version.as_str()))),
                plugin: Some(Arc::new(daemon_set(key, "plugin", version.as_str()))),
                edited: Vec::new(),
                used_by: 1,
            };
            (version, view)
        })
        .collect();
    ComponentView {
        record: Arc::new(ComponentRecord {
            key: key.clone(),
            meta: meta(&format!("uid-{key}")),
            generation: 1,
            spec: Ok(spec),
            status: Default::default(),
            finalizers: Vec::new(),
        }),
        versions,
        refusals: Vec::new(),
        changed_without_version: false,
        anomalies: Vec::new(),
        matched_nodes: 0,
        csi: None,
        kmm: None,
    }
}

fn daemon_set(component: &ComponentKey, role: &str, version: &str) -> DaemonSetRecord {
    let key = ObjectKey::new(component.namespace.clone(), format!("{}-{role}-{version}", component.name));
    DaemonSetRecord {
        meta: meta(&format!("uid-{key}")),
        key,
        labels: Labels::default(),
        annotations: BTreeMap::new(),
        generation: 1,
        observed_generation: 1,
        on_delete: true,
        node_selector: BTreeMap::new(),
        spec: None,
        desired: 4,
        ready: 4,
        current: 4,
        claims_resources: BTreeMap::new(),
        requires_labels: Vec::new(),
        template: None,
    }
}

pub fn health(resource: &str, state: WatchState) -> WatchHealth {
    WatchHealth {
        resource: resource.into(),
        required: true,
        state,
        last_event: Some(ago(3)),
        objects: 40,
        errors: 0,
        undecodable: Vec::new(),
    }
}

/// Nodes of `drivers/gpu`, whose aim is 2.0.
pub fn scene(nodes: impl IntoIterator<Item = NodeBuilder>) -> Scene {
    scene_of(&[(gpu(), nodes.into_iter().collect())])
}

pub fn scene_of(parts: &[(ComponentKey, Vec<NodeBuilder>)]) -> Scene {
    let mut nodes: BTreeMap<NodeName, NodeView> = BTreeMap::new();
    let mut components = BTreeMap::new();
    let mut handoffs = BTreeMap::new();
    let mut verdicts = BTreeMap::new();
    let mut queues: BTreeMap<ComponentKey, Vec<NodeName>> = BTreeMap::new();
    for (key, builders) in parts {
        components.insert(key.clone(), Arc::new(component(key, "2.0")));
        for builder in builders {
            let name = builder.view.name.clone();
            if let Some(handoff) = &builder.occupancy.handoff {
                handoffs.insert(handoff.key.clone(), handoff.clone());
                if handoff.status.phase == Phase::Queued {
                    queues.entry(key.clone()).or_default().push(name.clone());
                }
            }
            if let Some(verdict) = &builder.verdict {
                verdicts.insert(Subject::Occupancy { component: key.clone(), node: name.clone() }, verdict.clone());
            }
            let view = nodes.entry(name).or_insert_with(|| builder.view.clone());
            view.components.insert(key.clone(), Arc::new(builder.occupancy.clone()));
        }
    }
    let budget = BudgetRecord {
        key: ObjectKey::new("ml", "train"),
        meta: meta("uid-pdb"),
        generation: 1,
        observed_generation: 1,
        selector: Some(lockkeeper::api::component::LabelSelector {
            match_labels: [("app".to_owned(), "train".to_owned())].into(),
            match_expressions: Vec::new(),
        }),
        min_available: Some("4".into()),
        max_unavailable: None,
        always_allow_unhealthy: false,
        disruptions_allowed: 0,
        current_healthy: 4,
        desired_healthy: 4,
        expected_pods: 5,
        sync_failed: None,
    };
    let unhealthy =
        vec![Unhealthy { pod: ObjectKey::new("ml", "train-gpu-n09-0"), node: Some("gpu-n09".into()), terminating: false }];
    let budget = BudgetView { record: Arc::new(budget), selected: 5, unhealthy, wanted: Some(5) };
    let fleet = FleetView {
        generation: 1,
        now: now(),
        cluster: Arc::new(ClusterInfo {
            context: "prod-eu".into(),
            server: "https://10.0.0.1:6443".into(),
            version: "v1.37.0".into(),
            uid: "c1".into(),
            user: "ada".into(),
        }),
        components,
        nodes: Arc::new(nodes.into_values().map(Arc::new).collect()),
        handoffs: Arc::new(handoffs),
        lease: None,
        budgets: Arc::new([(budget.record.key.clone(), Arc::new(budget))].into()),
        daemon_sets: Arc::default(),
        health: Arc::new(vec![health("nodes", WatchState::Live), health("pods", WatchState::Live)]),
        synced: true,
        ..FleetView::default()
    };
    let picture = Picture {
        fleet: Arc::new(fleet),
        verdicts: verdicts.into(),
        queues: queues.into(),
        mode: Mode::Engine,
        leadership: LeadershipView { holder: Some("ada@laptop".into()), ours: true, epoch: 3, until: None, problem: None },
    };
    Scene { picture }
}

impl Scene {
    pub fn fleet(mut self, change: impl FnOnce(&mut FleetView)) -> Self {
        change(Arc::make_mut(&mut self.picture.fleet));
        self
    }

    pub fn watch(self, resource: &str, state: WatchState) -> Self {
        let resource = resource.to_owned();
        self.fleet(move |fleet| {
            let mut all = (*fleet.health).clone();
            all.retain(|watch| *watch.resource != *resource);
            all.push(health(&resource, state));
            fleet.health = Arc::new(all);
        })
    }

    pub fn component(self, change: impl FnOnce(&mut ComponentView)) -> Self {
        self.fleet(|fleet| change(Arc::make_mut(fleet.components.get_mut(&gpu()).unwrap())))
    }

    pub fn mode(mut self, mode: Mode) -> Self {
        self.picture.mode = mode;
        self
    }

    pub fn led_by(mut self, holder: Option<&str>) -> Self {
        self.picture.leadership =
            LeadershipView { holder: holder.map(str::to_owned), ours: false, epoch: 3, until: None, problem: None };
        self
    }
}

/// A fleet with something of everything.
pub fn busy() -> Scene {
    scene([
        node("gpu-n01").on("2.0").handoff(Phase::Done).pods(2),
        node("gpu-n02").handoff(Phase::Draining).cordoned().pods(3).waits(
            BlockerKind::DisruptionBudget,
            ObjectRef::new("PodDisruptionBudget", "ml/train"),
            "4 healthy, 4 needed, 0 may go of 5; ml/train-gpu-n09-0 is not ready",
            "evict ml/train-gpu-n02-0 as soon as the budget allows one",
        ),
        node("gpu-n03").handoff(Phase::Queued).pods(1).waits(
            BlockerKind::QueuedBehind,
            ObjectRef::new("Node", "gpu-n02"),
            "1 of 1 nodes are out of service",
            "check the node when its turn comes",
        ),
        node("gpu-n04").handoff(Phase::Queued).pods(1).waits(
            BlockerKind::QueuedBehind,
            ObjectRef::new("Node", "gpu-n02"),
            "1 of 1 nodes are out of service",
            "check the node when its turn comes",
        ),
        node("gpu-n05")
            .handoff(Phase::Failed)
            .cordoned()
            .failed("DeadlineExceeded", "Unloading took longer than 5m: unload ended with 1"),
        node("gpu-n06").handoff(Phase::Held).cordoned().waits(
            BlockerKind::HandoffHeld,
            ObjectRef::new("NodeHandoff", "drivers/gpu.gpu-n06"),
            "held by a person after Unloading",
            "load 2.0 when it is continued",
        ),
        node("gpu-n07").handoff(Phase::Loading).cordoned().acts("Set the loader label of gpu-n07 to 2.0"),
        node("gpu-n08").pods(2),
        node("gpu-n09").pods(2).unmanaged(),
        node("gpu-n10").bare(),
        node("gpu-n11").pods(1),
    ])
}

/// `count` nodes, two with handoffs.
pub fn large(count: usize) -> Scene {
    scene((0..count).map(|at| {
        let node = node(&format!("gpu-n{at:05}")).pods(3);
        match at % 50 {
            0 => node.handoff(Phase::Draining).cordoned().waits(
                BlockerKind::DisruptionBudget,
                ObjectRef::new("PodDisruptionBudget", "ml/train"),
                "4 healthy, 4 needed, 0 may go of 5",
                "evict the next pod",
            ),
            1 => node.handoff(Phase::Queued),
            2..20 => node.on("2.0").handoff(Phase::Done),
            _ => node,
        }
    }))
}

pub fn write(at: i64, verb: &str, object: &str, code: Option<u16>) -> WriteLogEntry {
    WriteLogEntry {
        at: ago(at),
        verb: verb.into(),
        object: object.into(),
        why: "Close gpu-n02 for new pods".into(),
        kubectl: "kubectl cordon gpu-n02".into(),
        code,
        millis: 12,
        message: if code == Some(429) {
            "Cannot evict pod as it would violate the pod's disruption budget.".into()
        } else {
            String::new()
        },
    }
}

//! A small picture made by hand: one component, a few nodes, and what a test changes about them.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::json;

use crate::{
    api::{
        ComponentKey, NodeName, ObjectKey, Phase, Version,
        handoff::{BlockerRecord, Reason, Run},
        keys::Loaded,
    },
    engine::{
        intent_plan::handoff_key,
        picture::{LeadershipView, Mode, Picture},
    },
    fleet::{
        records::{ComponentRecord, HandoffRecord, Meta, NodeRecord, Owner, PodFlags, PodPhase, PodRecord, Ready, ReadyStatus},
        view::{
            ClaimReason, Claimant, ClaimantClass, ClusterInfo, ComponentView, FleetView, NodeLabels, NodeView, Occupancy,
            VersionView,
        },
    },
    handoff::{
        action::Subject,
        verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
    },
};

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub fn gpu() -> ComponentKey {
    ComponentKey::new("kmods", "gpu")
}

pub struct Sample {
    nodes: Vec<NodeView>,
    handoffs: BTreeMap<ObjectKey, Arc<HandoffRecord>>,
    verdicts: BTreeMap<Subject, Verdict>,
    queue: Vec<NodeName>,
    generation: u64,
}

impl Sample {
    #[allow(clippy::new_without_default, reason = "a sample is made on purpose")]
    pub fn new() -> Self {
        Self { nodes: Vec::new(), handoffs: BTreeMap::new(), verdicts: BTreeMap::new(), queue: Vec::new(), generation: 0 }
    }

    /// A node that runs a version, ready.
    pub fn node(mut self, name: &str, version: &str) -> Self {
        let version = Some(Version::from(version));
        let labels = NodeLabels {
            desired: version.clone(),
            loader: version.clone(),
            plugin: version.clone(),
            ready: version.clone(),
            loaded: version.map(|version| Loaded { version, stopped_boot: None }),
            ..NodeLabels::default()
        };
        let occupancy = Occupancy {
            selected: true,
            labels,
            loader_pods: Vec::new(),
            plugin_pods: Vec::new(),
            unload_pods: Vec::new(),
            claimants: Vec::new(),
            incoming: Vec::new(),
            reserved_claims: Vec::new(),
            slices: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            handoff: None,
            csi: None,
            kmm: None,
        };
        self.nodes.push(NodeView {
            name: name.into(),
            record: Some(Arc::new(node_record(name))),
            lease: None,
            cordon: None,
            pods: Vec::new(),
            components: BTreeMap::from([(gpu(), Arc::new(occupancy))]),
        });
        self
    }

    fn occupancy(&mut self, name: &str) -> &mut Occupancy {
        let node = self.nodes.iter_mut().find(|node| node.name == *name).unwrap();
        Arc::make_mut(node.components.get_mut(&gpu()).unwrap())
    }

    pub fn claimant(mut self, node: &str, pod: &str, class: ClaimantClass) -> Self {
        let pod = Arc::new(PodRecord {
            key: ObjectKey::new("work", pod),
            meta: meta(pod),
            labels: Arc::default(),
            owner: Some(Owner { kind: "ReplicaSet".into(), name: "rs".into(), uid: "rs".into(), is_apps: true }),
            node: Some(node.into()),
            phase: PodPhase::Running,
            ready: ready(),
            flags: PodFlags::default(),
            priority: 0,
            extra: None,
        });
        let why = ClaimReason::Resource { name: "vendor.example/gpu".into(), quantity: 2 };
        self.occupancy(node).claimants.push(Claimant { pod, why, class });
        self
    }

    /// A handoff in its first attempt, taken up by the engine.
    pub fn handoff(self, node: &str, to: &str, phase: Phase) -> Self {
        self.handoff_of(node, to, phase, 1, 1)
    }

    /// A handoff whose spec asks for one attempt, and whose status speaks of another.
    pub fn handoff_of(mut self, node: &str, to: &str, phase: Phase, asked: u32, ran: u32) -> Self {
        let key = handoff_key(&gpu(), &node.into());
        let spec = json!({"component": "gpu", "node": node, "version": to, "attempt": asked});
        let run = Run {
            attempt: ran,
            target: Some(to.to_owned()),
            from: Some("1.0".to_owned()),
            desired: None,
            aim: None,
            by_label: false,
            resumed: false,
            kmm_config: None,
            policy: Default::default(),
            baseline: BTreeMap::new(),
            node_uid: node.to_owned(),
            boot_id: "b".to_owned(),
            epoch: 1,
            started_at: "2026-03-01T11:58:00Z".to_owned(),
        };
        let mut record = HandoffRecord {
            key: key.clone(),
            meta: meta(&key.name),
            generation: i64::from(asked),
            spec: Ok(serde_json::from_value(spec).unwrap()),
            status: Default::default(),
            finalizers: Vec::new(),
        };
        record.status.phase = phase;
        record.status.phase_since = Some("2026-03-01T11:59:20Z".to_owned());
        record.status.run = (phase != Phase::Queued).then_some(run);
        if phase == Phase::Failed {
            record.status.reason = Some(Reason { word: "DeadlineExceeded".into(), message: "Draining took 15m".into() });
        }
        if phase == Phase::Queued {
            self.queue.push(node.into());
        }
        let record = Arc::new(record);
        self.occupancy(node).handoff = Some(record.clone());
        self.handoffs.insert(key, record);
        self
    }

    pub fn waits(mut self, node: &str, phase: Phase, kind: BlockerKind, object: ObjectRef, message: &str) -> Self {
        let blocker = Blocker { kind, object, message: message.to_owned(), since: now() };
        let wait = Wait { phase, since: now(), blockers: vec![blocker], recheck: None, next: "evict again".to_owned() };
        self.verdicts.insert(Subject::Occupancy { component: gpu(), node: node.into() }, Verdict::Wait(wait));
        self
    }

    /// The Node is gone, or never was.
    pub fn absent(mut self, node: &str) -> Self {
        if let Some(node) = self.nodes.iter_mut().find(|view| view.name == *node) {
            node.record = None;
        }
        self
    }

    /// What the engine that acts has written down.
    pub fn recorded(mut self, node: &str, kind: BlockerKind, object: &str, message: &str) -> Self {
        let occupancy = self.occupancy(node);
        let handoff = occupancy.handoff.as_mut().map(Arc::make_mut).unwrap();
        let since = "2026-03-01T11:59:30Z".to_owned();
        let blocker = BlockerRecord { kind: kind.word(), object: object.to_owned(), message: message.to_owned(), since };
        handoff.status.blockers.push(blocker);
        self
    }

    pub fn picture(mut self) -> Picture {
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        self.generation += 1;
        let cluster = ClusterInfo {
            context: "context lab".into(),
            server: "https://lab:6443/".into(),
            version: "v1.37.2".into(),
            uid: "c1".into(),
            user: "ann".into(),
        };
        let fleet = FleetView {
            generation: self.generation,
            now: now(),
            cluster: Arc::new(cluster),
            components: BTreeMap::from([(gpu(), Arc::new(component()))]),
            nodes: Arc::new(self.nodes.into_iter().map(Arc::new).collect()),
            handoffs: Arc::new(self.handoffs),
            synced: true,
            ..FleetView::default()
        };
        Picture {
            fleet: Arc::new(fleet),
            verdicts: self.verdicts.into(),
            queues: BTreeMap::from([(gpu(), self.queue)]).into(),
            mode: Mode::ReadOnly,
            leadership: LeadershipView { holder: Some("lockkeeper-1".into()), ..LeadershipView::default() },
        }
    }
}

fn component() -> ComponentView {
    let block = json!({
        "daemonSets": {"loader": {}, "devicePlugin": {}, "unload": {}},
        "devices": {"resourceNames": ["vendor.example/gpu"]},
    });
    let version = |version: &str| VersionView {
        version: version.into(),
        block: Arc::new(serde_json::from_value(block.clone()).unwrap()),
        content: version.into(),
        loader: None,
        plugin: None,
        edited: Vec::new(),
        used_by: 0,
    };
    ComponentView {
        record: Arc::new(ComponentRecord {
            key: gpu(),
            meta: meta("gpu"),
            generation: 1,
            spec: Ok(serde_json::from_value(json!({"version": "2.0", "kernelModule": block})).unwrap()),
            status: Default::default(),
            finalizers: Vec::new(),
        }),
        versions: ["1.0", "2.0"].into_iter().map(|it| (it.into(), version(it))).collect(),
        refusals: Vec::new(),
        changed_without_version: false,
        anomalies: Vec::new(),
        matched_nodes: 0,
        csi: None,
        kmm: None,
    }
}

fn node_record(name: &str) -> NodeRecord {
    NodeRecord {
        name: name.into(),
        meta: meta(name),
        labels: Arc::default(),
        annotations: BTreeMap::new(),
        unschedulable: false,
        unschedulable_managers: Vec::new(),
        taints: Vec::new(),
        ready: ready(),
        boot_id: "b".into(),
        kernel: "6.1".into(),
        allocatable: BTreeMap::new(),
        images: Vec::new(),
        csi_volumes: Vec::new(),
    }
}

fn ready() -> Ready {
    Ready { status: ReadyStatus::True, since: None, heartbeat: None }
}

fn meta(name: &str) -> Meta {
    Meta { uid: name.into(), resource_version: "1".into(), created: None, deletion: None }
}

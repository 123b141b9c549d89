//! Builders for the tests of the drain: pods, budgets, nodes, claimants in a line each.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{budget::Budgets, eviction::EvictionMemory, order::Drain};
use crate::{
    api::{
        ObjectKey,
        component::{DrainPolicy, LabelSelector},
        handoff::Override,
    },
    fleet::{
        records::*,
        view::{BudgetView, ClaimReason, Claimant, ClaimantClass, Incoming},
    },
    handoff::action::PodRef,
};

/// Seconds after the drain began.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_secs(seconds)
}

pub fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

fn meta(uid: &str) -> Meta {
    Meta { uid: uid.into(), resource_version: "1".into(), created: Some(at(-3600)), deletion: None }
}

const READY: Ready = Ready { status: ReadyStatus::True, since: None, heartbeat: None };
const NOT_READY: Ready = Ready { status: ReadyStatus::False, since: None, heartbeat: None };

/// `shop/db-0`, Ready on n1, owned by StatefulSet db, label app=db; its UID is `<name>-uid`.
pub fn pod(text: &str) -> PodRecord {
    let key = key(text);
    let app = key.name.rsplit_once('-').map_or(&*key.name, |(app, _)| app).to_owned();
    PodRecord {
        meta: meta(&format!("{}-uid", key.name)),
        labels: Arc::new([("app".into(), app.as_str().into())].into()),
        owner: Some(Owner {
            kind: "StatefulSet".into(),
            name: app.as_str().into(),
            uid: format!("{app}-owner").into(),
            is_apps: true,
        }),
        node: Some("n1".into()),
        phase: PodPhase::Running,
        ready: READY,
        flags: PodFlags::default(),
        priority: 0,
        extra: None,
        key,
    }
}

impl PodRecord {
    pub fn uid(mut self, uid: &str) -> Self {
        self.meta.uid = uid.into();
        self
    }
    pub fn node(mut self, node: Option<&str>) -> Self {
        self.node = node.map(Into::into);
        self
    }
    pub fn not_ready(mut self) -> Self {
        self.ready = NOT_READY;
        self
    }
    pub fn phase(mut self, phase: PodPhase) -> Self {
        self.phase = phase;
        self
    }
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
    pub fn unowned(mut self) -> Self {
        self.owner = None;
        self
    }
    pub fn empty_dir(mut self) -> Self {
        self.flags.empty_dir = true;
        self
    }
    pub fn tolerant(mut self) -> Self {
        self.flags.tolerates_cordon = true;
        self
    }
    pub fn created(mut self, when: Timestamp) -> Self {
        self.meta.created = Some(when);
        self
    }
    /// Asked to stop then, with a grace period of 30 s.
    pub fn stopping(mut self, asked: Timestamp) -> Self {
        self.meta.deletion = Some(Deletion { at: asked + SignedDuration::from_secs(30), grace: 30 });
        self
    }
}

pub fn claimant(pod: PodRecord) -> Claimant {
    let class = if pod.meta.deletion.is_some() {
        ClaimantClass::Terminating
    } else if pod.flags.mirror {
        ClaimantClass::Mirror
    } else if pod.owner.is_none() {
        ClaimantClass::Unmanaged
    } else if pod.flags.empty_dir {
        ClaimantClass::EmptyDir
    } else {
        ClaimantClass::Evictable
    };
    Claimant { pod: Arc::new(pod), why: ClaimReason::Resource { name: "vendor.com/gpu".into(), quantity: 1 }, class }
}

impl Claimant {
    pub fn why(mut self, why: ClaimReason) -> Self {
        self.why = why;
        self
    }
    pub fn class(mut self, class: ClaimantClass) -> Self {
        self.class = class;
        self
    }
}

pub fn reference(pod: &PodRecord) -> PodRef {
    PodRef::of(pod)
}

/// `minAvailable: needs` over pods labelled app=<name>; allows what is left over.
pub fn budget(text: &str, needs: i32, has: i32, expected: i32) -> BudgetView {
    let key = key(text);
    let selector = LabelSelector { match_labels: [("app".to_owned(), key.name.to_string())].into(), ..LabelSelector::default() };
    BudgetView {
        record: Arc::new(BudgetRecord {
            meta: meta(&format!("{}-pdb", key.name)),
            generation: 1,
            observed_generation: 1,
            selector: Some(selector),
            min_available: Some(needs.to_string().as_str().into()),
            max_unavailable: None,
            always_allow_unhealthy: false,
            disruptions_allowed: (has - needs).max(0),
            current_healthy: has,
            desired_healthy: needs,
            expected_pods: expected,
            sync_failed: None,
            key,
        }),
        selected: expected.unsigned_abs(),
        unhealthy: Vec::new(),
        wanted: Some(expected),
    }
}

impl BudgetView {
    pub fn record(mut self, change: impl FnOnce(&mut BudgetRecord)) -> Self {
        change(Arc::make_mut(&mut self.record));
        self
    }
    pub fn wanted(mut self, wanted: Option<i32>) -> Self {
        self.wanted = wanted;
        self
    }
    /// The pods that it selects, for who is not healthy.
    pub fn seeing(self, pods: &[&PodRecord]) -> Self {
        let wanted = self.wanted;
        super::budget::observe(self.record, pods.iter().copied(), |_, _| None).wanted(wanted)
    }
}

pub fn budgets(views: impl IntoIterator<Item = BudgetView>) -> Budgets {
    views.into_iter().map(|view| (view.record.key.clone(), Arc::new(view))).collect()
}

/// n1, cordoned and Ready.
pub fn node() -> NodeRecord {
    NodeRecord {
        name: "n1".into(),
        meta: meta("n1-uid"),
        labels: Arc::default(),
        annotations: Default::default(),
        unschedulable: true,
        unschedulable_managers: Vec::new(),
        taints: Vec::new(),
        ready: READY,
        boot_id: "boot-1".into(),
        kernel: "6.8".into(),
        allocatable: Default::default(),
        images: Vec::new(),
        csi_volumes: Vec::new(),
    }
}

/// Everything a step rests on, owned.
pub struct World {
    pub claimants: Vec<Claimant>,
    pub incoming: Vec<Incoming>,
    pub budgets: Budgets,
    pub node: NodeRecord,
    pub memory: EvictionMemory,
    pub evicted: Vec<String>,
    pub policy: DrainPolicy,
    pub overrides: Vec<Override>,
    pub now: Timestamp,
}

/// Claimants on n1, cordoned and Ready, at second 1 of the drain.
pub fn world(pods: impl IntoIterator<Item = PodRecord>) -> World {
    World {
        claimants: pods.into_iter().map(claimant).collect(),
        incoming: Vec::new(),
        budgets: Budgets::new(),
        node: node(),
        memory: EvictionMemory::default(),
        evicted: Vec::new(),
        policy: DrainPolicy::default(),
        overrides: Vec::new(),
        now: at(1),
    }
}

impl World {
    pub fn with(mut self, views: impl IntoIterator<Item = BudgetView>) -> Self {
        self.budgets = budgets(views);
        self
    }
    pub fn at(mut self, seconds: i64) -> Self {
        self.now = at(seconds);
        self
    }
    pub fn drain(&self) -> Drain<'_> {
        Drain {
            claimants: &self.claimants,
            incoming: &self.incoming,
            budgets: &self.budgets,
            node: Some(&self.node),
            memory: &self.memory,
            evicted: &self.evicted,
            policy: &self.policy,
            overrides: &self.overrides,
            since: at(0),
            now: self.now,
        }
    }
}

//! What the loop knows and decided: stores, what this process saw, the last picture, the last decisions. No I/O; time is given.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    EngineOptions,
    backoff::Backoff,
    execute::Executed,
    picture::{LeadershipView, Mode, Picture, Queues, Verdicts},
};
use crate::{
    api::{ComponentKey, NodeName},
    drain::eviction::{Reply, classify},
    fleet::{
        event::{Change, Event, Kind, Record},
        follow::{Fleet, WatchStatus},
        kmm::KmmView,
        records::{LeaseRecord, Str},
        view::{ClusterInfo, FleetView, NodeView, WatchHealth},
    },
    handoff::{
        action::{Action, Op, Subject},
        decide::{Decisions, decide_fleet, decide_one},
        facts::Context,
        observed::Observed,
        verdict::Verdict,
    },
};

pub struct Brain {
    fleet: Fleet,
    view: Arc<FleetView>,
    observed: Observed,
    decisions: Arc<Decisions>,
    context: Context,
    backoff: Backoff,
    /// Nodes of which something was learned that no view shows.
    dirty: BTreeSet<NodeName>,
}

/// What a second look needs of it, as it was when the first look decided.
pub struct Mind {
    pub view: Arc<FleetView>,
    pub(super) observed: Observed,
    pub(super) context: Context,
    pub(super) decisions: Arc<Decisions>,
}

impl Mind {
    pub fn uses_claims(&self, component: &ComponentKey) -> bool {
        let component = self.view.components.get(component);
        component.into_iter().flat_map(|it| it.versions.values()).any(|it| !it.block.devices.dra_drivers.is_empty())
    }

    /// The Module of KMM that the component follows.
    pub fn follows(&self, component: &ComponentKey) -> Option<&KmmView> {
        self.view.components.get(component)?.kmm.as_deref()
    }

    /// Of a CSI nodeplugin: the VolumeAttachments that are known for the node, whose absence is to be proven. None: of another kind.
    pub fn attachments(&self, component: &ComponentKey, node: &NodeName) -> Option<Vec<Str>> {
        let here = self.view.node(node)?.components.get(component)?.csi.as_ref()?;
        Some(here.attachments.iter().map(|attachment| attachment.name.clone()).collect())
    }

    /// The decision on fresh facts of one node.
    pub fn decide_again(
        &self,
        subject: &Subject,
        node: &NodeView,
        lease: Option<Arc<LeaseRecord>>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let view = FleetView { lease, now, ..FleetView::clone(&self.view) };
        decide_one(&view, Some(node), subject, &self.observed, &self.context, &self.decisions.queue)
    }
}

impl Mind {
    /// The decision on slots that nobody speaks for, with this node and this Lease.
    pub fn decide_on_slots(&self, node: NodeView, lease: Option<Arc<LeaseRecord>>, now: Timestamp) -> Option<Verdict> {
        let mut nodes = (*self.view.nodes).clone();
        let place = nodes.binary_search_by(|known| known.name.cmp(&node.name));
        let bare = node.record.is_none() && node.components.is_empty();
        match place {
            Ok(at) if bare => drop(nodes.remove(at)),
            Ok(at) => nodes[at] = Arc::new(node),
            Err(_) if bare => {}
            Err(at) => nodes.insert(at, Arc::new(node)),
        }
        let view = FleetView { lease, now, nodes: Arc::new(nodes), ..FleetView::clone(&self.view) };
        decide_one(&view, None, &Subject::Lease, &self.observed, &self.context, &self.decisions.queue)
    }
}

impl Brain {
    pub fn new(cluster: Arc<ClusterInfo>, options: &EngineOptions) -> Self {
        let mut fleet = Fleet::new((*cluster).clone());
        let view = fleet.project(Timestamp::UNIX_EPOCH);
        Self {
            fleet,
            view,
            observed: Observed::default(),
            decisions: Arc::default(),
            context: Context {
                lease_held: false,
                epoch: 0,
                identity: options.identity.as_str().into(),
                cluster_max_unavailable: options.cluster_max_unavailable,
                read_only: options.mode == Mode::ReadOnly,
            },
            backoff: Backoff::default(),
            dirty: BTreeSet::new(),
        }
    }

    pub fn apply(&mut self, change: Change) {
        self.fleet.take(change);
    }

    /// Takes in how a watch fares.
    pub fn health_changed(&mut self, kind: Kind, health: WatchHealth) {
        let WatchHealth { required, state, last_event, errors, .. } = health;
        self.fleet.set_watch(kind, WatchStatus { required, state, last_event, errors });
    }

    /// Projects and decides.
    pub fn think(&mut self, now: Timestamp, epoch: Option<i64>) {
        self.context.lease_held = epoch.is_some();
        self.context.epoch = epoch.unwrap_or(self.context.epoch);
        self.view = self.fleet.project(now);
        self.observed.observe(&self.view);
        let before = (*self.decisions).clone();
        let decisions = decide_fleet(&self.view, &self.observed, &self.context, Some(before), &std::mem::take(&mut self.dirty));
        self.decisions = Arc::new(decisions);
    }

    /// The last decisions were made as the holder of the Lease in this epoch.
    pub fn decided_as(&self, epoch: i64) -> bool {
        self.context.lease_held && self.context.epoch == epoch
    }

    /// What is to be done now, in order of urgency, without what must wait after an earlier try.
    pub fn actions(&self) -> Vec<(Subject, Action)> {
        let now = self.view.now;
        self.decisions
            .actions()
            .filter(|(subject, action)| self.backoff.wait_for(subject, &action.op, now).is_none())
            .map(|(subject, action)| (subject.clone(), action.clone()))
            .collect()
    }

    /// Some component needs the kinds of [`Kind::OF_CSI`] watched.
    pub fn wants_csi(&self) -> bool {
        self.fleet.wants_csi()
    }

    /// Some component needs the kinds of [`Kind::OF_KMM`] watched.
    pub fn wants_kmm(&self) -> bool {
        self.fleet.wants_kmm()
    }

    pub fn view(&self) -> Arc<FleetView> {
        self.view.clone()
    }

    pub fn mind(&self) -> Mind {
        Mind {
            view: self.view.clone(),
            observed: self.observed.clone(),
            context: self.context.clone(),
            decisions: self.decisions.clone(),
        }
    }

    pub fn picture(&self, mode: Mode, leadership: LeadershipView) -> Picture {
        Picture {
            fleet: self.view.clone(),
            verdicts: Verdicts::Decided(self.decisions.clone()),
            queues: Queues::Decided(self.decisions.queue.clone()),
            mode,
            leadership,
        }
    }

    /// The Lease as the watch shows it, for a process that does not keep it.
    pub fn leadership_seen(&self) -> LeadershipView {
        let lease = self.view.lease.as_ref();
        LeadershipView {
            holder: lease.and_then(|lease| lease.holder.as_ref()).map(ToString::to_string),
            epoch: lease.map_or(0, |lease| lease.epoch),
            ..LeadershipView::default()
        }
    }

    /// How long until time alone may change a decision, or lets a waiting action go.
    pub fn recheck_in(&self, now: Timestamp) -> Option<Duration> {
        let tries =
            self.decisions.actions().filter_map(|(subject, action)| self.backoff.wait_for(&subject, &action.op, self.view.now));
        let next = self.decisions.recheck.into_iter().chain(tries).min()?;
        // Whole-second clocks and rounding must not make a loop without time.
        Some(Duration::try_from(next.duration_since(now)).unwrap_or_default().max(Duration::from_millis(10)))
    }

    /// Objects as the server has them now.
    pub fn learn_records(&mut self, records: Vec<Record>) {
        for record in records {
            self.fleet.apply(record.kind(), Event::Observed(record));
        }
    }

    /// The second look decided otherwise, or could not look.
    pub fn not_sent(&mut self, subject: &Subject, now: Timestamp) {
        self.backoff.failed(subject, now);
    }

    /// What came of an action.
    pub fn learn(&mut self, subject: &Subject, action: &Action, executed: Executed, now: Timestamp) {
        match &action.op {
            Op::Evict { .. } => {
                for done in &executed.results {
                    if let Some(pod) = &done.pod {
                        let outcome = classify(&Reply::from(&done.written));
                        self.observed.evictions_mut().record(pod, outcome, now);
                    }
                }
                // Refused evictions have a schedule of their own.
                self.backoff.succeeded(subject, &action.op, now);
            }
            op if executed.is_applied() => self.backoff.succeeded(subject, op, now),
            _ => self.backoff.failed(subject, now),
        }
        if let (Op::PutComponentStatus { key, .. }, true) = (&action.op, executed.is_applied()) {
            self.observed.reported(key, now);
        }
        if let Subject::Occupancy { node, .. } = subject {
            self.dirty.insert(node.clone());
        }
        self.learn_records(executed.records().collect());
    }
}

//! From the model's state to the records that the product's own projection reads, and to what its `Observed` has seen. Times are told from a
//! fixed now: what is due lies long before it, what is not due yet lies in the future.

use std::sync::Arc;

use jiff::Timestamp;
use lockkeeper::{
    api::{
        BootId, NodeHandoffStatus, ObjectKey,
        handoff::{BY_INSTALL, BY_LABEL, Step},
        keys::{FINALIZER, LoaderBoot, Mark as NodeMark, Role, Slot},
    },
    fleet::{
        build::*,
        event::Kind,
        records::{HandoffRecord, PodPhase},
        view::FleetView,
    },
    handoff::observed::Observed,
};

use crate::state::*;

pub const GPU: &str = "ns/gpu";
pub const RESOURCE: &str = "vendor.com/gpu";

pub fn now() -> Timestamp {
    at(100_000)
}

pub fn node_name(node: usize) -> &'static str {
    ["n1", "n2"][node.min(1)]
}

pub fn version_text(version: V) -> Option<&'static str> {
    match version {
        1 => Some("1"),
        2 => Some("2"),
        TYPO => Some("tpyo"),
        _ => None,
    }
}

pub fn version_of(text: Option<&str>) -> V {
    match text {
        None => NONE,
        Some("1") => 1,
        Some("2") => 2,
        Some(_) => TYPO,
    }
}

pub fn boot_text(boot: u8) -> String {
    format!("boot-{boot}")
}

pub fn boot_of(text: &str) -> u8 {
    text.strip_prefix("boot-").and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn nonce_text(nonce: u8) -> String {
    format!("nonce-{nonce}")
}

pub fn nonce_of(text: &str) -> Option<u8> {
    text.strip_prefix("nonce-")?.parse().ok()
}

pub fn uid_text(node: usize, uid: u8) -> String {
    format!("node-{node}-{uid}")
}

pub fn uid_of(text: &str) -> u8 {
    text.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn handoff_uid(node: usize, uid: u8) -> String {
    format!("handoff-{node}-{uid}")
}

/// Keys by which a delete is told from another.
pub fn user_key(node: usize) -> ObjectKey {
    key(["shop/train-a", "shop/train-b"][node.min(1)])
}

pub fn unload_key(node: usize, nonce: u8) -> ObjectKey {
    key(&format!("ns/gpu-unload-{nonce}-{node}"))
}

/// What the engine sees: as it is, but for the kind that lags.
pub fn seen(state: &State) -> Vec<Shown> {
    let lag = state.engine.lag.as_ref();
    let one = |(at, node): (usize, &Node)| {
        let mut shown = node.shown.clone();
        if let Some((lag, old)) = lag.and_then(|lag| Some((lag, lag.old.get(at)?))) {
            match lag.what {
                Late::Pods => shown.pods = old.pods.clone(),
                Late::Nodes => shown.object = old.object.clone(),
                Late::Handoffs => shown.handoff = old.handoff.clone(),
            }
        }
        shown
    };
    state.nodes.iter().enumerate().map(one).collect()
}

/// The picture, and what this process saw of how it came about.
pub fn picture(shown: &[Shown], memory: &[Memory], blind: bool, slots: &[(u8, u8)], epoch: u8) -> (Arc<FleetView>, Observed) {
    let mut fleet = fleet().with(component(GPU).version("2").made("1").made("2").finalizer(FINALIZER).rollout(|it| {
        // Times between nodes are not modelled.
        (it.soak, it.canary) = (lockkeeper::api::duration::Duration::from_secs(0), 0);
    }));
    let lease = slots.iter().fold(lease("me").epoch(epoch.into()), |lease, (node, uid)| {
        lease.but(|record| {
            let at = usize::from(*node);
            record.slots.push(Slot { node: node_name(at).into(), node_uid: uid_text(at, *uid), component: GPU.into() });
        })
    });
    fleet.put(lease);
    // As it was: another plugin, other devices, a pod that has left since.
    let early = if blind { now() } else { at(0) };
    for (at, (shown, memory)) in shown.iter().zip(memory).enumerate() {
        put_node(&mut fleet, at, shown, memory.stable);
        fleet.put(node_lease(at));
        put_pods(&mut fleet, at, &shown.pods, memory.stable);
        if memory.left != Gone::Nothing {
            let ghost = unload_pod(GPU, "1", node_name(at), "gone").but(|pod| pod.key = gone_key(at)).uid("gone");
            fleet.put(if memory.left == Gone::Renewal { ghost.exited(0, "", self::at(-100)) } else { ghost });
        }
        if let Some(handoff) = &shown.handoff {
            fleet.put(lockkeeper::fleet::event::Record::Handoff(record(at, handoff)));
        }
    }
    let mut observed = Observed::default();
    observed.observe(&fleet.project(early));
    for (at, (shown, memory)) in shown.iter().zip(memory).enumerate() {
        if !memory.stable {
            put_node(&mut fleet, at, shown, true);
            put_pods(&mut fleet, at, &shown.pods, true);
        }
        if memory.left != Gone::Nothing {
            fleet.gone(Kind::Pod, gone_key(at));
        }
        if !matches!(memory.left, Gone::Renewal | Gone::Both) {
            fleet.put(node_lease(at));
        }
    }
    let view = fleet.project(now());
    observed.observe(&view);
    (view, observed)
}

fn gone_key(node: usize) -> ObjectKey {
    key(["ns/gone-a", "ns/gone-b"][node.min(1)])
}

fn node_lease(node: usize) -> lockkeeper::fleet::event::Record {
    use lockkeeper::fleet::{event::Record, records::*};
    let meta = Meta { uid: "lease".into(), resource_version: "".into(), created: None, deletion: None };
    Record::NodeLease(NodeLeaseRecord { node: node_name(node).into(), meta, renewed: Some(now()) })
}

/// `plain`: as shown; else as it must have been before for nothing to be stable now.
fn put_node(fleet: &mut FleetBuilder, at: usize, shown: &Shown, plain: bool) {
    let object = &shown.object;
    let offers = if object.offers { 4 } else { 0 };
    let mut it = node(node_name(at))
        .uid(&uid_text(at, object.uid))
        .boot(&boot_text(object.boot))
        .ready(object.ready)
        .allocatable(RESOURCE, if plain { offers } else { 7 });
    for (role, version) in [
        (Role::Desired, object.desired),
        (Role::Loader, object.loader),
        (Role::Plugin, object.plugin),
        (Role::Ready, object.serves),
    ] {
        if let Some(text) = version_text(version) {
            it = it.role(role, GPU, text);
        }
    }
    it = match (object.closed, object.owned) {
        (Closed::Open, false) => it,
        (Closed::Open, true) => it.cordoned_for(GPU).open(),
        (Closed::ByUs, true) => it.cordoned_for(GPU),
        (Closed::ByUs, false) => it.cordoned_by(lockkeeper::api::MANAGER),
        (Closed::ByPerson, false) => it.cordoned_by("kubectl"),
        (Closed::ByPerson, true) => it.cordoned_for(GPU).cordoned_by("kubectl"),
    };
    it = match object.record {
        None => it,
        Some((version, 0)) => it.loaded(GPU, version_text(version).unwrap_or("?")),
        Some((version, boot)) => it.stopped(GPU, version_text(version).unwrap_or("?"), &boot_text(boot)),
    };
    if object.nonce > 0 {
        it = it.role(Role::Nonce, GPU, &nonce_text(object.nonce));
    }
    if let Some(mark) = object.mark {
        let boot =
            (mark.boot > 0).then(|| LoaderBoot { id: BootId::from(boot_text(mark.boot)), since: self::at(MARKED).to_string() });
        let mark = NodeMark {
            uid: handoff_uid(at, mark.handoff),
            attempt: mark.attempt.into(),
            epoch: mark.epoch.into(),
            desired: mark.desired.into(),
            boot,
        };
        it = it.mark(GPU, &mark);
    }
    fleet.put(it);
}

fn at(seconds: i64) -> Timestamp {
    lockkeeper::fleet::build::at(seconds)
}

pub const MARKED: i64 = 99_500;

fn put_pods(fleet: &mut FleetBuilder, at: usize, pods: &Pods, plugins: bool) {
    let name = node_name(at);
    let any_before_end = pods.loader.iter().flatten().any(|pod| pod.before_end);
    for version in [1, 2] {
        let text = version_text(version).unwrap_or_default();
        if let Some(pod) = pods.loader[crate::state::at(version)] {
            let created = if pod.before_mark { MARKED - 100 } else { MARKED + 100 };
            fleet.put(dress(loader_pod(GPU, text, name).created(self::at(created)), pod));
        }
        if let Some(pod) = pods.plugin[crate::state::at(version)].filter(|_| plugins) {
            fleet.put(dress(plugin_pod(GPU, text, name), pod));
        }
    }
    for unload in &pods.unload {
        let text = version_text(unload.version).unwrap_or("1");
        let uid = if unload.recorded { "recorded".to_owned() } else { format!("unload-{}", unload.nonce) };
        let pod = unload_pod(GPU, text, name, &nonce_text(unload.nonce)).uid(&uid);
        // After every loader pod that was made before its end, before every other.
        let end = self::at(if any_before_end { MARKED + 200 } else { MARKED - 200 });
        let pod = match unload.stage {
            Stage::Pending => pod.phase(PodPhase::Pending).ready(false),
            Stage::Running => pod,
            Stage::Done => pod.exited(0, "", end),
            Stage::Failed => pod.exited(1, "module is in use", end),
            Stage::Refused => pod.phase(PodPhase::Failed).ready(false).but(|pod| {
                pod.extra.get_or_insert_default().reason = "NodeAffinity".into();
            }),
        };
        let pod = pod.but(|pod| pod.key = unload_key(at, unload.nonce));
        fleet.put(if unload.leaving { pod.terminating(now()) } else { pod });
    }
    if pods.user.has_object() {
        let name = user_key(at).to_string();
        let user = pod(&name).on(node_name(at)).claims(RESOURCE, 1).owned_by("ReplicaSet", "train").created(self::at(-900));
        fleet.put(if pods.user == User::Leaving { user.terminating(now()) } else { user });
    }
}

fn dress(builder: PodBuilder, pod: Pod) -> PodBuilder {
    let builder = builder.ready(pod.ready);
    if pod.leaving { builder.terminating(now()) } else { builder }
}

fn record(at: usize, handoff: &Handoff) -> HandoffRecord {
    let mut status: NodeHandoffStatus = (*handoff.status.status).clone();
    let since = if handoff.late { self::at(0) } else { now() };
    status.phase_since = Some(since.to_string());
    if let Some(unload) = &mut status.unload {
        let due = if handoff.retry_due { self::at(0) } else { self::at(100_100) };
        unload.retry_at = Some(due.to_string());
    }
    lockkeeper::fleet::build::handoff(GPU, node_name(at))
        .spec(|spec| {
            spec.version = version_text(handoff.version).map(str::to_owned);
            spec.attempt = handoff.attempt.into();
            spec.action = handoff.action.into();
            spec.requested_by = match handoff.by {
                Who::Operator => "operator".to_owned(),
                Who::Label => BY_LABEL.to_owned(),
                Who::Install => BY_INSTALL.to_owned(),
            };
        })
        .but(|record| {
            record.meta.uid = handoff_uid(at, handoff.uid).into();
            record.status = status;
            record.finalizers = if handoff.finalizer { vec![FINALIZER.into()] } else { Vec::new() };
            if handoff.deleting {
                record.meta.deletion = Some(lockkeeper::fleet::records::Deletion { at: self::at(0), grace: 0 });
            }
        })
        .build()
}

/// Without times, sentences and what only people read.
pub fn kept(status: &NodeHandoffStatus) -> Kept {
    let mut it = status.clone();
    it.phase_since = None;
    it.blockers.clear();
    it.proofs.clear();
    it.conditions.clear();
    it.evicted.clear();
    it.observed_generation = None;
    let long_ago = at(90_000).to_string();
    let drained = it.steps.iter().find(|step| step.phase >= lockkeeper::api::Phase::Draining).map(|step| step.phase);
    it.steps = drained.map(|phase| Step { phase, started_at: long_ago.clone(), finished_at: None }).into_iter().collect();
    if let Some(reason) = &mut it.reason {
        reason.message.clear();
    }
    it.history = it.history.pop().into_iter().collect();
    for end in &mut it.history {
        end.reason = None;
        end.at = long_ago.clone();
    }
    if let Some(run) = &mut it.run {
        run.started_at = long_ago.clone();
    }
    if let Some(cordon) = &mut it.cordon {
        cordon.at = long_ago.clone();
    }
    if let Some(unload) = &mut it.unload {
        unload.retry_at = None;
        unload.message.clear();
        unload.tries = 1;
        unload.pod = "recorded".to_owned();
    }
    let text = serde_json::to_string(&it).unwrap_or_default();
    Kept { text: text.into(), status: Arc::new(it) }
}

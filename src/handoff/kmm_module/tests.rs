//! The decisions of each phase of a followed Module, on fleets made by hand: what is done next, or what is waited for.

mod mass;
mod phases;
mod planned;
mod refused;
mod rows;
mod stranded;
mod told;
mod ways;

use std::collections::BTreeSet;

use super::*;
use crate::{
    api::{
        BootId, ObjectKey,
        component::KmmModule,
        handoff::{CordonRecord, Run, RunPolicy},
        keys::{FINALIZER, LoaderBoot, Mark},
    },
    fleet::{
        build::*,
        event::{Kind, Record},
        records::{Meta, PodPhase},
    },
    handoff::{
        action::{NodeChange, Op, Subject},
        decide::decide_fleet,
        facts::Context,
        observed::Observed,
    },
    kmm::{
        keys,
        records::{Entry, ImagesRecord, Mapping, ModuleRecord, NmcRecord, Toleration},
    },
};

const KEY: &str = "drv/mod";
const RESOURCE: &str = "vendor.com/gpu";
const NOW: i64 = 200;

fn module_key() -> ObjectKey {
    ObjectKey::new("drv", "mod")
}

fn label(label: Label) -> String {
    label.key(&module_key(), Era::Third).unwrap_or_default()
}

fn meta(name: &str) -> Meta {
    Meta { uid: format!("uid-{name}").into(), resource_version: "1".into(), created: Some(at(-3600)), deletion: None }
}

fn followed(change: impl FnOnce(&mut crate::api::NodeComponentSpec)) -> ComponentBuilder {
    component(KEY).finalizer(FINALIZER).spec(|spec| {
        spec.version.clear();
        if let Some(module) = &mut spec.kernel_module {
            module.daemon_sets = None;
            module.kmm_module = Some(KmmModule { name: "mod".into() });
        }
        change(spec);
    })
}

/// At this version, with a plugin, and tolerating everything.
fn module(version: &str) -> ModuleRecord {
    ModuleRecord {
        key: module_key(),
        meta: meta("module"),
        deleting: false,
        loads: true,
        version: Some(version.into()),
        image: Some(format!("mod:{version}").into()),
        mappings: vec![Mapping { regexp: Some("^.+$".into()), ..Mapping::default() }],
        kernel_module: Some("mod".into()),
        selector: Default::default(),
        tolerations: vec![Toleration { operator: "Exists".into(), ..Toleration::default() }],
        plugin: true,
        dra: false,
    }
}

fn images(version: &str, state: &str) -> ImagesRecord {
    let image = format!("mod:{version}");
    ImagesRecord {
        key: module_key(),
        meta: meta("images"),
        wanted: vec![image.as_str().into()],
        states: [(image.into(), state.into())].into(),
    }
}

fn entry(version: &str, boot: &str) -> Entry {
    Entry {
        module: module_key(),
        version: Some(version.into()),
        image: format!("mod:{version}").into(),
        kernel: "6.8.0".into(),
        config: format!("config of {version}").into(),
        tolerations: Vec::new(),
        boot_id: BootId::from(boot),
    }
}

/// What KMM wants on the node, and what it has recorded.
fn config(wanted: Option<&str>, recorded: Option<(&str, &str)>) -> NmcRecord {
    NmcRecord {
        node: "n1".into(),
        meta: meta("nmc"),
        spec: wanted.map(|version| entry(version, "")).into_iter().collect(),
        status: recorded.map(|(version, boot)| entry(version, boot)).into_iter().collect(),
        owner: None,
    }
}

impl Records for ModuleRecord {
    fn records(self) -> Vec<Record> {
        vec![Record::KmmModule(self)]
    }
}
impl Records for NmcRecord {
    fn records(self) -> Vec<Record> {
        vec![Record::KmmConfig(self)]
    }
}
impl Records for ImagesRecord {
    fn records(self) -> Vec<Record> {
        vec![Record::KmmImages(self)]
    }
}

/// Desired, worker and plugin label.
fn labelled(desired: &str, worker: &str, schedule: &str) -> NodeBuilder {
    let all = [(Label::Desired, desired), (Label::Loader, worker), (Label::Schedule, schedule)];
    let mut it = node("n1").renewed(at(0)).allocatable(RESOURCE, 4);
    for (word, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
        it = it.label(&label(word), value);
    }
    it
}

/// As KMM has a node at this version.
fn at_version(version: &str) -> NodeBuilder {
    labelled(version, version, version).label(&label(Label::Ready), "").label(&label(Label::VersionReady), version)
}

fn plugin_pod(version: &str) -> PodBuilder {
    pod(&format!("drv/mod-device-plugin-{version}"))
        .owned_by("DaemonSet", &format!("mod-device-plugin-{version}"))
        .label(keys::MODULE_NAME, "mod")
        .label(keys::ROLE, "device-plugin")
        .label(&label(Label::Schedule), version)
        .on("n1")
        .created(at(-100))
        .but(|pod| pod.flags.of_kmm = true)
}

fn worker(action: &str) -> PodBuilder {
    pod("drv/kmm-worker-n1-mod")
        .label(keys::MODULE_NAME, "mod")
        .label(keys::WORKER_ACTION, action)
        .on("n1")
        .not_ready()
        .but(|pod| pod.flags.of_kmm = true)
}

fn user(name: &str) -> PodBuilder {
    pod(&format!("shop/{name}")).owned_by("ReplicaSet", name).claims(RESOURCE, 1).on("n1").created(at(-500))
}

/// The node runs 1.0, the Module is at 2.0, its image is there, and nobody uses the device.
fn story() -> FleetBuilder {
    fleet()
        .with(followed(|_| {}))
        .with(module("2.0"))
        .with(images("2.0", "Exists"))
        .with(config(Some("1.0"), Some(("1.0", "boot-1"))))
        .with(at_version("1.0"))
        .with(plugin_pod("1.0"))
}

fn run(target: Option<&str>) -> Run {
    Run {
        attempt: 1,
        target: target.map(str::to_owned),
        from: Some("1.0".into()),
        desired: Some("1.0".into()),
        aim: Some("2.0".into()),
        policy: RunPolicy::default(),
        baseline: [(RESOURCE.to_owned(), 4)].into(),
        node_uid: "uid-Node-n1".into(),
        boot_id: "boot-1".into(),
        epoch: 1,
        started_at: at(100).to_string(),
        by_label: false,
        resumed: false,
        kmm_config: Some("uid-nmc".into()),
    }
}

fn in_phase(phase: Phase) -> HandoffBuilder {
    handoff(KEY, "n1").to("2.0").phase(phase, at(190)).but(|it| it.finalizers = vec![FINALIZER.into()]).status(|status| {
        status.run = Some(run(Some("2.0")));
        status.cordon = (phase > Phase::Cordoning).then(|| CordonRecord { ours: true, at: at(150).to_string() });
    })
}

fn mark(desired: DesiredBy) -> Mark {
    let boot = (desired == DesiredBy::Set).then(|| LoaderBoot { id: "boot-1".into(), since: at(180).to_string() });
    Mark { uid: format!("uid-NodeHandoff-{KEY}.n1"), attempt: 1, epoch: 1, desired, boot }
}

/// The node as a running handoff has it: closed by it, with its mark.
fn held(node: NodeBuilder, desired: DesiredBy) -> NodeBuilder {
    node.cordoned_for(KEY).mark(KEY, &mark(desired))
}

/// [`story`] with a handoff in this phase, admitted, and the node closed by it.
fn running(phase: Phase) -> FleetBuilder {
    story().with(held(at_version("1.0"), DesiredBy::Kept)).with(lease("me").slot("n1", KEY)).with(in_phase(phase))
}

/// The record of what is being unloaded, or loaded.
fn stopped(node: NodeBuilder, version: &str) -> NodeBuilder {
    node.stopped(KEY, version, "boot-1")
}

fn decide_at(fleet: &mut FleetBuilder, observed: &mut Observed, now: i64) -> Verdict {
    let view = fleet.project(at(now));
    observed.observe(&view);
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let decisions = decide_fleet(&view, observed, &context, None, &BTreeSet::new());
    let subject = Subject::Occupancy { component: key(KEY), node: "n1".into() };
    decisions.verdict(&subject).cloned().unwrap_or(Verdict::Done)
}

/// The process has been looking on for long.
fn verdict(mut fleet: FleetBuilder) -> Verdict {
    let mut observed = Observed::default();
    decide_at(&mut fleet, &mut observed, 0);
    decide_at(&mut fleet, &mut observed, NOW)
}

#[track_caller]
fn acts(fleet: FleetBuilder) -> Op {
    op(verdict(fleet))
}

#[track_caller]
fn op(verdict: Verdict) -> Op {
    match verdict {
        Verdict::Act(action) => action.op,
        other => panic!("wanted an action, got {other:?}"),
    }
}

#[track_caller]
fn enters(fleet: FleetBuilder, phase: Phase) -> crate::api::NodeHandoffStatus {
    match acts(fleet) {
        Op::PutHandoffStatus { status, .. } if status.phase == phase => *status,
        other => panic!("wanted {phase}, got {other:?}"),
    }
}

/// What is said of a wait, whether it is written down or not.
#[track_caller]
fn said(verdict: Verdict) -> Vec<(String, String)> {
    match verdict {
        Verdict::Wait(wait) => wait.blockers.into_iter().map(|it| (it.kind.word(), it.message)).collect(),
        Verdict::Act(action) => match action.op {
            Op::PutHandoffStatus { status, .. } => {
                status.blockers.iter().map(|it| (it.kind.clone(), it.message.clone())).collect()
            }
            op => panic!("wanted a wait, got {op:?}"),
        },
        other => panic!("wanted a wait, got {other:?}"),
    }
}

#[track_caller]
fn waits_for(fleet: FleetBuilder, kind: BlockerKind, words: &str) {
    let said = said(verdict(fleet));
    assert!(said.iter().any(|(of, message)| *of == kind.word() && message.contains(words)), "{kind:?} {words:?}: {said:?}");
}

/// The labels that an action writes.
#[track_caller]
fn labels_of(op: &Op) -> Vec<(String, Option<String>)> {
    let Op::PatchNode(patch) = op else { panic!("wanted a patch of the Node, got {op:?}") };
    patch
        .changes
        .iter()
        .filter_map(|change| match change {
            NodeChange::Label { key, value } => Some((key.clone(), value.clone())),
            _ => None,
        })
        .collect()
}

#[track_caller]
fn sets_label(fleet: FleetBuilder, value: Option<&str>) -> Op {
    let op = acts(fleet);
    assert_eq!(labels_of(&op), [(label(Label::Desired), value.map(str::to_owned))]);
    op
}

fn record_of(op: &Op) -> Option<String> {
    let Op::PatchNode(patch) = op else { return None };
    patch.changes.iter().find_map(|change| match change {
        NodeChange::Annotation { key, value } if key.contains("/loaded.") => Some(value.clone().unwrap_or_default()),
        _ => None,
    })
}

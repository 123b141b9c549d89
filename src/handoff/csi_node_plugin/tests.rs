//! The decisions of each phase, on fleets made by hand: what is done next, or what is waited for.

mod deleted;
mod told;

use std::collections::BTreeSet;

use super::*;
use crate::{
    api::{
        component::{Rollout, VolumeDrain},
        duration::Duration,
        handoff::{CordonRecord, Ended, HandoffAction, Run, RunPolicy},
        keys::{DesiredBy, FINALIZER, Mark},
    },
    fleet::{build::*, csi::REVISION_HASH, records::PodPhase},
    handoff::{action::Subject, decide::decide_fleet, facts::Context, observed::Observed},
};

const KEY: &str = "ceph/cephfs";
const DRIVER: &str = "cephfs.csi.ceph.com";
const SET: &str = "ceph/csi-cephfsplugin";
const NOW: i64 = 200;

fn plugin() -> CsiNodePlugin {
    CsiNodePlugin {
        driver: DRIVER.into(),
        daemon_set: None,
        drain: VolumeDrain::AtRisk,
        at_risk_attributes: Default::default(),
        settle: Duration::from_secs(15),
        remount: None,
    }
}

fn csi_component(change: impl FnOnce(&mut Rollout)) -> ComponentBuilder {
    component(KEY).rollout(change).finalizer(FINALIZER).spec(|spec| {
        spec.version.clear();
        spec.kernel_module = None;
        spec.csi_node_plugin = Some(plugin());
    })
}

fn plugin_pod(name: &str, hash: &str) -> PodBuilder {
    pod(&format!("ceph/{name}")).owned_by("DaemonSet", "csi-cephfsplugin").label(REVISION_HASH, hash).on("n1").created(at(-100))
}

fn app(name: &str) -> PodBuilder {
    pod(&format!("shop/{name}")).owned_by("ReplicaSet", name).volume_claim(name).on("n1").created(at(-500)).but(|pod| {
        pod.extra.get_or_insert_default().mounted = Some(at(-500));
    })
}

/// The claim of [`app`], and its volume with these attributes.
fn fuse(name: &str) -> Vec<crate::fleet::event::Record> {
    let claim = format!("shop/{name}");
    let pv = format!("pv-{name}");
    [volume_claim(&claim).to_volume(&pv).records(), volume(&pv, DRIVER, &claim).attribute("mounter", "fuse").records()].concat()
}

/// Revision `new` is current, the node has a pod of `old`; nobody uses a volume.
fn story() -> FleetBuilder {
    fleet()
        .with(csi_component(|_| {}))
        .with(nodeplugin(SET, DRIVER, "template-new"))
        .with(revision(SET, "old", 1, "template-old"))
        .with(revision(SET, "new", 2, "template-new"))
        .with(csi_driver(DRIVER, true))
        .with(csi_node("n1", &[DRIVER]))
        .with(node("n1").renewed(at(0)))
        .with(plugin_pod("csi-old", "old"))
}

fn run(target: &str) -> Run {
    Run {
        attempt: 1,
        target: Some(target.into()),
        from: Some("old".into()),
        desired: None,
        aim: Some(target.into()),
        policy: RunPolicy { csi_node_plugin: Some(plugin()), ..RunPolicy::default() },
        baseline: Default::default(),
        node_uid: "uid-Node-n1".into(),
        boot_id: "boot-1".into(),
        epoch: 1,
        started_at: at(100).to_string(),
        by_label: false,
        resumed: false,
        kmm_config: None,
    }
}

fn in_phase(phase: Phase) -> HandoffBuilder {
    handoff(KEY, "n1").to("new").phase(phase, at(190)).but(|it| it.finalizers = vec![FINALIZER.into()]).status(|status| {
        status.run = Some(run("new"));
        status.cordon = (phase > Phase::Cordoning).then(|| CordonRecord { ours: true, at: at(150).to_string() });
    })
}

/// [`story`] with a handoff in this phase, admitted, and the node closed by it.
fn running(phase: Phase) -> FleetBuilder {
    let mark = Mark { uid: format!("uid-NodeHandoff-{KEY}.n1"), attempt: 1, epoch: 1, desired: DesiredBy::Kept, boot: None };
    story()
        .with(node("n1").renewed(at(0)).cordoned_for(KEY).mark(KEY, &mark))
        .with(lease("me").slot("n1", KEY))
        .with(in_phase(phase))
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
    match verdict(fleet) {
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

#[track_caller]
fn waits(fleet: FleetBuilder, kind: BlockerKind, words: &str) {
    match verdict(fleet) {
        Verdict::Wait(wait) => {
            assert!(wait.blockers.iter().any(|it| it.kind == kind && it.message.contains(words)), "{:?}", wait.blockers);
        }
        Verdict::Act(action) => match action.op {
            // A wait that lasts is written down.
            Op::PutHandoffStatus { status, .. }
                if status.phase == Phase::Queued || status.blockers.iter().any(|it| it.kind == kind.word()) =>
            {
                assert!(
                    status.blockers.iter().any(|it| it.kind == kind.word() && it.message.contains(words)),
                    "{:?}",
                    status.blockers
                );
            }
            op => panic!("wanted a wait, got {op:?}"),
        },
        other => panic!("wanted a wait, got {other:?}"),
    }
}

#[test]
fn g26_exactly_those_whose_mounts_die_are_evicted() {
    let inline = |name: &str, mounter: &str| {
        let attributes = [("mounter".into(), mounter.into())].into();
        let source = PodVolumeSource::Inline(CsiSource { driver: DRIVER.into(), handle: "".into(), attributes });
        pod(&format!("shop/{name}")).owned_by("ReplicaSet", name).on("n1").but(move |pod| {
            pod.extra.get_or_insert_default().volumes.push(PodVolume { name: "v".into(), source, used: true });
        })
    };
    use crate::fleet::records::{CsiSource, PodVolume, PodVolumeSource};
    let fleet = running(Phase::Draining)
        .with(app("a"))
        .with(fuse("a"))
        .with(app("b"))
        .with(volume_claim("shop/b").to_volume("pv-b"))
        .with(volume("pv-b", "ebs.csi.aws.com", "shop/b"))
        .with(inline("c", "fuse"))
        .with(inline("kernel", "kernel"))
        .with(pod("shop/d").owned_by("ReplicaSet", "d").on("n1"));
    // First which volumes must be unmounted is written down, then they go.
    let status = enters(running(Phase::Draining).with(app("a")).with(fuse("a")), Phase::Draining);
    assert_eq!(status.volumes, ["handle-pv-a", "pv-a"]);
    let noted = fleet.with(in_phase(Phase::Draining).status(|status| status.volumes = vec!["pv-a".into(), "handle-pv-a".into()]));
    match acts(noted) {
        Op::Evict { pods, .. } => {
            let names: Vec<String> = pods.iter().map(|pod| pod.key.to_string()).collect();
            assert_eq!(names, ["shop/a", "shop/c"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn g28_the_drained_pods_attachment_is_awaited_and_no_other() {
    let noted = |it: HandoffBuilder| it.status(|status| status.volumes = vec!["pv-a".into()]);
    let kept = || {
        running(Phase::Detaching).with(noted(in_phase(Phase::Detaching))).with(app("b").but(|pod| {
            pod.owner = None;
            pod.key = key("shop/b");
        }))
    };
    let volumes = |fleet: FleetBuilder| {
        fleet
            .with(volume_claim("shop/b").to_volume("pv-b"))
            .with(volume("pv-b", DRIVER, "shop/b"))
            .with(attachment("va2", DRIVER, "n1", "pv-b"))
            .with(volume("pv-c", DRIVER, "shop/c").attribute("mounter", "fuse").but(|it| it.released = true))
            .with(attachment("va3", DRIVER, "n1", "pv-c"))
    };
    waits(
        volumes(kept())
            .with(volume("pv-a", DRIVER, "shop/a").attribute("mounter", "fuse"))
            .with(attachment("va1", DRIVER, "n1", "pv-a")),
        BlockerKind::VolumeAttached,
        "pv-a",
    );
    enters(volumes(kept()), Phase::ReplacingPod);
}

#[test]
fn without_attachments_the_kubelet_is_given_time() {
    let noted = |since: i64| {
        let it =
            in_phase(Phase::Detaching).phase(Phase::Detaching, at(since)).status(|status| status.volumes = vec!["pv-a".into()]);
        running(Phase::Detaching).with(csi_driver(DRIVER, false)).with(it)
    };
    waits(noted(NOW - 14), BlockerKind::Settling, "needs no attachment");
    enters(noted(NOW - 15), Phase::ReplacingPod);
    enters(running(Phase::Detaching).with(csi_driver(DRIVER, false)), Phase::ReplacingPod);
}

#[test]
fn the_old_pod_is_deleted_by_its_uid_and_only_when_nothing_stands_against_it() {
    match acts(running(Phase::ReplacingPod)) {
        Op::DeletePod(pod) => assert_eq!(pod.uid.as_str(), "uid-Pod-ceph/csi-old"),
        other => panic!("{other:?}"),
    }
    // A pod that came late and tolerates the cordon.
    let late = running(Phase::ReplacingPod).with(app("a")).with(fuse("a"));
    enters(late, Phase::ReplacingPod);
    waits(
        running(Phase::ReplacingPod).with(nodeplugin(SET, DRIVER, "template-new").but(|it| it.on_delete = false)),
        BlockerKind::ComponentRefused,
        "Make it OnDelete",
    );
    let tainted = node("n1").renewed(at(0)).cordoned_for(KEY).taint("gpu", "NoSchedule");
    let mark = Mark { uid: format!("uid-NodeHandoff-{KEY}.n1"), attempt: 1, epoch: 1, desired: DesiredBy::Kept, boot: None };
    waits(running(Phase::ReplacingPod).with(tainted.mark(KEY, &mark)), BlockerKind::PreflightRefused, "taint gpu:NoSchedule");
}

#[test]
fn g24_replaced_is_old_gone_and_new_ready() {
    let new = || plugin_pod("csi-new", "new").created(at(195));
    let both = running(Phase::ReplacingPod).with(plugin_pod("csi-old", "old").terminating(at(300))).with(new());
    waits(both, BlockerKind::PluginPod, "old plugin pod");
    let gone = |fleet: FleetBuilder| {
        let mut fleet = fleet;
        fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
        fleet
    };
    waits(gone(running(Phase::ReplacingPod)), BlockerKind::PluginNotReady, "its DaemonSet makes one");
    waits(gone(running(Phase::ReplacingPod).with(new().not_ready())), BlockerKind::PluginNotReady, "plugin pod is");
    waits(
        gone(running(Phase::ReplacingPod).with(new()).with(csi_node("n1", &[]))),
        BlockerKind::PluginNotReady,
        "does not list driver",
    );
    enters(gone(running(Phase::ReplacingPod).with(new())), Phase::Verifying);
}

#[test]
fn daemon_set_users_are_restarted_after_the_plugin_and_never_evicted() {
    let user = || app("logs").owned_by("DaemonSet", "logs").but(|pod| pod.key = key("shop/logs-n1"));
    let mut drained = running(Phase::Draining).with(user()).with(fuse("logs"));
    drained.put(user());
    enters(drained, Phase::Detaching);
    let container = |since: i64| crate::fleet::records::ContainerRecord {
        last_exit: None,
        last_message: Default::default(),
        name: "csi-cephfsplugin".into(),
        init: false,
        ready: true,
        restarts: 0,
        state: crate::fleet::records::ContainerState::Running { since: Some(at(since)) },
    };
    let new = || {
        plugin_pod("csi-new", "new")
            .created(at(-50))
            .but(|pod| pod.extra.get_or_insert_default().containers = vec![container(-50)])
    };
    let replaced = |phase: Phase| {
        let mut fleet = running(phase).with(new()).with(user()).with(fuse("logs"));
        fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
        fleet
    };
    enters(replaced(Phase::Verifying), Phase::RestartingUsers);
    match acts(replaced(Phase::RestartingUsers)) {
        Op::DeletePod(pod) => assert_eq!(pod.key, key("shop/logs-n1")),
        other => panic!("{other:?}"),
    }
    let back = replaced(Phase::RestartingUsers).with(user().uid("next").but(|pod| {
        pod.extra.get_or_insert_default().mounted = Some(at(195));
    }));
    enters(back, Phase::Uncordoning);
}

#[test]
fn another_revision_before_the_deletion_ends_what_was_asked_for_by_name_and_begins_again_what_was_not() {
    let changed =
        |phase: Phase| running(phase).with(nodeplugin(SET, DRIVER, "template-3")).with(revision(SET, "third", 3, "template-3"));
    for phase in [Phase::Draining, Phase::Detaching, Phase::ReplacingPod] {
        let status = enters(changed(phase), Phase::Aborted);
        assert_eq!(status.reason.unwrap().word, REVISION_CHANGED);
        let unnamed = changed(phase).with(in_phase(phase).spec(|spec| spec.version = None));
        let status = enters(unnamed, Phase::Preflight);
        assert_eq!(status.run.unwrap().target.as_deref(), Some("third"));
    }
    // Once the pod is gone, what comes is what is current.
    let mut gone = changed(Phase::ReplacingPod);
    gone.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    let status = enters(gone, Phase::ReplacingPod);
    assert_eq!(status.run.unwrap().target.as_deref(), Some("third"));
}

#[test]
fn no_word_in_its_spec_keeps_the_pods_of_a_nodeplugin_from_leaving() {
    let word = handoff(KEY, "n1")
        .to("new")
        .but(|it| it.finalizers = vec![FINALIZER.into()])
        .spec(|spec| spec.requested_by = "label".into());
    let queued = story().with(lease("me").slot("n1", KEY)).with(word);
    match acts(queued) {
        Op::PutHandoffStatus { status, .. } => assert_eq!(status.run.map(|run| run.by_label), Some(false)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_of_a_nodeplugin_is_not_taken_for_one_of_another_kind() {
    let remade = || component(KEY).finalizer(FINALIZER).made("1.0");
    waits(running(Phase::Verifying).with(remade()), BlockerKind::ComponentRefused, "the nodeplugin of a CSI driver");
    waits(running(Phase::Draining).with(remade()), BlockerKind::ComponentRefused, "the nodeplugin of a CSI driver");
}

#[test]
fn another_daemon_set_of_the_driver_is_told_though_one_is_named() {
    let named = csi_component(|_| {}).spec(|spec| {
        if let Some(plugin) = &mut spec.csi_node_plugin {
            plugin.daemon_set = Some("csi-cephfsplugin".into());
        }
    });
    let twin = pod("ceph/other-1").owned_by("DaemonSet", "other").on("n1");
    let warned = |fleet: FleetBuilder| {
        let mut fleet = fleet;
        let view = fleet.project(at(NOW));
        let component = &view.components[&key(KEY)];
        assert!(component.refusals.is_empty(), "{:?}", component.refusals);
        let node = view.node(&"n1".into()).unwrap();
        let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
        let facts = Facts {
            now: view.now,
            key: &key(KEY),
            component,
            node,
            occupancy: &node.components[&key(KEY)],
            slot: None,
            others: &[],
            admission: None,
            budgets: &view.budgets,
            observed: &Observed::default(),
            context: &context,
            stale: None,
        };
        crate::handoff::preflight::warnings(&facts)
    };
    let alone = warned(story().with(csi_component(|_| {})));
    assert!(!alone.iter().any(|it| it.contains("registers")), "{alone:?}");
    let both = || story().with(named.clone()).with(nodeplugin("ceph/other", DRIVER, "template-other"));
    let elsewhere = warned(both());
    assert!(
        elsewhere.iter().any(|it| it.contains("DaemonSet ceph/other registers cephfs.csi.ceph.com too: where")),
        "{elsewhere:?}"
    );
    let here = warned(both().with(twin));
    assert!(here.iter().any(|it| it.contains("its pod ceph/other-1 is on this node")), "{here:?}");
}

#[test]
fn a_persons_uncordon_or_abort_ends_it() {
    let mark = Mark { uid: format!("uid-NodeHandoff-{KEY}.n1"), attempt: 1, epoch: 1, desired: DesiredBy::Kept, boot: None };
    for phase in [Phase::Draining, Phase::Detaching, Phase::ReplacingPod] {
        let opened = running(phase).with(node("n1").renewed(at(0)).cordoned_for(KEY).open().mark(KEY, &mark));
        enters(opened, Phase::Aborted);
        let aborted = running(phase).with(in_phase(phase).action(HandoffAction::Abort));
        enters(aborted, Phase::Aborted);
    }
}

#[test]
fn preflight_names_everything_that_stands_against_it() {
    let preflight = |fleet: FleetBuilder| fleet.with(lease("me").slot("n1", KEY)).with(in_phase(Phase::Preflight));
    let table: [(&str, FleetBuilder); 9] = [
        ("taint gpu:NoSchedule", story().with(node("n1").renewed(at(0)).taint("gpu", "NoSchedule"))),
        ("not Ready", story().with(node("n1").renewed(at(0)).not_ready())),
        ("Make it OnDelete", story().with(nodeplugin(SET, DRIVER, "template-new").but(|it| it.on_delete = false))),
        ("has not seen generation", story().with(nodeplugin(SET, DRIVER, "template-new").but(|it| it.generation = 2))),
        ("2 DaemonSets", story().with(nodeplugin("ceph/other", DRIVER, "template-new"))),
        ("replaces it by itself", story().with(plugin_pod("csi-old", "old").phase(PodPhase::Failed).not_ready())),
        ("cannot be resolved", story().with(app("a"))),
        ("does not list driver", story().with(app("a")).with(fuse("a")).with(csi_node("n1", &[]))),
        ("third was asked for", story()),
    ];
    for (words, fleet) in table {
        let mut fleet = preflight(fleet);
        if words.starts_with("third") {
            fleet.put(in_phase(Phase::Preflight).to("third").status(|status| status.run = Some(run("third"))));
        }
        match acts(fleet) {
            Op::PutHandoffStatus { status, .. } => {
                let reason = status.reason.map(|reason| reason.message).unwrap_or_default();
                let first = status.phase == Phase::Queued || status.phase == Phase::Aborted;
                let said = reason.contains(words) || words.starts_with("third") && reason.contains("third");
                assert!(first && said, "{words}: {:?} {reason}", status.phase);
            }
            other => panic!("{words}: {other:?}"),
        }
    }
    enters(preflight(story().with(app("a")).with(fuse("a"))), Phase::Cordoning);
}

#[test]
fn g27_a_missing_plugin_pod_is_named_and_nobody_is_deleted_by_force() {
    let mut fleet = story().with(app("a").terminating(at(150))).with(fuse("a"));
    fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    waits(fleet, BlockerKind::PluginMissing, "do not delete those pods by force");
}

#[test]
fn a_silent_upgrade_is_unplanned_and_a_crash_leaves_stale_mounts() {
    let container = |restarts: i32| crate::fleet::records::ContainerRecord {
        last_exit: None,
        last_message: Default::default(),
        name: "csi-cephfsplugin".into(),
        init: false,
        ready: true,
        restarts,
        state: crate::fleet::records::ContainerState::Running { since: Some(at(-20)) },
    };
    let replaced = |created: i64, restarts: i32| {
        let new = plugin_pod("csi-new", "new").created(at(created)).but(|pod| {
            pod.extra.get_or_insert_default().containers = vec![container(restarts)];
        });
        let since = revision(SET, "new", 2, "template-new").but(|it| it.meta.created = Some(at(-60)));
        let mut fleet = story().with(since).with(new).with(app("a")).with(fuse("a"));
        fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
        fleet
    };
    waits(replaced(-20, 0), BlockerKind::UnplannedUpgrade, "shop/a");
    // What a handoff has replaced is no silent upgrade, whatever its process did since; what one to another revision did is no excuse.
    let done = |target: &str| {
        let end = Ended { attempt: 1, target: Some(target.into()), phase: Phase::Done, reason: None, at: at(-15).to_string() };
        handoff(KEY, "n1").to(target).phase(Phase::Done, at(-15)).status(|status| status.history = vec![end])
    };
    waits(replaced(-20, 1).with(done("new")), BlockerKind::StaleMount, "shop/a");
    waits(replaced(-20, 0).with(done("old")), BlockerKind::UnplannedUpgrade, "shop/a");
    // The same pod for longer than there is the revision: it was not replaced, its process was.
    waits(replaced(-90, 1), BlockerKind::StaleMount, "shop/a");
}

#[test]
fn an_automatic_rollout_asks_for_the_current_revision_where_the_pod_is_old() {
    let auto = |fleet: FleetBuilder| fleet.with(csi_component(|rollout| rollout.mode = RolloutMode::Auto));
    match acts(auto(story())) {
        Op::CreateHandoff { spec, .. } => assert_eq!(spec.version.as_deref(), Some("new")),
        other => panic!("{other:?}"),
    }
    let mut current = auto(story()).with(plugin_pod("csi-new", "new"));
    current.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    assert_eq!(verdict(current), Verdict::Done);
    assert_eq!(verdict(story()), Verdict::Done, "nothing moves by itself when mode is Manual");
}

#[test]
fn g23_current_is_the_revision_whose_data_is_the_template_whatever_its_number() {
    let copy = revision(SET, "copy", 9, "template-old").but(|it| it.key = key("ceph/by-hand"));
    let foreign = revision("ceph/other", "zzz", 10, "template-new");
    let mut fleet = story().with(copy).with(foreign);
    let view = fleet.project(at(0));
    let csi = view.components[&key(KEY)].csi.clone().unwrap();
    assert_eq!(csi.current.as_ref().map(Version::as_str), Some("new"));
    // A rollback raises the old one's number; its hash stays.
    fleet.put(nodeplugin(SET, DRIVER, "template-old").but(|it| (it.generation, it.observed_generation) = (3, 3)));
    fleet.put(revision(SET, "old", 11, "template-old"));
    let view = fleet.project(at(1));
    let csi = view.components[&key(KEY)].csi.clone().unwrap();
    assert_eq!(csi.current.as_ref().map(Version::as_str), Some("old"));
    assert!(csi.equal.contains(&"copy".into()), "a copy of the same template is up to date too");
}

#[test]
fn a_remount_moves_every_user_once_and_replaces_nothing() {
    let remount = |phase: Phase| {
        let policy = CsiNodePlugin { remount: Some("keys-1".into()), ..plugin() };
        let component = csi_component(|_| {}).spec(|spec| spec.csi_node_plugin = Some(policy.clone()));
        let mut run = run("keys-1");
        run.policy.csi_node_plugin = Some(policy);
        let volumes = vec!["handle-pv-a".to_owned(), "pv-a".to_owned()];
        let handoff = in_phase(phase).to("keys-1").status(|status| (status.run, status.volumes) = (Some(run), volumes));
        // Whatever the strategy: no pod is replaced.
        let set = nodeplugin(SET, DRIVER, "template-new").but(|it| it.on_delete = false);
        running(phase).with(component).with(set).with(handoff)
    };
    let kernel = |fleet: FleetBuilder| {
        fleet.with(app("a")).with(volume_claim("shop/a").to_volume("pv-a")).with(volume("pv-a", DRIVER, "shop/a"))
    };
    match acts(kernel(remount(Phase::Draining))) {
        Op::Evict { pods, .. } => assert_eq!(pods.len(), 1, "a kernel mount is mounted anew too"),
        other => panic!("{other:?}"),
    }
    // Mounted since the attempt began at 100.
    let anew =
        kernel(remount(Phase::Draining)).with(app("a").but(|pod| pod.extra.get_or_insert_default().mounted = Some(at(101))));
    enters(anew, Phase::Detaching);
    enters(remount(Phase::Detaching), Phase::Verifying);
    // Another word meanwhile, while it drains or is held: it is that word's turn, and no rollout undo brings the old one back.
    let another = || {
        let policy = CsiNodePlugin { remount: Some("keys-2".into()), ..plugin() };
        csi_component(|_| {}).spec(|spec| spec.csi_node_plugin = Some(policy))
    };
    let status = enters(kernel(remount(Phase::Draining)).with(another()), Phase::Aborted);
    let why = status.reason.map(|reason| reason.message).unwrap_or_default();
    assert!(why.contains("spec.csiNodePlugin.remount is keys-2 now: ask for keys-2") && !why.contains("rollout undo"), "{why}");
}

#[test]
fn pods_with_dead_mounts_are_named_in_the_components_status_and_in_status() {
    let container = crate::fleet::records::ContainerRecord {
        name: "csi-cephfsplugin".into(),
        init: false,
        ready: true,
        restarts: 1,
        last_exit: None,
        last_message: Default::default(),
        state: crate::fleet::records::ContainerState::Running { since: Some(at(-20)) },
    };
    let new = plugin_pod("csi-new", "new").created(at(-90)).but(|pod| {
        pod.extra.get_or_insert_default().containers = vec![container];
    });
    let mut fleet = story().with(new).with(app("a")).with(fuse("a"));
    fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    let view = fleet.project(at(NOW));
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let mut observed = Observed::default();
    observed.observe(&view);
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    let tally = &decisions.tallies[&crate::api::ComponentKey::new("ceph", "cephfs")];
    let status = crate::handoff::component::status(&view.components[&key(KEY)], tally, at(NOW));
    let stale = status.conditions.iter().find(|it| it.kind == "StaleMounts").unwrap();
    assert_eq!((stale.status.as_str(), tally.stale.pods), ("True", 1));
    assert!(stale.message.contains("shop/a") && stale.message.contains("Delete them"), "{}", stale.message);
    // Once the pod is gone nothing is left to say.
    fleet.gone(crate::fleet::event::Kind::Pod, key("shop/a"));
    let view = fleet.project(at(NOW + 1));
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    let tally = &decisions.tallies[&crate::api::ComponentKey::new("ceph", "cephfs")];
    let status = crate::handoff::component::status(&view.components[&key(KEY)], tally, at(NOW + 1));
    assert_eq!(status.conditions.iter().find(|it| it.kind == "StaleMounts").unwrap().status, "False");
}

#[test]
fn a_holder_is_a_component_of_its_own_beside_the_nodeplugin() {
    const HOLDER: &str = "ceph/csi-cephfsplugin-holder-main";
    let holder = nodeplugin(HOLDER, DRIVER, "template-h").template(|it| {
        (it.host_network, it.registers) = (false, false);
        it.drivers.clear();
    });
    let own = component("ceph/holder").finalizer(FINALIZER).spec(|spec| {
        spec.version.clear();
        spec.kernel_module = None;
        spec.csi_node_plugin = Some(CsiNodePlugin { daemon_set: Some("csi-cephfsplugin-holder-main".into()), ..plugin() });
    });
    let mut fleet = story().with(holder).with(own.clone()).with(revision(HOLDER, "h", 1, "template-h"));
    let view = fleet.project(at(0));
    for name in [KEY, "ceph/holder"] {
        assert!(view.components[&key(name)].refusals.is_empty(), "{:?}", view.components[&key(name)].refusals);
    }
    let csi = |name: &str| view.components[&key(name)].csi.clone().unwrap();
    assert_eq!((csi(KEY).holder, csi(KEY).held_by.clone()), (false, Some(key(HOLDER))));
    assert!(csi("ceph/holder").holder && csi("ceph/holder").held_by.is_none());
    // It hangs on its pod's replacement like any other.
    let rolling = nodeplugin(HOLDER, DRIVER, "template-h").template(|it| (it.host_network, it.registers) = (false, false));
    fleet.put(rolling.but(|it| it.on_delete = false));
    let view = fleet.project(at(1));
    assert!(view.components[&key("ceph/holder")].refusals.iter().any(|why| why.contains("Make it OnDelete")));
}

//! The label machine that keeps loader and plugin of two versions apart: ten rules, the first that applies is the law, whoever moved the
//! labels. It knows no phases; a phase is a range of its rules. Why each clause is there: docs/concepts/interlock.

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Evidence, Op, PodRef},
    facts::Facts,
    in_use,
    patch::NodeEdit,
    pod_state::state_of,
    unload_pod::{self, Outcome},
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{
        Phase, Version, keys,
        keys::{DesiredBy, Loaded, Role},
    },
    fleet::records::{ContainerState, PodPhase, PodRecord},
};

/// In the order of the law. A phase lets the rules up to one of its own act, and is over when the first rule that applies is a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 0: an unknown version, or a value that does not parse: nothing acts.
    Unknown,
    /// 2: the plugin label goes.
    PluginOff,
    /// 3: the plugin is gone and offers nothing.
    PluginGone,
    /// 4: the loader label goes.
    LoaderOff,
    /// 5: the loader is gone.
    LoaderGone,
    /// 6: the module is out.
    ModuleOut,
    /// 7: the loader label comes.
    LoaderOn,
    /// 8, its first half: a loader made in this boot is Ready.
    LoaderReady,
    /// 8: the plugin label comes.
    PluginOn,
    /// 9: devices are back.
    DevicesBack,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub rule: Rule,
    pub effect: Effect,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Act(Box<Action>),
    Wait { blockers: Vec<Blocker>, recheck: Option<Timestamp> },
}

/// What the machine obeys: the desired label, or what the running handoff is about to make of it.
#[derive(Debug, Clone)]
pub struct Order {
    pub desired: Option<Version>,
    /// The desired label becomes `desired` in the patch that first follows from it.
    pub moves: Option<DesiredBy>,
    /// Rule 1: D is absent because of a handoff that has stopped: rules 4 to 7 wait.
    pub stopped: Option<BlockerKind>,
}

impl Order {
    /// The label as it stands.
    pub fn label(facts: &Facts<'_>) -> Self {
        let phase = facts.status().map(|status| status.phase);
        let stopped = match phase {
            Some(Phase::Failed) => Some(BlockerKind::HandoffFailed),
            Some(Phase::Held | Phase::Aborted) => Some(BlockerKind::HandoffHeld),
            _ => None,
        };
        Self { desired: facts.desired().cloned(), moves: None, stopped }
    }
}

type Out = Option<Step>;

/// The first rule that applies; None: nothing is to be done.
pub fn step(facts: &Facts<'_>, order: &Order) -> Out {
    // KMM's labels are KMM's to move.
    if facts.csi().is_some() || facts.component.kmm.is_some() {
        return None;
    }
    unknown(facts, order)
        .or_else(|| plugin_off(facts, order))
        .or_else(|| plugin_gone(facts, order))
        .or_else(|| loader_off(facts, order))
        .or_else(|| loader_gone(facts, order))
        .or_else(|| module_out(facts, order))
        .or_else(|| loader_on(facts, order))
        .or_else(|| plugin_on(facts, order))
        .or_else(|| devices_back(facts, order))
        .or_else(|| leftovers(facts))
}

fn act(rule: Rule, action: Action) -> Out {
    Some(Step { rule, effect: Effect::Act(Box::new(action)) })
}

fn wait(rule: Rule, blockers: Vec<Blocker>) -> Out {
    wait_until(rule, blockers, None)
}

fn held(rule: Rule, effect: Option<Effect>) -> Out {
    effect.map(|effect| Step { rule, effect })
}

fn wait_until(rule: Rule, blockers: Vec<Blocker>, recheck: Option<Timestamp>) -> Out {
    (!blockers.is_empty()).then_some(Step { rule, effect: Effect::Wait { blockers, recheck } })
}

/// 0. A typo stops everything: it must neither unload nor load.
fn unknown(f: &Facts<'_>, order: &Order) -> Out {
    let garbage = f.occupancy.labels.garbage.iter().map(|garbage| {
        let message = format!("{garbage}; nothing is done here until it is corrected or removed");
        f.on_node(BlockerKind::LabelGarbage, message)
    });
    let mut blockers: Vec<Blocker> = garbage.collect();
    for why in &f.component.refusals {
        let object = ObjectRef::new("NodeComponent", f.key);
        blockers.push(f.blocker(
            BlockerKind::ComponentRefused,
            object,
            format!("{why}; nothing is done here until it is corrected"),
        ));
    }
    let mut named: Vec<&Version> = f.desired().into_iter().chain(&order.desired).collect();
    named.dedup();
    for version in named.into_iter().filter(|version| f.version(version).is_none()) {
        let known: Vec<&str> = f.component.versions.keys().map(Version::as_str).collect();
        let key = Role::Desired.key(f.key);
        let message = format!(
            "{version:?} is no version of {}; known are {}. Nothing is loaded or unloaded until the label {key} names one of them; taken off, it takes the node out of service",
            f.key,
            known.join(", ")
        );
        blockers.push(f.on_node(BlockerKind::UnknownVersion, message));
    }
    wait(Rule::Unknown, blockers)
}

/// 2. The plugin of another version than the desired one, or beside another loader, goes as soon as nobody uses it.
fn plugin_off(f: &Facts<'_>, order: &Order) -> Out {
    let plugin = f.plugin()?;
    let beside_another = f.loader().is_some_and(|loader| loader != plugin);
    if order.desired.as_ref() == Some(plugin) && !beside_another {
        return None;
    }
    held(Rule::PluginOff, in_use::in_use(f)).or_else(|| {
        let edit = NodeEdit::new(f).label(Role::Ready, None).label(Role::Plugin, None);
        let why = match &order.desired {
            Some(desired) => format!("stop the plugin of {plugin}: {desired} is wanted on {}", f.node.name),
            None => format!("stop the plugin of {plugin} on {}: nothing claims its devices any more", f.node.name),
        };
        act(Rule::PluginOff, moved(f, order, edit).fresh(why))
    })
}

/// 3. Without a plugin label nothing may look ready, no plugin pod may be left, and the kubelet must have stopped offering devices.
fn plugin_gone(f: &Facts<'_>, order: &Order) -> Out {
    if f.plugin().is_some() {
        return None;
    }
    if f.occupancy.labels.ready.is_some() {
        let edit = NodeEdit::new(f).label(Role::Ready, None);
        return act(Rule::PluginGone, moved(f, order, edit).watched(format!("{} has no plugin: it is not ready", f.node.name)));
    }
    let mut blockers: Vec<Blocker> = f
        .occupancy
        .plugin_pods
        .iter()
        .map(|pod| {
            f.on_pod(
                BlockerKind::PluginPod,
                pod,
                format!("the plugin pod is {}; what follows waits until it is gone", state_of(pod)),
            )
        })
        .collect();
    if blockers.is_empty() && !f.offers_nothing() {
        let left: Vec<String> =
            f.offered().iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name}: {count}")).collect();
        let message =
            format!("still offers {}; the kubelet takes devices back some seconds after the plugin has gone", left.join(", "));
        blockers.push(f.on_node(BlockerKind::Allocatable, message));
    }
    if !blockers.is_empty() {
        blockers.extend(in_use::not_ready(f));
    }
    wait(Rule::PluginGone, blockers)
}

/// 4. The loader of another version goes when neither plugin nor claimant is there.
fn loader_off(f: &Facts<'_>, order: &Order) -> Out {
    let loader = f.loader()?;
    if f.loaded().is_none() {
        // A loader may have loaded its module: without the record the next rules would not know what to unload.
        let record = Loaded { version: loader.clone(), stopped_boot: None };
        let edit = NodeEdit::new(f).loaded(Some(&record));
        return act(
            Rule::LoaderOff,
            edit.fresh(format!("record that {loader} may be in the kernel of {}: its loader label is set", f.node.name)),
        );
    }
    if order.desired.as_ref() == Some(loader) {
        return None;
    }
    stopped(f, order, Rule::LoaderOff)
        .or_else(|| held(Rule::LoaderOff, in_use::in_use(f)))
        .or_else(|| wait(Rule::LoaderOff, in_use::plugin_pods(f)))
        .or_else(|| wait(Rule::LoaderOff, in_use::open_to_selected(f)))
        .or_else(|| {
            let edit = NodeEdit::new(f).label(Role::Loader, None);
            act(
                Rule::LoaderOff,
                moved(f, order, edit)
                    .fresh(format!("stop the loader of {loader} on {}: no plugin and no claimant is left", f.node.name)),
            )
        })
}

/// What the record says is in the kernel though it is not wanted.
fn unwanted<'a>(f: &Facts<'a>, order: &Order) -> Option<&'a Loaded> {
    let loaded = f.occupancy.labels.loaded.as_ref()?;
    (f.loader().is_none() && order.desired.as_ref() != Some(&loaded.version)).then_some(loaded)
}

/// 5. Once the loader pod is gone, the boot in which that was seen is written down.
fn loader_gone(f: &Facts<'_>, order: &Order) -> Out {
    let loaded = unwanted(f, order)?;
    if loaded.stopped_boot.is_some() {
        return None;
    }
    stopped(f, order, Rule::LoaderGone)
        .or_else(|| {
            let pods = f.occupancy.loader_pods.iter();
            let message = |pod: &PodRecord| format!("the loader pod is {}; the unload pod waits until it is gone", state_of(pod));
            wait(Rule::LoaderGone, pods.map(|pod| f.on_pod(BlockerKind::LoaderPod, pod, message(pod))).collect())
        })
        .or_else(|| held(Rule::LoaderGone, in_use::not_settled(f)))
        .or_else(|| {
            let boot = f.boot()?;
            let record = Loaded { stopped_boot: Some(boot.clone()), ..loaded.clone() };
            let mut edit = NodeEdit::new(f).loaded(Some(&record));
            if !f.unloads_by_reboot() {
                edit = edit.nonce(Some(&new_nonce(f, loaded)));
            }
            act(
                Rule::LoaderGone,
                edit.fresh(format!("record that the loader of {} has stopped on {} in boot {boot}", loaded.version, f.node.name)),
            )
        })
}

/// 6. The proof that the module is out: another boot, or the exit 0 of the unload pod with this nonce.
fn module_out(f: &Facts<'_>, order: &Order) -> Out {
    const RULE: Rule = Rule::ModuleOut;
    let loaded = unwanted(f, order)?;
    let stopped_boot = loaded.stopped_boot.as_ref()?;
    let out = |why: String| act(RULE, NodeEdit::new(f).loaded(None).nonce(None).fresh(why));
    if let Some(held) = stopped(f, order, RULE) {
        return Some(held);
    }
    let Some(boot) = f.boot() else { return wait(RULE, in_use::not_ready(f)) };
    if boot != stopped_boot {
        return out(format!(
            "{} is out of the kernel of {}: boot {boot} is not the {stopped_boot} in which it was stopped",
            loaded.version, f.node.name
        ));
    }
    let nonce = f.occupancy.labels.nonce.as_deref();
    // One after the other: each is gone before the next is looked at.
    if let Some(pod) = f.occupancy.unload_pods.first() {
        let ours = nonce.is_some() && unload_pod::nonce_of(pod) == nonce;
        match unload_pod::outcome(pod) {
            Outcome::Unloaded if ours => {
                return out(format!("{} is out of the kernel of {}: Pod {} exited 0", loaded.version, f.node.name, pod.key));
            }
            Outcome::Running { message } => {
                return wait(RULE, vec![f.on_pod(BlockerKind::UnloadPod, pod, format!("unloads {}: {message}", loaded.version))]);
            }
            Outcome::Failed { exit_code, message } if ours && !is_recorded(f, pod) => {
                return super::unload_record::record(f, pod, exit_code, &message, RULE);
            }
            _ if pod.meta.deletion.is_some() => {
                return wait(
                    RULE,
                    vec![f.on_pod(
                        BlockerKind::UnloadPod,
                        pod,
                        "an ended unload pod is terminating; a new one comes when it is gone",
                    )],
                );
            }
            _ => {
                return act(RULE, delete(pod, format!("delete Pod {}: its result is recorded and proves nothing more", pod.key)));
            }
        }
    }
    if f.unloads_by_reboot() {
        let message = format!(
            "{} leaves the kernel only with a reboot; reboot the node (boot ID now {boot}). A new boot ID ends the wait",
            loaded.version
        );
        return wait(RULE, vec![f.on_node(BlockerKind::RebootRequired, message)]);
    }
    let Some(block) = f.version(&loaded.version).map(|view| &view.block) else {
        let message = format!(
            "{} may be in the kernel, but nothing says how to unload it: its loader DaemonSet is gone. Restore it, or reboot the node",
            loaded.version
        );
        return wait(RULE, vec![f.on_node(BlockerKind::Anomaly, message)]);
    };
    let Some(nonce) = nonce else {
        let edit = NodeEdit::new(f).nonce(Some(&new_nonce(f, loaded)));
        return act(RULE, edit.fresh(format!("{} has no unload nonce: set a new one", f.node.name)));
    };
    let mut claimed = held(RULE, in_use::in_use(f))
        .or_else(|| wait(RULE, in_use::plugin_pods(f)))
        .or_else(|| wait(RULE, in_use::open_to_selected(f)))
        .or_else(|| held(RULE, in_use::not_settled(f)));
    if claimed.is_none() {
        claimed = super::unload_record::backing_off(f, RULE);
    }
    claimed.or_else(|| {
        let body = unload_pod::body(f.key, &loaded.version, block, &f.node.name, nonce)?;
        let why = format!("unload {} from the kernel of {}", loaded.version, f.node.name);
        act(RULE, Action { op: Op::CreatePod(Box::new(body)), evidence: Evidence::Fresh, why })
    })
}

/// 7. Into an empty kernel, or back to what is recorded there, the desired version's loader comes.
fn loader_on(f: &Facts<'_>, order: &Order) -> Out {
    const RULE: Rule = Rule::LoaderOn;
    let desired = order.desired.as_ref()?;
    if f.loader().is_some() {
        return None;
    }
    if let Some(step) = beside_unload(f, RULE) {
        return Some(step);
    }
    let mut blockers = Vec::new();
    for pod in &f.occupancy.loader_pods {
        if pod.phase.is_terminal() && pod.meta.deletion.is_none() {
            return act(RULE, delete(pod, format!("delete the ended loader pod {} before a new one comes", pod.key)));
        }
        blockers.push(f.on_pod(
            BlockerKind::LoaderPod,
            pod,
            format!("an old loader pod is {}; the loader label waits until it is gone", state_of(pod)),
        ));
    }
    blockers.extend(in_use::missing_daemon_sets(f, desired));
    if !blockers.is_empty() {
        return wait(RULE, blockers);
    }
    // An unload pod deleted by force may still be unloading.
    if let Some(left) = f.observed.not_ended(f.node, f.now) {
        return held(RULE, Some(in_use::still_there(f, left)));
    }
    let record = Loaded { version: desired.clone(), stopped_boot: None };
    let edit = NodeEdit::new(f).label(Role::Loader, Some(desired)).loaded(Some(&record)).nonce(None);
    // A second of slack for the clocks: no loader pod is on the node now, so one made a moment ago is of this label too.
    let since = f.now.checked_sub(SignedDuration::from_secs(1)).unwrap_or(f.now);
    act(RULE, moved(f, order, edit.loader_boot(since)).fresh(format!("load {desired} on {}", f.node.name)))
}

/// 8. Only a loader pod made in this boot, Ready, with no unload pod beside it, proves that the module is in.
fn plugin_on(f: &Facts<'_>, order: &Order) -> Out {
    const RULE: Rule = Rule::LoaderReady;
    let loader = f.loader()?;
    if order.desired.as_ref() != Some(loader) {
        return None;
    }
    if let Some(step) = record_of(f, loader) {
        return Some(step);
    }
    if f.plugin().is_some() {
        return None;
    }
    // A finished unload pod may have taken out what an older loader pod had loaded: that loader proves nothing.
    let ended = f.occupancy.unload_pods.iter().filter(|pod| pod.phase.is_terminal()).filter_map(|pod| end_of(pod)).max();
    let older = |pod: &PodRecord| ended.is_some_and(|end| pod.meta.created.is_none_or(|created| created <= end));
    if let Some(pod) = f.occupancy.loader_pods.iter().find(|pod| pod.meta.deletion.is_none() && older(pod)) {
        return act(RULE, delete(pod, format!("replace the loader pod {}: an unload pod ended after it was made", pod.key)));
    }
    if let Some(step) = beside_unload(f, RULE) {
        return Some(step);
    }
    let boot = f.boot();
    let known = f.occupancy.labels.mark.as_ref().and_then(|mark| mark.boot.as_ref());
    let Some(since) = known.filter(|known| Some(&known.id) == boot).map(|known| known.since.parse::<Timestamp>()) else {
        if boot.is_none() {
            return wait(RULE, in_use::not_ready(f));
        }
        let why = format!(
            "{} runs in another boot than its loader label: only a loader pod made from now on proves anything",
            f.node.name
        );
        return act(RULE, NodeEdit::new(f).loader_boot(f.now).fresh(why));
    };
    let since = since.unwrap_or(Timestamp::MAX);
    let is_of = |pod: &PodRecord| pod.labels.get(keys::VERSION).is_some_and(|version| **version == *loader.as_str());
    let mut blockers = Vec::new();
    for pod in &f.occupancy.loader_pods {
        let stays = pod.meta.deletion.is_none();
        if !is_of(pod) {
            blockers.push(f.on_pod(BlockerKind::LoaderPod, pod, format!("a loader pod of another version is {}", state_of(pod))));
        } else if stays && pod.meta.created.is_none_or(|created| created < since) {
            return act(
                RULE,
                delete(
                    pod,
                    format!("replace the loader pod {}: it was made before this boot, so its Ready proves nothing", pod.key),
                ),
            );
        } else if !stays || !pod.ready.is_true() {
            blockers.push(f.on_pod(BlockerKind::LoaderNotReady, pod, format!("the loader pod of {loader} is {}", state_of(pod))));
        }
    }
    if f.occupancy.loader_pods.is_empty() {
        let message = format!("no loader pod of {loader} is on the node yet; its DaemonSet makes it");
        blockers.push(f.on_node(BlockerKind::LoaderNotReady, message));
    }
    blockers.extend(in_use::missing_daemon_sets(f, loader));
    blockers.extend(in_use::not_ready(f));
    if !blockers.is_empty() {
        return wait(RULE, blockers);
    }
    let edit = NodeEdit::new(f).label(Role::Plugin, Some(loader));
    act(Rule::PluginOn, edit.fresh(format!("start the plugin of {loader} on {}: its loader is Ready in this boot", f.node.name)))
}

/// Before 8: the record must say what the loader label says.
fn record_of(f: &Facts<'_>, loader: &Version) -> Out {
    const RULE: Rule = Rule::LoaderReady;
    let loaded = f.occupancy.labels.loaded.as_ref()?;
    if loaded.version != *loader {
        let message = format!(
            "the loader label says {loader}, but the record says that {} may be in the kernel: somebody set the label by hand. Remove the label {}; then {} is unloaded first",
            loaded.version,
            Role::Loader.key(f.key),
            loaded.version
        );
        return wait(RULE, vec![f.on_node(BlockerKind::Anomaly, message)]);
    }
    (loaded.stopped_boot.is_some() || f.occupancy.labels.nonce.is_some()).then(|| {
        let record = Loaded { version: loader.clone(), stopped_boot: None };
        let edit = NodeEdit::new(f).loaded(Some(&record)).nonce(None);
        Step {
            rule: RULE,
            effect: Effect::Act(Box::new(
                edit.fresh(format!("{loader} is being loaded on {}: no unload is under way", f.node.name)),
            )),
        }
    })
}

/// 9. Devices are back: DaemonSets that use them may come.
fn devices_back(f: &Facts<'_>, order: &Order) -> Out {
    let plugin = f.plugin()?;
    if order.desired.as_ref() != Some(plugin) || f.loader() != Some(plugin) || f.occupancy.labels.ready.as_ref() == Some(plugin) {
        return None;
    }
    if in_use::is_handing_over(f) {
        return None;
    }
    let mut blockers = in_use::plugin_not_ready(f);
    if blockers.is_empty() {
        blockers.extend(
            f.missing_device().map(|missing| f.on_node(BlockerKind::Allocatable, format!("devices are not back yet: {missing}"))),
        );
    }
    if !blockers.is_empty() {
        return wait(Rule::DevicesBack, blockers);
    }
    let edit = NodeEdit::new(f).label(Role::Ready, Some(plugin));
    act(Rule::DevicesBack, edit.watched(format!("{} offers its devices with {plugin}: it is ready", f.node.name)))
}

/// A nonce without a record serves no pod, and an unload pod whose proof is taken proves nothing more.
fn leftovers(f: &Facts<'_>) -> Out {
    const RULE: Rule = Rule::DevicesBack;
    // Under way: the pod and the nonce are rule 6's.
    if f.occupancy.labels.loaded.as_ref().is_some_and(|loaded| loaded.stopped_boot.is_some()) {
        return None;
    }
    if let Some(pod) = f.occupancy.unload_pods.iter().find(|pod| pod.phase.is_terminal() && pod.meta.deletion.is_none()) {
        return act(RULE, delete(pod, format!("delete Pod {}: its result is recorded", pod.key)));
    }
    f.occupancy.labels.nonce.as_ref().filter(|_| f.loaded().is_none())?;
    act(RULE, NodeEdit::new(f).nonce(None).fresh(format!("{} has an unload nonce and nothing to unload", f.node.name)))
}

/// Rule 1.
fn stopped(f: &Facts<'_>, order: &Order, rule: Rule) -> Out {
    let kind = order.stopped.filter(|_| order.desired.is_none())?;
    let phase = f.phase();
    let message = format!(
        "the handoff is {phase} and the node has no desired version: nothing more is unloaded until it is tried again, or a version is set"
    );
    wait(rule, vec![f.blocker(kind, ObjectRef::new("NodeHandoff", format!("{}.{}", f.key, f.node.name)), message)])
}

/// No loader starts beside an unload pod: a finished one is deleted, a running one awaited.
fn beside_unload(f: &Facts<'_>, rule: Rule) -> Out {
    let pod = f.occupancy.unload_pods.first()?;
    if pod.meta.deletion.is_none() {
        if pod.phase.is_terminal() {
            return act(rule, delete(pod, format!("delete the ended unload pod {} before the loader counts", pod.key)));
        }
        // It cannot start (its image, say), and nothing waits for it any more.
        if pod.phase == PodPhase::Pending {
            return act(
                rule,
                delete(pod, format!("delete the unload pod {} that never started: nothing is to be unloaded", pod.key)),
            );
        }
    }
    wait(
        rule,
        vec![f.on_pod(
            BlockerKind::UnloadPod,
            pod,
            format!("an unload pod is {}; loading waits until it is gone", state_of(pod)),
        )],
    )
}

/// Adds the running handoff's own move of the desired label.
fn moved<'f, 'a>(f: &Facts<'a>, order: &Order, edit: NodeEdit<'f, 'a>) -> NodeEdit<'f, 'a> {
    match order.moves {
        Some(by) if f.desired() != order.desired.as_ref() => edit.label(Role::Desired, order.desired.as_ref()).desired_by(by),
        _ => edit,
    }
}

fn new_nonce(f: &Facts<'_>, loaded: &Loaded) -> String {
    let uid = f.record().map(|record| record.meta.uid.to_string()).unwrap_or_default();
    let version = f.record().map(|record| record.meta.resource_version.to_string()).unwrap_or_default();
    unload_pod::nonce(&[&f.owner(), &uid, &version, loaded.version.as_str(), &f.context.epoch.to_string(), &f.now.to_string()])
}

fn is_recorded(f: &Facts<'_>, pod: &PodRecord) -> bool {
    f.status().is_none_or(|status| status.unload.as_ref().is_some_and(|record| pod.meta.uid == *record.pod.as_str()))
}

pub(super) fn delete(pod: &PodRecord, why: String) -> Action {
    Action { op: Op::DeletePod(PodRef::of(pod)), evidence: Evidence::Fresh, why }
}

/// When the last container of an ended pod finished; unknown: the far future, so that nothing passes for newer.
fn end_of(pod: &PodRecord) -> Option<Timestamp> {
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    let ends = containers.iter().map(|container| match &container.state {
        ContainerState::Terminated { finished, .. } => finished.unwrap_or(Timestamp::MAX),
        _ => Timestamp::MIN,
    });
    ends.max()
}

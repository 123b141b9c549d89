//! What `status` says of a picture.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    api::{ComponentKey, Phase},
    cli::text::{Table, age, plain},
    console::{
        facts::{Facts, Runs},
        rows::{Item, Rows},
    },
    engine::picture::Picture,
    fleet::view::{ClaimantClass, ComponentView, FleetView, WatchState},
    handoff::{phases, verdict::Verdict},
};

/// Everything that `status` knows, in the order of the queue. Field names are stable: scripts read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub cluster: Cluster,
    /// The API server's time of the picture, RFC 3339.
    pub at: String,
    /// Everything needed was listed completely.
    pub complete: bool,
    pub engine: Engine,
    pub components: Vec<Component>,
    pub nodes: Vec<Node>,
    /// Pods that hold a dead mount, whoever restarted the process that served it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stale_mounts: Vec<StaleMount>,
    /// What is wrong or missing, as sentences.
    pub notes: Vec<String>,
    /// Absent: the cluster has no KMM, or it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kmm: Option<super::kmm::Report>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cluster {
    pub context: String,
    pub server: String,
    pub version: String,
    pub uid: String,
    pub user: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// Who holds the Lease; absent: nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Nodes that hold a slot of the budget.
    pub admitted: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// `namespace/name`.
    pub component: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub mode: String,
    pub paused: bool,
    pub nodes: usize,
    pub current: usize,
    pub queued: usize,
    pub running: usize,
    pub blocked: usize,
    pub failed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub node: String,
    pub component: String,
    /// What it runs; of a Module of KMM, what is proven to be in the kernel. Absent: nothing, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Something may be in the kernel, and nothing proves what.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub version_unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Somebody has asked to stop the handoff, and it has not ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborting: bool,
    /// Seconds in the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Place in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocker: Option<Blocker>,
    /// The step that follows.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
    pub claimants: usize,
    /// There is a NodeHandoff, and no such Node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    pub ready: bool,
    pub cordoned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocker {
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaleMount {
    /// `namespace/name`.
    pub pod: String,
    pub node: String,
    pub component: String,
    /// PersistentVolume; of an inline volume its name in the pod.
    pub volume: String,
    /// The command that brings the mount back: the pod's owner makes another one.
    pub repair: String,
}

/// Of all components, or of one.
pub fn report(picture: &Picture, only: Option<&ComponentKey>) -> Report {
    let fleet = &picture.fleet;
    let mut rows = Rows::default();
    rows.only = only.cloned();
    rows.refresh(picture, fleet.generation);
    let nodes = rows.items().filter_map(|item| match item {
        Item::Group(_) => None,
        Item::Row(key) => Facts::of(picture, &key.component, &key.node).map(|facts| node(&facts)),
    });
    let info = &fleet.cluster;
    Report {
        cluster: Cluster {
            context: info.context.strip_prefix("context ").unwrap_or(&info.context).to_owned(),
            server: info.server.clone(),
            version: info.version.clone(),
            uid: info.uid.clone(),
            user: info.user.clone(),
        },
        at: fleet.now.to_string(),
        complete: fleet.synced,
        engine: Engine {
            holder: picture.leadership.holder.clone(),
            admitted: fleet.lease.iter().flat_map(|lease| &lease.slots).map(|slot| slot.node.clone()).collect(),
        },
        components: components(picture, &rows, only),
        nodes: nodes.collect(),
        stale_mounts: stale_mounts(fleet, only),
        notes: notes(picture, only),
        kmm: None,
    }
}

fn stale_mounts(fleet: &FleetView, only: Option<&ComponentKey>) -> Vec<StaleMount> {
    let csi = fleet.components.iter().filter(|(key, view)| view.csi.is_some() && only.is_none_or(|only| only == *key));
    let mut all = Vec::new();
    for (component, _) in csi {
        for (node, occupancy) in fleet.occupancies(component) {
            all.extend(occupancy.csi.iter().flat_map(|csi| csi.stale()).map(|it| StaleMount {
                pod: it.pod.key.to_string(),
                node: node.name.to_string(),
                component: component.to_string(),
                volume: it.volume.as_ref().unwrap_or(&it.name).to_string(),
                repair: format!("kubectl -n {} delete pod {}", it.pod.key.namespace, it.pod.key.name),
            }));
        }
    }
    all
}

fn components(picture: &Picture, rows: &Rows, only: Option<&ComponentKey>) -> Vec<Component> {
    let wanted = |key: &&ComponentKey| only.is_none_or(|only| only == *key);
    rows.progress()
        .iter()
        .filter(|(key, _)| wanted(key))
        .map(|(key, progress)| {
            let view = picture.fleet.components.get(key);
            let spec = view.and_then(|component| component.spec());
            Component {
                component: key.to_string(),
                version: view.and_then(|component| component.aim()).map(|aim| aim.to_string()),
                mode: spec.map(|spec| format!("{:?}", spec.rollout.mode)).unwrap_or_default(),
                paused: spec.is_some_and(|spec| spec.rollout.paused),
                nodes: progress.total,
                current: progress.current,
                queued: progress.queued,
                running: progress.running,
                blocked: progress.blocked,
                failed: progress.failed,
            }
        })
        .collect()
}

fn node(facts: &Facts<'_>) -> Node {
    let record = facts.node.record.as_deref();
    let now = facts.picture.fleet.now;
    let recorded = facts.recorded().first().and(facts.phase()).map(|phase| phases::info(phase).next.to_owned());
    let next = recorded.unwrap_or_else(|| match facts.verdict {
        Some(Verdict::Wait(wait)) => wait.next.clone(),
        Some(Verdict::Act(action)) => action.why.clone(),
        _ => String::new(),
    });
    Node {
        node: facts.node.name.to_string(),
        component: facts.key.to_string(),
        version: match facts.runs() {
            Runs::Proven(version) => Some(version.to_owned()),
            Runs::Nothing | Runs::Unknown => None,
        },
        version_unknown: facts.runs() == Runs::Unknown,
        target: facts.target().map(str::to_owned),
        phase: facts.phase(),
        aborting: facts.is_aborting(),
        since: facts.since().map(|since| since.to_string()),
        seconds: facts.since().map(|since| now.duration_since(since).as_secs().max(0)),
        position: facts.position(),
        attempt: facts.handoff().and_then(|handoff| handoff.spec.as_ref().ok()).map(|spec| spec.attempt),
        blocker: facts.blocked().map(|blocked| Blocker {
            kind: blocked.word.into_owned(),
            object: blocked.object.into_owned(),
            message: blocked.message.into_owned(),
            since: blocked.since.map(|since| since.to_string()),
        }),
        next,
        claimants: facts.occupancy.claimants.iter().filter(|it| it.class != ClaimantClass::Terminating).count(),
        absent: record.is_none(),
        ready: record.is_some_and(|record| record.ready.is_true()),
        cordoned: record.is_some_and(|record| record.unschedulable),
    }
}

fn notes(picture: &Picture, only: Option<&ComponentKey>) -> Vec<String> {
    let fleet = &picture.fleet;
    let mut notes = Vec::new();
    if picture.leadership.holder.is_none() {
        notes.push(
            "nobody holds the Lease lockkeeper-system/lockkeeper: handoffs wait until `lockkeeper reconcile` runs".to_owned(),
        );
    }
    if let Some(garbage) = fleet.lease.as_ref().and_then(|lease| lease.slots_garbage.as_ref()) {
        notes.push(format!("the slots on Lease lockkeeper-system/lockkeeper do not decode, nothing is admitted: {garbage}"));
    }
    for watch in fleet.health.iter() {
        match &watch.state {
            WatchState::Retrying { error, .. } => notes.push(format!("{} may be outdated: {error}", watch.resource)),
            WatchState::Unavailable { why } => notes.push(format!("{} cannot be seen: {why}", watch.resource)),
            WatchState::Syncing | WatchState::Live => {}
        }
        notes.extend(watch.undecodable.iter().map(|(name, why)| format!("{} {name} does not decode: {why}", watch.resource)));
    }
    for (key, component) in fleet.components.iter().filter(|(key, _)| only.is_none_or(|only| only == *key)) {
        if let Err(why) = &component.record.spec {
            notes.push(format!("NodeComponent {key} does not decode: {why}"));
        }
        notes.extend(component.refusals.iter().map(|why| format!("NodeComponent {key} is refused: {why}")));
        notes.extend(
            component.alarms().chain(component.anomalies.iter().cloned()).map(|why| format!("NodeComponent {key}: {why}")),
        );
        if component.changed_without_version {
            notes.push(format!("NodeComponent {key}: the content of its version changed under the same name and is not rolled out; name a new version"));
        }
        notes.extend(skew(fleet, key, component));
    }
    for node in fleet.nodes.iter() {
        let garbage = node.components.values().flat_map(|occupancy| &occupancy.labels.garbage);
        let cordon = node.cordon.iter().filter_map(|cordon| cordon.as_ref().err());
        let seen: BTreeSet<String> = garbage.chain(cordon).map(|garbage| format!("Node {}: {garbage}", node.name)).collect();
        notes.extend(seen);
    }
    notes
}

/// How far a nodeplugin's nodes are from its current revision, and for how long: days of it are normal with OnDelete.
pub(super) fn skew(fleet: &FleetView, key: &ComponentKey, component: &ComponentView) -> Option<String> {
    let csi = component.csi.as_ref()?;
    let current = csi.current.as_ref()?;
    let revisions = fleet.occupancies(key).filter_map(|(_, occupancy)| occupancy.csi.as_ref()).map(|here| here.revision.as_ref());
    let (on, all) = revisions.fold((0, 0), |(on, all), revision| (on + u32::from(revision == Some(current)), all + 1));
    let since = csi.current_since.map(|since| format!(", current for {}", age(fleet.now.duration_since(since).as_secs())));
    (on < all).then(|| {
        format!(
            "NodeComponent {key}: {on} of {all} nodes run {current}{}; nothing moves until nodes are handed over",
            since.unwrap_or_default()
        )
    })
}

/// For people: components, then nodes, then notes.
pub fn table(report: &Report, wide: bool) -> String {
    let mut components =
        Table::new(&["COMPONENT", "VERSION", "MODE", "NODES", "CURRENT", "QUEUED", "RUNNING", "BLOCKED", "FAILED"]);
    for it in &report.components {
        let mode = if it.paused { format!("{}, paused", it.mode) } else { it.mode.clone() };
        let counts = [it.nodes, it.current, it.queued, it.running, it.blocked, it.failed].map(|count| count.to_string());
        components.row([it.component.clone(), dash(it.version.as_deref()), mode].into_iter().chain(counts));
    }
    let mut text = if components.is_empty() { "There are no NodeComponents.\n".to_owned() } else { components.to_string() };
    if !report.nodes.is_empty() {
        text.push('\n');
        text.push_str(&nodes(&report.nodes, wide).to_string());
    }
    if !report.stale_mounts.is_empty() {
        let mut table = Table::new(&["DEAD MOUNT IN", "NODE", "COMPONENT", "VOLUME", "BRING IT BACK WITH"]);
        for it in &report.stale_mounts {
            table.row([&it.pod, &it.node, &it.component, &it.volume, &it.repair].map(Clone::clone));
        }
        text.push_str(&format!("\n{table}"));
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    if let Some(kmm) = &report.kmm {
        text.push_str(&format!("\n{}", super::kmm::table(kmm)));
    }
    text
}

/// The node table alone; `--watch` prints rows of it as they change.
pub fn nodes(nodes: &[Node], wide: bool) -> Table {
    let mut heads = vec!["NODE", "COMPONENT", "VERSION", "TARGET", "PHASE", "FOR", "BLOCKER"];
    if wide {
        heads.splice(6..6, ["POSITION", "ATTEMPT", "CLAIMANTS", "NODE IS"]);
        heads.push("MESSAGE");
    }
    let mut table = Table::new(&heads);
    for it in nodes {
        let blocker = it.blocker.as_ref();
        let mut cells = vec![
            it.node.clone(),
            it.component.clone(),
            if it.version_unknown { "unknown".to_owned() } else { dash(it.version.as_deref()) },
            dash(it.target.as_deref()),
            match (it.phase, it.aborting) {
                (Some(phase), true) => format!("{phase}, aborting"),
                (phase, _) => dash(phase.map(Phase::as_str)),
            },
            it.seconds.filter(|_| it.phase.is_some()).map_or_else(|| "-".to_owned(), age),
            dash(blocker.map(|blocker| format!("{} {}", blocker.kind, blocker.object)).as_deref().map(str::trim_end)),
        ];
        if wide {
            let count = |count: Option<String>| dash(count.as_deref());
            let is = match (it.ready, it.cordoned) {
                _ if it.absent => "absent",
                (true, false) => "open",
                (true, true) => "cordoned",
                (false, false) => "NotReady",
                (false, true) => "NotReady, cordoned",
            };
            let more = [
                count(it.position.map(|position| position.to_string())),
                count(it.attempt.map(|attempt| attempt.to_string())),
                it.claimants.to_string(),
                is.to_owned(),
            ];
            cells.splice(6..6, more);
            cells.push(blocker.map(|blocker| blocker.message.clone()).unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

fn dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

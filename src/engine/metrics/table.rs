//! Every metric by name: what it counts, its labels, and for whom. The registry, the docs, the dashboard and the alert rules are all
//! held to this one table. No label is ever a pod, a node or a message: their number has no bound.

use prometheus_client::metrics::MetricType;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Without the `_total` that a counter's name ends with when it is told.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl Metric {
    /// As it stands in queries; a histogram has `_bucket`, `_sum` and `_count` after it.
    pub fn told(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }

    pub(super) fn type_(&self) -> MetricType {
        match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

macro_rules! metrics {
    ($($id:ident $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub const $id: Metric = Metric {
            name: concat!("lockkeeper_", $name), kind: Kind::$kind, labels: &[$($label),*], help: $help,
        };)*
        /// In the order in which they are told.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    BUILD_INFO Gauge "build_info" ["version"] "Always 1; the version of the program";
    LEADER Gauge "leader" [] "1 in the process that holds the Lease and acts";
    LEASE_EPOCH Gauge "lease_epoch" [] "How many times the Lease has changed hands";
    LEASE_PROBLEM Gauge "lease_problem" [] "1 while the Lease cannot be read or written";
    SYNCED Gauge "synced" [] "1 once every kind that is needed has been listed completely";
    HANDOFFS Gauge "handoffs" ["component", "phase"] "NodeHandoffs by phase";
    HANDOFF_OLDEST Gauge "handoff_phase_oldest_seconds" ["component", "phase"] "How long the handoff that is longest in this phase has been in it; ended phases are left out";
    NODES Gauge "nodes" ["component", "version"] "Nodes by the version whose loader label they carry; none: matched, and without one; unknown: no known version";
    NODES_READY Gauge "nodes_ready" ["component", "version"] "Nodes on which this version is in service: loader, plugin and ready label agree";
    NODES_MATCHED Gauge "nodes_matched" ["component"] "Nodes that the component's node selector matches";
    LEFT_CLOSED Gauge "nodes_left_closed" ["component"] "Nodes that carry lockkeeper's cordon without a handoff that is under way";
    BLOCKERS Gauge "blockers" ["component", "kind"] "Decisions that wait, by what they wait for; one that waits for several things counts once for each kind";
    BLOCKER_OLDEST Gauge "blocker_oldest_seconds" ["component", "kind"] "How long the oldest blocker of this kind has lasted";
    UNLOAD_FAILURES Gauge "unload_failures" ["component"] "Unload pods of running handoffs that did not exit 0";
    SLOTS_USED Gauge "slots_used" ["component"] "Nodes admitted for the component";
    SLOTS_ALLOWED Gauge "slots_allowed" ["component"] "rollout.maxUnavailable of the component";
    CLUSTER_SLOTS_USED Gauge "cluster_slots_used" [] "Nodes admitted over all components";
    CLUSTER_SLOTS_ALLOWED Gauge "cluster_slots_allowed" [] "How many nodes may be admitted at once over all components";
    FAILURES Gauge "failure_budget_used" ["component"] "Failed handoffs of the component";
    FAILURES_ALLOWED Gauge "failure_budget_allowed" ["component"] "rollout.maxFailures of the component: as many failed handoffs stop its rollout";
    PAUSED Gauge "component_paused" ["component"] "1 while rollout.paused is true";
    REFUSED Gauge "component_refusals" ["component"] "Reasons why the component is refused as a whole";
    ANOMALIES Gauge "component_anomalies" ["component"] "Versioned DaemonSets, or the content of a version, changed by hand";
    WATCH_STATE Gauge "watch_state" ["resource", "state"] "1 for the state that the watch is in: Syncing, Live, Retrying or Unavailable";
    WATCH_REQUIRED Gauge "watch_required" ["resource"] "1 if nothing is decided while this kind cannot be watched";
    WATCH_OBJECTS Gauge "watch_objects" ["resource"] "Objects known of this kind";
    WATCH_UNDECODABLE Gauge "watch_undecodable" ["resource"] "Objects of this kind that do not decode";
    WATCH_AGE Gauge "watch_last_event_age_seconds" ["resource"] "How long ago the watch last heard anything, bookmarks included";
    WATCH_ERRORS Counter "watch_errors" ["resource"] "Failed lists and watches";
    REQUESTS Counter "api_requests" ["verb", "resource", "code"] "Requests to the API server; code 0: no answer";
    REQUEST_SECONDS Counter "api_request_seconds" ["verb", "resource", "code"] "How long they took together; a watch counts until its headers";
    ACTIONS Counter "actions" ["op", "outcome"] "Guarded writes of the engine; an eviction round counts once, with its worst outcome";
    EVICTIONS Counter "evictions" ["outcome"] "Evictions and deletes of claimants, pod by pod";
    ENDED Counter "handoffs_ended" ["component", "phase"] "Handoffs that came to an end while this process led";
    PHASE_SECONDS Histogram "phase_seconds" ["component", "phase"] "How long handoffs were in a phase that they have left, while this process led";
    EVENTS_LOST Counter "events_lost" [] "Kubernetes Events that could not be recorded";
    TURNS Counter "loop_turns" [] "Turns of the engine's loop";
    TURN_SECONDS Counter "loop_seconds" [] "How long projecting and deciding took in all turns together";
    HEARTBEAT_AGE Gauge "loop_heartbeat_age_seconds" [] "How long ago the loop last went round; /live fails when it is over 30";
}

/// The metrics as a table of Markdown, for the docs.
pub fn markdown() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in ALL {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        text.push_str(&format!("| `{}` | {kind} | {} | {} |\n", metric.told(), labels.join(", "), metric.help));
    }
    text
}

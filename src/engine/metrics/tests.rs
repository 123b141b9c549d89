use std::{collections::BTreeMap, time::Duration};

use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::{
    api::{Phase, handoff::UnloadRecord},
    cluster::{Written, request::Target},
    engine::{
        execute::{Done, Executed},
        picture::{LeadershipView, Mode},
    },
    fleet::build::*,
    handoff::{
        action::{Action, Evidence, Op, PodRef, Subject},
        verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
    },
};

/// A cluster that is asked nothing; its server's time is `at(100)`.
pub(in crate::engine) fn silent_cluster() -> Cluster {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::empty()))
    });
    let cluster = Cluster::over(kube::Client::new(service, "default"), false, "test", "http://test");
    let mut headers = http::HeaderMap::new();
    headers.insert("date", "Thu, 01 Jan 2026 00:01:40 GMT".parse().unwrap());
    cluster.clock().observe(&headers, Instant::now());
    cluster
}

fn wait(kinds: &[(BlockerKind, i64)]) -> Verdict {
    let blocker = |(kind, since): &(BlockerKind, i64)| Blocker {
        kind: *kind,
        object: ObjectRef::new("Pod", "shop/a"),
        message: "the message is no label".into(),
        since: at(*since),
    };
    Verdict::Wait(Wait {
        phase: Phase::Draining,
        since: at(0),
        blockers: kinds.iter().map(blocker).collect(),
        recheck: None,
        next: String::new(),
    })
}

fn of(node: &str) -> Subject {
    Subject::Occupancy { component: key("drivers/gpu"), node: node.into() }
}

/// Six nodes: in service on both versions, being drained, being unloaded in vain, failed and closed, bare, and one with a typo.
pub(in crate::engine) fn picture() -> Picture {
    let gpu = "drivers/gpu";
    let mut fleet = fleet()
        .with(component(gpu).version("2").made("1").made("2").rollout(|it| it.max_unavailable = 3))
        .with(node("n1").runs(gpu, "1"))
        .with(node("n2").runs(gpu, "2"))
        .with(node("n3").runs(gpu, "1").cordoned_for(gpu))
        .with(node("n4").loaded(gpu, "1").cordoned_for(gpu))
        .with(node("n5").runs(gpu, "1").cordoned_for(gpu))
        .with(node("n6"))
        .with(node("n7").desired(gpu, "2").loader(gpu, "2.O"))
        .with(handoff(gpu, "n1"))
        .with(handoff(gpu, "n3").phase(Phase::Draining, at(40)))
        .with(handoff(gpu, "n4").phase(Phase::Unloading, at(10)).status(|status| {
            status.unload = Some(UnloadRecord { tries: 2, exit_code: 1, ..UnloadRecord::default() });
        }))
        .with(handoff(gpu, "n5").phase(Phase::Failed, at(20)))
        .with(lease("reconciler-1").slot("n3", gpu).slot("n4", gpu).slot("n5", gpu));
    let verdicts: BTreeMap<Subject, Verdict> = [
        (of("n1"), wait(&[(BlockerKind::QueuedBehind, 0)])),
        (
            of("n3"),
            wait(&[(BlockerKind::DisruptionBudget, 70), (BlockerKind::DisruptionBudget, 50), (BlockerKind::Terminating, 90)]),
        ),
        (of("n4"), wait(&[(BlockerKind::UnloadFailed, 30)])),
        (of("n7"), wait(&[(BlockerKind::UnknownVersion, 99)])),
        (Subject::Lease, wait(&[(BlockerKind::NodeLeftClosed, 20)])),
    ]
    .into();
    Picture {
        fleet: fleet.project(at(90)),
        verdicts: verdicts.into(),
        leadership: LeadershipView { holder: Some("reconciler-1".into()), ours: true, epoch: 4, ..LeadershipView::default() },
        ..Picture::empty(Default::default(), Mode::Engine)
    }
}

pub(in crate::engine) fn sources(cluster: Cluster, picture: Picture) -> (watch::Sender<Picture>, Sources) {
    let (sender, pictures) = watch::channel(picture);
    (sender, Sources { cluster, pictures, board: None, probes: Probes::default(), cluster_max_unavailable: 3 })
}

fn acted(sources: &Sources, op: Op, results: Vec<Written>) {
    let pod = PodRef { key: key("shop/a"), uid: "u".into(), resource_version: "1".into() };
    let results = results.into_iter().map(|written| Done { pod: Some(pod.clone()), written }).collect();
    let action = Action { op, evidence: Evidence::Watched, why: "no label".into() };
    sources.probes.recorded.acted(&action, &Executed { results });
}

/// Everything has happened once.
fn busy() -> (watch::Sender<Picture>, Sources) {
    let (sender, sources) = sources(silent_cluster(), picture());
    let counters = sources.cluster.counters();
    let target = |method, uri: &str| Target::of(&method, &uri.parse().unwrap());
    counters.add(&target(Method::GET, "/api/v1/pods?limit=500"), 200, Duration::from_millis(250));
    counters.add(&target(Method::POST, "/api/v1/namespaces/shop/pods/a/eviction"), 429, Duration::from_millis(5));
    counters.add(&target(Method::PATCH, "/api/v1/nodes/n1"), 0, Duration::from_secs(4));
    let evict = || Op::Evict { pods: Vec::new(), grace_seconds: None };
    acted(&sources, evict(), vec![Written::Applied(None), Written::Gone]);
    acted(&sources, evict(), vec![Written::Applied(None)]);
    acted(
        &sources,
        Op::Release(crate::api::keys::Slot { node: "n1".into(), node_uid: "u".into(), component: "drivers/gpu".into() }),
        vec![Written::Conflict { message: "no label".into() }],
    );
    sources.probes.recorded.left("drivers/gpu", Phase::Draining, 12.5);
    sources.probes.recorded.left("drivers/gpu", Phase::Draining, 75.0);
    sources.probes.recorded.ended("drivers/gpu", Phase::Done);
    sources.probes.heartbeat.beat(Duration::from_millis(7));
    (sender, sources)
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_fleet_in_every_state() {
    let (_sender, sources) = busy();
    let text = Exposition::new(sources).text().unwrap();
    // One kind of thirteen is enough to see.
    let one = |line: &&str| {
        !line.contains("resource=\"") || ["pods", "nodes"].iter().any(|it| line.contains(&format!("resource=\"{it}")))
    };
    let text: Vec<&str> = text.lines().filter(one).collect();
    insta::assert_snapshot!(text.join("\n").replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_told_and_no_label_is_a_node_a_pod_or_a_message() {
    let (_sender, sources) = busy();
    let text = Exposition::new(sources).text().unwrap();
    for metric in table::ALL {
        let told = metric.told();
        let is_sample = |line: &str| line.strip_prefix(&told).is_some_and(|rest| rest.starts_with(['{', ' ', '_']));
        let found = text.lines().filter(|line| !line.starts_with('#')).any(is_sample);
        // Nobody has heard anything in a picture made by hand.
        assert!(found || *metric == table::WATCH_AGE, "{told} is never told");
    }
    for word in ["n1", "n3", "shop/a", "no label", "2.O"] {
        assert!(!text.contains(&format!("\"{word}\"")), "{word} is a label value");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_docs_hold_the_table() {
    let docs = include_str!("../../../docs/operations/metrics.md");
    assert!(docs.contains(&table::markdown()), "docs/operations/metrics.md must hold this table:\n{}", table::markdown());
}

/// Names, label names and label values of queries, held to the table.
fn check(query: &str) {
    let balance = |open, close| query.matches(open).count() == query.matches(close).count();
    assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{query}");
    let mut names = 0;
    let mut labels: Vec<&str> = vec!["instance", "le"];
    for (start, _) in query.match_indices("lockkeeper_") {
        let rest = &query[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        let metric = table::ALL.iter().find(|metric| match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|suffix| format!("{}{suffix}", metric.name) == name),
            _ => metric.told() == name,
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is no metric: {query}"));
        labels.extend(metric.labels);
        names += 1;
        let Some(selector) = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) else { continue };
        for matcher in selector.0.split(',') {
            let at = matcher.find(['=', '!']).unwrap_or_else(|| panic!("{matcher}: {query}"));
            let (label, value) = (matcher[..at].trim(), matcher[at..].trim_matches(['=', '!', '~', '"']));
            assert!(metric.labels.contains(&label), "{name} has no label {label}: {query}");
            for word in value.split('|') {
                let known = match label {
                    "phase" => Phase::ALL.iter().any(|phase| phase.as_str() == word),
                    // The words are the enum's own.
                    "kind" => include_str!("../../handoff/verdict.rs").lines().any(|line| line.trim() == format!("{word},")),
                    "state" => ["Syncing", "Live", "Retrying", "Unavailable"].contains(&word),
                    _ => true,
                };
                assert!(known, "{label} is never {word}: {query}");
            }
        }
    }
    assert!(names > 0, "{query}");
    for (start, _) in query.match_indices("by (").chain(query.match_indices("on (")) {
        let grouped = query[start + 4..].split(')').next().unwrap_or_default();
        for label in grouped.split(',').map(str::trim) {
            assert!(labels.contains(&label), "nothing has label {label}: {query}");
        }
    }
}

#[test]
fn alerts_ask_for_what_is_told_and_each_is_explained() {
    let rules: Value = serde_saphyr::from_str(include_str!("../../../assets/alerts.yaml")).unwrap();
    let docs = include_str!("../../../docs/operations/alerts.md");
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let mut explained: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        check(rule["expr"].as_str().unwrap());
        assert!(["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        for text in ["summary", "description"] {
            assert!(!rule["annotations"][text].as_str().unwrap().is_empty(), "{name}");
        }
        assert!(explained.contains(&name), "docs/operations/alerts.md does not explain {name}");
        explained.retain(|known| *known != name);
    }
    assert_eq!(explained, Vec::<&str>::new(), "explained, but no alert");
}

#[test]
fn the_dashboard_asks_for_what_is_told() {
    let dashboard: Value = serde_json::from_str(include_str!("../../../assets/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = 0;
    for target in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
        check(target["expr"].as_str().unwrap());
        queries += 1;
    }
    assert!(queries > 20);
    for variable in dashboard["templating"]["list"].as_array().unwrap().iter().filter(|it| it["type"] == "query") {
        check(variable["definition"].as_str().unwrap());
    }
    let ids: std::collections::BTreeSet<i64> = panels.iter().filter_map(|panel| panel["id"].as_i64()).collect();
    assert_eq!(ids.len(), panels.len());
}

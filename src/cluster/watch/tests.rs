//! Watches against a scripted server: G32, G34, G35, re-lists, missing kinds and permissions, and pauses that grow.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::mpsc::Receiver, time::Instant};

use super::*;
use crate::{
    cluster::testing::{Answer, Asked, Heard, cluster, status},
    fleet::{event::Event, view::WatchState},
};

const S: fn(u64) -> Duration = Duration::from_secs;

fn pod(name: &str, rv: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"), "resourceVersion": rv.to_string()},
        "spec": {"containers": []}, "status": {"phase": "Running"}})
}

fn list(items: Vec<Value>, rv: u64, next: &str) -> Answer {
    Answer::Json(
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": rv.to_string(), "continue": next}, "items": items}),
    )
}

fn event(kind: &str, object: Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(rv: u64) -> String {
    event("BOOKMARK", json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": rv.to_string()}}))
}

fn gone_410() -> String {
    event(
        "ERROR",
        json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"}),
    )
}

fn opens(asked: &Asked) -> bool {
    asked.uri.contains("watch=true")
}

/// Follows the signals until `end`, as the store does: names that are there now, per kind.
async fn follow(signals: &mut Receiver<Signal>, for_: Duration) -> (BTreeMap<Kind, Vec<String>>, usize) {
    let (mut there, mut listed, mut syncs) = (BTreeMap::<Kind, Vec<String>>::new(), BTreeMap::<Kind, Vec<String>>::new(), 0);
    let end = Instant::now() + for_;
    while let Ok(Some(signal)) = tokio::time::timeout_at(end, signals.recv()).await {
        let Signal::Change(Change { kind, event }) = signal else { continue };
        let (there, listed) = (there.entry(kind).or_default(), listed.entry(kind).or_default());
        match event {
            // Not as the store does it: a lagging list shows here.
            Event::Init => listed.clear(),
            Event::Page { records, .. } => listed.extend(records.iter().map(|record| record.key().name.to_string())),
            Event::InitDone { .. } => {
                there.clone_from(listed);
                syncs += 1;
            }
            Event::Apply(record) => {
                let name = record.key().name.to_string();
                if !there.contains(&name) {
                    there.push(name);
                }
            }
            Event::Delete(gone) => there.retain(|name| *name != *gone.key.name),
            _ => {}
        }
    }
    (there, syncs)
}

fn counted(heard: &Heard, part: &str, watching: bool) -> usize {
    heard.all().iter().filter(|asked| asked.uri.contains(part) && opens(asked) == watching).count()
}

#[tokio::test(start_paused = true)]
async fn g34_no_page_is_skipped_and_none_is_ready_before_the_last() {
    let (cluster, heard) = cluster(false, |asked| match () {
        () if opens(asked) => Answer::Stream(vec![]),
        () if asked.uri.contains("continue=b%2Fc%3D") => list(vec![pod("p3", 3)], 9, ""),
        () if asked.uri.contains("continue=a") => list(vec![pod("p2", 2)], 9, "b/c="),
        () => list(vec![pod("p1", 1)], 9, "a"),
    });
    let (watches, mut signals) = Watches::start(&cluster, &[Kind::Pod], Pace { page: 1, ..Pace::default() });
    let mut order = Vec::new();
    for _ in 0..6 {
        order.push(match signals.recv().await.unwrap() {
            Signal::Change(Change { event: Event::Init, .. }) => "init",
            Signal::Change(Change { event: Event::Page { .. }, .. }) => "page",
            Signal::Change(Change { event: Event::InitDone { .. }, .. }) => "done",
            Signal::Health(_) => "live",
            Signal::Change(_) => "other",
        });
    }
    assert_eq!(order, ["init", "page", "page", "page", "done", "live"]);
    tokio::time::sleep(S(1)).await;
    assert_eq!(watches.board().of(Kind::Pod).unwrap().state, WatchState::Live);
    assert!(heard.all().last().unwrap().uri.contains("resourceVersion=9"), "the watch starts where the list ended");
}

#[tokio::test(start_paused = true)]
async fn g35_a_delete_between_list_and_watch_is_seen_and_a_lagging_list_brings_nothing_back() {
    let lists = Arc::new(Mutex::new(0));
    let count = lists.clone();
    let (cluster, heard) = cluster(false, move |asked| {
        if asked.uri.contains("/leases/") {
            return status(404, "NotFound");
        }
        if opens(asked) {
            let mut lines = vec![(S(1), event("DELETED", pod("p1", 101)))];
            if asked.uri.contains("resourceVersion=100") {
                lines.push((S(1), gone_410()));
            }
            return Answer::Stream(if asked.uri.contains("resourceVersion=100") { lines } else { vec![] });
        }
        let mut count = count.lock().unwrap();
        *count += 1;
        match *count {
            1 => list(vec![pod("p1", 50), pod("p2", 60)], 100, ""),
            2 | 3 => list(vec![pod("p1", 50), pod("p2", 60)], 95, ""),
            _ => list(vec![pod("p2", 60)], 110, ""),
        }
    });
    let (_watches, mut signals) = Watches::start(&cluster, &[Kind::Pod], Pace::default());
    let (there, syncs) = follow(&mut signals, S(60)).await;
    assert_eq!(there[&Kind::Pod], ["p2"]);
    assert_eq!(syncs, 4, "the store weighs the two lists from the past, and the watch asks for others");
    assert_eq!(*lists.lock().unwrap(), 4);
    assert!(heard.all().iter().any(|asked| asked.uri.contains("resourceVersion=110")));
}

#[tokio::test(start_paused = true)]
async fn g32_a_failing_kind_holds_up_no_other() {
    let (cluster, heard) = cluster(false, |asked| match () {
        () if asked.uri.contains("nodecomponents") => status(404, "NotFound"),
        () if asked.uri.contains("nodehandoffs") => status(403, "Forbidden"),
        () if opens(asked) && asked.uri.contains("/pods") => {
            Answer::Stream((1..=300).map(|n| (S(2), bookmark(10 + n))).collect())
        }
        () if opens(asked) => Answer::Stream((1..=20).map(|n| (S(60), bookmark(10 + n))).collect()),
        () => list(vec![], 10, ""),
    });
    let (watches, mut signals) =
        Watches::start(&cluster, &[Kind::Node, Kind::Pod, Kind::Component, Kind::Handoff], Pace::default());
    let mut pods = 0;
    let end = Instant::now() + S(600);
    while let Ok(Some(signal)) = tokio::time::timeout_at(end, signals.recv()).await {
        pods += usize::from(matches!(signal, Signal::Change(Change { kind: Kind::Pod, event: Event::Bookmark { .. } })));
    }
    assert!(pods >= 290, "pods stay fresh: {pods}");
    assert_eq!(counted(&heard, "/pods", false), 1);
    assert_eq!(watches.board().of(Kind::Node).unwrap().state, WatchState::Live);
    let WatchState::Unavailable { why } = watches.board().of(Kind::Component).unwrap().state else { panic!() };
    assert!(why.contains("install the CRDs"), "{why}");
    let WatchState::Unavailable { why } = watches.board().of(Kind::Handoff).unwrap().state else { panic!() };
    assert!(why.contains("may not list nodehandoffs.lockkeeper.dev"), "{why}");
    let tries = counted(&heard, "nodecomponents", false);
    assert!((20..=30).contains(&tries), "its own pauses grow to 30 s: {tries} in 600 s");
    assert_eq!(watches.board().missing(|need| need == crate::cluster::kinds::Need::Always), Vec::<String>::new());
    assert_eq!(watches.board().missing(|need| need == crate::cluster::kinds::Need::Engine).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_later_is_found() {
    let start = Instant::now();
    let (cluster, _) = cluster(false, move |asked| match () {
        () if start.elapsed() < S(100) => status(404, "NotFound"),
        () if opens(asked) => Answer::Stream(vec![]),
        () => list(vec![], 10, ""),
    });
    let (watches, mut signals) = Watches::start(&cluster, &[Kind::Claim], Pace::default());
    let (_, syncs) = follow(&mut signals, S(140)).await;
    assert_eq!(syncs, 2, "empty while it is not served, then listed");
    assert_eq!(watches.board().of(Kind::Claim).unwrap().state, WatchState::Live);
    assert!(!watches.board().of(Kind::Claim).unwrap().required);
}

#[tokio::test(start_paused = true)]
async fn every_way_to_fail_is_paced_and_both_kinds_of_410_list_again() {
    type Way = (&'static str, fn(&Asked) -> Answer, std::ops::RangeInclusive<usize>, bool);
    let ways: [Way; 6] = [
        ("lists fail", |_| status(500, "InternalError"), 20..=30, false),
        ("watches end at once", |asked| if opens(asked) { Answer::Ended(vec![]) } else { list(vec![], 10, "") }, 20..=30, false),
        (
            "in-stream 410",
            |asked| if opens(asked) { Answer::Stream(vec![(Duration::ZERO, gone_410())]) } else { list(vec![], 10, "") },
            20..=30,
            true,
        ),
        ("HTTP 410", |asked| if opens(asked) { status(410, "Expired") } else { list(vec![], 10, "") }, 20..=30, true),
        ("no answer", |_| Answer::Never, 5..=12, false),
        ("silence", |asked| if opens(asked) { Answer::Stream(vec![]) } else { list(vec![], 10, "") }, 3..=6, false),
    ];
    for (name, answer, tries, lists_again) in ways {
        let (cluster, heard) = cluster(false, answer);
        let (_watches, mut signals) = Watches::start(&cluster, &[Kind::Pod], Pace::default());
        follow(&mut signals, S(600)).await;
        let (lists, watches) = (counted(&heard, "/pods", false), counted(&heard, "/pods", true));
        assert!(tries.contains(&lists.max(watches)), "{name}: {lists} lists and {watches} watches in 600 s");
        if lists_again {
            assert_eq!(lists, watches.max(1) + usize::from(lists > watches), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_hides_no_other() {
    let bad = json!({"metadata": {"name": "bad", "namespace": "ns", "uid": 7, "resourceVersion": "3"}});
    let also_bad = bad.clone();
    let (cluster, _) = cluster(false, move |asked| match () {
        () if opens(asked) => {
            Answer::Stream(vec![(S(1), event("ADDED", also_bad.clone())), (S(1), event("ADDED", pod("p2", 12)))])
        }
        () => list(vec![pod("p1", 1), bad.clone()], 10, ""),
    });
    let (_watches, mut signals) = Watches::start(&cluster, &[Kind::Pod], Pace::default());
    let (mut named, mut there) = (Vec::new(), Vec::new());
    while let Ok(Some(signal)) = tokio::time::timeout(S(5), signals.recv()).await {
        match signal {
            Signal::Change(Change { event: Event::Page { records, undecodable }, .. }) => {
                there.extend(records.iter().map(|record| record.key().name.to_string()));
                named.extend(undecodable.iter().map(|object| object.key.name.to_string()));
            }
            Signal::Change(Change { event: Event::Apply(record), .. }) => there.push(record.key().name.to_string()),
            Signal::Change(Change { event: Event::Undecodable(object), .. }) => named.push(object.key.name.to_string()),
            _ => {}
        }
    }
    assert_eq!((there, named), (vec!["p1".to_owned(), "p2".into()], vec!["bad".to_owned(), "bad".into()]));
}

/// The server takes requests and says nothing, open watches included, for a while.
fn stopped(from: u64, to: u64) -> (Cluster, Heard) {
    let start = Instant::now();
    cluster(false, move |asked| {
        let at = start.elapsed();
        match () {
            () if at >= S(from) && at < S(to) => Answer::Never,
            () if opens(asked) => Answer::Stream(vec![(S(1), bookmark(11))]),
            () => list(vec![], 10, ""),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_called_so_and_watches_begin_anew_when_it_is_back() {
    let (cluster, heard) = stopped(5, 60);
    let (watches, mut signals) = Watches::start(&cluster, &[Kind::Node, Kind::Pod], Pace::default());
    follow(&mut signals, S(20)).await;
    for kind in [Kind::Node, Kind::Pod] {
        let state = watches.board().of(kind).unwrap().state;
        let WatchState::Retrying { error, .. } = &state else { panic!("{state:?} though nothing answers") };
        assert!(
            error.contains("the server does not answer: get lease lockkeeper-system/lockkeeper: no answer within 5 s"),
            "{error}"
        );
    }
    follow(&mut signals, S(39)).await;
    let opened = counted(&heard, "/pods", true);
    follow(&mut signals, S(12)).await;
    assert_eq!(watches.board().of(Kind::Pod).unwrap().state, WatchState::Live);
    assert_eq!(counted(&heard, "/pods", true), opened + 1, "the old connection may be dead");
    assert_eq!(counted(&heard, "/pods", false), 1, "nothing is listed again");
}

#[tokio::test(start_paused = true)]
async fn all_watches_go_on_at_once_when_the_server_is_back_and_few_ask_meanwhile() {
    let start = Instant::now();
    let (cluster, heard) = cluster(false, move |asked| match () {
        () if start.elapsed() >= S(10) && start.elapsed() < S(130) => status(503, "ServiceUnavailable"),
        // As a real one does until it knows its roles.
        () if start.elapsed() >= S(130) && start.elapsed() < S(133) => status(403, "Forbidden"),
        () if opens(asked) => Answer::Ended(vec![(S(9), bookmark(11))]),
        () => list(vec![], 100, ""),
    });
    let (watches, mut signals) = Watches::start(&cluster, &[Kind::Node, Kind::Pod], Pace::default());
    follow(&mut signals, S(130)).await;
    let WatchState::Retrying { .. } = watches.board().of(Kind::Pod).unwrap().state else { panic!() };
    let asked = heard.all().len();
    assert!(asked < 60, "{asked} requests in two minutes");
    follow(&mut signals, S(8)).await;
    for kind in [Kind::Node, Kind::Pod] {
        assert_eq!(watches.board().of(kind).unwrap().state, WatchState::Live);
    }
}

#[tokio::test(start_paused = true)]
async fn one_kind_that_fails_by_itself_keeps_its_own_pauses() {
    let (cluster, heard) = cluster(false, |asked| match () {
        () if asked.uri.contains("/pods") => status(500, "InternalError"),
        () if opens(asked) => Answer::Stream((1..=300).map(|n| (S(2), bookmark(10 + n))).collect()),
        () => list(vec![], 10, ""),
    });
    let (_watches, mut signals) = Watches::start(&cluster, &[Kind::Node, Kind::Pod], Pace::default());
    follow(&mut signals, S(600)).await;
    let tries = counted(&heard, "/pods", false);
    assert!((20..=30).contains(&tries), "{tries} in 600 s");
    let asked = counted(&heard, "/leases/", false);
    assert!(asked <= tries, "whether the server answers is asked once per failure at most: {asked}");
}

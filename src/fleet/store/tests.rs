use super::*;
use crate::{
    api::{NodeName, Uid},
    fleet::records::{Meta, NodeLeaseRecord},
};

type Nodes = Store<NodeLeaseRecord>;

fn record(name: &str, uid: &str, version: u64) -> Record {
    let meta = Meta { uid: Uid::from(uid), resource_version: version.to_string().into(), created: None, deletion: None };
    Record::NodeLease(NodeLeaseRecord { node: NodeName::from(name), meta, renewed: None })
}

/// Applies it, and says what changed: `+p1@7`, `-p1`.
fn apply(store: &mut Nodes, event: Event) -> String {
    let mut changes = Vec::new();
    let pick = |record| match record {
        Record::NodeLease(it) => Some(it),
        _ => None,
    };
    store.apply(event, pick, |change| {
        changes.push(match change {
            (_, Some(new)) => format!("+{}@{}", new.node, new.meta.resource_version),
            (Some(old), None) => format!("-{}", old.node),
            (None, None) => unreachable!(),
        });
    });
    changes.join(" ")
}

fn page(records: Vec<Record>) -> Event {
    Event::Page { records, undecodable: Vec::new() }
}

fn done(version: u64) -> Event {
    Event::InitDone { resource_version: version.to_string().into() }
}

fn listed(records: Vec<Record>, version: u64) -> Nodes {
    let mut store = Nodes::default();
    apply(&mut store, Event::Init);
    apply(&mut store, page(records));
    apply(&mut store, done(version));
    store
}

fn names(store: &Nodes) -> String {
    store.iter().map(|it| it.node.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_delete_that_no_event_told_is_found_at_the_end_of_a_list() {
    let mut store = listed(vec![record("a", "1", 1), record("b", "2", 2)], 10);
    apply(&mut store, Event::Init);
    assert_eq!(apply(&mut store, page(vec![record("a", "1", 1)])), "");
    assert_eq!(names(&store), "a b", "nothing is gone before the last page");
    assert_eq!(apply(&mut store, done(20)), "-b");
}

#[test]
fn a_delete_is_found_although_the_list_was_interrupted() {
    let mut store = listed(vec![record("a", "1", 1), record("b", "2", 2), record("c", "3", 3)], 10);
    apply(&mut store, Event::Init);
    apply(&mut store, page(vec![record("a", "1", 1), record("b", "2", 2)]));
    // An error ended it; the next list no longer names b, nor c.
    apply(&mut store, Event::Init);
    apply(&mut store, page(vec![record("a", "1", 1)]));
    assert_eq!(names(&store), "a b c");
    assert_eq!(apply(&mut store, done(20)), "-b -c");
}

#[test]
fn g34_a_view_is_not_ready_before_the_last_page() {
    let mut store = Nodes::default();
    apply(&mut store, Event::Init);
    for pages in 0..4 {
        apply(&mut store, page((0..500).map(|at| record(&format!("n{pages}-{at}"), "u", 1)).collect()));
        assert!(!store.is_synced());
    }
    apply(&mut store, done(10));
    assert!(store.is_synced());
    assert_eq!(store.len(), 2000);
}

#[test]
fn g35_events_between_list_and_watch_are_not_lost_and_a_list_from_the_past_resurrects_nothing() {
    let mut store = listed(vec![record("p1", "1", 90), record("p2", "2", 91)], 100);
    let gone = RecordKey { key: record("p1", "1", 0).key(), uid: Uid::from("1") };
    assert_eq!(apply(&mut store, Event::Delete(gone)), "-p1");
    assert_eq!(apply(&mut store, Event::Apply(record("p3", "3", 102))), "+p3@102");
    // A lagging server: its list is of 95, with p1 and without p3.
    apply(&mut store, Event::Init);
    assert_eq!(apply(&mut store, page(vec![record("p1", "1", 90), record("p2", "2", 91)])), "");
    assert_eq!(apply(&mut store, done(95)), "");
    assert_eq!(names(&store), "p2 p3");
    // And its watch tells again what is known.
    assert_eq!(apply(&mut store, Event::Apply(record("p1", "1", 99))), "");
    assert_eq!(apply(&mut store, Event::Apply(record("p3", "3", 102))), "");
    assert_eq!(apply(&mut store, Event::Apply(record("p2", "2", 103))), "+p2@103");
    // On 410 a full list replaces everything.
    apply(&mut store, Event::Init);
    assert_eq!(apply(&mut store, page(vec![record("p4", "4", 104)])), "+p4@104");
    assert_eq!(apply(&mut store, done(110)), "-p2 -p3");
}

#[test]
fn a_server_whose_storage_was_restored_is_believed_in_the_end() {
    let mut store = listed(vec![record("a", "1", 900)], 1000);
    for _ in 0..STALE_LISTS {
        apply(&mut store, Event::Init);
        apply(&mut store, page(vec![record("a", "1", 400), record("b", "2", 401)]));
        apply(&mut store, done(500));
    }
    apply(&mut store, Event::Init);
    apply(&mut store, page(vec![record("a", "1", 400), record("b", "2", 401)]));
    apply(&mut store, done(500));
    assert_eq!(store.iter().map(|it| it.meta.resource_version.to_string()).collect::<Vec<_>>(), ["400", "401"]);
}

#[test]
fn the_end_of_an_object_never_takes_its_namesake() {
    let mut store = listed(vec![record("db-0", "A", 5)], 10);
    assert_eq!(apply(&mut store, Event::Apply(record("db-0", "B", 12))), "+db-0@12");
    let old = RecordKey { key: record("db-0", "A", 0).key(), uid: Uid::from("A") };
    assert_eq!(apply(&mut store, Event::Delete(old)), "");
    assert_eq!(names(&store), "db-0");
}

#[test]
fn a_fresh_read_of_an_object_that_is_gone_does_not_take_its_namesakes_place() {
    let mut store = listed(vec![record("db-0", "A", 5)], 10);
    // Read before its end, told after its successor has come: no later event would put that right.
    assert_eq!(apply(&mut store, Event::Delete(RecordKey { key: record("db-0", "A", 0).key(), uid: Uid::from("A") })), "-db-0");
    assert_eq!(apply(&mut store, Event::Apply(record("db-0", "B", 12))), "+db-0@12");
    assert_eq!(apply(&mut store, Event::Observed(record("db-0", "A", 5))), "");
    assert_eq!(store.iter().map(|it| it.meta.uid.to_string()).collect::<Vec<_>>(), ["B"]);
}

#[test]
fn a_fresh_read_does_not_hide_events_of_other_objects() {
    let mut store = listed(vec![record("a", "1", 1), record("b", "2", 2)], 10);
    assert_eq!(apply(&mut store, Event::Observed(record("a", "1", 50))), "+a@50");
    assert_eq!(apply(&mut store, Event::Apply(record("b", "2", 40))), "+b@40");
    assert_eq!(apply(&mut store, Event::Apply(record("a", "1", 45))), "", "older than what was read");
    let gone = RecordKey { key: record("b", "2", 0).key(), uid: Uid::from("2") };
    apply(&mut store, Event::Delete(gone));
    assert_eq!(apply(&mut store, Event::Observed(record("b", "2", 40))), "", "read before its end, told after it");
}

#[test]
fn a_fresh_read_during_a_list_keeps_what_is_newer_than_the_list_and_nothing_else() {
    let mut store = listed(vec![record("a", "1", 1)], 10);
    apply(&mut store, Event::Init);
    apply(&mut store, page(vec![record("a", "1", 1)]));
    // b was read before it was deleted at 15, c after the list's snapshot of 20; a is listed, and read again.
    apply(&mut store, Event::Observed(record("b", "2", 12)));
    apply(&mut store, Event::Observed(record("c", "3", 21)));
    apply(&mut store, Event::Observed(record("a", "1", 13)));
    assert_eq!(apply(&mut store, done(20)), "-b");
    assert_eq!(names(&store), "a c");
}

#[test]
fn an_object_that_does_not_decode_any_more_is_not_taken_for_gone() {
    let mut store = listed(vec![record("a", "1", 1)], 10);
    let bad = || Undecodable { key: record("a", "1", 0).key(), why: "odd".into() };
    apply(&mut store, Event::Undecodable(bad()));
    apply(&mut store, Event::Init);
    apply(&mut store, Event::Page { records: Vec::new(), undecodable: vec![bad()] });
    assert_eq!(apply(&mut store, done(20)), "");
    assert_eq!((names(&store).as_str(), store.undecodable().count()), ("a", 1));
    apply(&mut store, Event::Apply(record("a", "1", 30)));
    assert_eq!(store.undecodable().count(), 0);
}

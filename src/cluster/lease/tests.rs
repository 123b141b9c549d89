//! The lease: G36, G37, two processes that are never both holder whatever happens to their requests, and slots.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{decide::*, *};
use crate::{
    api::keys::{SLOTS, Slot},
    cluster::{
        Cluster, Written,
        testing::{Answer, Asked, cluster, status},
    },
};

const S: fn(u64) -> Duration = Duration::from_secs;

fn seen(holder: Option<&str>, epoch: i64, renewed: &str) -> Seen {
    Seen { holder: holder.map(Into::into), epoch, resource_version: renewed.into(), duration: S(15) }
}

fn decided(observed: &Observed, own: Own, now: u64) -> Action {
    decide("b", Some(observed), &own, S(now), &Config::default())
}

#[test]
fn g36_expiry_is_what_was_seen_not_what_is_written() {
    // A's clock is five minutes behind; it renews every 2 s.
    let mut observed = Observed::next(None, Some(seen(Some("a"), 1, "11:55:00")), S(0));
    for second in (2..60).step_by(2) {
        let renewed = format!("11:55:{second:02}");
        observed = Observed::next(Some(&observed), Some(seen(Some("a"), 1, &renewed)), S(second));
        assert!(matches!(decided(&observed, Own::default(), second), Action::Wait { .. }), "at {second}");
    }
    // No change for the full duration: B may take it, with the next epoch.
    observed = Observed::next(Some(&observed), Some(seen(Some("a"), 1, "11:55:58")), S(70));
    assert_eq!(decided(&observed, Own::default(), 72), Action::Wait { until: S(73) });
    assert_eq!(decided(&observed, Own::default(), 73), Action::Take { epoch: 2 });
}

#[test]
fn a_released_lease_is_taken_at_once_and_a_missing_one_is_made() {
    assert_eq!(decided(&Observed::next(None, Some(seen(None, 4, "x")), S(0)), Own::default(), 0), Action::Take { epoch: 5 });
    assert_eq!(decided(&Observed::next(None, None, S(0)), Own::default(), 0), Action::Create);
}

#[test]
fn a_former_life_under_the_same_name_is_waited_for() {
    let observed = Observed::next(None, Some(seen(Some("b"), 3, "x")), S(0));
    assert_eq!(decided(&observed, Own::default(), 0), Action::Wait { until: S(15) });
}

#[test]
fn a_hold_that_this_process_lost_itself_is_taken_again_once_it_has_run_out_whatever_was_applied_late() {
    let lost = Hold { epoch: 3, sent: S(2) };
    let own = Own { hold: Some(lost), ..Own::default() };
    let mut after = own;
    after.lose();
    assert_eq!((after.hold, after.lost), (None, Some(lost)));
    // The server was away for 40 s; then it applies a renewal that was sent before.
    let late = Observed::next(None, Some(seen(Some("b"), 3, "late")), S(42));
    assert_eq!(decided(&late, after, 42), Action::Take { epoch: 4 });
    let early = Observed::next(None, Some(seen(Some("b"), 3, "late")), S(13));
    assert_eq!(decided(&early, after, 13), Action::Wait { until: S(17) }, "writes of that hold may still be on their way");
    let others = Observed::next(None, Some(seen(Some("a"), 4, "x")), S(42));
    assert_eq!(decided(&others, after, 42), Action::Wait { until: S(57) });
    let anew = Observed::next(None, Some(seen(Some("b"), 3, "late")), S(42));
    assert_eq!(decided(&anew, Own::default(), 42), Action::Wait { until: S(57) }, "another life knows nothing of it");
}

#[test]
fn a_request_whose_answer_was_lost_is_adopted() {
    let observed = Observed::next(None, Some(seen(Some("b"), 3, "x")), S(4));
    let asked = Hold { epoch: 3, sent: S(1) };
    assert_eq!(decided(&observed, Own { asked: Some(asked), ..Own::default() }, 4), Action::Adopt(asked));
    assert_eq!(decided(&observed, Own { asked: Some(asked), ..Own::default() }, 11), Action::Wait { until: S(19) });
}

#[test]
fn the_holder_stops_before_anybody_may_take_over() {
    let observed = Observed::next(None, Some(seen(Some("b"), 3, "x")), S(0));
    let own = Own { hold: Some(Hold { epoch: 3, sent: S(0) }), ..Own::default() };
    assert_eq!(decided(&observed, own, 1), Action::Wait { until: S(2) });
    assert_eq!(decided(&observed, own, 2), Action::Renew);
    assert!(matches!(decided(&observed, own, 10), Action::Lose { .. }));
    let config = Config::default();
    assert!(config.renew_deadline + crate::cluster::write::WRITE_LIMIT < config.duration);
    assert!(config.attempt * 3 <= config.renew_deadline);
}

/// A model of a Lease and two electors whose requests are delayed, lost before or lost after being applied; pauses of whole processes too.
#[derive(Debug, Clone)]
struct Fate {
    to: u64,
    back: u64,
    lost: bool,
    unheard: bool,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = (0u64..4000, 0u64..4000, prop::bool::weighted(0.15), prop::bool::weighted(0.15))
        .prop_map(|(to, back, lost, unheard)| Fate { to, back, lost, unheard });
    prop::collection::vec(fate, 1..60)
}

fn quick() -> impl Strategy<Value = Vec<Fate>> {
    prop::collection::vec((0u64..500, 0u64..500).prop_map(|(to, back)| Fate { to, back, lost: false, unheard: false }), 1..20)
}

#[derive(Clone)]
enum Ask {
    Read,
    Write { rv: u64, new: Seen, hold: Option<Hold> },
}

/// (request, applied at, answered at, fate, applied, answer)
type Flight = (Ask, u64, u64, Fate, bool, Option<(u64, Option<Seen>)>);

struct Elector {
    name: &'static str,
    own: Own,
    observed: Option<Observed>,
    rv: u64,
    counter: u64,
    flight: Option<Flight>,
    next: u64,
    fates: Vec<Fate>,
    used: usize,
}

impl Elector {
    fn holds(&self, now: u64, config: &Config) -> bool {
        self.own.hold.is_some_and(|hold| Duration::from_millis(now) < hold.until(config))
    }

    fn ask(&mut self, ask: Ask, now: u64) {
        let fate = self.fates[self.used % self.fates.len()].clone();
        self.used += 1;
        self.flight = Some((ask, now + fate.to, now + fate.to + fate.back, fate, false, None));
    }

    fn step(&mut self, now: u64, server: &mut (u64, Option<Seen>), config: &Config) {
        let mono = Duration::from_millis(now);
        if let Some((ask, applied_at, answered_at, fate, applied, answer)) = &mut self.flight {
            if now >= *applied_at && !*applied {
                *applied = true;
                if !fate.lost {
                    match ask {
                        Ask::Read => *answer = Some(server.clone()),
                        Ask::Write { rv, new, .. } if *rv == server.0 => {
                            *server = (server.0 + 1, Some(new.clone()));
                            *answer = Some(server.clone());
                        }
                        Ask::Write { .. } => {}
                    }
                }
            }
            let limit = u64::try_from(config.attempt.as_millis()).unwrap();
            let sent = *applied_at - fate.to;
            // The attempt's limit: the client stops listening, the server may still apply it.
            if now < (*answered_at).min(sent + limit) {
                return;
            }
            let heard = if now >= *answered_at && !fate.unheard { answer.clone() } else { None };
            if !*applied && now < *answered_at {
                // Still on its way though nobody listens: leave it to be applied, and be seen as unheard then.
                if !matches!(ask, Ask::Write { .. }) {
                    self.flight = None;
                }
                return;
            }
            let ask = ask.clone();
            self.flight = None;
            match (heard, ask) {
                (Some((rv, lease)), ask) => {
                    self.rv = rv;
                    self.observed = Some(Observed::next(self.observed.as_ref(), lease, mono));
                    if let Ask::Write { hold: Some(hold), .. } = ask {
                        self.own.hold = Some(hold);
                        self.own.asked = None;
                    }
                }
                (None, Ask::Write { hold, .. }) => {
                    if let (None, Some(hold)) = (self.own.hold, hold) {
                        self.own.asked_for(hold);
                    }
                    self.ask(Ask::Read, now);
                }
                (None, Ask::Read) => self.next = now + 2000,
            }
            return;
        }
        if now < self.next {
            return;
        }
        if self.own.hold.is_none() && self.observed.is_none() {
            self.ask(Ask::Read, now);
            return;
        }
        let renewed = |this: &mut Self| -> Seen {
            this.counter += 1;
            let (holder, epoch) = (Some(this.name), this.own.hold.map_or(0, |hold| hold.epoch));
            seen(holder, epoch, &format!("{}{}", this.name, this.counter))
        };
        match decide(self.name, self.observed.as_ref(), &self.own, mono, config) {
            Action::Wait { until } => {
                if self.own.hold.is_some() {
                    self.next = u64::try_from(until.as_millis()).unwrap().max(now + 1);
                } else {
                    self.next = now + 2000;
                    self.ask(Ask::Read, now);
                }
            }
            Action::Lose { .. } => {
                self.own.lose();
                self.ask(Ask::Read, now);
            }
            Action::Adopt(hold) => {
                self.own.hold = Some(hold);
                self.own.asked = None;
            }
            Action::Renew => {
                self.own.attempted = Some(mono);
                let new = renewed(self);
                let hold = self.own.hold.map(|hold| Hold { sent: mono, ..hold });
                self.ask(Ask::Write { rv: self.rv, new, hold }, now);
            }
            Action::Create | Action::Take { .. } => {
                let epoch = match self.observed.as_ref().and_then(|observed| observed.lease.as_ref()) {
                    Some(lease) => lease.epoch + 1,
                    None => 1,
                };
                self.own.attempted = Some(mono);
                let mut new = renewed(self);
                new.epoch = epoch;
                self.ask(Ask::Write { rv: self.rv, new, hold: Some(Hold { epoch, sent: mono }) }, now);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_processes_are_never_both_holder(a in fates(), b in fates(), pauses in prop::collection::vec((0u64..300_000, 0u64..40_000, any::<bool>()), 0..6)) {
        let config = Config::default();
        let mut server = (0u64, None);
        let elector = |name, fates| Elector { name, own: Own::default(), observed: None, rv: 0, counter: 0, flight: None, next: 0, fates, used: 0 };
        let mut both = [elector("a", a), elector("b", b)];
        for now in (0..300_000u64).step_by(50) {
            for (index, elector) in both.iter_mut().enumerate() {
                let paused = pauses.iter().any(|(from, length, second)| usize::from(*second) == index && now >= *from && now < from + length);
                if !paused {
                    elector.step(now, &mut server, &config);
                }
            }
            let holders = both.iter().filter(|elector| elector.holds(now, &config)).count();
            prop_assert!(holders <= 1, "two holders at {now} ms");
        }
    }

    #[test]
    fn while_requests_get_through_one_of_two_holds_it(a in quick(), b in quick()) {
        let config = Config::default();
        let mut server = (0u64, None);
        let elector = |name, fates| Elector { name, own: Own::default(), observed: None, rv: 0, counter: 0, flight: None, next: 0, fates, used: 0 };
        let mut both = [elector("a", a), elector("b", b)];
        for now in (0..120_000u64).step_by(50) {
            both.iter_mut().for_each(|elector| elector.step(now, &mut server, &config));
            prop_assert!(now < 5_000 || both.iter().any(|elector| elector.holds(now, &config)), "nobody at {now} ms");
        }
        prop_assert_eq!(server.1.unwrap().epoch, 1);
    }

    #[test]
    fn decide_answers_everything(
        holder in prop::option::of(prop::sample::select(vec!["a", "b"])), epoch in -5i64..5, since in 0u64..100, now in 0u64..200,
        hold in prop::option::of((-5i64..5, 0u64..200)), asked in prop::option::of((-5i64..5, 0u64..200)), attempted in prop::option::of(0u64..200), missing in any::<bool>(),
    ) {
        let observed = Observed { lease: (!missing).then(|| seen(holder, epoch, "x")), since: S(since) };
        let own = Own {
            hold: hold.map(|(epoch, sent)| Hold { epoch, sent: S(sent) }),
            asked: asked.map(|(epoch, sent)| Hold { epoch, sent: S(sent) }),
            attempted: attempted.map(S),
            lost: None,
        };
        let action = decide("b", Some(&observed), &own, S(now), &Config::default());
        if let Action::Take { .. } = action {
            prop_assert!(holder.is_none() || now >= since + 15);
        }
        if let Action::Wait { until } = action {
            prop_assert!(until > S(now) || own.hold.is_none());
        }
    }
}

/// One Lease object with resourceVersion checks.
#[derive(Default)]
struct Shelf {
    lease: Option<Value>,
    rv: u64,
    cut: bool,
}

fn merge(into: &mut Value, patch: &Value) {
    json_patch::merge(into, patch);
}

fn shelf() -> (Arc<Mutex<Shelf>>, Cluster) {
    let shelf = Arc::new(Mutex::new(Shelf::default()));
    let kept = shelf.clone();
    let (cluster, _) = cluster(false, move |asked: &Asked| {
        let mut shelf = kept.lock().unwrap();
        if shelf.cut {
            return Answer::Never;
        }
        match asked.method.as_str() {
            "GET" => shelf.lease.clone().map_or_else(|| status(404, "NotFound"), |lease| Answer::Json(200, lease)),
            "POST" if shelf.lease.is_some() => status(409, "AlreadyExists"),
            _ => {
                let mut lease = shelf.lease.clone().unwrap_or_else(|| json!({}));
                if let Some(rv) = asked.body.pointer("/metadata/resourceVersion")
                    && Some(rv) != lease.pointer("/metadata/resourceVersion")
                {
                    return status(409, "Conflict");
                }
                merge(&mut lease, &asked.body);
                shelf.rv += 1;
                lease["metadata"]["resourceVersion"] = json!(shelf.rv.to_string());
                lease["metadata"]["uid"] = json!("u1");
                shelf.lease = Some(lease.clone());
                Answer::Json(200, lease)
            }
        }
    });
    (shelf, cluster)
}

fn slot(node: &str) -> Slot {
    Slot { node: node.into(), node_uid: "n".into(), component: "ns/gpu".into() }
}

async fn leads(keeper: &Keeper) -> Leadership {
    loop {
        if let Some(held) = keeper.leadership() {
            return held;
        }
        tokio::time::sleep(S(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn g37_a_partitioned_leader_stops_before_another_starts() {
    let (shelf, cluster) = shelf();
    let (a, _task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "a", Config::default());
    assert_eq!(leads(&a).await.epoch, 1);
    let (fence, fenced_at) = (a.fence(), tokio::time::Instant::now());
    // Renewals keep it for as long as they get through.
    tokio::time::sleep(S(120)).await;
    assert!(fence().is_ok() && fenced_at.elapsed() >= S(120));
    shelf.lock().unwrap().cut = true;
    tokio::time::sleep(S(11)).await;
    assert!(fence().is_err(), "its queued write is refused");
    assert!(matches!(a.admit(&slot("n1"), &[]).await, Written::NotSent { .. }));
    shelf.lock().unwrap().cut = false;
    let (b, _task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "b", Config::default());
    tokio::time::sleep(S(40)).await;
    // One of them leads, with a higher epoch; the old fence stays shut for ever.
    let leaders = [a.leadership(), b.leadership()].into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(leaders.len(), 1);
    assert_eq!(leaders[0].epoch, 2);
    assert!(fence().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_release_lets_the_next_one_in_at_once() {
    let (shelf, cluster) = shelf();
    let (a, a_task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "a", Config::default());
    leads(&a).await;
    let (b, _task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "b", Config::default());
    tokio::time::sleep(S(30)).await;
    assert!(b.leadership().is_none());
    assert!(a.admit(&slot("n1"), &[]).await.is_applied());
    a.stop().await;
    a_task.await.unwrap();
    assert!(a.leadership().is_none());
    let start = tokio::time::Instant::now();
    assert_eq!(leads(&b).await.epoch, 2);
    assert!(start.elapsed() <= S(3));
    let slots = shelf.lock().unwrap().lease.as_ref().unwrap()["metadata"]["annotations"][SLOTS].clone();
    assert!(slots.as_str().unwrap().contains("n1"), "slots outlive their holder");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_dropped_renews_no_more() {
    let (_shelf, cluster) = shelf();
    let (a, task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "a", Config::default());
    leads(&a).await;
    drop(a);
    tokio::time::timeout(S(3), task).await.expect("it ends by itself").unwrap();
}

#[tokio::test(start_paused = true)]
async fn slots_and_renewals_do_not_fight_and_stale_decisions_are_refused() {
    let (shelf, cluster) = shelf();
    let (a, _task) = Keeper::start(&cluster, cluster.write_cap().unwrap(), "a", Config::default());
    leads(&a).await;
    let mut seen: Vec<Slot> = Vec::new();
    for round in 0..40 {
        tokio::time::sleep(Duration::from_millis(337)).await;
        let next = slot(&format!("n{round:02}"));
        assert!(a.admit(&next, &seen).await.is_applied(), "round {round}");
        seen.push(next);
    }
    assert!(matches!(a.admit(&slot("x"), &seen[1..]).await, Written::Conflict { .. }), "decided on other slots");
    // Somebody edits the Lease: one conflict, then it goes on.
    {
        let mut shelf = shelf.lock().unwrap();
        shelf.rv += 1;
        let rv = shelf.rv.to_string();
        shelf.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!(rv);
    }
    assert!(matches!(a.release(&seen[0], &seen).await, Written::Conflict { .. }));
    assert!(a.release(&seen[0], &seen).await.is_applied());
    // Garbage admits nobody.
    {
        let mut shelf = shelf.lock().unwrap();
        shelf.lease.as_mut().unwrap()["metadata"]["annotations"][SLOTS] = json!("nonsense");
    }
    tokio::time::sleep(S(5)).await;
    assert!(matches!(a.admit(&slot("y"), &seen[1..]).await, Written::NotSent { .. }));
    assert!(a.leadership().is_some());
}

//! Tests of `order` and of the sentences of `blockers`: scenarios and rules first, then what holds for every drain.

use proptest::prelude::*;

use super::*;
use crate::{
    drain::{eviction::Reply, eviction::classify, testing::*},
    fleet::{
        records::{BudgetRecord, PodExtra, PodPhase, SyncFailed},
        view::{BudgetView, IncomingReason},
    },
};

fn evicted(world: &World) -> Vec<String> {
    match step(&world.drain()) {
        DrainStep::Evict { pods, .. } => pods.iter().map(|pod| pod.key.name.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

fn waits(world: &World) -> Vec<Blocker> {
    match step(&world.drain()) {
        DrainStep::Wait { blockers, .. } => {
            assert!(!blockers.is_empty());
            blockers
        }
        other => panic!("{other:?}"),
    }
}

fn only(blockers: Vec<Blocker>) -> Blocker {
    assert_eq!(blockers.len(), 1, "{blockers:?}");
    blockers.into_iter().next().unwrap()
}

fn recheck(world: &World) -> Option<Timestamp> {
    match step(&world.drain()) {
        DrainStep::Wait { recheck, .. } => recheck,
        other => panic!("{other:?}"),
    }
}

fn waiting_budget() -> Outcome {
    Outcome::Budget {
        class: BudgetClass::Waiting,
        message: "needs 1 healthy pods and has 0 currently".to_owned(),
        retry_after: None,
    }
}

#[test]
fn g01_a_replacement_elsewhere_ends_the_drain_and_is_never_touched() {
    let original = pod("shop/db-0").uid("A");
    let mut world = world([original.clone()]);
    assert_eq!(evicted(&world), ["db-0"]);
    // The controller was faster than our next look: the name is another pod's already.
    let message = "Precondition failed: UID in precondition: A, UID in object meta: B".to_owned();
    world.memory.record(&reference(&original), classify(&Reply::Conflict { message }), at(1));
    assert!(only(waits(&world)).message.contains("is gone, says the API server"), "the watch is behind: no second eviction");
    world.claimants.clear();
    assert_eq!(step(&world.drain()), DrainStep::Empty);
    // Even a picture that gives it to this node's drain names it by its own UID, and it is not bound here.
    world.claimants = vec![claimant(pod("shop/db-0").uid("B").node(None).phase(PodPhase::Pending))];
    assert_eq!(step(&world.drain()), DrainStep::Empty);
}

#[test]
fn g02_a_pending_pod_without_node_is_no_target_and_the_plan_can_warn() {
    let mut pending = pod("shop/db-0").node(None).phase(PodPhase::Pending);
    pending.extra = Some(Box::new(PodExtra { affinity_nodes: vec!["n1".into()], ..PodExtra::default() }));
    let world = world([pending.clone()]).with([budget("shop/db", 1, 0, 1)]);
    assert_eq!(step(&world.drain()), DrainStep::Empty);
    assert_eq!(
        blockers::pinned(&pending, &"n1".into()).as_deref(),
        Some("shop/db-0 cannot start until n1 returns: it may run nowhere else")
    );
    assert_eq!(blockers::pinned(&pending, &"n2".into()), None);
    assert_eq!(blockers::pinned(&pending.node(Some("n1")), &"n1".into()), None);
}

#[test]
fn g03_crash_looping_pods_block_by_name_and_are_asked_for_seldom() {
    let (a, b) = (pod("shop/api-a").not_ready(), pod("shop/api-b").not_ready());
    let view = |always| budget("shop/api", 1, 0, 2).record(|r| r.always_allow_unhealthy = always).seeing(&[&a, &b]);
    let mut world = world([a.clone(), b.clone()]).with([view(false)]);

    // Before any write.
    for planned in plan(&world.drain()) {
        let Outlook::Later(blocker) = planned.outlook else { panic!("{planned:?}") };
        assert_eq!(blocker.kind, BlockerKind::DisruptionBudget);
        assert!(blocker.message.contains("needs 1 healthy of 2, has 0, allows 0"), "{}", blocker.message);
        assert!(blocker.message.contains("shop/api-a on n1 is not Ready, shop/api-b on n1 is not Ready"), "{}", blocker.message);
        assert!(blocker.message.contains("(not Ready itself)") && blocker.message.contains("AlwaysAllow"), "{}", blocker.message);
    }

    // Blocked, one blocker for both; over five minutes the server is asked a few times, one pod at a time.
    assert_eq!(only(waits(&world)).object.to_string(), "PodDisruptionBudget shop/api");
    let mut asked = Vec::new();
    for second in 1..300 {
        world.now = at(second);
        if let DrainStep::Evict { pods, .. } = step(&world.drain()) {
            assert_eq!(pods.len(), 1, "one pod tells for its budget");
            world.memory.record(&pods[0], waiting_budget(), at(second));
            asked.push(second);
        }
    }
    assert!(asked.len() > 5 && asked.windows(2).all(|it| it[1] - it[0] >= 5), "{asked:?}");

    // With the other policy the same objects drain, without waiting for the long rest to end.
    world.budgets = budgets([view(true)]);
    world.now = at(310);
    assert_eq!(evicted(&world), ["api-a", "api-b"]);
}

#[test]
fn a_budget_whose_sync_failed_holds_the_plan_up_for_a_minute_and_is_then_a_never() {
    let failed = SyncFailed { message: "found no controllers".into(), since: Some(at(-10)) };
    let shut = budget("shop/db", 1, 2, 2).record(|r| (r.disruptions_allowed, r.sync_failed) = (0, Some(failed.clone())));
    let mut world = world([pod("shop/db-0")]).with([shut]);
    let [Planned { outlook: Outlook::Unsettled(blocker), .. }] = &plan(&world.drain())[..] else { panic!() };
    assert_eq!(blocker.kind, BlockerKind::DisruptionBudgetLag);
    assert!(blocker.message.contains("SyncFailed, found no controllers"), "{}", blocker.message);
    // A drain under way asks the server all the same, and looks again when the minute is over.
    world.memory.record(&reference(&pod("shop/db-0")), waiting_budget(), at(0));
    for second in 1..5 {
        world.now = at(second);
        let DrainStep::Wait { blockers, recheck: Some(recheck) } = step(&world.drain()) else { panic!("{second}") };
        assert_eq!((blockers[0].kind, recheck > world.now && recheck <= at(50)), (BlockerKind::DisruptionBudgetLag, true));
    }
    world.now = at(50);
    assert!(matches!(&plan(&world.drain())[0].outlook, Outlook::Never(it) if it.kind == BlockerKind::DisruptionBudgetNever));
    assert_eq!(only(waits(&world)).kind, BlockerKind::DisruptionBudgetNever);
}

#[test]
fn g04_a_budget_that_allows_nothing_is_a_never_of_the_plan() {
    let world = world([pod("shop/db-0"), pod("shop/web-0")]).with([budget("shop/db", 2, 2, 2)]);
    let outlooks: Vec<_> = plan(&world.drain()).into_iter().map(|it| it.outlook).collect();
    let [Outlook::Never(blocker), Outlook::Evicted] = &outlooks[..] else { panic!("{outlooks:?}") };
    assert_eq!(
        (blocker.kind, blocker.object.to_string()),
        (BlockerKind::DisruptionBudgetNever, "PodDisruptionBudget shop/db".to_owned())
    );
    assert!(blocker.message.contains("needs 2 healthy of 2, has 2, allows 0 (minAvailable: 2)"), "{}", blocker.message);
}

#[test]
fn g07_an_accepted_eviction_is_not_sent_again_whatever_the_picture_says() {
    let db = pod("shop/db-0");
    let mut world = world([db.clone()]);
    world.memory.record(&reference(&db), Outcome::Accepted, at(1));
    for second in [1, 2, 60, 3600] {
        world.now = at(second);
        assert_eq!(only(waits(&world)).kind, BlockerKind::Terminating);
    }
    // After a restart only the handoff remembers.
    world.memory = EvictionMemory::default();
    world.evicted = vec!["db-0-uid".to_owned()];
    assert!(only(waits(&world)).message.contains("was evicted earlier in this run"));
}

#[test]
fn least_important_first_then_by_name_and_never_too_many_at_once() {
    let mut world =
        world([pod("shop/c-0"), pod("shop/b-0").priority(7), pod("shop/a-0").priority(7), pod("shop/d-0").priority(-5)]);
    assert_eq!(evicted(&world), ["d-0", "c-0", "a-0", "b-0"]);
    world.claimants.reverse();
    assert_eq!(evicted(&world), ["d-0", "c-0", "a-0", "b-0"], "the picture's order does not matter");
    world.claimants = (0..30).map(|i| claimant(pod(&format!("shop/p-{i:02}")))).collect();
    assert_eq!(evicted(&world).len(), IN_FLIGHT);
    for claimant in world.claimants.iter_mut().take(IN_FLIGHT - 1) {
        *claimant = self::claimant((*claimant.pod).clone().stopping(at(0)));
    }
    assert_eq!(evicted(&world), ["p-09"]);
}

#[test]
fn a_wave_ends_before_the_next_begins() {
    let user = claimant(pod("shop/app-0").priority(1000));
    let other = claimant(pod("shop/web-0")).why(ClaimReason::Reboot);
    let storage = claimant(pod("ceph/osd-0").priority(2_000_001_000)).why(ClaimReason::Reboot);
    let mut world = world([]);
    world.claimants = vec![storage.clone(), other.clone(), user.clone()];
    assert_eq!(evicted(&world), ["app-0"]);
    world.claimants = vec![storage.clone(), other.clone(), claimant(pod("shop/app-0").stopping(at(0)))];
    assert_eq!(only(waits(&world)).object.to_string(), "Pod shop/app-0");
    world.claimants = vec![storage.clone(), other];
    assert_eq!(evicted(&world), ["web-0"]);
    world.claimants = vec![storage];
    assert_eq!(evicted(&world), ["osd-0"]);
}

#[test]
fn a_budget_is_spent_as_the_server_will_spend_it() {
    let mut world = world((0..4).map(|i| pod(&format!("shop/db-{i}")))).with([budget("shop/db", 2, 4, 4)]);
    assert_eq!(evicted(&world), ["db-0", "db-1"]);
    let planned: Vec<_> = plan(&world.drain()).into_iter().map(|it| matches!(it.outlook, Outlook::InTurn { .. })).collect();
    assert_eq!(planned, [false, false, true, true]);
    // Accepted, but the budget's status and the pod are as before in the picture: it counts.
    world.memory.record(&reference(&pod("shop/db-0")), Outcome::Accepted, at(1));
    assert_eq!(evicted(&world), ["db-1"]);
}

#[test]
fn what_may_not_be_evicted_stays_and_says_why() {
    let mut mirror = pod("kube-system/static-0");
    mirror.flags.mirror = true;
    let daemon = claimant(pod("shop/agent-0")).class(ClaimantClass::DaemonSet { selects_ready: false });
    let table = [
        (claimant(mirror), BlockerKind::MirrorPod, "static pod"),
        (daemon.clone(), BlockerKind::DaemonSetClaimant, "select the component's ready label"),
        (claimant(pod("shop/bare").unowned()), BlockerKind::Unmanaged, "evictUnmanaged"),
        (claimant(pod("shop/scratch-0").empty_dir()), BlockerKind::EmptyDir, "deleteEmptyDirData"),
    ];
    for (claimant, kind, words) in table {
        let mut world = world([]);
        world.claimants = vec![claimant];
        let blocker = only(waits(&world));
        assert_eq!(blocker.kind, kind);
        assert!(blocker.message.contains(words) && blocker.message.contains("holds 1 vendor.com/gpu"), "{}", blocker.message);
        assert!(matches!(&plan(&world.drain())[0].outlook, Outlook::Never(it) if *it == blocker));
    }
    let mut world = world([]);
    world.claimants = vec![daemon.class(ClaimantClass::DaemonSet { selects_ready: true })];
    assert_eq!(step(&world.drain()), DrainStep::Empty, "leaves with the ready label");
    assert_eq!(plan(&world.drain())[0].outlook, Outlook::LeavesByItself);
}

#[test]
fn consent_is_asked_for_each_loss() {
    let both = pod("shop/bare").unowned().empty_dir();
    for (unmanaged, empty_dir, expected) in [
        (false, false, Some(BlockerKind::Unmanaged)),
        (true, false, Some(BlockerKind::EmptyDir)),
        (false, true, Some(BlockerKind::Unmanaged)),
        (true, true, None),
    ] {
        let mut world = world([both.clone()]);
        (world.policy.evict_unmanaged, world.policy.delete_empty_dir_data) = (unmanaged, empty_dir);
        match expected {
            Some(kind) => assert_eq!(only(waits(&world)).kind, kind),
            None => assert_eq!(evicted(&world), ["bare"]),
        }
    }
}

#[test]
fn a_pod_that_comes_back_to_the_node_is_not_chased() {
    let again = |pod: PodRecord| world([pod.created(at(20))]).at(30);
    let blocker = only(waits(&again(pod("shop/db-0").uid("B").tolerant())));
    assert_eq!(blocker.kind, BlockerKind::EvictionRefused);
    assert!(blocker.message.contains("it tolerates the cordon"), "{}", blocker.message);
    let mut open = again(pod("shop/db-0").uid("B"));
    open.node.unschedulable = false;
    assert!(only(waits(&open)).message.contains("the node is open"));
    // Bound just before the cordon, or by hand: it comes once, and leaves.
    assert_eq!(evicted(&again(pod("shop/db-0"))), ["db-0"]);
    // There from the beginning: evicted once, toleration or not.
    assert_eq!(evicted(&world([pod("shop/db-0").tolerant()])), ["db-0"]);
    // Its controller was so quick that it says to have been made before the drain began.
    let quick = again(pod("shop/db-0").uid("B").tolerant());
    let began = Drain { since: at(20) + jiff::SignedDuration::from_millis(700), ..quick.drain() };
    assert!(
        matches!(step(&began), DrainStep::Wait { blockers, .. } if only(blockers.clone()).kind == BlockerKind::EvictionRefused)
    );
}

#[test]
fn a_pod_that_does_not_go_says_since_when_and_what_may_hold_it() {
    let mut world = world([pod("shop/db-0").stopping(at(0))]);
    let blocker = only(waits(&world));
    assert_eq!((blocker.kind, blocker.since), (BlockerKind::Terminating, at(0)));
    assert!(blocker.message.starts_with("is stopping: its grace period of 30 s ends at"), "{}", blocker.message);
    assert_eq!(recheck(&world), Some(at(41)), "the text changes when it is overdue");
    world.now = at(120);
    let ready = only(waits(&world)).message;
    assert!(ready.contains("(grace 30 s), 1m30s ago. Node n1 is Ready: a finalizer"), "{ready}");
    world.node.ready = crate::fleet::records::Ready::ABSENT;
    let dark = only(waits(&world)).message;
    assert!(dark.contains("Node n1 is not Ready, so nobody can say that its processes have ended"), "{dark}");
}

#[test]
fn a_refused_eviction_rests_and_says_what_stands_in_the_way() {
    let db = pod("shop/db-0");
    let table = [
        (Outcome::NamespaceTerminating, BlockerKind::EvictionRefused, "namespace shop is being deleted"),
        (
            Outcome::Forbidden { missing: "create pods/eviction".to_owned() },
            BlockerKind::EvictionRefused,
            "missing to create pods/eviction",
        ),
        (Outcome::Webhook { message: "moved later".to_owned() }, BlockerKind::EvictionRefused, "moved later"),
        (Outcome::Transient { message: "503".to_owned() }, BlockerKind::EvictionRefused, "503"),
        (Outcome::Unknown { message: "no answer".to_owned() }, BlockerKind::EvictionRefused, "not known: no answer"),
        (Outcome::TwoBudgets { message: "more than one.".to_owned() }, BlockerKind::DisruptionBudgetNever, "Change a selector"),
        (waiting_budget(), BlockerKind::DisruptionBudget, "needs 1 healthy pods and has 0 currently (tried 1 times, again at"),
    ];
    for (outcome, kind, words) in table {
        let mut world = world([db.clone()]);
        world.memory.record(&reference(&db), outcome, at(1));
        let blocker = only(waits(&world));
        assert_eq!((blocker.kind, blocker.object.to_string()), (kind, "Pod shop/db-0".to_owned()));
        assert!(blocker.message.contains(words), "{}", blocker.message);
        let next = world.memory.get(&db.meta.uid).and_then(|it| it.next).unwrap();
        assert_eq!(recheck(&world), Some(next));
        world.now = next;
        assert_eq!(evicted(&world), ["db-0"]);
    }
}

#[test]
fn a_try_that_failed_for_another_reason_tells_more_than_a_budget_that_blocks_while_it_rests() {
    let db = pod("shop/db-0");
    let mut world = world([db.clone()]).with([budget("shop/db", 1, 1, 1)]);
    world.memory.record(&reference(&db), Outcome::Webhook { message: "moved later".to_owned() }, at(1));
    assert_eq!(only(waits(&world)).kind, BlockerKind::EvictionRefused);
    world.now = world.memory.get(&db.meta.uid).and_then(|it| it.next).unwrap();
    assert_ne!(only(waits(&world)).kind, BlockerKind::EvictionRefused, "its pause is over: the budget is what blocks");
}

#[test]
fn throttling_holds_every_eviction_back() {
    let mut world = world([pod("shop/db-0"), pod("shop/web-0")]);
    world.memory.record(&reference(&pod("shop/db-0")), Outcome::Throttled { retry_after: Some(Duration::from_secs(40)) }, at(1));
    assert_eq!((only(waits(&world)).kind, recheck(&world)), (BlockerKind::Throttled, Some(at(41))));
    world.now = at(41);
    assert_eq!(evicted(&world), ["db-0", "web-0"]);
}

#[test]
fn an_override_deletes_one_blocked_pod_while_it_is_valid() {
    let over = |until: &str| Override { pod_uid: "db-0-uid".to_owned(), reason: "ticket 7".to_owned(), until: until.to_owned() };
    let blocked = || world([pod("shop/db-0"), pod("shop/db-1")]).with([budget("shop/db", 2, 2, 2)]);
    let mut world = blocked();
    world.overrides = vec![over("not a date"), over(&at(60).to_string())];
    let DrainStep::DeleteWithOverride { pod: deleted, why } = step(&world.drain()) else { panic!() };
    assert_eq!(deleted, reference(&pod("shop/db-0")));
    assert!(why.contains("ticket 7"), "{why}");
    assert!(matches!(&plan(&world.drain())[0].outlook, Outlook::Overridden { reason, .. } if reason == "ticket 7"));
    // Once only; the other pod waits.
    world.memory.record(&deleted, Outcome::Accepted, at(2));
    assert_eq!(
        waits(&world).iter().map(|it| it.kind).collect::<Vec<_>>(),
        [BlockerKind::DisruptionBudgetNever, BlockerKind::Terminating]
    );
    // Void: named, and nothing is deleted.
    let mut void = blocked();
    void.overrides = vec![over(&at(1).to_string())];
    assert!(only(waits(&void)).message.contains("shop/db-0 (its override was valid until"));
    // A pod that may be evicted is evicted, override or not.
    let mut free = blocked().with([budget("shop/db", 1, 2, 2)]);
    free.overrides = vec![over(&at(60).to_string())];
    assert_eq!(evicted(&free), ["db-0"]);
    // And no override stands for another consent.
    let mut local = blocked();
    local.claimants = vec![claimant(pod("shop/db-0").empty_dir())];
    local.overrides = vec![over(&at(60).to_string())];
    assert_eq!(only(waits(&local)).kind, BlockerKind::EmptyDir);
}

#[test]
fn a_pod_on_its_way_keeps_the_drain_from_being_over() {
    let mut world = world([]);
    let coming = Arc::new(pod("shop/late-0").node(None).phase(PodPhase::Pending));
    for why in [
        IncomingReason::Nominated,
        IncomingReason::VolumeSelectedNode { claim: key("shop/data") },
        IncomingReason::ClaimOnlyHere { claim: key("shop/gpu") },
    ] {
        world.incoming = vec![Incoming { pod: coming.clone(), why }];
        assert_eq!(only(waits(&world)).kind, BlockerKind::PodBinding);
    }
    world.claimants = vec![claimant(pod("shop/db-0"))];
    assert_eq!(evicted(&world), ["db-0"], "those that are here leave meanwhile");
}

/// A server with budgets that move at random; each eviction that it accepts counts.
#[derive(Debug, Clone)]
struct Turn {
    seconds: i64,
    reply: u8,
    allowed: i32,
    healthy: i32,
    /// Which claimant changes, and how.
    which: usize,
    change: u8,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (0i64..40, 0u8..12, -1i32..3, 0i32..5, 0usize..8, 0u8..6)
        .prop_map(|(seconds, reply, allowed, healthy, which, change)| Turn { seconds, reply, allowed, healthy, which, change });
    prop::collection::vec(turn, 0..60)
}

fn pods() -> impl Strategy<Value = Vec<PodRecord>> {
    let one = (0usize..3, 0usize..3, any::<[bool; 6]>(), -1i32..2, -10i64..50);
    prop::collection::vec(one, 0..8).prop_map(|pods| {
        let made = pods.into_iter().enumerate().map(|(i, (app, phase, flags, priority, created))| {
            let mut pod = pod(&format!("shop/{}-{i}", ["db", "web", "x"][app]));
            pod.phase = [PodPhase::Running, PodPhase::Pending, PodPhase::Running][phase];
            pod.flags.tolerates_cordon = flags[0];
            pod.flags.empty_dir = flags[1] && flags[2];
            pod.priority = priority * 2_000_000_000;
            pod.meta.created = Some(at(created));
            if flags[3] {
                pod = pod.not_ready();
            }
            if flags[4] && flags[5] {
                pod = pod.unowned();
            }
            pod
        });
        made.collect()
    })
}

fn reply(number: u8) -> Reply {
    let refused = |code, message: &str, causes: &[(&str, &str)], seconds: Option<u64>| Reply::Refused {
        code,
        message: message.to_owned(),
        causes: causes.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        retry_after: seconds.map(Duration::from_secs),
    };
    match number {
        0..=3 => Reply::Accepted,
        4 => Reply::Gone,
        5 => Reply::Conflict { message: "UID in precondition".to_owned() },
        6 => refused(429, "", &[("DisruptionBudget", "needs")], None),
        7 => refused(429, "", &[], Some(7)),
        8 => refused(403, "", &[("NamespaceTerminating", "")], None),
        9 => Reply::Lost { code: None, message: String::new() },
        10 => Reply::Lost { code: Some(500), message: "more than one PodDisruptionBudget".to_owned() },
        _ => refused(403, "nope", &[], None),
    }
}

fn moved(name: &str, turn: &Turn) -> BudgetView {
    budget(name, 1, turn.healthy, 4).record(|record: &mut BudgetRecord| record.disruptions_allowed = turn.allowed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_total_never_evicts_twice_and_waits_only_with_a_reason(pods in pods(), turns in turns(), consent: bool, over: bool) {
        let mut world = world(pods);
        world.policy.evict_unmanaged = consent;
        if over {
            world.overrides = world
                .claimants
                .iter()
                .map(|it| Override { pod_uid: it.pod.meta.uid.to_string(), reason: "r".to_owned(), until: at(200).to_string() })
                .collect();
        }
        let mut accepted: BTreeSet<Uid> = BTreeSet::new();
        let mut now = 0;
        for turn in turns {
            now += turn.seconds;
            world.now = at(now);
            world.budgets = budgets([moved("shop/db", &turn), moved("shop/web", &turn)]);
            let before = step(&world.drain());
            prop_assert_eq!(&before, &step(&world.drain()), "the same input gives the same step");
            let _ = plan(&world.drain());
            let sent = match before {
                DrainStep::Evict { pods, .. } => { prop_assert!(!pods.is_empty()); pods }
                DrainStep::DeleteWithOverride { pod, .. } => {
                    prop_assert!(over && now < 200);
                    vec![pod]
                }
                DrainStep::Wait { blockers, recheck } => {
                    prop_assert!(!blockers.is_empty());
                    prop_assert!(blockers.iter().all(|it| !it.message.is_empty() && !it.object.name.is_empty()));
                    prop_assert!(recheck.is_none_or(|it| it > world.now));
                    vec![]
                }
                DrainStep::Empty => {
                    prop_assert!(world.claimants.iter().all(|it| !is_here(&it.pod)));
                    vec![]
                }
            };
            prop_assert!(sent.len() <= IN_FLIGHT);
            for (i, pod) in sent.iter().enumerate() {
                let claimant = world.claimants.iter().find(|it| it.pod.meta.uid == pod.uid).unwrap();
                prop_assert!(consent || claimant.pod.owner.is_some());
                prop_assert!(!claimant.pod.flags.empty_dir, "no consent to lose its data");
                prop_assert!(!accepted.contains(&pod.uid), "{} was accepted before", pod.key);
                let outcome = classify(&reply((turn.reply + u8::try_from(i).unwrap()) % 12));
                if outcome == Outcome::Accepted {
                    accepted.insert(pod.uid.clone());
                }
                world.memory.record(pod, outcome, world.now);
            }
            // A restart now and then: what was accepted is in the handoff alone.
            if turn.change == 5 {
                world.memory = EvictionMemory::default();
                world.evicted = accepted.iter().map(ToString::to_string).collect();
            }
            if turn.which < world.claimants.len() {
                match turn.change {
                    0 if accepted.contains(&world.claimants[turn.which].pod.meta.uid) => { world.claimants.remove(turn.which); }
                    1 if accepted.contains(&world.claimants[turn.which].pod.meta.uid) => {
                        let pod = (*world.claimants[turn.which].pod).clone().stopping(world.now);
                        world.claimants[turn.which] = claimant(pod);
                    }
                    2 => {
                        let pod = (*world.claimants[turn.which].pod).clone().not_ready();
                        world.claimants[turn.which] = claimant(pod);
                    }
                    _ => {}
                }
            }
        }
    }
}

//! Tests of `budget`: one row or one test per rule of the server.

use super::*;
use crate::{drain::testing::*, fleet::records::SyncFailed};

/// Of a Ready pod of the budget.
fn class_of(budget: BudgetView) -> Option<BudgetClass> {
    match standing(&pod("shop/db-0"), &budgets([budget]), at(0)) {
        Standing::Blocked(block) => Some(block.class),
        Standing::Allowed { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// Its last sync failed at this second.
fn failed(budget: BudgetView, since: Option<i64>) -> BudgetView {
    let message = "jobs.batch does not implement scale".into();
    budget.record(|r| (r.disruptions_allowed, r.sync_failed) = (0, Some(SyncFailed { message, since: since.map(at) })))
}

#[test]
fn a_sync_that_failed_is_lag_until_it_has_lasted() {
    use BudgetClass::{Permanent, SyncFailing};
    let table = [
        ("just now", Some(0), SyncFailing),
        ("by the clock of another machine", Some(3), SyncFailing),
        ("nearly a minute ago", Some(-59), SyncFailing),
        ("a minute ago", Some(-60), Permanent),
        ("long ago", Some(-3600), Permanent),
        ("nobody says when", None, Permanent),
    ];
    for (name, since, expected) in table {
        let fresh = failed(budget("shop/db", 1, 2, 2), since);
        assert_eq!(class(&fresh, at(0)), Some(expected), "{name}");
        let lasts = lasts_from(&fresh.record);
        assert_eq!(lasts, since.map(|since| at(since + 60)), "{name}");
        assert!(lasts.is_none_or(|lasts| class(&fresh, lasts) == Some(Permanent)), "{name}");
        // Neither an older generation nor numbers that look like room or like never tell more than that.
        let unseen = failed(budget("shop/db", 1, 2, 2).record(|r| r.generation = 2), since);
        let never = failed(budget("shop/db", 2, 2, 2), since);
        assert_eq!([unseen, never].map(|it| class(&it, at(0))), [Some(expected); 2], "{name}");
    }
    assert_eq!((SyncFailing.blocker(), SyncFailing.is_permanent()), (BlockerKind::DisruptionBudgetLag, false));
    assert_eq!(class(&budget("shop/db", 1, 2, 2), at(0)), None, "cleared by the next sync");
}

#[test]
fn a_shut_budget_is_permanent_waiting_or_lagging() {
    use BudgetClass::{ControllerLag, Permanent, Waiting};
    let none = |record: &mut BudgetRecord| record.min_available = None;
    let table = [
        ("room for one", budget("shop/db", 2, 3, 3), None),
        ("one sibling is not Ready", budget("shop/db", 2, 2, 3), Some(Waiting)),
        ("minAvailable = replicas", budget("shop/db", 2, 2, 2), Some(Permanent)),
        ("minAvailable over replicas", budget("shop/db", 3, 2, 2), Some(Permanent)),
        ("minAvailable = replicas, but a surge leaves room now", budget("shop/db", 2, 3, 3).wanted(Some(2)), None),
        (
            "integer minAvailable: expectedPods counts only what exists, one of three replicas is missing",
            budget("shop/db", 2, 2, 2).wanted(Some(3)),
            Some(Waiting),
        ),
        ("owners unknown: as far as can be seen, never", budget("shop/db", 2, 2, 2).wanted(None), Some(Permanent)),
        (
            "percentage: the server counts replicas itself",
            budget("shop/db", 2, 2, 2).record(|r| r.min_available = Some("100%".into())).wanted(Some(9)),
            Some(Permanent),
        ),
        (
            "maxUnavailable 0",
            budget("shop/db", 3, 3, 3).record(none).record(|r| r.max_unavailable = Some("0".into())),
            Some(Permanent),
        ),
        ("the last disruption is still counted", budget("shop/db", 1, 2, 2).record(|r| r.disruptions_allowed = 0), Some(Waiting)),
        ("owner without scale", failed(budget("shop/db", 0, 0, 0), Some(-3600)), Some(Permanent)),
        (
            "changed, not computed yet: whatever else it says",
            budget("shop/db", 2, 3, 3).record(|r| r.generation = 2),
            Some(ControllerLag),
        ),
        (
            "a sync that fails never observes the generation",
            failed(budget("shop/db", 0, 0, 0).record(|r| r.observed_generation = 0), Some(-3600)),
            Some(Permanent),
        ),
        ("never computed", budget("shop/db", 0, 0, 0).record(|r| r.observed_generation = 0), Some(ControllerLag)),
        ("negative", budget("shop/db", 2, 2, 3).record(|r| r.disruptions_allowed = -1), Some(ControllerLag)),
        ("scaled to 0", budget("shop/db", 0, 0, 0), Some(Waiting)),
    ];
    for (name, budget, expected) in table {
        assert_eq!(class_of(budget), expected, "{name}");
    }
}

#[test]
fn the_server_skips_budgets_of_pods_that_disrupt_nothing() {
    let budgets = budgets([budget("shop/db", 2, 2, 2)]);
    let db = || pod("shop/db-0");
    assert!(matches!(standing(&db(), &budgets, at(0)), Standing::Blocked(_)));
    for skipped in
        [db().phase(PodPhase::Pending), db().phase(PodPhase::Succeeded), db().phase(PodPhase::Failed), db().stopping(at(0))]
    {
        assert_eq!(standing(&skipped, &budgets, at(0)), Standing::Skipped);
    }
}

#[test]
fn only_budgets_of_the_namespace_whose_selector_matches_count() {
    let all = |r: &mut BudgetRecord| r.selector = Some(Default::default());
    let views = [
        budget("shop/db", 1, 2, 2),
        budget("shop/web", 1, 2, 2),
        budget("shop/null", 1, 2, 2).record(|r| r.selector = None),
        budget("shops/db", 1, 2, 2),
        budget("sho/all", 1, 2, 2).record(all),
        budget("shop/all", 1, 2, 2).record(all),
    ];
    let budgets = budgets(views);
    let names = |pod: &PodRecord| of(pod, &budgets).map(|it| it.record.key.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&pod("shop/db-0")), ["shop/all", "shop/db"]);
    assert_eq!(names(&pod("shop/x-0")), ["shop/all"]);
    assert_eq!(names(&pod("other/db-0")), Vec::<String>::new());
    assert_eq!(standing(&pod("other/db-0"), &budgets, at(0)), Standing::Unbudgeted);
}

#[test]
fn two_budgets_block_even_a_pod_that_is_not_ready_and_both_are_named() {
    let mut second = budget("shop/second", 0, 2, 2);
    second = second.record(|r| r.selector = budget("shop/db", 0, 0, 0).record.selector.clone());
    let budgets = budgets([budget("shop/db", 1, 2, 2).record(|r| r.always_allow_unhealthy = true), second]);
    let Standing::Blocked(block) = standing(&pod("shop/db-0").not_ready(), &budgets, at(0)) else { panic!() };
    assert_eq!(block.class, BudgetClass::TwoBudgets);
    assert!(block.sentence().contains("shop/db and shop/second"), "{}", block.sentence());
}

#[test]
fn a_pod_that_is_not_ready_leaves_by_its_policy() {
    let sick = pod("shop/db-0").not_ready();
    let always = |r: &mut BudgetRecord| r.always_allow_unhealthy = true;
    let table = [
        ("AlwaysAllow, nothing healthy", budget("shop/db", 1, 0, 2).record(always), true),
        ("AlwaysAllow, not computed", budget("shop/db", 1, 0, 2).record(always).record(|r| r.generation = 9), true),
        ("IfHealthyBudget, enough others", budget("shop/db", 2, 2, 3), true),
        ("IfHealthyBudget, too few others", budget("shop/db", 2, 1, 3), false),
        ("IfHealthyBudget, nothing desired yet", budget("shop/db", 0, 0, 2), false),
    ];
    for (name, budget, leaves) in table {
        let standing = standing(&sick, &budgets([budget]), at(0));
        assert_eq!(matches!(standing, Standing::UnhealthyAllowed { .. }), leaves, "{name}: {standing:?}");
    }
}

#[test]
fn the_sentence_has_the_arithmetic_and_who_is_not_healthy() {
    let (db0, db1) = (pod("shop/db-0"), pod("shop/db-1").node(Some("n2")).not_ready());
    let view = budget("shop/db", 2, 2, 3).seeing(&[&db0, &db1, &pod("shop/db-2").stopping(at(0))]);
    let Standing::Blocked(block) = standing(&db0, &budgets([view]), at(0)) else { panic!() };
    assert_eq!(
        block.sentence(),
        "PodDisruptionBudget shop/db needs 2 healthy of 3, has 2, allows 0; shop/db-1 on n2 is not Ready, shop/db-2 on n1 is being \
         deleted. Repair those pods; unhealthyPodEvictionPolicy: AlwaysAllow lets pods that are not Ready go"
    );
}

#[test]
fn every_block_says_what_to_do() {
    let sentence = |budget: BudgetView| match standing(&pod("shop/db-0"), &budgets([budget]), at(0)) {
        Standing::Blocked(block) => block.sentence(),
        other => panic!("{other:?}"),
    };
    let never = sentence(budget("shop/db", 2, 2, 2));
    assert!(
        never.contains("can never allow it: needs 2 healthy of 2, has 2, allows 0 (minAvailable: 2). Raise the replicas"),
        "{never}"
    );
    let failed = sentence(self::failed(budget("shop/db", 0, 0, 0), Some(-60)));
    assert!(failed.contains("can never allow it: SyncFailed, jobs.batch does not implement scale"), "{failed}");
    let passes = sentence(self::failed(budget("shop/db", 0, 0, 0), Some(-59)));
    assert!(
        passes.contains("a moment ago: SyncFailed, jobs.batch does not implement scale. This passes by itself in seconds"),
        "{passes}"
    );
    let lag = sentence(budget("shop/db", 2, 3, 3).record(|r| r.generation = 2));
    assert!(lag.contains("generation 2, observed 1"), "{lag}");
    let counted = sentence(budget("shop/db", 1, 2, 2).record(|r| r.disruptions_allowed = 0));
    assert!(counted.contains("the last disruption is still being counted"), "{counted}");
    let missing = sentence(budget("shop/db", 2, 2, 2).wanted(Some(3)));
    assert!(missing.contains("needs 2 healthy of 3, has 2, allows 0; 1 of 3 replicas do not exist"), "{missing}");
}

#[test]
fn a_budget_is_seen_with_its_pods_and_the_replicas_of_their_owners() {
    let pods = [
        pod("shop/db-0"),
        pod("shop/db-1").not_ready(),
        pod("shop/db-2").stopping(at(0)),
        pod("shop/db-3").phase(PodPhase::Succeeded),
        pod("shop/web-0"),
        pod("other/db-0").not_ready(),
    ];
    let view = |pods: &[PodRecord]| {
        observe(budget("shop/db", 1, 1, 3).record, pods, |key, owner| {
            assert_eq!((key.to_string().as_str(), &*owner.kind), ("shop/db", "StatefulSet"));
            Some(4)
        })
    };
    let seen = view(&pods);
    assert_eq!((seen.selected, seen.wanted), (3, Some(4)), "an owner's replicas count once");
    let names: Vec<_> = seen.unhealthy.iter().map(|it| (it.pod.to_string(), it.terminating)).collect();
    assert_eq!(names, [("shop/db-1".to_owned(), false), ("shop/db-2".to_owned(), true)]);
    assert_eq!(view(&[pod("shop/db-0"), pod("shop/db-1").unowned()]).wanted, None, "a pod without owner has no replicas");
    assert_eq!(observe(budget("shop/db", 1, 1, 3).record, &pods, |_, _| None).wanted, None);
}

#[test]
fn g12_drains_that_would_wait_for_each_other_are_found() {
    let budgets = budgets([budget("shop/a", 1, 2, 2), budget("shop/b", 1, 2, 2), budget("shop/roomy", 1, 9, 9)]);
    let of = |names: &[&str]| {
        let pods: Vec<PodRecord> = names.iter().map(|name| pod(name)).collect();
        tight(pods.iter(), &budgets)
    };
    let found = |one: &[&str], other: &[&str]| contended(&of(one), &of(other));
    let (a, b) = (key("shop/a"), key("shop/b"));
    assert_eq!(found(&["shop/a-0", "shop/b-0", "shop/roomy-0"], &["shop/a-1", "shop/b-1", "shop/roomy-1"]), [a.clone(), b]);
    assert_eq!(
        found(&["shop/a-0", "shop/a-1"], &["shop/a-2"]),
        [a],
        "what leaves the first finds no place, nor does the second go on"
    );
    assert!(found(&["shop/a-0"], &["shop/a-1"]).is_empty(), "one waits for the other, and that one for nobody");
    assert!(found(&["shop/a-0"], &["shop/b-1"]).is_empty());
    assert!(found(&["shop/roomy-0", "shop/roomy-2"], &["shop/roomy-1"]).is_empty());
}

//! Tests of `eviction`: one row per answer that a server gives.

use super::*;
use crate::drain::testing::*;

fn refused(code: u16, message: &str, causes: &[(&str, &str)], retry_after: Option<u64>) -> Reply {
    Reply::Refused {
        code,
        message: message.to_owned(),
        causes: causes.iter().map(|(reason, message)| ((*reason).to_owned(), (*message).to_owned())).collect(),
        retry_after: retry_after.map(Duration::from_secs),
    }
}

fn lost(code: Option<u16>, message: &str) -> Reply {
    Reply::Lost { code, message: message.to_owned() }
}

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

#[test]
fn every_answer_has_its_meaning() {
    let conflict = |message: &str| Reply::Conflict { message: message.to_owned() };
    let table = [
        (Reply::Accepted, "Accepted"),
        (Reply::Gone, "Gone"),
        (
            conflict(
                "Operation cannot be fulfilled on Pod \"db-0\": Precondition failed: UID in precondition: A, UID in object meta: B",
            ),
            "Replaced",
        ),
        (conflict("the object has been modified"), "Changed"),
        (conflict("Precondition failed: ResourceVersion in precondition: 7, ResourceVersion in object meta: 8"), "Changed"),
        (
            refused(
                429,
                VIOLATES,
                &[("DisruptionBudget", "The disruption budget db needs 2 healthy pods and has 2 currently")],
                None,
            ),
            "Budget",
        ),
        (refused(403, "pdb disruptions allowed is negative", &[("DisruptionBudget", "negative")], None), "Budget"),
        (refused(429, "Too many requests, please try again later.", &[], Some(1)), "Throttled"),
        (
            refused(403, "unable to create: namespace is being terminated", &[("NamespaceTerminating", "")], None),
            "NamespaceTerminating",
        ),
        (
            lost(Some(500), "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
            "TwoBudgets",
        ),
        (refused(500, "This pod has more than one PodDisruptionBudget", &[], None), "TwoBudgets"),
        (refused(403, "pods \"db-0\" is forbidden: User \"x\" cannot create resource \"pods/eviction\"", &[], None), "Forbidden"),
        (refused(401, "Unauthorized", &[], None), "Forbidden"),
        (refused(403, "admission webhook \"drain.strimzi.io\" denied the request: moved later", &[], None), "Webhook"),
        (refused(400, "admission webhook \"x\" denied the request without explanation", &[], None), "Webhook"),
        (refused(422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", &[], None), "Webhook"),
        (lost(Some(500), "Internal error occurred: failed calling webhook \"x\": connection refused"), "Webhook"),
        (lost(Some(503), "etcdserver: leader changed"), "Transient"),
        (lost(Some(500), "Internal error occurred"), "Transient"),
        (lost(Some(504), "Timeout: request did not complete"), "Unknown"),
        (lost(None, "connection reset"), "Unknown"),
        (refused(422, "grace period must be non-negative", &[], None), "Unknown"),
        (Reply::NotSent { why: "the lease is lost".to_owned() }, "Transient"),
    ];
    for (reply, word) in table {
        assert_eq!(classify(&reply).word(), word, "{reply:?}");
    }
}

#[test]
fn a_budgets_words_tell_its_class() {
    let class = |code, told: &str| match classify(&refused(code, VIOLATES, &[("DisruptionBudget", told)], Some(10))) {
        Outcome::Budget { class, message, .. } => (class, message),
        other => panic!("{other:?}"),
    };
    let table = [
        (429, "The disruption budget db is still being processed by the server.", BudgetClass::ControllerLag),
        (
            429,
            "The disruption budget db does not allow evicting pods currently because it failed sync: x",
            BudgetClass::Permanent,
        ),
        (429, "The disruption budget db needs 2 healthy pods and has 2 currently", BudgetClass::Waiting),
        (403, "The disruption budget db does not allow evicting pods currently: negative", BudgetClass::ControllerLag),
    ];
    for (code, told, expected) in table {
        assert_eq!(class(code, told), (expected, told.to_owned()));
    }
    assert_eq!(class(429, ""), (BudgetClass::Waiting, VIOLATES.to_owned()), "no words: the message itself");
}

#[test]
fn a_missing_permission_is_named_by_verb_and_resource() {
    let missing = |message: &str| match classify(&refused(403, message, &[], None)) {
        Outcome::Forbidden { missing } => missing,
        other => panic!("{other:?}"),
    };
    let text = "pods \"db-0\" is forbidden: User \"x\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"shop\"";
    assert_eq!(missing(text), "create pods/eviction in namespace shop");
    assert_eq!(
        missing("User \"x\" cannot create resource \"pods/eviction\" in API group \"\" at the cluster scope"),
        "create pods/eviction"
    );
    assert_eq!(missing("no"), "no");
}

#[test]
fn tries_grow_apart_from_5_to_30_seconds_and_retry_after_is_obeyed() {
    let seconds = |outcome: &Outcome, tries| delay(outcome, tries).map(|it| it.as_secs());
    let budget = |retry_after: Option<u64>| Outcome::Budget {
        class: BudgetClass::Waiting,
        message: String::new(),
        retry_after: retry_after.map(Duration::from_secs),
    };
    let grown: Vec<_> = [1, 2, 3, 4, 5, 400, u32::MAX].map(|tries| seconds(&budget(None), tries).unwrap()).into();
    assert_eq!(grown, [5, 10, 20, 30, 30, 30, 30]);
    assert_eq!(seconds(&budget(Some(10)), 1), Some(10));
    assert_eq!(seconds(&budget(Some(1)), 1), Some(5), "never faster than ours");
    assert_eq!(seconds(&Outcome::Throttled { retry_after: Some(Duration::from_secs(120)) }, 1), Some(120));
    assert_eq!(seconds(&Outcome::TwoBudgets { message: String::new() }, 1), Some(30));
    for settled in [Outcome::Accepted, Outcome::Gone, Outcome::Replaced] {
        assert_eq!(seconds(&settled, 1), None);
    }
    assert_eq!(after(at(0), Duration::MAX), Timestamp::MAX, "a silly Retry-After does no harm");
}

#[test]
fn what_is_settled_stays_settled() {
    let db = reference(&pod("shop/db-0"));
    let mut memory = EvictionMemory::default();
    memory.record(&db, Outcome::Transient { message: "x".to_owned() }, at(0));
    memory.record(&db, Outcome::Accepted, at(5));
    memory.record(&db, Outcome::Unknown { message: "late".to_owned() }, at(6));
    let attempt = memory.get(&db.uid).unwrap();
    assert_eq!((&attempt.outcome, attempt.tries, attempt.first, attempt.next), (&Outcome::Accepted, 2, at(0), None));
    assert_eq!(memory.accepted().collect::<Vec<_>>(), [&db]);
    memory.prune(|_| false);
    assert!(memory.is_empty());
}

#[test]
fn throttling_is_meant_for_all() {
    let mut memory = EvictionMemory::default();
    memory.record(&reference(&pod("shop/db-0")), Outcome::Throttled { retry_after: Some(Duration::from_secs(60)) }, at(0));
    memory.record(&reference(&pod("shop/db-1")), Outcome::Throttled { retry_after: None }, at(0));
    assert_eq!(memory.throttled(at(1)).map(|(_, until)| until), Some(at(60)));
    assert_eq!(memory.throttled(at(60)), None);
}

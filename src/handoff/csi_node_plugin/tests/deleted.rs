//! What was asked of a component that is deleted, or was made again since, is not done; what is under way ends as it always did.

use super::*;
use crate::{
    fleet::{event::Record, records::Deletion},
    handoff::ending::COMPONENT_DELETED,
};

/// Queued for the component with this UID.
fn queued(component: &str) -> HandoffBuilder {
    handoff(KEY, "n1").to("new").phase(Phase::Queued, at(150)).status(|status| status.component_uid = Some(component.into()))
}

fn uid() -> String {
    csi_component(|_| {}).build().meta.uid.to_string()
}

/// Its component is being deleted, or has another UID.
fn with(change: impl FnOnce(&mut crate::fleet::records::ComponentRecord)) -> FleetBuilder {
    let mut record = csi_component(|_| {}).build();
    change(&mut record);
    story().with(vec![Record::Component(record)])
}

fn deleted(record: &mut crate::fleet::records::ComponentRecord) {
    record.meta.deletion = Some(Deletion { at: at(180), grace: 0 });
}

#[track_caller]
fn ends(fleet: FleetBuilder) -> crate::api::NodeHandoffStatus {
    let status = enters(fleet, Phase::Aborted);
    let reason = status.reason.clone().unwrap();
    assert_eq!(reason.word, COMPONENT_DELETED);
    assert!(reason.message.contains("NodeComponent ceph/cephfs was deleted while this was queued"), "{}", reason.message);
    let last = status.history.last().unwrap();
    assert_eq!((last.attempt, last.target.as_deref(), last.phase), (1, Some("new"), Phase::Aborted));
    assert!(status.conditions.iter().all(|it| it.status == "False" && it.reason == COMPONENT_DELETED), "{:?}", status.conditions);
    status
}

#[test]
fn what_is_queued_ends_with_its_component() {
    ends(with(deleted).with(queued(&uid())));
    // Also what nobody has noted a component for: it is there, and goes.
    ends(with(deleted).with(handoff(KEY, "n1").to("new")));
    // Made again under its name, before anybody looked.
    let status = ends(with(|record| record.meta.uid = "another".into()).with(queued(&uid())));
    assert!(status.reason.unwrap().message.contains("Ask again"));
    // Gone, and nothing else is known of it.
    let mut gone = story().with(queued(&uid()));
    gone.gone(crate::fleet::event::Kind::Component, key(KEY));
    ends(gone);
}

#[test]
fn what_waits_for_a_component_that_never_was_goes_on_waiting() {
    let mut early = story().with(handoff(KEY, "n1").to("new"));
    early.gone(crate::fleet::event::Kind::Component, key(KEY));
    waits(early, BlockerKind::Anomaly, "nothing is done until it does");
}

#[test]
fn the_next_component_of_that_name_is_asked_anew_and_a_rollout_asks_by_itself() {
    let ended = || {
        handoff(KEY, "n1").to("new").phase(Phase::Aborted, at(150)).status(|status| {
            status.component_uid = Some("another".into());
            status.reason = Some(crate::api::handoff::Reason { word: COMPONENT_DELETED.into(), message: String::new() });
            let end =
                Ended { attempt: 1, target: Some("new".into()), phase: Phase::Aborted, reason: None, at: at(150).to_string() };
            status.history = vec![end];
        })
    };
    assert!(!matches!(verdict(story().with(ended())), Verdict::Act(_)), "nobody has asked the new one");
    let again = enters(story().with(ended().spec(|spec| spec.attempt = 2)), Phase::Queued);
    assert_eq!(again.component_uid, Some(uid()), "it is queued for the new one");
    let auto = csi_component(|rollout| rollout.mode = RolloutMode::Auto);
    match acts(story().with(auto).with(ended().spec(|spec| spec.requested_by = "ann".into()))) {
        Op::PatchHandoffSpec { spec, .. } => {
            assert_eq!((spec.attempt, spec.requested_by.as_str(), spec.version.as_deref()), (2, BY_ROLLOUT, Some("new")));
        }
        op => panic!("{op:?}"),
    }
}

#[test]
fn what_an_attempt_has_left_on_the_node_is_put_right_by_an_attempt() {
    let mark = Mark { uid: format!("uid-NodeHandoff-{KEY}.n1"), attempt: 1, epoch: 1, desired: DesiredBy::Kept, boot: None };
    let closed = node("n1").renewed(at(0)).cordoned_for(KEY).mark(KEY, &mark);
    let again = queued(&uid()).spec(|spec| spec.attempt = 2).status(|status| status.run = Some(run("new")));
    let fleet = with(deleted).with(closed).with(lease("me").slot("n1", KEY)).with(again);
    match acts(fleet) {
        Op::PutHandoffStatus { status, .. } => assert_ne!(status.phase, Phase::Aborted, "the node would stay closed"),
        Op::SetHandoffFinalizer { present: true, .. } => {}
        op => panic!("{op:?}"),
    }
}

//! What the component's status and its waits tell of a followed Module, in words and columns.

use super::{
    mass::{decided, four},
    *,
};
use crate::{fleet::records::ComponentRecord, handoff::tests::printed};

#[test]
fn kubectls_version_column_shows_the_modules_version() {
    let shown = |module: ModuleRecord| {
        let (view, decisions) = decided(&mut four(module, |_, node| node));
        let status = crate::handoff::component::status(&view.components[&key(KEY)], &decisions.tallies[&key(KEY)], at(NOW));
        printed(&status, "Version")
    };
    assert_eq!(shown(module("2.0")).as_deref(), Some("2.0"));
    assert_eq!(shown(ModuleRecord { version: None, ..module("2.0") }), None, "not known, not old");
}

#[test]
fn another_version_of_the_module_is_told_at_once() {
    let mut fleet = four(module("1.0"), |_, node| node);
    let mut observed = Observed::default();
    let mut told = |fleet: &mut FleetBuilder, now: i64| {
        let view = fleet.project(at(now));
        observed.observe(&view);
        let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
        let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
        let status = match decisions.verdict(&Subject::Component(key(KEY))) {
            Some(Verdict::Act(action)) => match &action.op {
                Op::PutComponentStatus { status, .. } => Some((**status).clone()),
                op => panic!("{op:?}"),
            },
            _ => None,
        };
        observed.reported(&key(KEY), at(now));
        status
    };
    let first = told(&mut fleet, NOW).expect("a report");
    let record = |status| Record::Component(ComponentRecord { status, ..followed(|_| {}).build() });
    fleet.put(vec![record(first.clone()), Record::KmmModule(module("2.0"))]);
    let second = told(&mut fleet, NOW + 1).expect("within the ten seconds of counts");
    assert_eq!((first.version.as_deref(), second.version.as_deref()), (Some("1.0"), Some("2.0")));
}

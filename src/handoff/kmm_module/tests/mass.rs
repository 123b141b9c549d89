//! Many nodes at once: seen, counted against the budget, and said loudly.

use super::*;
use crate::{
    api::component::Condition,
    handoff::{decide::Decisions, tally},
};

pub(super) const NAMES: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn on(name: &str, node: NodeBuilder) -> NodeBuilder {
    node.but_name(name)
}

/// Four nodes at 1.0, the Module at 2.0.
pub(super) fn four(module: ModuleRecord, change: impl Fn(&str, NodeBuilder) -> NodeBuilder) -> FleetBuilder {
    let mut fleet = fleet().with(followed(|_| {})).with(module).with(images("2.0", "Exists")).with(lease("me"));
    for name in NAMES {
        let config = NmcRecord { node: name.into(), ..config(Some("1.0"), Some(("1.0", "boot-1"))) };
        let plugin = plugin_pod("1.0").on(name).but(|pod| pod.key = key(&format!("drv/plugin-{name}")));
        fleet = fleet.with(config).with(change(name, on(name, at_version("1.0")))).with(plugin);
    }
    fleet
}

pub(super) fn decided(fleet: &mut FleetBuilder) -> (std::sync::Arc<crate::fleet::view::FleetView>, Decisions) {
    let view = fleet.project(at(NOW));
    let mut observed = Observed::default();
    observed.observe(&view);
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    (view, decisions)
}

pub(super) fn condition(fleet: &mut FleetBuilder, kind: &str) -> Condition {
    let (view, decisions) = decided(fleet);
    let component = &view.components[&key(KEY)];
    let tally: &tally::Tally = &decisions.tallies[&key(KEY)];
    let status = crate::handoff::component::status(component, tally, at(NOW));
    status.conditions.into_iter().find(|it| it.kind == kind).expect(kind)
}

pub(super) fn intolerant() -> ModuleRecord {
    ModuleRecord { tolerations: Vec::new(), ..module("2.0") }
}

pub(super) fn tainted(name: &str, node: NodeBuilder) -> NodeBuilder {
    if matches!(name, "n2" | "n3") { node.taint("node.kubernetes.io/not-ready", "NoExecute") } else { node }
}

#[test]
fn a_taint_that_the_module_does_not_tolerate_is_counted_on_every_node_that_has_it() {
    let said = condition(&mut four(intolerant(), tainted), "Disturbed");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "KeptOut"));
    assert!(said.message.contains("2 of 4 nodes") && said.message.contains("kubectl -n drv patch modules"), "{}", said.message);
    let tolerant = condition(&mut four(module("2.0"), tainted), "Disturbed");
    assert_eq!(tolerant.status, "False", "{}", tolerant.message);
    let exposed = condition(&mut four(intolerant(), |_, node| node), "Exposed");
    assert!(exposed.status == "True" && exposed.message.contains("older version"), "{}", exposed.message);
    assert_eq!(condition(&mut four(module("2.0"), |_, node| node), "Exposed").status, "False");
}

#[test]
fn an_image_changed_under_its_version_is_seen_on_all_nodes() {
    let mut fleet = four(module("1.0"), |_, node| node);
    for name in NAMES {
        let mut config = NmcRecord { node: name.into(), ..config(Some("1.0"), Some(("1.0", "boot-1"))) };
        config.spec[0].image = "mod:other".into();
        config.spec[0].config = "another".into();
        fleet.put(config);
    }
    let said = condition(&mut fleet, "Disturbed");
    assert!(said.reason == "ImageChanged" && said.message.contains("4 of 4"), "{}: {}", said.reason, said.message);
}

#[test]
fn nodes_that_lose_their_module_count_against_the_budget() {
    let ask = |fleet: FleetBuilder| fleet.with(handoff(KEY, "n1").to("2.0"));
    let subject = Subject::Occupancy { component: key(KEY), node: "n1".into() };
    let open = followed(|spec| {
        spec.drain.cordon = crate::api::component::CordonPolicy::Never;
        spec.rollout.canary = 0;
    });
    let (_, decisions) = decided(&mut ask(four(intolerant(), |_, node| node)).with(open.clone()));
    assert!(matches!(decisions.verdict(&subject), Some(Verdict::Act(_))), "{:?}", decisions.verdict(&subject));
    let (_, decisions) = decided(&mut ask(four(intolerant(), tainted)).with(open));
    let said = said(decisions.verdict(&subject).cloned().unwrap());
    assert!(said.iter().any(|(kind, _)| kind == "BudgetSpent"), "{said:?}");
}

#[test]
fn a_node_that_has_lost_its_module_is_mended_whatever_others_have_lost() {
    // Two nodes stuck by a hand on KMM's own labels: each counts for the third, and neither for the other.
    let stuck = |name: &str, node: NodeBuilder| match name {
        "n2" | "n3" => labelled("1.0", "1.0", "2.0").but_name(name),
        _ => node,
    };
    let said = condition(&mut four(module("2.0"), stuck), "Disturbed");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "StuckLabels"));
    let asks =
        |node: &str| four(module("2.0"), stuck).with(handoff(KEY, node).to("2.0")).with(followed(|spec| spec.rollout.canary = 0));
    let of = |node: &str| Subject::Occupancy { component: key(KEY), node: node.into() };
    let (_, decisions) = decided(&mut asks("n1"));
    let waits = super::said(decisions.verdict(&of("n1")).cloned().unwrap());
    assert!(
        waits
            .iter()
            .any(|(kind, text)| kind == "BudgetSpent" && text.contains("(n2: drv/mod, StuckLabels; n3: drv/mod, StuckLabels)")),
        "{waits:?}"
    );
    let (_, decisions) = decided(&mut asks("n2"));
    assert!(matches!(decisions.verdict(&of("n2")), Some(Verdict::Act(_))), "{:?}", decisions.verdict(&of("n2")));
}

#[test]
fn a_label_that_was_just_moved_counts_before_the_handoff_that_follows_it_is_there() {
    // A typo had emptied n1, and a person has put the label right: KMM is about to load, and no handoff says so yet.
    let mended = |name: &str, node: NodeBuilder| if name == "n1" { labelled("2.0", "", "") } else { node };
    let mut fleet = four(module("2.0"), mended).with(handoff(KEY, "n2").to("2.0")).with(followed(|spec| spec.rollout.canary = 0));
    fleet.gone(Kind::Pod, key("drv/plugin-n1"));
    fleet.put(config(None, None));
    let (_, decisions) = decided(&mut fleet);
    let of = |node: &str| decisions.verdict(&Subject::Occupancy { component: key(KEY), node: node.into() }).cloned().unwrap();
    match of("n1") {
        Verdict::Act(action) => assert!(matches!(action.op, Op::CreateHandoff { .. }), "{action:?}"),
        other => panic!("{other:?}"),
    }
    let waits = super::said(of("n2"));
    assert!(waits.iter().any(|(kind, text)| kind == "BudgetSpent" && text.contains("(n1: drv/mod, ")), "{waits:?}");
}

#[test]
fn a_node_that_a_typo_has_emptied_counts() {
    let typo = |name: &str, node: NodeBuilder| if name == "n1" { labelled("9.9", "", "") } else { node };
    let mut fleet = four(module("2.0"), typo).with(handoff(KEY, "n2").to("2.0")).with(followed(|spec| spec.rollout.canary = 0));
    fleet.gone(Kind::Pod, key("drv/plugin-n1"));
    fleet.put(config(None, None));
    let (_, decisions) = decided(&mut fleet);
    let waits = super::said(decisions.verdict(&Subject::Occupancy { component: key(KEY), node: "n2".into() }).cloned().unwrap());
    assert!(
        waits.iter().any(|(kind, text)| kind == "BudgetSpent" && text.contains("(n1: drv/mod, UnknownVersion)")),
        "{waits:?}"
    );
}

#[test]
fn a_node_whose_label_is_off_counts_until_kmm_has_taken_the_module_out() {
    let off = |name: &str, node: NodeBuilder| if name == "n1" { labelled("", "", "") } else { node };
    let verdict = |left: NmcRecord| {
        let asked = |node: &str, position: i32| handoff(KEY, node).to("2.0").position(position);
        let queued = followed(|spec| spec.rollout.canary = 0);
        let mut fleet = four(module("2.0"), off).with(asked("n2", 1)).with(asked("n1", 2)).with(queued);
        fleet.gone(Kind::Pod, key("drv/plugin-n1"));
        fleet.put(left);
        let (_, decisions) = decided(&mut fleet);
        format!("{:?}", decisions.verdict(&Subject::Occupancy { component: key(KEY), node: "n2".into() }))
    };
    let going = verdict(config(None, Some(("1.0", "boot-1"))));
    assert!(going.contains("BudgetSpent") && going.contains("(n1: drv/mod, Unloading)"), "{going}");
    let gone = verdict(config(None, None));
    assert!(gone.contains("Admit(") && !gone.contains("BudgetSpent"), "{gone}");
}

#[test]
fn a_handoff_whose_component_is_gone_can_be_deleted_once_nothing_of_it_is_on_the_node() {
    let orphan = |node: NodeBuilder, deleted: bool, phase: Phase| {
        let handoff = in_phase(phase).but(|it| {
            it.meta.deletion = deleted.then_some(crate::fleet::records::Deletion { at: at(150), grace: 0 });
        });
        let mut fleet = fleet().with(module("2.0")).with(node).with(lease("me")).with(handoff);
        let (_, decisions) = decided(&mut fleet);
        decisions.verdict(&Subject::Occupancy { component: key(KEY), node: "n1".into() }).cloned()
    };
    match orphan(at_version("1.0"), true, Phase::Uncordoning) {
        Some(Verdict::Act(action)) => assert!(matches!(action.op, Op::SetHandoffFinalizer { present: false, .. }), "{action:?}"),
        other => panic!("{other:?}"),
    }
    // What it has left there is a person's to judge, and it is said how.
    for left in [at_version("1.0").mark(KEY, &mark(DesiredBy::Kept)), at_version("1.0").cordoned_for(KEY)] {
        let said = super::said(orphan(left, true, Phase::Draining).unwrap());
        assert!(
            said[0].1.contains("Create the component again") && said[0].1.contains("uncordon it and take the annotations"),
            "{said:?}"
        );
    }
    assert!(
        matches!(orphan(at_version("1.0"), false, Phase::Queued), Some(Verdict::Wait(_))),
        "it may be that the component is yet to come"
    );
    assert!(
        !matches!(orphan(at_version("1.0"), false, Phase::Done), Some(Verdict::Wait(_))),
        "a node that is fine is no anomaly"
    );
}

#[test]
fn a_deleted_component_waits_for_its_handoff_and_takes_nothing_off() {
    let deleted = || {
        let mut record = followed(|_| {}).build();
        record.meta.deletion = Some(crate::fleet::records::Deletion { at: at(100), grace: 0 });
        Record::Component(record)
    };
    let decide = |fleet: FleetBuilder| {
        let (_, decisions) = decided(&mut fleet.with(deleted()));
        decisions.verdict(&Subject::Component(key(KEY))).cloned()
    };
    let told =
        condition(&mut story().with(lease("me").slot("n1", KEY)).with(in_phase(Phase::Draining)).with(deleted()), "Deleting");
    assert!(told.reason == "HandoffsEnd" && told.message.contains("nothing of it is taken off any node"), "{told:?}");
    // The mark is off already, and the handoff has not ended yet.
    let opened = story().with(lease("me").slot("n1", KEY)).with(in_phase(Phase::Uncordoning));
    let verdict = decide(opened);
    let goes = |verdict: &Option<Verdict>| matches!(verdict, Some(Verdict::Act(action)) if matches!(action.op, Op::SetComponentFinalizer { present: false, .. }));
    assert!(!goes(&verdict), "{verdict:?}");
    let nobody = decide(story().with(lease("me")));
    assert!(goes(&nobody), "the Module stays as it is: {nobody:?}");
}

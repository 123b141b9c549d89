//! What the component's status and its waits tell of a followed Module, in words and columns.

use super::{
    mass::{condition, decided, four},
    *,
};
use crate::{
    cli::render::status as shown,
    console::plan::{self, Request, from_facts},
    engine::{
        intent::NodeTarget,
        picture::{Mode, Picture},
    },
    fleet::records::{ComponentRecord, ContainerRecord, ContainerState},
    handoff::tests::printed,
};

fn picture(fleet: &mut FleetBuilder) -> Picture {
    Picture { fleet: fleet.project(at(NOW)), ..Picture::empty(Default::default(), Mode::ReadOnly) }
}

/// Plugin label of another version than the one that is wanted: row 12, for ever.
fn stuck(names: &'static [&'static str]) -> impl Fn(&str, NodeBuilder) -> NodeBuilder {
    move |name, node| match names.contains(&name) {
        true => labelled("1.0", "1.0", "2.0").but_name(name),
        false => node,
    }
}

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

#[test]
fn nodes_that_kmm_leaves_alone_for_ever_are_an_anomaly_with_their_names_and_the_way_out() {
    let said = condition(&mut four(module("1.0"), stuck(&["n2", "n3"])), "Anomaly");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "NeedsRepair"));
    assert!(said.message.contains("KmmStuck on n2, n3: of n2: StuckLabels: KMM has no rule"), "{}", said.message);
    assert!(
        said.message.contains("kubectl label node n2 beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod-"),
        "{}",
        said.message
    );
    assert!(!said.message.contains("NodeHandoff"), "they have none that says anything: {}", said.message);
    // A handoff that has ended changes nothing about it: its status has no blockers.
    let own = Run { node_uid: "uid-Node-n2".into(), ..run(Some("1.0")) };
    let done = handoff(KEY, "n2").to("1.0").phase(Phase::Done, at(50)).status(|status| status.run = Some(own));
    let said = condition(&mut four(module("1.0"), stuck(&["n2"])).with(done), "Anomaly");
    assert!(said.status == "True" && said.message.starts_with("KmmStuck on n2: StuckLabels: "), "{}", said.message);
    let none = condition(&mut four(module("1.0"), |_, node| node), "Anomaly");
    assert_eq!((none.status.as_str(), none.message.as_str()), ("False", "none"));
}

#[test]
fn an_anomaly_of_many_nodes_names_some_of_them() {
    use crate::handoff::tally::Tally;
    let (view, decisions) = decided(&mut four(module("2.0"), stuck(&["n1", "n2", "n3", "n4"])));
    let own = &decisions.tallies[&key(KEY)];
    let mut other = own.clone();
    other.anomalies.values_mut().for_each(|it| {
        it.first = ["n0", "n5", "n6"].into_iter().map(|name| (name.into(), "StuckLabels: of another".into())).collect();
    });
    let mut both = Tally::default();
    both.merge(own);
    both.merge(&other);
    let status = crate::handoff::component::status(&view.components[&key(KEY)], &both, at(NOW));
    let said = status.conditions.into_iter().find(|it| it.kind == "Anomaly").unwrap();
    assert!(said.message.starts_with("KmmStuck on n0, n1, n2, n3, n4 and 3 more: of n0: "), "{}", said.message);
}

#[test]
fn whether_content_has_changed_under_a_version_is_told_in_kmms_words() {
    let fine = condition(&mut four(module("1.0"), |_, node| node), "SpecChangedWithoutVersion");
    assert_eq!((fine.status.as_str(), fine.reason.as_str()), ("False", "ContentMatches"));
    assert!(fine.message.contains("Module drv/mod") && !fine.message.contains("DaemonSet"), "{}", fine.message);
    let mut fleet = four(module("1.0"), |_, node| node);
    for name in mass::NAMES {
        let mut config = NmcRecord { node: name.into(), ..config(Some("1.0"), Some(("1.0", "boot-1"))) };
        config.spec[0].image = "mod:other".into();
        config.spec[0].config = "another".into();
        fleet.put(config);
    }
    let said = condition(&mut fleet, "SpecChangedWithoutVersion");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "ContentDiffers"));
    assert!(said.message.contains("on 4 nodes at once") && !said.message.contains("DaemonSet"), "{}", said.message);
    let anomaly = condition(&mut fleet, "Anomaly");
    assert!(anomaly.status == "True" && anomaly.message.contains("n1, n2, n3, n4: of n1: ImageChanged"), "{}", anomaly.message);
}

#[test]
fn a_refused_component_is_not_ready_and_does_not_say_that_its_nodes_are_right() {
    let twin = ModuleRecord { key: ObjectKey::new("other", "mod"), ..module("1.0") };
    let said = condition(&mut four(module("1.0"), |_, node| node).with(twin), "Ready");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "Refused"));
    assert!(
        said.message.starts_with("the component is refused") && said.message.ends_with("4 of 4 nodes run 1.0"),
        "{}",
        said.message
    );
    let unversioned = ModuleRecord { version: None, ..module("1.0") };
    let said = condition(&mut four(unversioned, |_, node| node), "Ready");
    assert!(said.message.ends_with("which version the 4 nodes shall run is not known"), "{}", said.message);
    let behind = condition(&mut four(module("2.0"), |_, node| node), "Ready");
    assert_eq!((behind.reason.as_str(), behind.message.as_str()), ("NotAllCurrent", "0 of 4 nodes run 2.0"));
}

#[test]
fn the_plan_of_a_component_without_its_module_says_that() {
    let mut fleet = fleet().with(followed(|_| {})).with(node("n1").renewed(at(0)));
    let picture = picture(&mut fleet);
    let node = NodeTarget { node: "n1".into(), uid: Some("uid-Node-n1".into()) };
    let plan = from_facts(&picture, &Request { component: key(KEY), nodes: vec![node.clone()], to: "2.0".into() });
    assert!(plan.is_refused() && !plan.can_be_queued(), "{plan:?}");
    assert!(plan.refusals.iter().any(|why| why.contains("there is no Module drv/mod of KMM")), "{plan:?}");
    let told = plan.nodes.iter().flat_map(|node| &node.refusals).chain(&plan.refusals);
    assert!(!told.into_iter().any(|why| why.contains("is not there, or carries")), "{plan:?}");
    // A node that the Module does not select is another matter.
    let elsewhere = ModuleRecord { selector: [("pool".into(), "gpu".into())].into(), ..module("2.0") };
    fleet.put(elsewhere);
    let plan = from_facts(&self::picture(&mut fleet), &Request { component: key(KEY), nodes: vec![node], to: "2.0".into() });
    let [why] = &plan.nodes[0].refusals[..] else { panic!("{plan:?}") };
    assert!(why.contains("carries nothing of drv/mod") && why.contains("selector of Module drv/mod"), "{why}");
}

#[test]
fn status_shows_what_is_proven_to_run_and_no_label() {
    let shown = |fleet: FleetBuilder| {
        let report = shown::report(&picture(&mut { fleet }), None);
        let table = shown::nodes(&report.nodes, false).to_string();
        let cell = table.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)).unwrap_or_default().to_owned();
        (cell, report.nodes[0].version.clone(), report.nodes[0].version_unknown)
    };
    let is = |cell: &str, version: Option<&str>, unknown: bool| (cell.to_owned(), version.map(str::to_owned), unknown);
    assert_eq!(shown(story()), is("1.0", Some("1.0"), false));
    // A plugin label alone, as a hand leaves it.
    let bare = |node: NodeBuilder| {
        let mut fleet = story().with(node).with(config(None, None));
        fleet.gone(crate::fleet::event::Kind::Pod, key("drv/mod-device-plugin-1.0"));
        fleet
    };
    assert_eq!(shown(bare(labelled("", "", "9.9"))), is("-", None, false));
    // Recorded in another boot: gone with it.
    assert_eq!(shown(story().with(config(Some("1.0"), Some(("1.0", "boot-0"))))), is("-", None, false));
    // On its way out, and a load of ours that nobody saw the end of.
    let unloading = story().with(config(None, Some(("1.0", "boot-1")))).with(worker("Unload"));
    assert_eq!(shown(unloading), is("unknown", None, true));
    assert_eq!(shown(bare(stopped(labelled("", "", ""), "1.0"))), is("unknown", None, true));
    assert_eq!(shown(bare(node("n1").renewed(at(0)).stopped(KEY, "1.0", "boot-0"))), is("-", None, false));
}

/// A record of another boot says nothing of this one, and what a component has on a node only the component could say.
#[test]
fn what_nobody_can_know_is_not_shown_as_a_fact() {
    let told = |mut fleet: FleetBuilder| {
        let picture = picture(&mut fleet);
        let component = key(KEY);
        let facts = crate::console::facts::Facts::of(&picture, &component, &"n1".into()).unwrap();
        (
            facts.shown().to_owned(),
            facts.word(),
            facts.from().map(str::to_owned),
            shown::report(&picture, None).nodes[0].version_unknown,
        )
    };
    let ended = || in_phase(Phase::Done);
    assert_eq!(told(story().with(ended())), ("1.0".to_owned(), "behind", Some("1.0".to_owned()), false));
    let another_boot = story().with(ended()).with(config(Some("1.0"), Some(("1.0", "boot-0"))));
    assert_eq!(told(another_boot), ("-".to_owned(), "no version", None, false));
    let mut gone = story().with(ended());
    gone.gone(Kind::Component, key(KEY));
    assert_eq!(told(gone), ("unknown".to_owned(), "unknown", None, true));
    let mut never = fleet().with(at_version("1.0")).with(handoff(KEY, "n1").to("2.0"));
    assert!(shown::report(&picture(&mut never), None).nodes[0].version_unknown);
    // Where it was ours, the node's labels and record say that there is nothing.
    let own = Run { kmm_config: None, ..run(Some("2")) };
    let mut own = fleet().with(node("n1")).with(in_phase(Phase::Done).status(|status| status.run = Some(own)));
    assert!(!shown::report(&picture(&mut own), None).nodes[0].version_unknown);
}

#[test]
fn an_end_before_anything_was_done_says_what_has_become_of_the_module() {
    let asked = |phase| in_phase(phase).spec(|spec| spec.action = HandoffAction::Abort);
    let ended = |fleet: FleetBuilder| enters(fleet, Phase::Aborted).reason.unwrap().message;
    let stopped = ended(running(Phase::Draining).with(asked(Phase::Draining)));
    assert!(stopped.ends_with("the module was not touched"), "{stopped}");
    let unloading = running(Phase::Draining).with(asked(Phase::Draining)).with(config(None, Some(("1.0", "boot-1"))));
    let said = ended(unloading);
    assert!(said.ends_with("but KMM did, which had 1.0 when it began: 1.0 is being unloaded"), "{said}");
    let unloaded = running(Phase::Draining).with(asked(Phase::Draining)).with(config(None, None));
    let said = ended(unloaded);
    assert!(said.contains("lockkeeper did not touch the module, but KMM did") && !said.contains("was not touched"), "{said}");
}

#[test]
fn claimants_after_a_handoff_by_label_are_those_of_the_next_handoff() {
    let outlook = |phase: Phase| {
        let by_label = handoff(KEY, "n1").to("2.0").spec(|spec| spec.requested_by = crate::api::handoff::BY_LABEL.into());
        let mut fleet = story().with(user("train")).with(by_label.phase(phase, at(100)));
        let picture = picture(&mut fleet);
        let component = key(KEY);
        let facts = crate::console::facts::Facts::of(&picture, &component, &"n1".into()).unwrap();
        plan::outlooks(&facts).into_values().next().unwrap()
    };
    assert_eq!(outlook(Phase::Queued), "stays: a label evicts nobody");
    assert_eq!(outlook(Phase::Done), "evicted");
}

fn waiting(reason: &str, message: &str) -> ContainerRecord {
    ContainerRecord {
        name: "worker".into(),
        init: false,
        ready: false,
        restarts: 0,
        state: ContainerState::Waiting { reason: reason.into(), message: message.into() },
        last_exit: None,
        last_message: Default::default(),
    }
}

#[test]
fn a_worker_pod_whose_image_cannot_be_had_is_named_with_what_the_kubelet_says() {
    let failing = worker("Unload")
        .phase(PodPhase::Pending)
        .but(|pod| pod.extra.get_or_insert_default().containers = vec![waiting("ErrImagePull", "mod:1.0: not found")]);
    let fleet = running(Phase::Unloading)
        .with(held(stopped(labelled("", "", ""), "1.0"), DesiredBy::Removed))
        .with(config(None, Some(("1.0", "boot-1"))))
        .with(failing);
    waits_for(fleet, BlockerKind::WorkerFailed, "(ErrImagePull: mod:1.0: not found)");
}

#[test]
fn what_fails_in_kmms_pull_pod_on_another_node_is_named_where_its_image_is_awaited() {
    let pull = |reason: &str, message: &str| {
        let containers = vec![waiting(reason, message)];
        let owner = keys::IMAGE_OWNER;
        pod("drv/mod-pull-pod-x").label(owner, "mod").on("n9").phase(PodPhase::Pending).not_ready().but(move |pod| {
            pod.flags.of_kmm = true;
            pod.extra.get_or_insert_default().containers = containers;
        })
    };
    let mut fleet = story().with(images("2.0", "DoesNotExist")).with(handoff(KEY, "n1").to("2.0")).with(lease("me"));
    let mut observed = Observed::default();
    let mut image = |fleet: &mut FleetBuilder| {
        let said = said(decide_at(fleet, &mut observed, NOW));
        said.into_iter().find(|(kind, _)| kind == "KmmImage").expect("a wait for the image").1
    };
    assert!(image(&mut fleet).contains("KMM has not found mod:2.0 yet;"));
    fleet.put(pull("ErrImagePull", "mod:2.0: unauthorized"));
    let told = image(&mut fleet);
    assert!(told.contains("(its pull pod: ErrImagePull: mod:2.0: unauthorized)"), "{told}");
    // To and fro is one and the same failure.
    fleet.put(pull("ImagePullBackOff", "Back-off pulling image"));
    assert_eq!(image(&mut fleet), told);
    fleet.gone(crate::fleet::event::Kind::Pod, key("drv/mod-pull-pod-x"));
    assert!(image(&mut fleet).contains("KMM has not found mod:2.0 yet;"));
}

#[test]
fn who_waits_for_the_canary_is_told_which_node_that_is_and_why_it_does_not_count() {
    let asks = |change: fn(HandoffBuilder) -> HandoffBuilder| {
        let canary = change(in_phase(Phase::Loading));
        four(module("2.0"), |name, node| if name == "n1" { held(node, DesiredBy::Set) } else { node })
            .with(lease("me").slot("n1", KEY))
            .with(canary)
            .with(handoff(KEY, "n2").to("2.0"))
            .with(followed(|spec| {
                (spec.rollout.max_unavailable, spec.rollout.canary, spec.rollout.max_failures) = (3, 1, 5);
            }))
    };
    let waits = |mut fleet: FleetBuilder| {
        let (_, decisions) = decided(&mut fleet);
        let subject = Subject::Occupancy { component: key(KEY), node: "n2".into() };
        let all = said(decisions.verdict(&subject).cloned().unwrap());
        all.into_iter().find(|(kind, _)| kind == "Canary").expect("a wait for the canary").1
    };
    let told = waits(asks(|it| it));
    assert!(told.contains("0 of 1 canary nodes run 2.0") && told.contains("Not yet: n1 is being handed over."), "{told}");
    // What it waits for itself is named.
    let missing =
        asks(|it| it).with(images("2.0", "DoesNotExist")).with(held(labelled("", "", "").but_name("n1"), DesiredBy::Removed));
    let told = waits(missing.with(config(None, None)));
    assert!(told.contains("n1 is being handed over, and waits for a person or for others (KmmImage)."), "{told}");
    let failed = asks(|it| it.phase(Phase::Failed, at(190)));
    assert!(waits(failed).contains("n1 was handed over and has failed"));
    // A canary that was there and has lost it since.
    let lost = asks(|it| it.phase(Phase::Done, at(190))).with(lease("me").slot("n3", KEY));
    let lost = lost.with(labelled("1.0", "1.0", "2.0")).with(handoff(KEY, "n3").to("2.0").phase(Phase::Preflight, at(190)));
    let told = waits(lost);
    assert!(told.contains("n1 has lost it without a handoff (StuckLabels); n3 is being handed over"), "{told}");
}

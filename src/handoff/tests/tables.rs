//! The rules, one row each: what is on the node, which rule is the law, and what it does. And the budget's and the queue's tables.

use super::world::{GPU, RESOURCE};
use crate::{
    api::{
        Phase,
        component::Window,
        keys::{DesiredBy, FINALIZER, LoaderBoot, Mark, Role},
    },
    fleet::{
        build::*,
        view::{FleetView, NodeView},
    },
    handoff::{
        action::{NodeChange, Op},
        facts::{Context, Facts},
        interlock::{self, Effect, Order},
        observed::Observed,
    },
};

/// `D L P ready R` with `-` for absent and `!` after R for a stopped boot.
fn labelled(text: &str) -> NodeBuilder {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut node = node("n1").renewed(at(0));
    for (role, word) in [Role::Desired, Role::Loader, Role::Plugin, Role::Ready].into_iter().zip(&words) {
        if *word != "-" {
            node = node.role(role, GPU, word);
        }
    }
    match words.get(4) {
        Some(&"-") | None => node,
        Some(word) => match word.strip_suffix('!') {
            Some(version) => node.stopped(GPU, version, "boot-1"),
            None => node.loaded(GPU, word),
        },
    }
}

fn marked(node: NodeBuilder) -> NodeBuilder {
    let boot = Some(LoaderBoot { id: "boot-1".into(), since: at(-2000).to_string() });
    node.mark(GPU, &Mark { uid: "u".into(), attempt: 1, epoch: 1, desired: DesiredBy::Kept, boot })
}

/// What is said of the component on the only node.
fn on_first_node<T>(view: &FleetView, observed: &Observed, context: &Context, say: impl FnOnce(&Facts<'_>) -> T) -> T {
    let key = key(GPU);
    let node: &NodeView = &view.nodes[0];
    say(&Facts {
        now: view.now,
        key: &key,
        component: &view.components[&key],
        node,
        occupancy: &node.components[&key],
        slot: None,
        others: &[],
        admission: None,
        budgets: &view.budgets,
        observed,
        context,
        stale: None,
    })
}

/// The law on this node, as `rule: change, change` or `rule: wait Kind, Kind`.
fn law(node: NodeBuilder, pods: Vec<PodBuilder>) -> String {
    law_of(component(GPU), node, pods, None)
}

fn law_of(component: ComponentBuilder, node: NodeBuilder, pods: Vec<PodBuilder>, handoff: Option<HandoffBuilder>) -> String {
    let mut fleet = fleet().with(component.version("2").made("1").made("2").finalizer(FINALIZER)).with(node);
    for pod in pods {
        fleet.put(pod);
    }
    if let Some(handoff) = handoff {
        fleet.put(handoff);
    }
    let mut observed = Observed::default();
    observed.observe(&fleet.project(at(-100)));
    let view = fleet.project(at(0));
    observed.observe(&view);
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    on_first_node(&view, &observed, &context, |facts| match interlock::step(facts, &Order::label(facts)) {
        None => "nothing".to_owned(),
        Some(step) => format!("{:?}: {}", step.rule, told(&step.effect)),
    })
}

fn told(effect: &Effect) -> String {
    match effect {
        Effect::Wait { blockers, .. } => {
            format!("wait {}", blockers.iter().map(|blocker| blocker.kind.word()).collect::<Vec<_>>().join(", "))
        }
        Effect::Act(action) => match &action.op {
            Op::PatchNode(patch) => {
                let one = |change: &NodeChange| match change {
                    NodeChange::Label { key, value } | NodeChange::Annotation { key, value } => {
                        let role = Role::parse(key).map_or("?", |(role, _)| role.word());
                        match value {
                            Some(_) if matches!(role, "unload" | "loaded" | "handoff") => format!("{role}+"),
                            Some(value) => format!("{role}={value}"),
                            None => format!("{role}-"),
                        }
                    }
                    NodeChange::Unschedulable(closed) => format!("closed={closed}"),
                };
                patch.changes.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Op::DeletePod(pod) => format!("delete {}", pod.key.name.split('-').nth(1).unwrap_or("?")),
            Op::CreatePod(_) => "create unload".to_owned(),
            other => format!("{other:?}"),
        },
    }
}

fn claimant() -> PodBuilder {
    pod("shop/train-0").on("n1").claims(RESOURCE, 1).owned_by("ReplicaSet", "train").created(at(-500))
}

fn loader(version: &str) -> PodBuilder {
    loader_pod(GPU, version, "n1").created(at(-500))
}

fn plugin(version: &str) -> PodBuilder {
    plugin_pod(GPU, version, "n1").created(at(-500))
}

#[test]
fn rules_by_labels_alone() {
    for (labels, law_is) in [
        ("- - - - -", "nothing"),
        ("tpyo 1 1 1 1", "Unknown: wait UnknownVersion"),
        ("2 1 1 1 1", "PluginOff: ready- plugin-"),
        ("- 1 1 1 1", "PluginOff: ready- plugin-"),
        ("2 1 2 2 1", "PluginOff: ready- plugin-"),
        ("1 1 - 1 1", "PluginGone: ready-"),
        ("2 1 - - 1", "LoaderOff: loader-"),
        ("- 1 - - 1", "LoaderOff: loader-"),
        ("2 1 - - -", "LoaderOff: loaded+"),
        ("2 - - - 1", "LoaderGone: loaded+ unload+"),
        ("- - - - 1", "LoaderGone: loaded+ unload+"),
        ("2 - - - 1!", "ModuleOut: unload+"),
        ("2 - - - -", "LoaderOn: loader=2 loaded+ handoff+"),
        ("1 - - - 1", "LoaderOn: loader=1 handoff+"),
        ("1 - - - 1!", "LoaderOn: loader=1 loaded+ handoff+"),
        ("2 2 - - 1", "LoaderReady: wait Anomaly"),
        ("2 2 - - 2!", "LoaderReady: loaded+"),
        ("2 2 - - 2", "LoaderReady: handoff+"),
        ("2 2 2 - 2", "DevicesBack: wait PluginNotReady"),
        ("2 2 2 2 2", "nothing"),
    ] {
        assert_eq!(law(labelled(labels), Vec::new()), law_is, "D L P ready R = {labels}");
    }
}

#[test]
fn rules_with_pods() {
    let nonce = |node: NodeBuilder| node.role(Role::Nonce, GPU, "abc");
    let unload = || unload_pod(GPU, "1", "n1", "abc").created(at(-20));
    for (name, node, pods, law_is) in [
        ("claimant under rule 2", labelled("2 1 1 1 1"), vec![claimant()], "PluginOff: wait Claimant"),
        ("plugin pod terminating", labelled("2 1 - - 1"), vec![plugin("1").terminating(at(5))], "PluginGone: wait PluginPod"),
        ("still allocatable", labelled("2 1 - - 1").allocatable(RESOURCE, 4), vec![], "PluginGone: wait Allocatable"),
        ("claimant under rule 4", labelled("2 1 - - 1"), vec![claimant()], "LoaderOff: wait Claimant"),
        ("loader pod terminating", labelled("2 - - - 1"), vec![loader("1").terminating(at(5))], "LoaderGone: wait LoaderPod"),
        ("not ready", labelled("2 - - - 1").not_ready(), vec![], "LoaderGone: wait NodeNotReady"),
        ("the pod is made", nonce(labelled("2 - - - 1!")), vec![], "ModuleOut: create unload"),
        ("not beside a claimant", nonce(labelled("2 - - - 1!")), vec![claimant()], "ModuleOut: wait Claimant"),
        ("it runs", nonce(labelled("2 - - - 1!")), vec![unload()], "ModuleOut: wait UnloadPod"),
        ("it exited 0", nonce(labelled("2 - - - 1!")), vec![unload().exited(0, "", at(-5))], "ModuleOut: loaded- unload-"),
        (
            "another's exit 0",
            labelled("2 - - - 1!").role(Role::Nonce, GPU, "xyz"),
            vec![unload().exited(0, "", at(-5))],
            "ModuleOut: delete unload",
        ),
        ("another boot", nonce(labelled("2 - - - 1!")).boot("boot-2"), vec![], "ModuleOut: loaded- unload-"),
        ("no loader beside a running one", labelled("1 - - - 1!"), vec![unload()], "LoaderOn: wait UnloadPod"),
        ("nor beside an ended one", labelled("2 - - - -"), vec![unload().exited(0, "", at(-5))], "LoaderOn: delete unload"),
        ("nor beside an old loader", labelled("2 - - - -"), vec![loader("1").terminating(at(5))], "LoaderOn: wait LoaderPod"),
        ("the loader is Ready", marked(labelled("2 2 - - 2")), vec![loader("2")], "PluginOn: plugin=2"),
        ("it is not", marked(labelled("2 2 - - 2")), vec![loader("2").not_ready()], "LoaderReady: wait LoaderNotReady"),
        ("none yet", marked(labelled("2 2 - - 2")), vec![], "LoaderReady: wait LoaderNotReady"),
        (
            "made before the label",
            marked(labelled("2 2 - - 2")),
            vec![loader("2").created(at(-3000))],
            "LoaderReady: delete loader",
        ),
        ("in another boot", marked(labelled("2 2 - - 2")).boot("boot-2"), vec![loader("2")], "LoaderReady: handoff+"),
        (
            "older than an unload's end",
            marked(labelled("2 2 - - 2")),
            vec![loader("2"), unload().exited(0, "", at(-5))],
            "LoaderReady: delete loader",
        ),
        ("two versions", marked(labelled("2 2 - - 2")), vec![loader("2"), loader("1")], "LoaderReady: wait LoaderPod"),
        (
            "devices are back",
            labelled("2 2 2 - 2").allocatable(RESOURCE, 4),
            vec![loader("2"), plugin("2")],
            "DevicesBack: ready=2",
        ),
        ("they are not", labelled("2 2 2 - 2"), vec![loader("2"), plugin("2")], "DevicesBack: wait Allocatable"),
        ("in service", labelled("2 2 2 2 2").allocatable(RESOURCE, 4), vec![loader("2"), plugin("2"), claimant()], "nothing"),
    ] {
        assert_eq!(law(node, pods), law_is, "{name}");
    }
}

#[test]
fn rule_1_stops_what_a_stopped_handoff_left() {
    for (phase, kind) in [(Phase::Failed, "HandoffFailed"), (Phase::Held, "HandoffHeld"), (Phase::Aborted, "HandoffHeld")] {
        for (labels, rule) in [("- 1 - - 1", "LoaderOff"), ("- - - - 1", "LoaderGone"), ("- - - - 1!", "ModuleOut")] {
            let stopped = handoff(GPU, "n1").phase(phase, at(-50));
            let law = law_of(component(GPU), labelled(labels), Vec::new(), Some(stopped));
            assert_eq!(law, format!("{rule}: wait {kind}"), "{phase}: {labels}");
        }
        // With a desired version the label is an order, whatever became of the handoff.
        let law = law_of(component(GPU), labelled("2 1 - - 1"), Vec::new(), Some(handoff(GPU, "n1").phase(phase, at(-50))));
        assert_eq!(law, "LoaderOff: loader-");
    }
}

#[test]
fn rule_9_waits_for_the_handoff() {
    let node = || labelled("1 1 1 - 1").allocatable(RESOURCE, 4);
    for phase in [Phase::Draining, Phase::Detaching, Phase::StoppingPlugin, Phase::Unloading, Phase::Loading] {
        let running = handoff(GPU, "n1").phase(phase, at(-50));
        assert_eq!(law_of(component(GPU), node(), vec![loader("1"), plugin("1")], Some(running)), "nothing", "{phase}");
    }
    for phase in [Phase::Cordoning, Phase::Verifying, Phase::Failed] {
        let running = handoff(GPU, "n1").phase(phase, at(-50));
        assert_eq!(
            law_of(component(GPU), node(), vec![loader("1"), plugin("1")], Some(running)),
            "DevicesBack: ready=1",
            "{phase}"
        );
    }
}

#[test]
fn with_a_pod_selector_the_node_must_be_closed_and_nobody_on_the_way() {
    let chosen = || component(GPU).pods("shop", "uses", "gpu");
    let coming = pod("shop/late-0").label("uses", "gpu").nominated("n1");
    assert_eq!(law_of(chosen(), labelled("2 1 - - 1"), Vec::new(), None), "LoaderOff: wait Cordon");
    assert_eq!(law_of(chosen(), labelled("2 1 - - 1").cordoned_by("kubectl"), vec![coming], None), "LoaderOff: wait PodBinding");
    assert_eq!(law_of(chosen(), labelled("2 1 - - 1").cordoned_by("kubectl"), Vec::new(), None), "LoaderOff: loader-");
}

#[test]
fn garbage_stops_every_rule() {
    for role in [Role::Loaded, Role::Mark] {
        let node = labelled("2 1 1 1 1").annotation(&role.key(&key(GPU)), "{half");
        assert_eq!(law(node, Vec::new()), "Unknown: wait LabelGarbage", "{role:?}");
    }
}

#[test]
fn what_holds_a_rollout_back() {
    use crate::{
        api::Version,
        handoff::{rollout, tally::Tally},
    };
    let night = Window { start: "22:00".into(), duration: crate::api::duration::Duration::from_secs(3600), time_zone: None };
    let two = Version::from("2");
    let with = |count: u32| Tally { versions: [(two.clone(), count)].into(), ..Tally::default() };
    // (name, policy, tally, admitted, the blocker)
    type Change = fn(&mut crate::api::component::Rollout);
    let rows: Vec<(&str, Change, Tally, u32, Option<&str>)> = vec![
        ("the first canary", |_| {}, with(0), 0, None),
        ("beside the first canary", |_| {}, with(0), 1, Some("Canary")),
        ("after the canary", |_| {}, with(1), 1, None),
        ("soaking", |_| {}, Tally { last_end: Some(at(-10)), ..with(1) }, 0, Some("Soaking")),
        ("soaked", |_| {}, Tally { last_end: Some(at(-61)), ..with(1) }, 0, None),
    ];
    for (name, change, tally, admitted, blocker) in rows {
        let view = fleet().with(component(GPU).version("2").made("1").made("2").rollout(change)).project(at(0));
        let held = rollout::held_back(&view.components[&key(GPU)], &tally, Some(&two), admitted, None, at(0));
        assert_eq!(held.0.map(|blocker| blocker.kind.word()).as_deref(), blocker, "{name}");
    }
    let view = fleet().with(component(GPU).rollout(|it| it.windows = vec![night])).project(at(0));
    let held = rollout::held_back(&view.components[&key(GPU)], &with(1), Some(&two), 0, None, at(0));
    assert_eq!(held.0.map(|blocker| blocker.kind.word()).as_deref(), Some("OutsideWindow"));
    assert_eq!(held.1, Some(at(22 * 3600)), "opens at 22:00");
    let stopped = |tally: Tally, paused: bool| {
        let view = fleet().with(component(GPU).rollout(|it| it.paused = paused)).project(at(0));
        rollout::stopped(&view.components[&key(GPU)], &tally, at(0)).map(|blocker| blocker.kind.word())
    };
    assert_eq!(stopped(Tally::default(), false), None);
    assert_eq!(stopped(Tally::default(), true).as_deref(), Some("Paused"));
    assert_eq!(stopped(Tally { failures: 1, ..Tally::default() }, false).as_deref(), Some("FailureBudgetSpent"));
}

#[test]
fn the_plan_names_each_write_in_its_order() {
    use crate::handoff::plan;
    let told = |node: NodeBuilder, pods: Vec<PodBuilder>| -> Vec<String> {
        let mut fleet = fleet().with(component(GPU).version("2").made("1").made("2")).with(node).with(handoff(GPU, "n1"));
        for pod in pods {
            fleet.put(pod);
        }
        let view = fleet.project(at(0));
        let context = Context { lease_held: false, epoch: 0, identity: "".into(), cluster_max_unavailable: 1, read_only: true };
        let writes = on_first_node(&view, &Observed::default(), &context, plan::writes);
        writes.into_iter().map(|it| format!("{} {}", it.phase, it.object)).collect()
    };
    let phases = |lines: &[String]| lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    let full = told(node("n1").runs(GPU, "1").allocatable(RESOURCE, 4), vec![claimant(), loader("1"), plugin("1")]);
    assert_eq!(
        phases(&full),
        [
            "Cordoning",
            "Draining",
            "StoppingPlugin",
            "Unloading",
            "Unloading",
            "Unloading",
            "Unloading",
            "Loading",
            "StartingPlugin",
            "Verifying",
            "Uncordoning"
        ]
    );
    assert!(full.iter().any(|line| line.starts_with("Unloading Pod ns/gpu-unload-")), "{full:#?}");
    assert_eq!(phases(&told(node("n1"), Vec::new())), ["Loading", "StartingPlugin", "Verifying", "Uncordoning"]);
    let current = told(node("n1").runs(GPU, "2").allocatable(RESOURCE, 4), vec![loader("2"), plugin("2")]);
    assert!(current.is_empty(), "{current:?}");
}

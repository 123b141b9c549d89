//! Keys in a user's order, and what comes of them.

use lockkeeper::{
    api::{Phase, handoff::HandoffAction},
    console::{
        command::Command,
        effect::{Effect, ExitReason},
        msg::Msg,
    },
    engine::intent::{Intent, IntentOutcome, NodeTarget},
};

use crate::{
    fixtures::{busy, gpu, node, scene, scene_of, write},
    user::User,
};

fn targets(nodes: &[&str]) -> Vec<NodeTarget> {
    nodes.iter().map(|node| NodeTarget { node: (*node).into(), uid: Some(format!("uid-{node}").into()) }).collect()
}

#[test]
fn one_node_is_planned_confirmed_and_handed_over() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U").expect_overlay("plan");
    user.expect_text("Plan: Hand over gpu-n08 of drivers/gpu to 2.0")
        .expect_text("2 pods hold it")
        .expect_text("ml/train-gpu-n08-1")
        .expect_text("needs 4 healthy of 5, has 4, allows 0")
        .expect_text("Nothing has been done yet");
    user.press("enter").expect_overlay("confirm").expect_no_intent();
    user.type_text("gpu-n08").press("enter").expect_overlay("none");
    let [Intent::HandOver { component, nodes, to, .. }] = &user.intents()[..] else { panic!("{:?}", user.intents()) };
    assert_eq!((component, &nodes[..], to.as_str()), (&gpu(), &targets(&["gpu-n08"])[..], "2.0"));
    user.expect_text("1 asked");
    user.answer(IntentOutcome::Done { message: "queued".into() }).expect_message("Hand over gpu-n08").expect_no_text("1 asked");
}

#[test]
fn the_order_of_marking_is_the_order_of_the_handoff() {
    let mut user = User::at(busy());
    for name in ["gpu-n11", "gpu-n08", "gpu-n10"] {
        user.go_to(name).press("space");
    }
    user.expect_text("+1").expect_text("+2").expect_text("+3");
    user.press("K");
    user.press("U enter").type_text("gpu-n11").press("enter");
    let [Intent::HandOver { nodes, .. }] = &user.intents()[..] else { panic!("{:?}", user.intents()) };
    assert_eq!(nodes[..], targets(&["gpu-n11", "gpu-n10", "gpu-n08"])[..]);
    assert!(user.model.marks.is_empty(), "the draft became an order");
}

#[test]
fn enter_cancels_until_the_whole_name_is_typed() {
    for typed in ["", "gpu-n0", "gpu-n09", "gpu-n08 ", "GPU-N08"] {
        let mut user = User::at(busy());
        user.go_to("gpu-n08").press("U enter").type_text(typed).press("enter");
        user.expect_overlay("none").expect_no_intent().expect_message("cancelled: nothing was done");
    }
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").type_text("gpu-n08").press("tab enter").expect_no_intent();
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").type_text("gpu-n08").press("backspace enter").expect_no_intent();
}

#[test]
fn a_changed_plan_says_so_and_asks_again() {
    let nodes = |pods| scene([node("gpu-n08").pods(pods), node("gpu-n09")]);
    let mut user = User::at(nodes(2));
    user.press("U enter").type_text("gpu-n08");
    user.see(nodes(2)).expect_text("gpu-n08 ").expect_no_text("plan changed");
    user.see(nodes(3)).expect_text("The plan changed while this was open: 3 pods now");
    user.press("enter").expect_no_intent();
    let mut user = User::at(nodes(2));
    user.press("U enter").type_text("gpu-n08").see(nodes(3)).type_text("gpu-n08").press("enter");
    assert_eq!(user.intents().len(), 1, "typed again for the new plan");
}

#[test]
fn a_refused_plan_says_what_would_become_of_it() {
    let mut user = User::at(busy());
    user.go_to("gpu-n09")
        .press("U")
        .expect_text("refused: Pod ml/train-gpu-n09-0: holds 1 vendor.com/gpu, and no controller would bring it");
    user.expect_text("1 node would wait untouched in the queue until that is mended");
    user.press("enter").expect_overlay("confirm").expect_text("refused now, it would wait");
    user.type_text("gpu-n09").press("enter");
    assert_eq!(user.intents().len(), 1, "the engine does not touch it until its preflight allows it");
    // It becomes refused while the confirmation is open: another plan, typed for anew.
    let mut user = User::at(scene([node("gpu-n08").pods(1)]));
    user.press("U enter").type_text("gpu-n08").see(scene([node("gpu-n08").pods(1).unmanaged()]));
    user.expect_text("The plan changed while this was open").press("enter").expect_no_intent();
    // What no repair of the node can help is not queued at all.
    let unknown = || busy().component(|component| drop(component.versions.remove("2.0")));
    let mut user = User::at(unknown());
    user.go_to("gpu-n08").press("U").expect_text("Nothing can be done as things stand");
    user.press("enter").expect_overlay("plan").expect_message("this plan is refused").expect_no_intent();
}

#[test]
fn a_node_made_again_under_its_name_is_not_the_one_that_was_planned() {
    let mut user = User::at(scene([node("gpu-n08"), node("gpu-n09")]));
    user.press("U enter").type_text("gpu-n08").see(scene([node("gpu-n08").uid("other"), node("gpu-n09")]));
    user.expect_overlay("plan").expect_text("was deleted and made again");
    user.press("esc U").expect_message("was deleted and made again: choose it anew").expect_no_intent();
}

#[test]
fn a_question_says_the_phase_of_now() {
    let nodes = |phase| scene([node("gpu-n08").handoff(phase), node("gpu-n09")]);
    let mut user = User::at(nodes(Phase::Draining));
    user.go_to("gpu-n08").press("X").expect_text("gpu-n08 is in Draining");
    user.see(nodes(Phase::Unloading))
        .expect_overlay("ask")
        .expect_text("gpu-n08 is in Unloading")
        .expect_no_text("is in Draining");
    user.press("tab enter");
    assert_eq!(user.intents(), [Intent::Abort { component: gpu(), node: "gpu-n08".into(), reason: String::new() }]);
}

#[test]
fn reversible_commands_ask_with_the_focus_on_cancel() {
    let cases = [
        ("gpu-n02", "X", Intent::Abort { component: gpu(), node: "gpu-n02".into(), reason: String::new() }),
        ("gpu-n02", "H", Intent::Hold { component: gpu(), node: "gpu-n02".into() }),
        ("gpu-n06", "C", Intent::Continue { component: gpu(), node: "gpu-n06".into() }),
        ("gpu-n05", "L", Intent::Leave { component: gpu(), node: "gpu-n05".into() }),
        ("gpu-n03", "W", Intent::Withdraw { component: gpu(), node: "gpu-n03".into() }),
        ("gpu-n03", "P", Intent::Pause { component: gpu(), paused: true }),
    ];
    for (name, key, intent) in cases {
        let mut user = User::at(busy());
        user.go_to(name).press(key).expect_overlay("ask").press("enter").expect_overlay("none").expect_no_intent();
        user.press(key).press("tab enter");
        assert_eq!(user.intents(), [intent]);
    }
}

#[test]
fn retry_and_roll_back_show_a_plan_first() {
    for (key, intent) in [
        ("R", Intent::Retry { component: gpu(), node: "gpu-n05".into() }),
        ("B", Intent::RollBack { component: gpu(), node: "gpu-n05".into() }),
    ] {
        let mut user = User::at(busy());
        user.go_to("gpu-n05").press(key).expect_overlay("plan").press("enter").expect_overlay("confirm");
        user.type_text("gpu-n05").press("enter");
        assert_eq!(user.intents(), [intent]);
    }
    User::at(busy()).go_to("gpu-n05").press("B").expect_text("Plan: Roll back gpu-n05 of drivers/gpu to 1.0");
}

#[test]
fn the_queue_is_reordered_in_place_and_its_ends_hold() {
    let mut user = User::at(busy());
    user.go_to("gpu-n04").press("K");
    assert_eq!(user.intents(), [Intent::Reorder { component: gpu(), nodes: vec!["gpu-n04".into(), "gpu-n03".into()] }]);
    let mut user = User::at(busy());
    user.go_to("gpu-n03").press("K").expect_message("gpu-n03 is the first already").expect_no_intent();
    user.go_to("gpu-n04").press("J").expect_message("gpu-n04 is the last already").expect_no_intent();
}

#[test]
fn lists_do_not_wrap() {
    let mut user = User::at(busy());
    user.press("g g");
    let first = user.selected();
    user.press("k k up pageup ctrl-u home");
    assert_eq!(user.selected(), first);
    user.press("G");
    let last = user.selected();
    assert_ne!(first, last);
    user.press("j down pagedown ctrl-d end");
    assert_eq!(user.selected(), last);
}

#[test]
fn the_filter_owns_its_keys_and_esc_clears_it() {
    let mut user = User::at(busy());
    user.press("/").type_text("UXRq:?");
    user.expect_overlay("none").expect_no_intent().expect_text("UXRq:?");
    user.press("esc").expect_no_text("filter:");
    user.press("/").type_text("phase:queued").expect_text("Nodes 2 of 11 with \"phase:queued\"").expect_text("gpu-n04");
    user.press("enter").expect_no_text("filter:").expect_text("Nodes 2 of 11");
    user.press("/ backspace esc").expect_text("gpu-n11");
    user.press("/").type_text("!gpu-n0").press("enter").expect_text("gpu-n10").expect_no_text(" gpu-n05 ");
    user.press("esc").press("/").type_text("nothing-like-it").expect_text("no node matches the filter");
    user.press("enter").expect_text("no node matches the filter");
}

#[test]
fn pasted_text_is_never_taken_for_keys() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").send(Msg::Paste("U\n".into())).expect_overlay("none");
    user.press("U enter").send(Msg::Paste("gpu-n08\nenter".into())).expect_no_intent().press("enter");
    assert_eq!(user.intents().len(), 1);
}

#[test]
fn escape_goes_back_one_level_and_never_quits() {
    let mut user = User::at(busy());
    user.press("enter").expect_screen("node").press("?").expect_overlay("help");
    user.press("esc").expect_overlay("none").expect_screen("node").press("esc").expect_screen("fleet");
    user.press("esc esc esc");
    assert_eq!(user.effects, []);
}

#[test]
fn quitting_asks_and_ctrl_c_quits_twice() {
    let mut user = User::at(busy());
    user.press("q").expect_overlay("quit").expect_text("3 handoffs running, and this process is the one");
    user.press("enter").expect_overlay("none");
    assert_eq!(user.effects, [], "the focus is on Stay while handoffs run here");
    user.press("q tab enter");
    assert_eq!(user.effects, [Effect::Quit(ExitReason::Quit)]);
    let mut user = User::at(scene([node("a")]));
    user.press("q enter");
    assert_eq!(user.effects, [Effect::Quit(ExitReason::Quit)], "nothing is at stake");
    let mut user = User::at(busy());
    user.press("ctrl-c").expect_message("once more").press("j ctrl-c");
    assert_eq!(user.effects, [], "another key in between");
    user.press("ctrl-c");
    assert_eq!(user.effects, [Effect::Quit(ExitReason::Quit)]);
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").type_text("g").press("ctrl-c ctrl-c");
    assert_eq!(user.effects, [Effect::Quit(ExitReason::Quit)], "from within an input too");
}

#[test]
fn the_palette_runs_commands_and_says_why_one_is_off() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press(":").type_text("hand").press("enter").expect_overlay("plan");
    user.press("esc").press(":").type_text("retry").expect_text("off: gpu-n08 has no handoff").press("enter");
    user.expect_overlay("palette").expect_message("gpu-n08 has no handoff");
}

#[test]
fn help_lists_what_works_here_and_filters() {
    let mut user = User::at(busy()).sized(120, 40);
    user.go_to("gpu-n08").press("?").expect_text("Hand the marked nodes over").expect_text("off: gpu-n08 has no handoff");
    user.expect_no_text("Previous node");
    user.type_text("palette").expect_text("All commands").expect_no_text("Open the node");
    let mut user = User::at(busy()).sized(120, 40);
    user.go_to("gpu-n08").press("enter ?").expect_text("Previous node");
}

#[test]
fn the_node_screen_steps_through_the_list() {
    let mut user = User::at(busy());
    user.go_to("gpu-n02").press("enter ]").expect_text("drivers/gpu on gpu-n06").press("[ [ [").expect_text("on gpu-n02");
}

#[test]
fn components_are_listed_apart_and_alone() {
    let nic = lockkeeper::api::ObjectKey::new("drivers", "nic");
    let both = scene_of(&[(gpu(), vec![node("gpu-n1"), node("both")]), (nic, vec![node("nic-n1"), node("both")])]);
    let mut user = User::at(both).sized(120, 30);
    user.expect_text("drivers/gpu  0/2 on 2.0").expect_text("drivers/nic  0/2 on 2.0");
    user.press("f").expect_no_text("drivers/nic").expect_text("Nodes 2 of 4 of drivers/gpu");
    user.press("f").expect_text("nic-n1").expect_no_text("gpu-n1").press("f").expect_text("gpu-n1");
    user.go_to("gpu-n1").press("space").go_to("nic-n1").press("space U");
    user.expect_message("marks of two components").expect_no_intent();
}

#[test]
fn the_log_follows_and_copies_what_a_person_would_type() {
    let mut user = User::at(busy());
    let batch = |entries| Msg::Writes(lockkeeper::console::write_log::Writes { entries, lost: 0 });
    user.send(batch(vec![write(9, "PATCH", "Node a", Some(200)), write(8, "PATCH", "Node b", Some(200))])).press("3");
    user.expect_text("2 writes to the API server, newest").press("k").send(batch(vec![write(7, "PATCH", "Node c", Some(200))]));
    user.expect_no_text("newest").press("c");
    assert_eq!(user.effects, [Effect::Copy("kubectl cordon gpu-n02".into())]);
    user.press("G").expect_text("3 writes to the API server, newest");
}

#[test]
fn a_hold_that_was_asked_for_can_be_taken_back() {
    let user = |action| {
        let mut user = User::at(scene([node("n").handoff(Phase::Draining).action(action)]));
        user.press("g g");
        user
    };
    assert!(user(HandoffAction::Hold).off(Command::Hold).unwrap().contains("will be held after Draining already"));
    assert_eq!(user(HandoffAction::Hold).off(Command::Continue), None);
    assert!(user(HandoffAction::Run).off(Command::Continue).unwrap().contains("not held"));
    assert!(user(HandoffAction::Abort).off(Command::Abort).unwrap().contains("being aborted already"));
}

#[test]
fn suspend_redraw_and_dump_reach_the_host() {
    let mut user = User::at(busy());
    user.press("ctrl-z ctrl-l ctrl-s");
    assert_eq!(user.effects, [Effect::Suspend, Effect::Redraw, Effect::Dump]);
}

#[test]
fn the_demo_says_which_key_is_next() {
    let look = || crate::user::Look { demo: true, ..crate::user::Look::default() };
    let mut user = User::with(scene([node("n1").pods(1), node("n2")]), look());
    user.expect_text("Choose a node with j and k. space puts it into your order, U shows");
    user.press("space").expect_text("1 node in your order").press("U").expect_text("This is the plan").press("enter");
    user.expect_text("Type the node's name").type_text("n1").press("enter");
    user.see(scene([node("n1").handoff(Phase::Draining), node("n2")])).expect_text("Watch n1 go");
    user.see(scene([node("n1").handoff(Phase::Failed), node("n2")])).expect_text("n1 failed: select it and press R");
    user.see(scene([node("n1").on("2.0"), node("n2")])).expect_text("Next: choose another node");
    user.see(scene([node("n1").on("2.0"), node("n2").on("2.0")])).expect_text("Every node runs its version");
    User::at(busy()).expect_no_text("Choose a node");
}

#[test]
fn the_plan_is_the_engines_own_preflight() {
    // A node that runs the target already: nothing moves, whoever holds the device.
    let mut user = User::at(scene([node("n1").on("2.0").pods(1).unmanaged()]));
    user.press("U").expect_text("runs 2.0 already: it will be Done without a write").expect_text("no pod is moved");
    user.press("enter").expect_overlay("confirm");
    // The engine makes the DaemonSets of the component's version by itself.
    let without = |version: &'static str| {
        scene([node("n1").pods(1)]).component(move |component| {
            let view = component.versions.get_mut(version).unwrap();
            (view.loader, view.plugin) = (None, None);
        })
    };
    User::at(without("2.0")).press("U enter").expect_overlay("confirm");
    // Garbage is refused with what to do about it.
    User::at(scene([node("n1").garbage("{")])).press("U").expect_text("refused: Node n1").expect_text("expected JSON; correct");
}

#[test]
fn nothing_is_chosen_or_confirmed_where_nothing_is_shown() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").type_text("gpu-n0");
    user = user.sized(30, 10);
    user.press("8 enter j U enter");
    user.send(Msg::Paste("8".into())).send(Msg::Scroll(3)).press("enter").expect_no_intent();
    user = user.sized(100, 30);
    user.expect_overlay("confirm").expect_text("gpu-n08");
    assert_eq!(user.selected(), "gpu-n08");
    user = user.sized(30, 10);
    user.press("ctrl-c").expect_text("once more").press("j ctrl-c");
    assert_eq!(user.effects, [], "another key in between");
    user.press("q");
    assert_eq!(user.effects, [Effect::Quit(ExitReason::Quit)]);
}

#[test]
fn the_way_to_all_keys_is_named_on_the_narrowest_screen() {
    let mut user = User::at(busy()).sized(60, 15);
    for at in 1..=11 {
        user.go_to(&format!("gpu-n{at:02}")).expect_text("? help");
    }
}

#[test]
fn on_a_narrow_screen_the_facts_stand_apart_from_the_story() {
    let mut user = User::at(busy()).sized(80, 60);
    user.go_to("gpu-n08").press("enter");
    let text = user.text();
    let lines: Vec<&str> = text.lines().map(|line| line.trim_matches(|sign: char| !sign.is_alphanumeric())).collect();
    let at = lines.iter().position(|line| *line == "Labels").expect("the facts");
    assert_eq!(lines[at - 1], "", "{text}");
}

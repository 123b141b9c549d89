//! What must not happen: writes from a picture that is old, hidden, frozen or for looking only; acts on a row that is not the one chosen.

use lockkeeper::{
    api::Phase,
    console::{
        command::{COMMANDS, Command, Danger},
        effect::Effect,
        msg::Msg,
    },
    engine::{intent::IntentOutcome, picture::Mode},
    fleet::view::WatchState,
};

use crate::{
    fixtures::{ago, busy, node, now, scene},
    user::{Look, User},
};

const NODES: [&str; 6] = ["gpu-n02", "gpu-n03", "gpu-n05", "gpu-n06", "gpu-n08", "gpu-n01"];

/// Presses every key of every command that writes, on nodes in every state, and says yes to everything.
fn try_everything(user: &mut User) {
    for name in NODES {
        user.go_to(name);
        for info in COMMANDS.iter().filter(|info| info.writes) {
            let key = user.model.keymap.key_of(info.command).unwrap();
            user.press(&key);
            for _ in 0..3 {
                if user.overlay() == "none" {
                    break;
                }
                user.type_text(name).press("tab enter").press("enter");
            }
            while user.overlay() != "none" {
                user.press("esc");
            }
        }
    }
}

fn refuses(mut user: User, why: &str) {
    for info in COMMANDS.iter().filter(|info| info.writes) {
        let reason = user.off(info.command).unwrap_or_else(|| panic!("{} is on", info.id));
        assert!(reason.contains(why), "{}: {reason}", info.id);
    }
    try_everything(&mut user);
    user.expect_no_intent();
}

#[test]
fn read_only_refuses_every_command_that_writes() {
    refuses(User::with(busy(), Look { read_only: true, ..Look::default() }), "read-only");
    refuses(User::at(busy().mode(Mode::ReadOnly)), "read-only");
}

#[test]
fn a_paused_picture_refuses_them_too() {
    let mut user = User::at(busy());
    user.press("p");
    refuses(user, "paused");
}

#[test]
fn a_stale_picture_refuses_them_too() {
    let lost = |since| WatchState::Retrying { error: "connection refused".into(), since: ago(since), next: now() };
    refuses(User::at(busy().watch("pods", lost(30))), "stale: no pods for 30s");
    refuses(
        User::at(busy().watch("nodes", WatchState::Unavailable { why: "forbidden".into() })),
        "nodes cannot be watched: forbidden",
    );
    refuses(User::at(busy().fleet(|fleet| fleet.synced = false)), "first complete picture");
    let mut user = User::at(busy());
    user.send(Msg::EngineGone).expect_text("ENGINE STOPPED");
    refuses(user, "engine of this process has stopped");
    let mut user = User::at(busy().watch("pods", lost(1)));
    user.go_to("gpu-n08");
    assert_eq!(user.off(Command::HandOver), None, "a reconnect is no outage");
}

#[test]
fn the_same_keys_do_write_when_nothing_forbids_it() {
    let mut user = User::at(busy());
    try_everything(&mut user);
    assert!(user.intents().len() >= 10, "{:?}", user.intents());
}

#[test]
fn a_picture_that_turns_stale_under_an_open_dialog_refuses_at_the_last_key() {
    let lost = WatchState::Retrying { error: "connection refused".into(), since: ago(30), next: now() };
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").type_text("gpu-n08").see(busy().watch("pods", lost.clone())).press("enter");
    user.expect_no_intent().expect_message("stale");
    let mut user = User::at(busy());
    user.go_to("gpu-n02").press("X tab").see(busy().watch("pods", lost)).press("enter");
    user.expect_no_intent().expect_message("stale");
}

#[test]
fn hidden_rows_are_never_acted_upon() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("space").go_to("gpu-n11").press("space");
    user.press("/").type_text("n11").press("enter").press("U");
    user.expect_overlay("none").expect_message("marked gpu-n08 cannot be seen: clear the filter").expect_no_intent();
    user.press("esc U").expect_overlay("plan");
    // A selection that the filter hides is none.
    let mut user = User::at(busy());
    user.go_to("gpu-n02").press("/").type_text("n11").press("enter");
    for key in ["X", "H", "U"] {
        user.press(key).expect_overlay("none").expect_message("gpu-n02 is hidden by the filter");
    }
    user.press("j");
    assert_eq!(user.selected(), "gpu-n11");
}

#[test]
fn the_selection_follows_the_node_not_the_row() {
    let mut user = User::at(scene([node("n1"), node("n2"), node("n3")]));
    user.go_to("n2").press("space").see(scene([
        node("n1").handoff(Phase::Draining),
        node("n2"),
        node("n3").handoff(Phase::Failed),
    ]));
    assert_eq!(user.selected(), "n2");
    user.expect_text("+1").see(scene([node("n0"), node("n2"), node("n3")]));
    assert_eq!(user.selected(), "n2");
}

#[test]
fn a_node_that_is_gone_is_said_to_be_gone_and_nothing_acts_on_its_neighbour() {
    let mut user = User::at(scene([node("n1"), node("n2").handoff(Phase::Draining), node("n3").handoff(Phase::Draining)]));
    user.go_to("n2").press("space X").expect_overlay("ask").press("esc");
    user.see(scene([node("n1"), node("n3").handoff(Phase::Draining)]));
    user.press("X").expect_overlay("none").expect_message("n2 is gone: choose another node").expect_no_intent();
    user.press("j");
    assert_eq!(user.selected(), "n3");
    // Made again under the same name, it is another node.
    user.see(scene([node("n3").uid("another").handoff(Phase::Draining)])).press("X").expect_message("made again");
}

#[test]
fn marks_of_nodes_that_are_gone_or_taken_over_fall_away() {
    let mut user = User::at(scene([node("n1"), node("n2"), node("n3"), node("n4")]));
    for name in ["n1", "n2", "n3", "n4"] {
        user.go_to(name).press("space");
    }
    user.see(scene([node("n1").handoff(Phase::Queued), node("n2").uid("another"), node("n4")]));
    let left: Vec<_> = user.model.marks.iter().map(|key| key.node.to_string()).collect();
    assert_eq!(left, ["n4"]);
}

#[test]
fn every_disabled_command_says_why_and_only_what_is_dangerous_writes() {
    for scene in [busy(), scene([]), busy().fleet(|fleet| fleet.components.clear())] {
        for name in ["", "gpu-n01", "gpu-n02", "gpu-n03", "gpu-n05", "gpu-n06", "gpu-n08"] {
            let mut user = User::at(scene.clone());
            if user.model.rows.len() > 3 && !name.is_empty() {
                user.go_to(name);
            }
            for info in COMMANDS {
                if let Some(reason) = user.off(info.command) {
                    assert!(reason.len() > 8 && !reason.ends_with('.'), "{}: {reason:?}", info.id);
                }
                assert!(info.danger == Danger::None || info.writes, "{} is dangerous and does not write", info.id);
            }
        }
    }
}

#[test]
fn a_component_that_is_refused_hands_nothing_over() {
    let refused = busy().component(|component| component.refusals.push("the name is too long".into()));
    let mut user = User::at(refused);
    user.go_to("gpu-n08")
        .press("U")
        .expect_message("NodeComponent drivers/gpu is refused: the name is too long")
        .expect_no_intent();
    let unreadable = busy().component(|component| {
        let mut record = (*component.record).clone();
        record.spec = Err("spec.version: missing".into());
        component.record = record.into();
    });
    User::at(unreadable).go_to("gpu-n08").press("U").expect_message("spec.version: missing").expect_no_intent();
}

#[test]
fn what_the_engine_says_is_shown() {
    let mut user = User::at(busy());
    user.go_to("gpu-n03").press("W tab enter");
    user.answer(IntentOutcome::Refused { message: "gpu-n03 has begun meanwhile".into() }).later(60);
    user.expect_text("gpu-n03 has begun meanwhile");
    assert!(user.model.in_flight.is_empty());
}

#[test]
fn signals_end_it_whatever_is_open() {
    let mut user = User::at(busy());
    user.go_to("gpu-n08").press("U enter").send(Msg::Terminate);
    assert_eq!(user.effects, [Effect::Quit(lockkeeper::console::ExitReason::Signal)]);
}

/// Sources of the console that name what only the cluster layer may use.
#[test]
fn the_console_imports_nothing_that_could_write() {
    fn sources(dir: &std::path::Path, out: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, out) } else { out.push(path) }
        }
    }
    let mut files = Vec::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console"), &mut files);
    assert!(files.len() > 30);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for forbidden in ["cluster::", "kube::", "k8s_openapi", "std::process::Command"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", file.display());
        }
        let pure = ["update.rs", "operate.rs", "enabled.rs"].iter().any(|name| file.ends_with(name));
        assert!(!pure || !text.contains(".await"), "{} waits", file.display());
    }
}

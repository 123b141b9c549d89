//! Every screen and dialog at every size, and hands that press anything.

use lockkeeper::console::{command::Command, msg::Msg, write_log::Writes};
use proptest::prelude::*;

use crate::{
    fixtures::{busy, large, node, scene, write},
    user::{Look, User, draw_at},
};

fn user() -> User {
    let mut user = User::with(busy(), Look { demo: true, ..Look::default() });
    let entries = (0..40).map(|at| write(at, "PATCH", "Node gpu-n02", Some(200))).collect();
    user.send(Msg::Writes(Writes { entries, lost: 0 })).go_to("gpu-n08");
    user
}

/// All sizes from nothing to 160x50; `step` widths and heights apart, the small ones all.
fn sizes(step: u16) -> impl Iterator<Item = (u16, u16)> {
    let axis = move |most: u16| {
        (0..=most).filter(move |at| *at <= 20 || (*at - 20) % step == 0 || [59, 60, 79, 80, 99, 100, 139, 140].contains(at))
    };
    axis(160).flat_map(move |width| axis(50).map(move |height| (width, height)))
}

fn sweep(keys: &str, step: u16) {
    let mut user = user();
    if !keys.is_empty() {
        user.press(keys);
    }
    for (width, height) in sizes(step) {
        draw_at(&mut user.model, width, height);
    }
}

#[test]
fn the_fleet_draws_at_every_size() {
    sweep("", 1);
}

#[test]
fn the_node_draws_at_every_size() {
    sweep("enter", 1);
}

#[test]
fn the_log_draws_at_every_size() {
    sweep("3", 1);
}

#[test]
fn dialogs_draw_at_every_size() {
    for keys in ["U", "U enter", "?", ":", "m", "i", "q", "P", "/"] {
        sweep(keys, 7);
    }
}

#[test]
fn a_long_list_scrolls_at_every_size() {
    let mut user = User::at(large(200));
    for (width, height) in sizes(23) {
        user.send(Msg::Resize(width, height));
        draw_at(&mut user.model, width, height);
        user.press("G");
        draw_at(&mut user.model, width, height);
        user.press("g g");
    }
}

const KEYS: [&str; 42] = [
    "U",
    "X",
    "R",
    "B",
    "H",
    "C",
    "W",
    "J",
    "K",
    "P",
    "space",
    "u",
    "enter",
    "enter",
    "/",
    "s",
    "f",
    "[",
    "]",
    "j",
    "k",
    "ctrl-d",
    "ctrl-u",
    "pageup",
    "pagedown",
    "g",
    "G",
    "1",
    "2",
    "3",
    "tab",
    "shift-tab",
    "esc",
    "p",
    "i",
    "m",
    "c",
    ":",
    "?",
    "q",
    "x",
    "backspace",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random keys, sizes, pictures and pastes: no panic, and the way out is always there.
    #[test]
    fn random_hands_break_nothing(steps in proptest::collection::vec((0usize..52, 0u16..161, 0u16..51), 1..60)) {
        let mut user = user();
        for (what, width, height) in steps {
            match what {
                0..42 => drop(user.press(KEYS[what])),
                42 => drop(user.send(Msg::Paste("gpu-n08\n".into()))),
                43 => drop(user.see(busy())),
                44 => drop(user.see(scene([]))),
                45 => drop(user.see(scene([node("gpu-n08").uid("other"), node("a"), node("gpu-n10")]))),
                46 => drop(user.see(large(30))),
                47 => drop(user.later(3)),
                48 => drop(user.type_text("gpu-n08")),
                49 => drop(user.send(Msg::Resumed)),
                _ => drop(user.send(Msg::Resize(width, height))),
            }
            draw_at(&mut user.model, width, height);
            if let Some(index) = user.model.selected.as_ref().and_then(|key| user.model.rows.index_of(key)) {
                prop_assert!(user.model.rows.row(index) == user.model.selected);
            }
            prop_assert!(user.model.screens.len() == 3 && user.model.overlays.len() <= 1);
        }
        user.effects.clear();
        user.press("ctrl-c ctrl-c");
        prop_assert!(user.effects.iter().any(|effect| matches!(effect, lockkeeper::console::effect::Effect::Quit(_))));
        prop_assert!(user.off(Command::Quit).is_none());
    }
}

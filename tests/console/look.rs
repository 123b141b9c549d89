//! What frames look like, at every breakpoint, in every theme and glyph set.

use lockkeeper::{
    api::Phase,
    console::{
        glyphs::{ASCII, UNICODE},
        messages::Level,
        msg::Msg,
        theme::{Role, Theme, ThemeName},
        write_log::Writes,
    },
    engine::picture::Mode,
    fleet::view::WatchState,
};
use ratatui::style::{Color, Modifier, Style};

use crate::{
    fixtures::{ago, busy, node, now, scene, write},
    user::{Look, User},
};

/// The first cell of a text on the screen.
fn find(user: &mut User, text: &str) -> (u16, u16, Style) {
    find_in(user, "", text)
}

/// The same, in a line that holds another text.
fn find_in(user: &mut User, line: &str, text: &str) -> (u16, u16, Style) {
    let buf = user.frame();
    for y in 0..buf.area.height {
        let symbols: Vec<&str> = (0..buf.area.width).map(|x| buf.cell((x, y)).unwrap().symbol()).collect();
        if !symbols.concat().contains(line) {
            continue;
        }
        for x in 0..symbols.len() {
            if symbols[x..].concat().starts_with(text) {
                let x = u16::try_from(x).unwrap();
                return (x, y, buf.cell((x, y)).unwrap().style());
            }
        }
    }
    panic!("{text:?} is not shown:\n{}", user.text());
}

fn role(role: Role) -> Style {
    Theme::new(ThemeName::Dark, false).get(role)
}

fn same(a: Style, b: Style) -> bool {
    (a.fg, a.bg, a.add_modifier) == (b.fg, b.bg, b.add_modifier)
}

#[test]
fn the_fleet_at_every_breakpoint() {
    for (width, height) in [(140, 35), (100, 24), (80, 24), (60, 15), (59, 15), (30, 4)] {
        let mut user = User::at(busy()).sized(width, height);
        insta::assert_snapshot!(format!("fleet-{width}x{height}"), user.text());
    }
}

#[test]
fn the_node_at_every_breakpoint() {
    for (width, height) in [(140, 35), (100, 24), (80, 24), (60, 15)] {
        let mut user = User::at(busy()).sized(width, height);
        user.go_to("gpu-n02").press("enter");
        insta::assert_snapshot!(format!("node-{width}x{height}"), user.text());
    }
}

#[test]
fn the_log_at_every_breakpoint() {
    for (width, height) in [(140, 35), (80, 24), (60, 15)] {
        let mut user = User::at(busy()).sized(width, height);
        let entries = vec![
            write(30, "PATCH", "Node gpu-n02", Some(200)),
            write(20, "POST", "Pod ml/train-gpu-n02-0 (eviction)", Some(429)),
            write(10, "PATCH", "Node gpu-n07", None),
        ];
        user.send(Msg::Writes(Writes { entries, lost: 4 })).press("3 k");
        insta::assert_snapshot!(format!("log-{width}x{height}"), user.text());
    }
}

#[test]
fn dialogs() {
    let mut user = User::at(busy()).sized(100, 30);
    user.go_to("gpu-n08").press("space j j j space U");
    insta::assert_snapshot!("plan", user.text());
    user.press("enter").type_text("gpu-n0");
    insta::assert_snapshot!("confirm", user.text());
    user.press("esc ?");
    insta::assert_snapshot!("help", user.text());
    user.press("esc :").type_text("re");
    insta::assert_snapshot!("palette", user.text());
    user.press("esc").go_to("gpu-n02").press("X");
    insta::assert_snapshot!("ask", user.text());
    user.press("esc q");
    insta::assert_snapshot!("quit", user.text());
    user.press("esc i");
    insta::assert_snapshot!("connection", user.text());
}

#[test]
fn every_theme_in_every_glyph_set() {
    for name in ThemeName::ALL {
        for glyphs in [&UNICODE, &ASCII] {
            let mut user = User::with(busy(), Look { theme: name, glyphs, ..Look::default() }).sized(100, 24);
            user.go_to("gpu-n03").press("space");
            insta::assert_snapshot!(format!("theme-{}-{}", name.as_str(), glyphs.name), user.styled());
        }
    }
}

#[test]
fn ascii_is_ascii_everywhere() {
    let mut user = User::with(busy(), Look { glyphs: &ASCII, demo: true, ..Look::default() }).sized(140, 35);
    let mut seen = user.text();
    for keys in ["enter", "3", "1 ?", "esc :", "esc m", "esc i", "esc U"] {
        seen += &user.press(keys).text();
    }
    assert!(seen.is_ascii(), "{:?}", seen.chars().find(|c| !c.is_ascii()));
}

#[test]
fn phases_blockers_and_the_selection_have_their_styles() {
    let mut user = User::at(busy()).sized(140, 35);
    user.go_to("gpu-n08");
    let (_, _, style) = find_in(&mut user, "gpu-n02", "DisruptionBudget");
    assert!(same(style, role(Role::Waiting)), "{style:?}");
    let (_, _, style) = find_in(&mut user, "gpu-n05", "Failed ");
    assert!(same(style, role(Role::Bad)), "{style:?}");
    let (_, _, style) = find_in(&mut user, "gpu-n07", "Loading ");
    assert!(same(style, role(Role::Active)), "{style:?}");
    let (_, _, style) = find_in(&mut user, "gpu-n01", "current");
    assert!(same(style, role(Role::Good)), "{style:?}");
    let (x, y, style) = find(&mut user, "gpu-n08 1.0");
    assert!(same(style, role(Role::Selected)), "{style:?}");
    let buf = user.frame();
    assert_eq!(buf.cell((1, y)).unwrap().symbol(), UNICODE.cursor, "the selection has a sign of its own");
    for x in x..x + 40 {
        assert!(same(buf.cell((x, y)).unwrap().style(), role(Role::Selected)), "the whole row is selected, not {x}");
    }
}

#[test]
fn no_colour_means_no_colour_in_any_cell() {
    let mut user = User::with(busy(), Look { theme: ThemeName::Mono, ..Look::default() }).sized(140, 35);
    user.press("U");
    let buf = user.frame();
    for cell in buf.content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
    assert!(buf.content().iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
}

#[test]
fn the_cluster_and_its_user_stand_at_every_size() {
    for (width, height) in [(160, 50), (80, 24), (60, 15)] {
        let mut user = User::at(busy()).sized(width, height);
        user.expect_text("prod-eu as ada at https://10.0.0.1:6443");
    }
    let arn = "arn:aws:eks:eu-central-1:123456789012:cluster/production-gpu-training";
    let mut user = User::at(busy().fleet(|fleet| {
        let mut cluster = (*fleet.cluster).clone();
        cluster.context = arn.into();
        fleet.cluster = cluster.into();
    }))
    .sized(60, 15);
    user.expect_text("arn:aws:eks:eu").expect_text("10.0.0.1:6443").expect_text("acts here");
}

#[test]
fn badges_say_who_acts_and_how_true_the_picture_is() {
    let shown = |scene: crate::fixtures::Scene| User::at(scene).sized(120, 24).text().lines().next().unwrap().to_owned();
    assert!(shown(busy()).contains("live   acts here"));
    assert!(shown(busy().mode(Mode::Intents).led_by(Some("lockkeeper-7d4f"))).contains("lockkeeper-7d4f acts"));
    assert!(shown(busy().mode(Mode::Intents).led_by(None)).contains("nobody acts"));
    assert!(shown(busy().mode(Mode::Engine).led_by(None)).contains("waits for the Lease"));
    assert!(shown(busy().mode(Mode::ReadOnly)).contains("READ-ONLY"));
    let retrying = |since, next| WatchState::Retrying {
        error: "connection refused".into(),
        since: ago(since),
        next: now() + jiff::SignedDuration::from_secs(next),
    };
    assert!(shown(busy().watch("pods", retrying(2, 3))).contains("pods retrying in 3s"));
    assert!(shown(busy().watch("pods", retrying(75, 3))).contains("STALE 1m15s: pods"));
    assert!(shown(busy().watch("pods", WatchState::Syncing)).contains("first lists: 1 to go"));
    assert!(shown(busy().watch("nodes", WatchState::Unavailable { why: "forbidden".into() })).contains("NO nodes"));
}

#[test]
fn stale_rows_are_dimmed() {
    let lost = WatchState::Retrying { error: "connection refused".into(), since: ago(60), next: now() };
    let mut user = User::at(busy().watch("nodes", lost)).sized(100, 24);
    let (_, _, style) = find(&mut user, "gpu-n05 ");
    assert!(same(style, role(Role::Stale)), "{style:?}");
}

#[test]
fn a_paused_picture_says_for_how_long_and_how_far_behind() {
    let mut user = User::at(busy()).sized(100, 24);
    user.press("p").see(busy()).see(scene([node("gpu-n99")])).later(42);
    user.expect_text("PAUSED 00:42, 2 changes behind").expect_text("gpu-n02").expect_no_text("gpu-n99");
    user.press("p").expect_text("gpu-n99").expect_no_text("PAUSED");
}

#[test]
fn ages_go_on_between_pictures_and_stand_still_while_paused() {
    let mut user = User::at(busy()).sized(140, 35);
    user.expect_text("Draining for 12s").later(8).expect_text("Draining for 20s");
    user.press("p").later(60).expect_text("Draining for 20s");
}

#[test]
fn hostile_names_cannot_move_the_cursor_or_the_columns() {
    let evil = "gpu\u{1b}[2Jn\u{202e}1\t\u{7}";
    let mut user = User::at(scene([node(evil), node("gpu-n2").garbage("\u{1b}]0;owned\u{7}")])).sized(140, 35);
    user.expect_text("gpu^[[2Jn^u202e1 ^G");
    user.go_to("gpu-n2").press("enter").expect_text("]0;owned");
    let plain = |text: &str| !text.contains('\u{1b}') && !text.contains('\u{7}') && !text.contains('\u{202e}');
    assert!(plain(&user.text()));
}

#[test]
fn an_empty_cluster_says_what_to_do() {
    User::at(scene([]).fleet(|fleet| fleet.components.clear())).expect_text("no NodeComponent is here yet");
    User::at(scene([]).fleet(|fleet| {
        fleet.components.clear();
        fleet.synced = false;
    }))
    .expect_text("waiting for the first complete picture");
}

#[test]
fn a_component_that_is_wrong_says_so_in_its_line() {
    let changed = busy().component(|component| component.changed_without_version = true);
    User::at(changed).sized(140, 35).expect_text("its template changed without a new version");
    let refused = busy().component(|component| component.refusals.push("vendor.com/gpu is also named by drivers/gpu2".into()));
    User::at(refused).sized(140, 35).expect_text("refused: vendor.com/gpu is also named");
}

#[test]
fn errors_stay_until_a_key_and_are_kept() {
    let mut user = User::at(busy());
    user.send(Msg::Notice(Level::Error, "the terminal's clipboard is full".into())).later(60);
    user.expect_text("clipboard is full").press("j").expect_no_text("clipboard is full");
    user.press("m").expect_text("clipboard is full");
}

#[test]
fn a_handoff_that_is_asked_for_again_shows_its_next_run_as_open() {
    let mut user = User::at(scene([node("n1").on("1.0").handoff(Phase::Done).asked_again().pods(1)])).sized(140, 60);
    user.go_to("n1").press("enter");
    for phase in ["Preflight", "Draining", "Unloading", "Loading", "Verifying"] {
        user.expect_text(&format!("{} {phase}", UNICODE.ahead)).expect_no_text(&format!("{} {phase}", UNICODE.good));
    }
    user.expect_text("Proofs of attempt 1, which has ended").expect_text("Unloading had its proof");
}

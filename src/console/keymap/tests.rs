use super::*;
use crate::console::command::COMMANDS;

fn over(text: &str) -> Result<Keymap, KeymapError> {
    Keymap::build(DEFAULT, Some(("mine.toml", text)))
}

fn chords(text: &str) -> Vec<Chord> {
    text.split(' ').map(|chord| Chord::parse(chord).unwrap()).collect()
}

#[test]
fn the_built_in_map_has_no_conflict_and_a_key_for_every_command() {
    let map = Keymap::build(DEFAULT, None).unwrap();
    for info in COMMANDS {
        assert!(!map.keys_of(info.command).is_empty(), "{} has no key", info.id);
        assert_eq!(info.command.info().id, info.id);
        let scopes = map.bindings().iter().filter(|binding| binding.command == info.command).map(|binding| binding.scope);
        assert!(scopes.into_iter().all(|scope| scope == info.scope), "{} is bound outside {:?}", info.id, info.scope);
    }
    assert!(map.bindings().iter().all(|binding| !binding.desc.is_empty()));
}

#[test]
fn nothing_writes_on_an_unshifted_letter_and_prefixes_of_tmux_and_screen_stay_free() {
    for binding in Keymap::default().bindings() {
        let writes = binding.command.info().writes;
        let capital =
            matches!(binding.chords[..], [Chord { code: KeyCode::Char(c), ctrl: false, alt: false }] if c.is_ascii_uppercase());
        assert!(!writes || capital, "{} writes on {}", binding.command.info().id, binding.keys());
        for taken in ["ctrl-a", "ctrl-b", "ctrl-h", "ctrl-j", "ctrl-k", "backspace", "delete"] {
            assert_ne!(binding.keys(), taken);
        }
    }
}

#[test]
fn keys_in_a_row_are_awaited() {
    let map = Keymap::default();
    let scopes = [Scope::Fleet, Scope::List, Scope::Global];
    assert_eq!(map.lookup(&scopes, &chords("g")), Meaning::Pending);
    assert_eq!(map.lookup(&scopes, &chords("g g")), Meaning::Run(Command::Top));
    assert_eq!(map.lookup(&scopes, &chords("g x")), Meaning::Nothing);
    assert_eq!(map.continuations(&scopes, &chords("g")).len(), 1);
    assert_eq!(map.lookup(&scopes, &chords("U")), Meaning::Nothing, "not in these scopes");
}

#[test]
fn a_users_file_replaces_and_takes_away() {
    let map = over("[[key]]\nscope = \"handoff\"\non = [\"ctrl-x\"]\nrun = \"abort\"\n[[key]]\nscope = \"handoff\"\non = [\"X\"]\nrun = \"none\"\n")
        .unwrap();
    assert_eq!(map.keys_of(Command::Abort), "ctrl-x");
    assert_eq!(map.lookup(&[Scope::Handoff], &chords("X")), Meaning::Nothing);
}

#[test]
fn mistakes_name_file_and_line() {
    let cases = [
        ("[[key]]\nscope = \"list\"\non = [\"x\"]\nrun = \"explode\"\n", "mine.toml:1", "no command \"explode\""),
        ("\n\n[[key]]\nscope = \"list\"\non = [\"hyper-x\"]\nrun = \"up\"\n", "mine.toml:3", "\"hyper-x\" is no key"),
        ("[[key]]\nscope = \"attic\"\non = [\"x\"]\nrun = \"up\"\n", "mine.toml:2", "unknown variant"),
        ("[[key]]\nscope = \"list\"\non = [\" \"]\nrun = \"up\"\n", "mine.toml:1", "called \"space\""),
        ("[[key]]\nscope = \"handoff\"\non = [\"x\"]\nrun = \"abort\"\n", "mine.toml:1", "unshifted"),
        ("[[key]]\nscope = \"list\"\non = [\"g\"]\nrun = \"up\"\n", "mine.toml", "g g"),
        ("key = 3", "mine.toml:1", "invalid type"),
    ];
    for (text, place, what) in cases {
        let error = over(text).unwrap_err();
        assert_eq!(error.place, place, "{error}");
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn chords_are_spelt_as_they_are_read() {
    for text in ["U", "ctrl-d", "space", "shift-tab", "alt-x", "?", "f5", "-", "ctrl--"] {
        assert_eq!(Chord::parse(text).unwrap().to_string(), text);
        assert_eq!(Chord::from(Chord::parse(text).unwrap().event()).to_string(), text);
    }
}

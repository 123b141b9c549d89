//! A reader that goes away is no reason to panic.

use std::process::Stdio;

use crate::run::{command, ran};

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let home = tempfile::tempdir().unwrap();
    for args in [&["completions", "bash"][..], &["man"], &["manifests"], &["--help"]] {
        let mut child =
            command(home.path()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let ran = ran(child.wait_with_output().expect("the program ends"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn completions_know_every_shell() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = crate::run::run(home.path(), &["completions", shell]);
        assert!(ran.code == Some(0) && ran.stdout.contains("handoff"), "{shell}: {ran:?}");
    }
}

#[test]
fn the_manual_page_has_every_command() {
    let home = tempfile::tempdir().unwrap();
    let page = crate::run::run(home.path(), &["man"]).stdout;
    for command in ["STATUS", "PLAN", "HANDOFF", "ABORT", "MANIFESTS", "DEMO"] {
        assert!(page.contains(&format!("LOCKKEEPER {command}")), "{command}");
    }
}

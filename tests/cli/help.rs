//! Help texts are part of the interface: a change of them is seen in review.

use insta::assert_snapshot;

use crate::run::run;

#[test]
fn help_of_every_command() {
    let home = tempfile::tempdir().unwrap();
    let top = run(home.path(), &["--help"]);
    assert_eq!(top.code, Some(0));
    assert_snapshot!("lockkeeper", top.stdout);
    let commands = top.stdout.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A long description goes on in a line that is indented further.
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in names.filter_map(|line| line.split_whitespace().next()).filter(|command| *command != "help") {
        let help = run(home.path(), &[command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{command}");
        assert_snapshot!(command, help.stdout);
    }
}

#[test]
fn the_version_is_the_packages() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(run(home.path(), &["--version"]).stdout, format!("lockkeeper {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn manifests_are_the_assets() {
    let home = tempfile::tempdir().unwrap();
    let assets = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for (part, file) in
        [("--crds", "crds.yaml"), ("--role", "rbac.yaml"), ("--admission", "admission.yaml"), ("--deployment", "deployment.yaml")]
    {
        let ran = run(home.path(), &["manifests", part]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{part}");
        assert!(ran.stdout == std::fs::read_to_string(assets.join(file)).unwrap(), "{part}");
    }
}

//! Bad input: exit code 2, one clear sentence that names what and where, nothing on standard output.

use std::{fs, path::Path};

use crate::run::{command, ran, run};

/// What is wrong, the arguments, and words that standard error must hold.
type Case<'a> = (&'a str, Vec<&'a str>, &'a [&'a str]);

#[track_caller]
fn refused(home: &Path, (what, args, words): Case) {
    let ran = run(home, &args);
    assert_eq!(ran.code, Some(2), "{what}: {ran:?}");
    assert_eq!(ran.stdout, "", "{what}");
    assert!(!ran.stderr.contains("panicked") && !ran.stderr.contains("RUST_BACKTRACE"), "{what}: {}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{what}: no {word:?} in {}", ran.stderr);
    }
}

#[test]
fn wrong_arguments() {
    let home = tempfile::tempdir().unwrap();
    let cases: Vec<Case> = vec![
        ("an unknown flag", vec!["--frobnicate"], &["--frobnicate"]),
        ("an unknown command", vec!["frobnicate"], &["frobnicate"]),
        ("a command misspelt", vec!["handof", "gpu", "n1"], &["handof", "'handoff'"]),
        ("no component", vec!["plan"], &["<COMPONENT>"]),
        ("no node", vec!["handoff", "gpu"], &["<NODE>"]),
        ("a component that is no name", vec!["plan", "GPU", "n1"], &["GPU", "NAMESPACE/NAME"]),
        ("a component of three parts", vec!["plan", "a/b/c", "n1"], &["a/b/c"]),
        ("a version that is no label value", vec!["plan", "gpu", "n1", "--to", "2.0+rc 1"], &["2.0+rc 1", "label value"]),
        ("an empty version", vec!["plan", "gpu", "n1", "--to", ""], &["label value"]),
        ("a version of 64 characters", vec!["handoff", "gpu", "n1", "--to", LONG], &["label value"]),
        ("a position that is no number", vec!["handoff", "gpu", "n1", "--position", "first"], &["first"]),
        ("a pause after no phase", vec!["handoff", "gpu", "n1", "--pause-after", "Hoping"], &["Hoping", "Draining"]),
        ("a timeout without waiting", vec!["handoff", "gpu", "n1", "--timeout", "5"], &["--wait"]),
        ("an unknown output", vec!["status", "-o", "xml"], &["xml", "json"]),
        ("an unknown role", vec!["manifests", "--role", "king"], &["king", "reconciler"]),
        ("people without a role", vec!["manifests", "--to-user", "ann"], &["--role"]),
        ("a seed that is no number", vec!["demo", "--seed", "first"], &["--seed", "first"]),
        ("an unknown fault profile", vec!["demo", "--faults", "evil"], &["evil", "hostile"]),
        (
            "another scenario's baseline",
            vec!["demo", "--scenario", "kmm", "--baseline", "rolling-update"],
            &["rolling-update", "label-all"],
        ),
        (
            "a baseline of scenario kmm",
            vec!["demo", "--baseline", "label-all"],
            &["label-all", "--scenario kmm", "kernel-module"],
        ),
        ("no nodes at all", vec!["demo", "--nodes", "0"], &["--nodes"]),
        ("a speed of nothing", vec!["demo", "--speed", "0"], &["--speed"]),
        ("an unknown theme", vec!["--theme", "pink"], &["pink", "dark", "light", "high-contrast", "mono"]),
        ("an unknown theme of the demo", vec!["demo", "--theme", "pink"], &["pink", "high-contrast"]),
        ("a look for a command that has none", vec!["--theme", "dark", "status"], &["--theme", "console"]),
        ("an engine for a command that has none", vec!["--engine", "status"], &["--engine", "console"]),
        ("an engine that may not write", vec!["--engine", "--read-only"], &["--engine", "--read-only"]),
        ("an unknown shell", vec!["completions", "dos"], &["dos", "bash"]),
    ];
    for case in cases {
        refused(home.path(), case);
    }
}

const LONG: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

#[test]
fn writing_and_read_only_contradict_one_another() {
    let home = tempfile::tempdir().unwrap();
    for command in ["handoff", "abort", "retry", "rollback", "hold", "continue", "withdraw"] {
        refused(home.path(), (command, vec!["--read-only", command, "gpu", "n1"], &["--read-only"]));
    }
}

/// Commands that need a cluster.
const ON_A_CLUSTER: [&[&str]; 5] =
    [&["status"], &["plan", "gpu", "n1"], &["handoff", "gpu", "n1"], &["abort", "gpu", "n1"], &["doctor"]];

#[test]
fn a_kubeconfig_that_cannot_be_used() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let folder = home.path().to_str().unwrap();
    let empty = file("empty", "");
    let no_yaml = file("no-yaml", "clusters: [");
    let other = file("other", "replicas: 3\n");
    let binary = file("binary", "\u{0}\u{1}\u{2}");
    let contexts = file("contexts", &kubeconfig("https://127.0.0.1:1"));
    let no_current = file("no-current", &kubeconfig("https://127.0.0.1:1").replace("current-context: lab", ""));
    let no_cluster = file("no-cluster", &kubeconfig("https://127.0.0.1:1").replace("cluster: here", "cluster: there"));
    let no_user = file("no-user", &kubeconfig("https://127.0.0.1:1").replace("user: me}}", "user: her}}"));
    let socks = file(
        "socks",
        &kubeconfig("https://127.0.0.1:1").replace("https://127.0.0.1:1", "https://127.0.0.1:1, proxy-url: socks5://p:1"),
    );
    let no_url = file("no-url", &kubeconfig("").replace("server: ", "insecure-skip-tls-verify: true"));
    let bad_url = file("bad-url", &kubeconfig("not a url"));
    let bad_ca = file(
        "bad-ca",
        &kubeconfig("https://127.0.0.1:1")
            .replace("https://127.0.0.1:1", "https://127.0.0.1:1, certificate-authority: /no/such/ca"),
    );
    for args in ON_A_CLUSTER {
        let with = |path, more: &[&'static str]| {
            let mut all = args.to_vec();
            all.extend(["--kubeconfig", path]);
            all.extend(more);
            all
        };
        let cases: Vec<Case> = vec![
            ("one that is not there", with("/no/such/file", &[]), &["/no/such/file", "No such file"]),
            ("a folder", with(folder, &[]), &["/", "directory"]),
            ("an empty one", with(&empty, &[]), &["empty", "no contexts"]),
            ("no YAML", with(&no_yaml, &[]), &["no-yaml", "YAML"]),
            ("another YAML", with(&other, &[]), &["other"]),
            ("a binary", with(&binary, &[]), &["binary"]),
            ("an unknown context", with(&contexts, &["--context", "prod"]), &["\"prod\"", "lab, spare"]),
            ("no current context", with(&no_current, &[]), &["no-current", "--context", "lab, spare"]),
            ("a context of no cluster", with(&no_cluster, &[]), &["\"lab\"", "no-cluster", "cluster \"there\""]),
            ("a context of no user", with(&no_user, &[]), &["\"lab\"", "no-user", "user \"her\"", "not there"]),
            ("a SOCKS proxy", with(&socks, &[]), &["\"lab\"", "SOCKS proxy"]),
            ("a cluster without a URL", with(&no_url, &[]), &["\"lab\"", "url"]),
            ("a URL that is none", with(&bad_url, &[]), &["\"lab\"", "bad-url"]),
            ("a certificate that is not there", with(&bad_ca, &[]), &["lab", "/no/such/ca"]),
        ];
        for case in cases {
            refused(home.path(), case);
        }
    }
    refused(home.path(), ("none anywhere", vec!["status"], &["--kubeconfig", "KUBECONFIG"]));
    refused(home.path(), ("none to look for a context in", vec!["status", "--context", "lab"], &["lab", "--kubeconfig"]));
    let ran = ran(command(home.path()).arg("status").env("KUBECONFIG", "/no/such").output().unwrap());
    assert!(ran.code == Some(2) && ran.stderr.contains("KUBECONFIG=/no/such"), "{ran:?}");
    // Of several files, those that are not there are left out.
    let several = format!("/no/such:{contexts}");
    let ran = self::ran(command(home.path()).arg("status").env("KUBECONFIG", &several).output().unwrap());
    assert!(ran.code == Some(2) && ran.stderr.contains("cannot reach the cluster of context lab"), "{ran:?}");
    let plugin = kubeconfig("https://127.0.0.1:1").replace(
        "user: {token: t}",
        "user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}",
    );
    let plugin = file("plugin", &plugin);
    refused(home.path(), ("a plugin that is not there", vec!["status", "--kubeconfig", &plugin], &["\"no-such-plugin\"", "lab"]));
}

#[test]
fn the_demo_names_options_that_it_cannot_follow() {
    let home = tempfile::tempdir().unwrap();
    for (option, value) in [("--read-only", None), ("--context", Some("lab")), ("--kubeconfig", Some("/no/such"))] {
        let args = ["demo", "--headless", option].into_iter().chain(value).collect();
        refused(home.path(), (option, args, &[option, "demo"]));
    }
}

#[test]
fn a_server_that_does_not_answer() {
    let home = tempfile::tempdir().unwrap();
    // A port that no process is given by chance, as one that was free a moment ago may be.
    let path = home.path().join("config");
    let server = "https://127.0.0.1:1";
    fs::write(&path, kubeconfig(server)).unwrap();
    let path = path.to_str().unwrap();
    for args in ON_A_CLUSTER {
        let mut all = args.to_vec();
        all.extend(["--kubeconfig", path]);
        refused(home.path(), ("nobody listens", all, &["lab", server, "Connection refused", "--context"]));
    }
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
         clusters: [{{name: here, cluster: {{server: {server}}}}}]\n\
         contexts:\n- {{name: lab, context: {{cluster: here, user: me}}}}\n- {{name: spare, context: {{cluster: here, user: me}}}}\n\
         users: [{{name: me, user: {{token: t}}}}]\n"
    )
}

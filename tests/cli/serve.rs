//! `demo --serve` as a process: who may come in, what it writes and leaves behind, and that looking in changes nothing.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::run::{Ran, command, ran, run};

/// A served demo; it is killed if the test fails.
struct Demo {
    child: Option<Child>,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Demo {
    fn start(home: &Path, name: &str, more: &[&str]) -> Self {
        let kubeconfig = home.join(name);
        let child = command(home)
            .args(["demo", "--headless", "--serve", "127.0.0.1:0", "--kubeconfig-out"])
            .arg(&kubeconfig)
            .args(["--nodes", "2", "--seed", "7"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let demo = Self { child: Some(child), home: home.to_owned(), kubeconfig };
        for _ in 0..6000 {
            if demo.kubeconfig.exists() {
                return demo;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no kubeconfig was written");
    }

    fn lockkeeper(&self, args: &[&str]) -> Ran {
        let mut all = vec!["--kubeconfig", self.kubeconfig.to_str().expect("UTF-8")];
        all.extend(args);
        run(&self.home, &all)
    }

    fn nodes_at(&self, version: &str) -> usize {
        let ran = self.lockkeeper(&["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| node["version"] == version).count()
    }

    /// Reads the first line of its result, then ends it with a signal.
    fn end(mut self, signal: rustix::process::Signal) -> Ran {
        let mut child = self.child.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).expect("a signal");
        let mut out = Ran { code: None, stdout: String::new(), stderr: String::new() };
        child.stdout.take().expect("stdout").read_to_string(&mut out.stdout).expect("text");
        child.stderr.take().expect("stderr").read_to_string(&mut out.stderr).expect("text");
        out.code = child.wait().expect("it ends").code();
        out
    }

    /// Waits for the line that says that the scenario is over, reading what comes until then.
    fn ended(&mut self) -> String {
        let child = self.child.as_mut().expect("it runs");
        let stdout = child.stdout.as_mut().expect("stdout");
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("stdout") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    }
}

#[test]
fn it_serves_until_it_is_told_to_stop_and_takes_its_kubeconfig_along() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path(), "kc", &["--speed", "300", "-o", "json"]);
    let mode = fs::metadata(&demo.kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let summary: Value = serde_json::from_str(&demo.ended()).unwrap();
    assert_eq!((&summary["upgraded"], &summary["violations"]), (&Value::from(2), &Value::from(0)), "{summary}");
    // It goes on, with an engine that acts.
    assert_eq!(demo.nodes_at("2.0"), 2);
    let plan = demo.lockkeeper(&["plan", "gpu", "gpu-01"]);
    assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""), "{plan:?}");
    let handed = demo.lockkeeper(&["handoff", "gpu", "gpu-01", "--to", "1.0", "--wait", "--timeout", "300"]);
    assert_eq!(handed.code, Some(0), "{handed:?}");
    assert_eq!(demo.nodes_at("2.0"), 1);
    // Those who may only look may only look, and a stranger not even that.
    let refused = demo.lockkeeper(&["--context", "lockkeeper-demo-viewer", "handoff", "gpu", "gpu-01", "--to", "2.0"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("viewer"), "{refused:?}");
    let looked = demo.lockkeeper(&["--context", "lockkeeper-demo-viewer", "status"]);
    assert_eq!(looked.code, Some(0), "{looked:?}");
    assert!(!refused.stderr.contains("/as/"), "a token is shown: {refused:?}");
    let stranger = home.path().join("stranger");
    let text = fs::read_to_string(&demo.kubeconfig).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let token = server.rsplit('/').next().unwrap().to_owned();
    assert_eq!(token.len(), 32);
    fs::write(&stranger, text.replace(&token, "00000000000000000000000000000000")).unwrap();
    let turned_away = run(home.path(), &["--kubeconfig", stranger.to_str().unwrap(), "status"]);
    assert!(turned_away.code == Some(2) && turned_away.stderr.contains("Unauthorized"), "{turned_away:?}");
    let kubeconfig = demo.kubeconfig.clone();
    let end = demo.end(rustix::process::Signal::TERM);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stderr.contains("kubectl --kubeconfig") && !end.stderr.contains(&token), "{end:?}");
    assert!(!kubeconfig.exists());
}

#[test]
fn told_to_stop_in_the_middle_it_ends_in_order() {
    let home = tempfile::tempdir().unwrap();
    let demo = Demo::start(home.path(), "kc", &["--speed", "1"]);
    let kubeconfig = demo.kubeconfig.clone();
    let end = demo.end(rustix::process::Signal::INT);
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), ""), "{end:?}");
    assert!(!kubeconfig.exists());
}

#[test]
fn looking_in_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let summary = |look: bool, name: &str| {
        let mut demo = Demo::start(home.path(), name, &["--speed", "100", "-o", "json", "--faults", "flaky"]);
        if look {
            for _ in 0..5 {
                let ran = demo.lockkeeper(&["status"]);
                assert!(ran.code == Some(0) || ran.stderr.contains("listed"), "{ran:?}");
            }
        }
        let line = demo.ended();
        demo.end(rustix::process::Signal::TERM);
        line
    };
    assert_eq!(summary(false, "alone"), summary(true, "watched"));
}

#[test]
fn what_cannot_be_served_says_why() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    fs::create_dir_all(home.path().join(".kube")).unwrap();
    fs::write(home.path().join("mine"), "apiVersion: v1\nkind: Config\n").unwrap();
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "an address that others reach",
            &["--serve", "0.0.0.0:0", "--kubeconfig-out", "kc"],
            &["0.0.0.0", "loopback", "127.0.0.1:PORT"],
        ),
        ("no address", &["--serve", "8001", "--kubeconfig-out", "kc"], &["8001", "127.0.0.1:8001"]),
        ("no file", &["--serve", "127.0.0.1:0"], &["--kubeconfig-out"]),
        ("a file for nothing", &["--kubeconfig-out", "kc"], &["--serve"]),
        ("a port in use", &["--serve", &taken, "--kubeconfig-out", "kc"], &[&taken, "in use", "port 0"]),
        (
            "the user's own kubeconfig",
            &["--serve", "127.0.0.1:0", "--kubeconfig-out", ".kube/config"],
            &[".kube/config", "your own"],
        ),
        ("another's file", &["--serve", "127.0.0.1:0", "--kubeconfig-out", "mine"], &["mine", "no demo wrote it"]),
        ("no such folder", &["--serve", "127.0.0.1:0", "--kubeconfig-out", "none/kc"], &["none/kc", "folder"]),
    ];
    for (what, args, words) in cases {
        let mut all = vec!["demo", "--headless", "--nodes", "1"];
        all.extend(*args);
        let ran = ran(command(home.path()).args(all).stdin(Stdio::null()).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{what}: {ran:?}");
        for word in *words {
            assert!(ran.stderr.contains(word), "{what}: no {word:?} in {}", ran.stderr);
        }
    }
    assert!(!home.path().join("kc").exists() && !home.path().join(".kube/config").exists());
    assert_eq!(fs::read_to_string(home.path().join("mine")).unwrap(), "apiVersion: v1\nkind: Config\n");
}

#[test]
fn the_story_is_told_before_the_result() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(home.path(), &["demo", "--story", "--nodes", "1", "-o", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (story, last) = ran.stdout.trim_end().rsplit_once('\n').unwrap();
    assert!(serde_json::from_str::<Value>(last).unwrap()["upgraded"] == 1, "{last}");
    for word in ["MODIFIED nodes gpu-01", "unschedulable=true", "phase=Draining", "phase=Done"] {
        assert!(story.contains(word), "no {word:?} in the story");
    }
}

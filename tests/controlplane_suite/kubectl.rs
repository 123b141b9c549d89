//! kubectl on the simulated API server as on a real one: the same commands on both, and what they say compared.
//! The commands are data (`kubectl/*.txt`); `!` names what is known to be unlike, so nothing else may be.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use lockkeeper::{
    api::{NodeComponent, NodeHandoff},
    cli::manifests::{Manifests, render},
    sim::apiserver::{ApiServer, Config, Identity},
};

use tokio::time::Instant;

use crate::{
    support::controlplane::{Component, ControlPlane, User, binary},
    wait::CONTROLLER,
};

/// A command, what it reads, and what of its answer is known to differ.
#[derive(Debug, Default)]
struct Step {
    line: usize,
    args: Vec<String>,
    input: String,
    /// Why the texts differ; the exit code must be the same all the same.
    unlike: Option<String>,
    /// The lines come in any order.
    any_order: bool,
    /// Environment of this command alone.
    env: Vec<(String, String)>,
}

/// `$ COMMAND`, lines `< INPUT`, lines `! WHY`; `~` when the lines come in any order; `# ` begins a remark. Words are split at spaces, `'` keeps them together.
fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let (mark, rest) = (line.get(..1).unwrap_or_default(), line.get(2..).unwrap_or_default());
        match mark {
            "$" => {
                let mut step = Step { line: n + 1, args: words(rest), ..Step::default() };
                while let Some((name, value)) = step.args.first().and_then(|word| word.split_once('='))
                    && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                {
                    step.env.push((name.to_owned(), value.to_owned()));
                    step.args.remove(0);
                }
                // kubectl evicts each pod of a drain in a thread of its own, and tells of them in any order.
                step.any_order = step.args.first().is_some_and(|verb| verb == "drain");
                steps.push(step);
            }
            "<" => {
                let step = steps.last_mut().expect("a command before its input");
                step.input.push_str(rest);
                step.input.push('\n');
            }
            "!" => steps.last_mut().expect("a command before its remark").unlike = Some(rest.to_owned()),
            "~" => steps.last_mut().expect("a command before its mark").any_order = true,
            "#" | "" => {}
            _ => panic!("line {}: {line}", n + 1),
        }
    }
    steps
}

fn words(line: &str) -> Vec<String> {
    let (mut out, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => word.push(c),
        }
    }
    if any || !word.is_empty() {
        out.push(word);
    }
    out
}

/// One kubectl, one cluster.
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

#[derive(Debug, PartialEq)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Kubectl {
    pub fn new(kubeconfig: &Path, home: &Path) -> Self {
        Self { binary: binary().expect("the control plane program"), kubeconfig: kubeconfig.into(), home: home.into() }
    }

    pub fn start(&self, args: &[&str], input: &str, env: &[(String, String)]) -> Child {
        let mut path = self.home.clone().into_os_string();
        path.push(OsString::from(":/usr/bin:/bin"));
        let mut child = Command::new(&self.binary)
            .arg("kubectl")
            .args(args)
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("PATH", path)
            .envs(env.iter().map(|(name, value)| (name, value.replace("HOME", &self.home.display().to_string()))))
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run kubectl");
        // A kubectl that reads nothing breaks the pipe.
        child.stdin.take().expect("standard input").write_all(input.as_bytes()).ok();
        child
    }

    pub fn run(&self, args: &[&str], input: &str, env: &[(String, String)]) -> Said {
        said(self.start(args, input, env))
    }

    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args, "", &[]);
        assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
        said.stdout
    }
}

pub fn said(child: Child) -> Said {
    let output = child.wait_with_output().expect("output of kubectl");
    Said {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A simulated API server alone, on real time.
pub fn simulated(home: &Path) -> Kubectl {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            // As the control plane of the tests: no retry of a conflict takes long.
            let api = ApiServer::new(Config::default());
            api.install_crd::<NodeComponent>().and_then(|()| api.install_crd::<NodeHandoff>()).expect("CRDs");
            api.enforce_rbac(true);
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let listening =
                api.serve(listener, &[Identity::new("admin"), Identity::new("viewer").user("viewer")]).expect("served");
            send.send(listening.kubeconfig("sim")).expect("the test waits");
            std::future::pending::<()>().await;
        });
    });
    let kubeconfig = home.join("kubeconfig");
    fs::write(&kubeconfig, receive.recv().expect("the server starts")).expect("a kubeconfig");
    Kubectl::new(&kubeconfig, home)
}

/// A real API server alone, with the same CRDs, and its folder.
fn real(home: &Path) -> Option<(ControlPlane, Kubectl)> {
    // Its controllers are not to do anything in the moment that they live.
    let plane = ControlPlane::own(&[(Component::ControllerManager, "--controllers=bootstrap-signer-controller")])?;
    let crds = render(&Manifests { crds: true, ..Manifests::default() }, None).expect("manifests");
    plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &crds).expect_ok();
    plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]).expect_ok();
    plane.kill(Component::ControllerManager);
    plane.kill(Component::Scheduler);
    // What a server that has just started, or has just taken a CRD, does some time later: its own namespaces, the new kinds' resources, and
    // what is told of them.
    for (path, words) in [
        ("/api/v1/namespaces/kube-node-lease", &["kube-node-lease"][..]),
        ("/api/v1/namespaces/kube-public", &["kube-public"]),
        ("/api/v1/namespaces/default", &["default"]),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", &["system-cluster-critical", "system-node-critical"]),
        ("/apis", &["lockkeeper.dev/v1alpha1"]),
        ("/apis/lockkeeper.dev/v1alpha1", &["\"nodecomponents\"", "\"nodehandoffs\"", "\"nodehandoffs/status\""]),
        ("/apis/lockkeeper.dev/v1alpha1/nodecomponents", &["NodeComponentList"]),
        ("/apis/lockkeeper.dev/v1alpha1/nodehandoffs", &["NodeHandoffList"]),
        ("/openapi/v3", &["apis/lockkeeper.dev/v1alpha1"]),
        ("/openapi/v3/apis/lockkeeper.dev/v1alpha1", &["v1alpha1.NodeComponent\"", "v1alpha1.NodeHandoff\""]),
        ("/openapi/v2", &["v1alpha1.NodeComponent\"", "v1alpha1.NodeHandoff\""]),
    ] {
        let end = Instant::now() + CONTROLLER;
        loop {
            let said = plane.kubectl(["get", "--raw", path]);
            if said.ok && words.iter().all(|word| said.stdout.contains(word)) {
                break;
            }
            assert!(Instant::now() < end, "{path} does not tell of {words:?}: {}{}", said.stderr, said.stdout);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let kubectl = Kubectl::new(plane.kubeconfig(User::Admin), home);
    Some((plane, kubectl))
}

/// Editors, and files that commands name.
fn furnish(home: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let script = home.join("edit-label");
    fs::write(&script, "#!/bin/sh\nsed -i 's/colour: red/colour: blue/' \"$1\"\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// What must differ: UIDs, times, ages, revisions, addresses, the column widths that follow from them.
fn normal(text: &str, home: &Path) -> String {
    let text = text.replace(&*home.to_string_lossy(), "HOME");
    let mut out = String::new();
    for line in text.lines() {
        // Lines of kubectl's own log, and what only one of the two has or counts.
        let logged = line.starts_with(['I', 'W', 'E']) && line.get(1..5).is_some_and(|day| day.parse::<u32>().is_ok());
        let bare = line.trim_start();
        if logged || ["Resource Version:", "Service Account:"].iter().any(|own| bare.starts_with(own)) {
            continue;
        }
        let line = line.replace('\t', " ");
        let mut words: Vec<String> = Vec::new();
        let indent = line.len() - line.trim_start().len();
        for word in line.split_whitespace() {
            words.push(normal_word(word));
        }
        // `Mon, 30 Nov 2026 00:00:39 +0000`; the year 1 is a time that was never set.
        while let Some(zone) = words.iter().position(|word| word == "+0000")
            && zone >= 5
        {
            let set = words[zone - 2] != "0001";
            words.splice(zone - 5..=zone, [if set { "DATE" } else { "NEVER" }.to_owned()]);
        }
        out.push_str(&" ".repeat(indent));
        out.push_str(words.join(" ").trim_end());
        out.push('\n');
    }
    out
}

fn normal_word(word: &str) -> String {
    let (head, bare, tail) = bare(word);
    let is_age = bare.len() >= 2
        && bare.ends_with(['s', 'm', 'h', 'd'])
        && bare.starts_with(|c: char| c.is_ascii_digit())
        && bare.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c));
    let parts: Vec<usize> = bare.split('-').map(str::len).collect();
    let is_uid = parts == [8, 4, 4, 4, 12] && bare.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let is_time = bare.len() >= 20 && bare.ends_with('Z') && bare.parse::<jiff::Timestamp>().is_ok();
    let inner = match bare {
        _ if is_age => "AGE",
        _ if is_uid => "UID",
        _ if is_time => "TIME",
        other => other,
    };
    format!("{head}{inner}{tail}")
}

/// A word without the quotes and commas around it.
fn bare(word: &str) -> (&str, &str, &str) {
    let edge = |c: char| "\"',()[]{}:;".contains(c);
    let inner = word.trim_matches(edge);
    let at = word.find(inner).unwrap_or(0);
    (&word[..at], inner, &word[at + inner.len()..])
}

/// Lines of JSON or YAML that hold a revision.
fn without_revisions(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.find("resourceVersion") {
            Some(at) if line[at..].contains(':') => {
                out.push_str(&line[..at]);
                out.push_str("resourceVersion RV\n");
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

fn seen(said: &Said, home: &Path, any_order: bool) -> (Option<i32>, String, String) {
    let text = |text: &str| {
        let text = without_revisions(&normal(text, home));
        if !any_order {
            return text;
        }
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    (said.code, text(&said.stdout), text(&said.stderr))
}

/// How a limit ends that a command is to reach; it changes nothing on the server, and may be given again with more time.
const SOON: &str = "=1s";
/// The limits that it is given one after the other.
const TIMES: &[&str] = &["=1s", "=5s", "=30s"];

fn with_time(arg: &str, time: &str) -> String {
    arg.strip_suffix(SOON).map_or_else(|| arg.to_owned(), |flag| format!("{flag}{time}"))
}

/// A real and a simulated API server, and a folder for the kubectl of each.
struct Both {
    real: Kubectl,
    sim: Kubectl,
    _plane: ControlPlane,
    _home: tempfile::TempDir,
}

fn both() -> Option<Both> {
    let home = tempfile::tempdir().expect("a folder");
    let (real_home, sim_home) = (home.path().join("real"), home.path().join("sim"));
    for folder in [&real_home, &sim_home] {
        fs::create_dir(folder).expect("a folder");
        furnish(folder);
    }
    let (plane, real) = real(&real_home)?;
    Some(Both { real, sim: simulated(&sim_home), _plane: plane, _home: home })
}

#[test]
fn kubectl_says_the_same_on_both() {
    let Some(Both { real, sim, _plane, _home }) = both() else { return };
    let files: BTreeMap<&str, &str> = [
        ("looking", include_str!("kubectl/looking.txt")),
        ("nodes", include_str!("kubectl/nodes.txt")),
        ("writing", include_str!("kubectl/writing.txt")),
    ]
    .into();
    let only = std::env::var("ONLY").ok();
    let (mut unlike, mut commands) = (Vec::new(), 0);
    for (name, text) in files.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == **name)) {
        for step in parse(text) {
            commands += 1;
            // One whose time is up tells of what it had seen by then: what is unlike because a busy machine had not come so far is alike
            // with more time.
            let tries = if step.args.iter().any(|arg| arg.ends_with(SOON)) { TIMES } else { &TIMES[..1] };
            let ((mut a, mut b), mut same) = (Default::default(), false);
            for time in tries {
                let args: Vec<String> = step.args.iter().map(|arg| with_time(arg, time)).collect();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let (on_real, on_sim) = std::thread::scope(|scope| {
                    let on_real = scope.spawn(|| real.run(&args, &step.input, &step.env));
                    let on_sim = sim.run(&args, &step.input, &step.env);
                    (on_real.join().expect("kubectl"), on_sim)
                });
                (a, b) = (seen(&on_real, &real.home, step.any_order), seen(&on_sim, &sim.home, step.any_order));
                same = if step.unlike.is_some() { a.0 == b.0 } else { a == b };
                if same {
                    break;
                }
            }
            if !same {
                unlike.push(format!(
                    "{name} line {}: {}\n-- real {:?}\n{}{}\n-- simulated {:?}\n{}{}",
                    step.line,
                    step.args.join(" "),
                    a.0,
                    a.1,
                    a.2,
                    b.0,
                    b.1,
                    b.2
                ));
            }
        }
    }
    println!("{commands} commands on both");
    assert!(unlike.is_empty(), "{} of {commands} differ:\n{}", unlike.len(), unlike.join("\n\n"));
}

/// One pod under a budget that allows nothing, then one, while `kubectl drain` tries.
fn drain_under_a_budget(kubectl: &Kubectl) -> Said {
    let apply = |object: serde_json::Value| {
        let said = kubectl.run(&["apply", "-f", "-"], &object.to_string(), &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
    };
    let status = |kind: &str, name: &str, status: serde_json::Value| {
        let patch = serde_json::json!({"status": status}).to_string();
        kubectl.ok(&["patch", kind, name, "-n", "guarded", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    kubectl.ok(&["create", "namespace", "guarded"]);
    apply(serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "drained"}}));
    apply(serde_json::json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "guarded"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }));
    let owner = serde_json::json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "db", "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
    apply(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db-1", "namespace": "guarded", "labels": {"app": "db"}, "ownerReferences": owner},
        "spec": {"nodeName": "drained", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]},
    }));
    status("pod", "db-1", serde_json::json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    let budget = |allowed: i64| {
        serde_json::json!({
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2,
            "conditions": [],
        })
    };
    status("pdb", "db", budget(0));
    let mut drain = kubectl.start(&["drain", "drained", "--timeout=300s"], "", &[]);
    // It tries at once, and again after 5 s.
    let mut heard = BufReader::new(drain.stderr.take().expect("standard error"));
    let mut stderr = String::new();
    while stderr.matches("will retry after 5s").count() < 2 && heard.read_line(&mut stderr).expect("text") > 0 {}
    status("pdb", "db", budget(1));
    let stdout = said(drain);
    heard.read_to_string(&mut stderr).expect("text");
    Said { stderr, ..stdout }
}

#[test]
fn a_drain_waits_for_a_budget_on_both_alike() {
    let Some(Both { real, sim, _plane, _home }) = both() else { return };
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| drain_under_a_budget(&real));
        let b = drain_under_a_budget(&sim);
        (a.join().expect("kubectl"), b)
    });
    let tries = |said: &Said| {
        let refused = "error when evicting pods/\"db-1\" -n \"guarded\" (will retry after 5s): Cannot evict pod as it would violate \
                       the pod's disruption budget.";
        said.stderr.matches(refused).count()
    };
    for (on, said) in [("real", &a), ("simulated", &b)] {
        assert!(said.code == Some(0) && tries(said) >= 2, "{on}: {said:?}");
        assert!(said.stdout.ends_with("pod/db-1 evicted\nnode/drained drained\n"), "{on}: {said:?}");
    }
    // How often it tries until the budget is changed is a matter of time.
    let once = |said: Said| {
        let mut told: Vec<&str> = Vec::new();
        for line in said.stdout.lines().chain(said.stderr.lines()) {
            if !told.contains(&line) {
                told.push(line);
            }
        }
        (said.code, told.join("\n"))
    };
    assert_eq!(once(a), once(b));
}

/// The demo as a process, served, its scenario over.
struct Demo {
    child: Child,
    kubectl: Kubectl,
    _home: tempfile::TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn demo() -> Option<Demo> {
    // Built if it can be; what is skipped without it is said there.
    ControlPlane::shared()?;
    let home = tempfile::tempdir().expect("a folder");
    let kubeconfig = home.path().join("demo");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["demo", "--headless", "-o", "json", "--nodes", "3", "--speed", "60", "--serve", "127.0.0.1:0", "--kubeconfig-out"])
        .arg(&kubeconfig)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut summary = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut summary).expect("a line");
    assert!(summary.contains("\"upgraded\":3"), "{summary}");
    let kubectl = Kubectl::new(&kubeconfig, home.path());
    Some(Demo { child, kubectl, _home: home })
}

#[test]
fn kubectl_works_on_the_served_demo() {
    let Some(demo) = demo() else { return };
    let kubectl = &demo.kubectl;
    let none: &[(String, String)] = &[];
    kubectl.ok(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=300s"]);
    let columns = kubectl.ok(&[
        "get",
        "nodes",
        "-o",
        "custom-columns=N:.metadata.name,V:.metadata.labels.lockkeeper\\.dev/ready\\.gpu-system\\.gpu",
    ]);
    assert_eq!(columns.matches("2.0").count(), 3, "{columns}");
    let phases = kubectl.ok(&["get", "nodehandoffs"]);
    assert_eq!(phases.matches(" Done ").count(), 3, "{phases}");
    let told = kubectl.ok(&["describe", "nodehandoff", "gpu.gpu-01"]);
    assert!(told.contains("Phase:") && told.contains("Done"), "{told}");
    // DaemonSets are OnDelete: kubectl follows rolling updates alone, and says so.
    let sets = kubectl.ok(&["get", "ds", "-o", "name"]);
    let set = sets.lines().next().expect("a DaemonSet");
    let rollout = kubectl.run(&["rollout", "status", set], "", none);
    assert!(rollout.stderr.contains("rollout status is only available for RollingUpdate strategy type"), "{rollout:?}");
    for (args, words) in [
        (&["top", "nodes"][..], "Metrics API not available"),
        (&["logs", "-n", "ml", "inference-0"], "the simulated cluster runs no containers: there is no log of a pod"),
        (&["exec", "-n", "ml", "inference-0", "--", "true"], "the simulated cluster runs no containers"),
        (
            &["--context", "lockkeeper-demo-viewer", "label", "node", "gpu-01", "a=b"],
            "User \"viewer\" cannot patch resource \"nodes\"",
        ),
    ] {
        let said = kubectl.run(args, "", none);
        assert!(said.code != Some(0) && said.stderr.contains(words), "{args:?}: {said:?}");
    }
    assert_eq!(kubectl.run(&["--context", "lockkeeper-demo-viewer", "auth", "can-i", "patch", "nodes"], "", none).stdout, "no\n");
    assert_eq!(kubectl.ok(&["--context", "lockkeeper-demo-operator", "auth", "can-i", "create", "nodehandoffs"]), "yes\n");

    // A handoff is asked for from outside; the engine that goes on runs it, and tells so.
    let handed = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["handoff", "gpu", "gpu-01", "--to", "1.0", "--wait", "--timeout", "300", "--kubeconfig"])
        .arg(&kubectl.kubeconfig)
        .output()
        .expect("the program starts");
    assert!(handed.status.success(), "{handed:?}");
    let told = kubectl.ok(&["events", "-n", "gpu-system"]);
    assert!(told.contains("NodeHandoff/gpu.gpu-01"), "{told}");

    // A drain that a budget holds up for a while.
    let pods = kubectl.ok(&["get", "pods", "-n", "ml", "-l", "app=training-1", "-o", "jsonpath={.items[0].spec.nodeName}"]);
    let node = pods.trim().to_owned();
    kubectl.ok(&[
        "patch",
        "pdb",
        "training-1",
        "-n",
        "ml",
        "--type=merge",
        "-p",
        "{\"spec\": {\"minAvailable\": null, \"maxUnavailable\": 0}}",
    ]);
    kubectl.ok(&["wait", "pdb/training-1", "-n", "ml", "--for=jsonpath={.status.disruptionsAllowed}=0", "--timeout=300s"]);
    let mut drain =
        kubectl.start(&["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s"], "", none);
    let mut heard = BufReader::new(drain.stderr.take().expect("standard error"));
    let mut stderr = String::new();
    while !stderr.contains("will retry after 5s") && heard.read_line(&mut stderr).expect("text") > 0 {}
    kubectl.ok(&["patch", "pdb", "training-1", "-n", "ml", "--type=merge", "-p", "{\"spec\": {\"maxUnavailable\": 1}}"]);
    let drained = said(drain);
    heard.read_to_string(&mut stderr).expect("text");
    let drained = Said { stderr, ..drained };
    assert!(drained.stderr.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{drained:?}");
    assert!(drained.code == Some(0) && drained.stdout.ends_with(&format!("node/{node} drained\n")), "{drained:?}");
    assert!(drained.stderr.contains("ignoring DaemonSet-managed Pods"), "{drained:?}");
    assert_eq!(kubectl.ok(&["uncordon", &node]), format!("node/{node} uncordoned\n"));

    // A watch tells of what happens meanwhile.
    let mut watch = kubectl.start(&["get", "node", &node, "--watch", "--request-timeout=300s"], "", none);
    let mut heard = BufReader::new(watch.stdout.take().expect("standard output"));
    let mut stdout = String::new();
    while !stdout.contains(&node) && heard.read_line(&mut stdout).expect("text") > 0 {}
    assert!(!stdout.contains("SchedulingDisabled"), "{stdout}");
    kubectl.ok(&["cordon", &node]);
    while !stdout.contains("SchedulingDisabled") && heard.read_line(&mut stdout).expect("text") > 0 {}
    watch.kill().expect("kill kubectl");
    let watched = said(watch);
    assert!(stdout.contains("SchedulingDisabled"), "{stdout}{watched:?}");
    kubectl.ok(&["uncordon", &node]);
    // Scaling is the controllers' work, and a rollout ends.
    kubectl.ok(&["scale", "deployment/web-1", "-n", "web", "--replicas=3"]);
    let rolled = kubectl.ok(&["rollout", "status", "deployment/web-1", "-n", "web", "--timeout=300s"]);
    assert!(rolled.contains("successfully rolled out"), "{rolled}");
    // Deleting waits for the kubelet's part.
    let pod = kubectl.ok(&["get", "pods", "-n", "web", "-o", "jsonpath={.items[0].metadata.name}"]);
    kubectl.ok(&["delete", "pod", pod.trim(), "-n", "web", "--timeout=300s"]);
}

//! `lockkeeper reconcile` as a Deployment runs it: what it refuses to start with, how it works, what it tells, how it ends.

#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use lockkeeper::sim::{
    apiserver::{Action, Fault, Faults, Matcher},
    scenarios::{kernel_module, objects},
};
use serde_json::{Value, json};

use crate::{
    run::{command, run},
    served::{Install, Served},
    simulated::{Simulated, component},
};

/// The longest that anything here takes, on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// A process that runs until it is told to end. Killed when it is dropped.
pub struct Running {
    pub child: Child,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn start(home: &Path, kubeconfig: &Path, name: &str) -> Self {
        let log = home.join(format!("{name}.log"));
        let mut command = command(home);
        command.args(["reconcile", "--admin-address=127.0.0.1:0", "--identity", name, "--kubeconfig"]).arg(kubeconfig);
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Self { child: command.spawn().unwrap(), log }
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        let whole = text.rsplit_once('\n').map(|(whole, _)| whole).unwrap_or_default();
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The first line of the log that is so; it may be written in the next five minutes.
    #[track_caller]
    fn line(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LONG;
        loop {
            let ended = self.child.try_wait().unwrap();
            if let Some(line) = self.lines().into_iter().find(&wanted) {
                return line;
            }
            assert!(ended.is_none() && Instant::now() < until, "{what}: {ended:?}\n{}", fs::read_to_string(&self.log).unwrap());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub fn says(&mut self, message: &str) -> Value {
        self.line(message, |line| line["message"] == message)
    }

    pub fn address(&mut self) -> SocketAddr {
        self.says("reconciling")["admin_address"].as_str().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The exit code.
    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not end\n{}", fs::read_to_string(&self.log).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `GET path`: the status and the body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The value of a sample whose line begins so.
fn sample(metrics: &str, start: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(start)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn wrong_options_are_refused_before_anything_is_asked() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, word) in [
        (&["--cluster-max-unavailable", "0"][..], "--cluster-max-unavailable"),
        (&["--admin-address", "8080"], "--admin-address"),
        (&["--identity", "a b"], "--identity"),
        (&["--read-only"], "--read-only"),
        (&["--admin-address", &taken], &taken),
        (&["--admin-address", "127.0.0.1:0", "--kubeconfig", "/no/such/file"], "/no/such/file"),
    ] {
        let ran = run(home.path(), &[&["reconcile"], args].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(word) && ran.stdout.is_empty(), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_cluster_without_the_objects_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::NoObjects, &[]);
    let ran = run(home.path(), &served.args(&["reconcile", "--admin-address=127.0.0.1:0"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for words in ["CustomResourceDefinitions", "lockkeeper.dev/v1alpha1", "manifests --crds", "context sim"] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
    assert_eq!(served.mutating(), []);
}

#[test]
fn missing_permissions_are_named_verb_by_verb() {
    let home = tempfile::tempdir().unwrap();
    let sim = Simulated::start(home.path(), 1, &["pods/eviction", "persistentvolumeclaims"]);
    let kubeconfig = sim.kubeconfig.to_str().unwrap();
    let ran = run(home.path(), &["reconcile", "--admin-address=127.0.0.1:0", "--kubeconfig", kubeconfig]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let missing = "get persistentvolumeclaims, list persistentvolumeclaims, watch persistentvolumeclaims, create pods/eviction";
    for words in [missing, "system:serviceaccount:lockkeeper-system:lockkeeper", "manifests --role reconciler"] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
}

/// Installs on two nodes, hands one over with a claimant on it, and is then replaced by another replica; on real time, with exactly the
/// rights of the printed roles.
#[test]
fn it_works_tells_and_ends_in_order() {
    let home = tempfile::tempdir().unwrap();
    let sim = Simulated::start(home.path(), 2, &[]);
    let mut first = Running::start(home.path(), &sim.kubeconfig, "first");
    let address = first.address();
    first.says("this process holds the Lease and acts");
    let holder = sim.lease("/spec/holderIdentity").unwrap();
    let (name, id) = holder.as_str().unwrap().split_once('_').unwrap();
    assert!(name == "first" && id.starts_with(&format!("{}_", first.child.id())), "{holder}");
    until("it is ready", || get(address, "/ready").0 == 200);
    let mut second = Running::start(home.path(), &sim.kubeconfig, "second");
    let standby = second.address();
    until("the other is ready, too", || get(standby, "/ready").1.contains("stands by"));

    // A first install, by itself.
    let ready = |version: &str, count: f64| {
        let series = format!("lockkeeper_nodes_ready{{component=\"gpu-system/gpu\",version=\"{version}\"}}");
        sample(&get(address, "/metrics").1, &series) == Some(count)
    };
    until("both nodes are in service", || ready("1.0", 2.0));

    // A handoff with a claimant on the node.
    sim.by_hand(async |hands| {
        let claims = objects::template("train", Some((kernel_module::RESOURCE, 1)), 1);
        hands.create(&objects::deployment("ml", "train", 8, claims)).await.unwrap();
    });
    let runs = |pod: &Value| {
        let there = pod["metadata"]["labels"]["app"] == "train" && pod["spec"]["nodeName"] == "gpu-01";
        there && pod["status"]["phase"] == "Running"
    };
    until("a pod on the node holds a device", || sim.api.list("pods").iter().any(|pod| runs(pod)));
    // Who deletes a handoff that runs wants it to stop: the node is in service a moment before the install is over.
    let first_of = || sim.api.get("nodehandoffs.lockkeeper.dev", "gpu-system", "gpu.gpu-01");
    until("the install is over", || first_of().is_some_and(|handoff| handoff["status"]["phase"] == "Done"));
    sim.by_hand(async |hands| {
        let path = "/apis/lockkeeper.dev/v1alpha1/namespaces/gpu-system/nodecomponents/gpu";
        hands.merge(path, &json!({"spec": component("2.0").body["spec"]})).await.unwrap();
        let handoff = "/apis/lockkeeper.dev/v1alpha1/namespaces/gpu-system/nodehandoffs";
        hands.delete(&format!("{handoff}/gpu.gpu-01")).await.unwrap();
        let until = Instant::now() + LONG;
        while let Some(there) = first_of() {
            assert!(Instant::now() < until, "it stays: {there}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        hands.create(&objects::handoff("gpu-system", "gpu", "gpu-01", "2.0", 1)).await.unwrap();
    });
    first.line("the handoff is done", |line| {
        line["message"] == "phase" && line["phase"] == "Done" && line["was"] == "Uncordoning"
    });
    until("one node runs the new version", || ready("2.0", 1.0));

    let acted = first.line("an eviction", |line| line["message"] == "acted" && line["op"] == "Evict");
    for (field, value) in [("component", "gpu-system/gpu"), ("node", "gpu-01"), ("phase", "Draining")] {
        assert_eq!(acted[field], value, "{acted}");
    }
    assert!(acted["millis"].is_u64() && acted["why"].as_str().is_some_and(|why| !why.is_empty()), "{acted}");
    let metrics = get(address, "/metrics").1;
    assert!(sample(&metrics, "lockkeeper_evictions_total{outcome=\"Accepted\"}") >= Some(1.0), "{metrics}");
    assert!(
        sample(&metrics, "lockkeeper_phase_seconds_count{component=\"gpu-system/gpu\",phase=\"Draining\"}") >= Some(1.0),
        "{metrics}"
    );
    assert_eq!(sample(&metrics, "lockkeeper_leader"), Some(1.0));
    assert_eq!(sample(&metrics, "lockkeeper_events_lost_total"), Some(0.0), "{metrics}");
    assert_eq!(sample(&get(standby, "/metrics").1, "lockkeeper_leader"), Some(0.0));
    let diagnostics: Value = serde_json::from_str(&get(address, "/diagnostics").1).unwrap();
    assert!(diagnostics["lease"]["ours"] == true && !diagnostics["writes"].as_array().unwrap().is_empty(), "{diagnostics}");
    for (kind, name, reason) in [
        ("NodeHandoff", "gpu.gpu-01", "Draining"),
        ("NodeHandoff", "gpu.gpu-01", "Unloading"),
        ("NodeHandoff", "gpu.gpu-01", "Loading"),
        ("NodeHandoff", "gpu.gpu-01", "HandoffDone"),
        ("Pod", "train", "Evicted"),
        ("Node", "gpu-01", "HandoffStarted"),
    ] {
        let about = || sim.events(kind, name);
        until(&format!("{reason} of {kind} {name}"), || about().iter().any(|it| it == reason));
    }

    // Told to end, it gives the Lease away, so that nobody has to wait until that has run out.
    let holder = || sim.lease("/spec/holderIdentity").and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    assert!(holder().starts_with("first_"), "{}", holder());
    first.signal(rustix::process::Signal::TERM);
    assert_eq!(first.ended(), Some(0));
    assert!(!holder().starts_with("first_"), "{}", holder());
    first.says("ended in order");
    second.says("this process holds the Lease and acts");
    second.signal(rustix::process::Signal::INT);
    assert_eq!(second.ended(), Some(0));
    assert_eq!(sim.lease("/spec/holderIdentity").and_then(|it| it.as_str().map(str::to_owned)), None);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let home = tempfile::tempdir().unwrap();
    let sim = Simulated::start(home.path(), 1, &[]);
    let mut running = Running::start(home.path(), &sim.kubeconfig, "hasty");
    running.says("this process holds the Lease and acts");
    // From now on no write is answered, the Lease's release neither.
    sim.api.set_faults(Box::new(Faults::new(1, vec![Fault::once(Matcher::writes(), Action::Hang).times(1_000_000)])));
    std::thread::sleep(Duration::from_secs(3));
    running.signal(rustix::process::Signal::TERM);
    running.line("it heard", |line| line["message"].as_str().is_some_and(|it| it.starts_with("told to end:")));
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.ended(), Some(1));
    running.line("it heard again", |line| line["message"].as_str().is_some_and(|it| it.starts_with("told to end again:")));
}

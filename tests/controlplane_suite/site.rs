//! A real control plane with machines: toy kernels, and kubelets that run pods and renew leases there as ordinary clients. With
//! lockkeeper installed, and its API server's audit log to say who asked for what. What a test does on it is the test's.

use std::{fs, sync::OnceLock, time::Duration};

use jiff::Timestamp;
use lockkeeper::{
    cluster::Cluster,
    engine::{Engine, EngineOptions, picture::Mode},
    sim::{
        actors::{
            Clock, KubeletOptions, Kubelets,
            kmm::{self, Kmm, KmmOptions},
        },
        people::hands::Hands,
    },
};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    installed::install,
    support::controlplane::{Component, ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

/// Its machines stop before its server does.
pub struct Site {
    pub kubelets: Kubelets,
    /// Where the machines live, whoever drives them.
    runtime: Runtime,
    pub plane: ControlPlane,
}

/// Every request of lockkeeper's own users, those that change a Node with what they change; the others' are their own affair.
const AUDIT: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Request", "users": ["reconciler"], "verbs": ["patch", "update"], "resources": [{"group": "", "resources": ["nodes"]}]},
        {"level": "Metadata", "users": ["operator", "reconciler", "viewer"]}, {"level": "None"}]}"#;

impl Site {
    /// `None` as in [`ControlPlane::shared`].
    pub fn own() -> Option<Site> {
        tell();
        let flags = [
            (Component::ApiServer, "--audit-policy-file=$DIR/audit.json"),
            (Component::ApiServer, "--audit-log-path=$DIR/audit.log"),
            // A machine that does not get its turn on a busy computer is not dead.
            (Component::ControllerManager, "--node-monitor-grace-period=60s"),
        ];
        let plane = ControlPlane::own_with(&flags, &[("audit.json", AUDIT)])?;
        install(&plane);
        // The Deployment's own pods would be among those that leave where a node is emptied, and be counted.
        plane.kubectl(["scale", "deployment", "lockkeeper", "-n", "lockkeeper-system", "--replicas=0"]).expect_ok();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let kubelets = runtime.block_on(async {
            let options = KubeletOptions {
                adopt: false,
                asks_for_labels: true,
                // That a pod has gone counts once its node's lease was renewed.
                lease_interval: Duration::from_secs(1),
                crash_backoff: Duration::from_secs(2),
                ..KubeletOptions::quick()
            };
            Kubelets::spawn(&plane.client(User::Admin).await, Clock::starting_at(now()), 1, options, Vec::new())
        });
        Some(Site { kubelets, runtime, plane })
    }

    pub async fn hands(&self, user: User) -> Hands {
        Hands::new(self.plane.client(user).await)
    }

    /// A connection as lockkeeper makes it.
    pub async fn cluster(&self, user: User, read_only: bool) -> Cluster {
        let client = self.plane.client(user).await;
        eventually("the server to say who it is", CONTROLLER, || async {
            Cluster::over(client.clone(), read_only, user.name(), self.plane.server()).identified().await.map(Some)
        })
        .await
    }

    /// What a user has asked for so far, in the order of the answers. Watches count once they have ended.
    pub fn asked(&self, user: User) -> Vec<Asked> {
        self.audited(user).iter().map(Asked::read).collect()
    }

    fn audited(&self, user: User) -> Vec<Value> {
        let log = fs::read(self.plane.dir().join("audit.log")).expect("audit log");
        // The last line, and its last letter, may be in the making.
        let log = String::from_utf8_lossy(&log);
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| word(line, "/user/username") == user.name()).collect()
    }

    /// The reconciler's patches of Nodes: the node, and what it sent.
    pub fn node_patches(&self) -> Vec<(String, Value)> {
        let audited = self.audited(User::Reconciler);
        let patches = audited.iter().filter(|line| {
            let asked = Asked::read(line);
            asked.writes() && asked.resource == "nodes"
        });
        patches.map(|line| (word(line, "/objectRef/name").to_owned(), line["requestObject"].clone())).collect()
    }

    /// Makes the server serve KMM's kinds.
    pub fn install_kmm(&self) {
        for crd in kmm::crds() {
            self.plane.kubectl_as(User::Admin, ["apply", "--server-side", "-f", "-"], &crd.to_string()).expect_ok();
        }
    }

    /// KMM's operator as an administrator's client; dropping it ends it, as `kill -9` does.
    pub async fn kmm(&self) -> Kmm {
        let config = self.plane.config(User::Admin).await;
        let operator = async move {
            let client = kube::Client::try_from(config).expect("a client");
            let options = KmmOptions { worker: Duration::from_millis(700), ..KmmOptions::default() };
            Kmm::spawn(&client, Clock::starting_at(now()), 1, options)
        };
        self.runtime.spawn(operator).await.expect("KMM's operator")
    }
}

/// A request as the API server's audit log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub verb: String,
    /// API group; empty is the core one.
    pub group: String,
    /// `pods/eviction`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u64,
}

impl Asked {
    fn read(line: &Value) -> Asked {
        let resource = word(line, "/objectRef/resource");
        let resource = match word(line, "/objectRef/subresource") {
            "" => resource.to_owned(),
            subresource => format!("{resource}/{subresource}"),
        };
        Asked {
            verb: word(line, "/verb").to_owned(),
            group: word(line, "/objectRef/apiGroup").to_owned(),
            resource,
            namespace: word(line, "/objectRef/namespace").to_owned(),
            name: word(line, "/objectRef/name").to_owned(),
            code: line.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        }
    }

    /// It would have changed something; reviews of one's own rights do not.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.resource.starts_with("selfsubject")
    }

    /// Whether it changed something.
    pub fn wrote(&self) -> bool {
        self.writes() && (200..300).contains(&self.code)
    }
}

fn word<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The site that most tests share, with one engine for all of them. As on a cluster, each test's component is one among others.
pub struct Arena {
    pub site: Site,
    /// Has the rights of the reconciler's role and no others.
    pub engine: Engine,
}

/// `None` as in [`ControlPlane::shared`]. Call it outside of any runtime.
pub fn arena() -> Option<&'static Arena> {
    static ARENA: OnceLock<Option<Arena>> = OnceLock::new();
    let start = || {
        let site = Site::own()?;
        // Even so it must not write when it is started read-only.
        let powers = ["create", "clusterrolebinding", "test-viewer-admin", "--clusterrole=cluster-admin", "--user=viewer"];
        site.plane.kubectl(powers).expect_ok();
        let engine = site.runtime.block_on(async {
            let cluster = site.cluster(User::Reconciler, false).await;
            let options = EngineOptions {
                mode: Mode::Engine,
                identity: "arena".into(),
                cluster_max_unavailable: 16,
                ..EngineOptions::default()
            };
            Engine::start(cluster, options)
        });
        Some(Arena { site, engine })
    };
    ARENA.get_or_init(start).as_ref()
}

/// Runs a test's part.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(future)
}

#[expect(clippy::disallowed_methods, reason = "a real server compares with its own clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// With RUST_LOG set, what the engine says goes to standard error.
fn tell() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init().ok();
    }
}

//! A whole simulated cluster behind a loopback port, on real time: API server with its roles enforced, controllers, kubelets.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

use lockkeeper::{
    cli::manifests::{Manifests, RoleName, render},
    sim::{
        actors::KubeletOptions,
        apiserver::{ApiServer, Identity},
        people::hands::Hands,
        scenarios::{
            kernel_module,
            objects::{self, Object},
        },
        world::{World, WorldOptions},
    },
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Handle, sync::oneshot};

pub struct Simulated {
    pub api: ApiServer,
    pub runtime: Handle,
    pub kubeconfig: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Simulated {
    /// `nodes` nodes without any module, and the component `gpu-system/gpu` of version 1.0. The program runs as the service account of
    /// the printed manifests, without the permissions that `forbidden` names (a resource, or `resource/subresource`).
    pub fn start(home: &Path, nodes: usize, forbidden: &[&str]) -> Self {
        let (started, starting) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut objects = kernel_module::cluster(nodes);
        objects.extend(roles(forbidden));
        objects.push(component("1.0"));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                // Quick machines: what is tried here is the program, on real time. Proofs wait for a node's next heartbeat.
                let kubelets = KubeletOptions { lease_interval: Duration::from_secs(1), ..KubeletOptions::quick() };
                let world = World::start(&WorldOptions { kubelets, ..WorldOptions::new(1) }, &objects);
                world.api.enforce_rbac(true);
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let account = Identity::service_account("reconciler", "lockkeeper-system", "lockkeeper");
                let listening = world.api.serve(listener, &[account]).expect("an address");
                started.send((world.api.clone(), Handle::current(), listening.kubeconfig("sim"))).expect("the test waits");
                let _ = stopped.await;
            });
        });
        let (api, runtime, text) = starting.recv().expect("the cluster starts");
        let kubeconfig = home.join("kubeconfig");
        fs::write(&kubeconfig, text).expect("a kubeconfig");
        Self { api, runtime, kubeconfig, stop: Some(stop), thread: Some(thread) }
    }

    /// What an administrator does with kubectl.
    pub fn by_hand<T>(&self, work: impl AsyncFnOnce(Hands) -> T) -> T {
        let hands = Hands::new(self.api.client(&Identity::new("admin")));
        self.runtime.block_on(work(hands))
    }

    pub fn lease(&self, pointer: &str) -> Option<Value> {
        let lease = self.api.get("leases.coordination.k8s.io", "lockkeeper-system", "lockkeeper")?;
        lease.pointer(pointer).cloned()
    }

    /// Reasons of the Events about an object, in the order of names.
    pub fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let about = |event: &Value| {
            let text = |pointer| event.pointer(pointer).and_then(Value::as_str);
            text("/involvedObject/kind") == Some(kind) && text("/involvedObject/name").is_some_and(|it| it.starts_with(name))
        };
        let events = self.api.list("events");
        events.iter().filter(|event| about(event)).filter_map(|event| Some(event["reason"].as_str()?.to_owned())).collect()
    }
}

/// Small waits: this runs on real time.
pub fn component(version: &str) -> Object {
    let mut spec = kernel_module::component_spec(version);
    spec["rollout"] = json!({"soak": "0s"});
    spec["verify"] = json!({"stableFor": "1s"});
    for (part, grace) in [("devicePlugin", 1), ("loader", 1)] {
        spec["kernelModule"]["daemonSets"][part]["spec"]["terminationGracePeriodSeconds"] = json!(grace);
    }
    objects::component(kernel_module::NAMESPACE, kernel_module::NAME, spec)
}

/// The roles and bindings that `lockkeeper manifests` prints.
fn roles(forbidden: &[&str]) -> Vec<Object> {
    let wanted = Manifests { role: vec![RoleName::All], deployment: true, ..Manifests::default() };
    let text = render(&wanted, None).expect("manifests");
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let kinds = [
        ("ClusterRole", "clusterroles"),
        ("Role", "roles"),
        ("ClusterRoleBinding", "clusterrolebindings"),
        ("RoleBinding", "rolebindings"),
    ];
    let ours = all.into_iter().filter_map(|mut body| {
        let (kind, plural) = *kinds.iter().find(|(kind, _)| body["kind"] == *kind)?;
        for rule in body.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
            let resources = rule.get_mut("resources").and_then(Value::as_array_mut);
            resources.into_iter().for_each(|list| list.retain(|it| !forbidden.iter().any(|no| it == no)));
        }
        let namespace = body.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        Some(Object { api_version: "rbac.authorization.k8s.io/v1", kind, plural, namespace, body })
    });
    ours.collect()
}

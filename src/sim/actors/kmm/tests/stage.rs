//! A simulated cluster with two nodes on which a story is played: the operator, its Module, and the hands of the story's user.

use std::time::Duration;

use serde_json::{Value, json};

use super::told::{Teller, Told};
use crate::kmm::keys::Label;
use crate::kmm::tests::story::{Start, Step};
use crate::sim::actors::kmm::{Kmm, KmmOptions, crds, objects::key};
use crate::sim::actors::{
    Clock, ControllerManager, ControllerOptions, KubeletOptions, Kubelets, LifecycleOptions, MachineSpec, Range,
};
use crate::sim::apiserver::{ApiServer, Config, Identity};

const KERNEL: &str = "6.1.0-test";
const MODULES: &str = "/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/drv/modules";

pub struct Stage {
    pub kubelets: Kubelets,
    pub api: ApiServer,
    client: kube::Client,
    clock: Clock,
    _controllers: ControllerManager,
    operator: Option<Kmm>,
    teller: Teller,
    from: u64,
    /// The Module's annotations: how long its pods take, and whether they fail.
    annotations: Value,
    dra: bool,
    tolerates: bool,
}

pub const MODULE: &str = "/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/drv/modules/mod";

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

impl Stage {
    /// As the story starts: without a Module, or with both nodes in service.
    pub async fn new(start: &Start, annotations: &[(&str, &str)]) -> Self {
        let api = ApiServer::new(Config { seed: 1, ..Config::default() });
        for crd in crds() {
            api.install(crd).expect("a legal CRD");
        }
        api.install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drv"}})).expect("a namespace");
        let clock = Clock::of(api.clock());
        let lifecycle = LifecycleOptions {
            grace: Duration::from_secs(12),
            execute_lag: Duration::from_millis(800),
            ..LifecycleOptions::default()
        };
        let options = ControllerOptions { lifecycle, collect: super::super::collected(), ..ControllerOptions::default() };
        let controllers = ControllerManager::spawn(&api.client(&Identity::new("controllers")), clock, 1, options);
        let zero = Range::millis(0, 0);
        let quick = KubeletOptions {
            pull: zero,
            init: zero,
            start: zero,
            ready: zero,
            stop: Range::millis(1000, 1000),
            not_ready: zero,
            lease_interval: Duration::from_secs(3),
            ..KubeletOptions::default()
        };
        let machine =
            |name: &str| MachineSpec { kernel_version: KERNEL.to_owned(), ..MachineSpec::new(name).label("pool", "dev") };
        let kubelets =
            Kubelets::spawn(&api.client(&Identity::new("kubelets")), clock, 1, quick, vec![machine("node-a"), machine("node-b")]);
        let client = api.client(&Identity::new("user"));
        let mut told = json!({
            "sim.lockkeeper.dev/plugin.start-seconds": "0.5", "sim.lockkeeper.dev/plugin.stop-seconds": "1",
            "sim.lockkeeper.dev/plugin.resource": "example.com/dev", "sim.lockkeeper.dev/plugin.devices": "4",
            "sim.lockkeeper.dev/plugin.driver": "dev.example.com", "sim.lockkeeper.dev/pull.exit-after-seconds": "1",
        });
        for (name, value) in annotations {
            told[format!("sim.lockkeeper.dev/{name}")] = json!(value);
        }
        let mut stage = Self {
            kubelets,
            api,
            client,
            clock,
            _controllers: controllers,
            operator: None,
            teller: Teller::default(),
            from: 0,
            annotations: told,
            dra: start.dra,
            tolerates: start.tolerates,
        };
        stage.start_operator();
        pass(Duration::from_secs(10)).await;
        if let Some(version) = &start.labels {
            for node in ["node-a", "node-b"] {
                stage.act(&format!("node {node} want={version}")).await;
            }
        }
        if let Some(version) = &start.module {
            stage.act("module create 1.0 1.0").await;
            pass(Duration::from_secs(5)).await;
            for (node, version) in ["node-a", "node-b"].into_iter().zip(&start.nodes) {
                stage.act(&format!("node {node} want={version}")).await;
            }
            pass(Duration::from_secs(20)).await;
            if version != "1.0" {
                stage.act(&format!("module edit {version} {version}")).await;
            }
        }
        pass(Duration::from_secs(20)).await;
        stage.told();
        stage
    }

    pub fn start_operator(&mut self) {
        let client = self.api.client(&Identity::new("kmm"));
        self.operator = Some(Kmm::spawn(&client, self.clock, 1, KmmOptions::default()));
    }

    pub fn kill_operator(&mut self) {
        self.operator = None;
    }

    /// A connection that cannot write.
    pub fn read_only(&self) -> crate::cluster::Cluster {
        crate::cluster::Cluster::over(self.api.client(&Identity::new("reader")), true, "simulated", "in this process")
    }

    /// What was written since the last call.
    pub fn told(&mut self) -> Told {
        let records = self.api.log().since(self.from);
        let mut told = Told::new();
        for record in &records {
            self.teller.tell(record, &mut told);
            self.from = record.n;
        }
        told
    }

    pub async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Value {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        self.client.request::<Value>(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub async fn merge(&self, path: &str, patch: &Value) {
        self.send("PATCH", path, "application/merge-patch+json", patch).await;
    }

    /// Makes the pods that KMM makes from now on behave otherwise.
    pub async fn tell(&mut self, name: &str, value: &str) {
        self.annotations[format!("sim.lockkeeper.dev/{name}")] = json!(value);
        let patch = json!({"metadata": {"annotations": self.annotations}});
        self.merge(&format!("{MODULES}/mod"), &patch).await;
    }

    /// A pod that holds the module open on node-a.
    pub async fn hold_module(&self) {
        let annotations = json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": "mod"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder", "namespace": "drv", "annotations": annotations},
            "spec": {"nodeName": "node-a", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}});
        self.send("POST", "/api/v1/namespaces/drv/pods", "application/json", &pod).await;
        pass(Duration::from_secs(2)).await;
    }

    pub async fn let_go(&self) {
        self.send("DELETE", "/api/v1/namespaces/drv/pods/holder", "application/json", &json!({})).await;
    }

    fn spec(&self, version: &str, tag: &str) -> Value {
        let mut container = json!({"containerImage": format!("mod:{tag}-${{KERNEL_FULL_VERSION}}"), "kernelMappings": [{"regexp": "^.+$"}],
            "modprobe": {"moduleName": "mod"}});
        if version != "-" {
            container["version"] = json!(version);
        }
        let mut spec = json!({"moduleLoader": {"container": container}, "selector": {"pool": "dev"}});
        if self.dra {
            spec["dra"] = json!({"container": {"image": "dra:1.0"}, "deviceClasses": [{"name": "mod-class", "spec": {}}]});
        } else {
            spec["devicePlugin"] = json!({"container": {"image": format!("plugin:{tag}")}});
        }
        if self.tolerates {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        spec
    }

    /// What the user does, in the words of the recording.
    pub async fn act(&self, what: &str) {
        let words: Vec<&str> = what.split(' ').collect();
        match words.as_slice() {
            ["module", "create", version, tag] => {
                let body = json!({"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module",
                    "metadata": {"name": "mod", "namespace": "drv", "annotations": self.annotations}, "spec": self.spec(version, tag)});
                self.send("POST", MODULES, "application/json", &body).await;
            }
            ["module", "edit", version, tag] => {
                self.merge(&format!("{MODULES}/mod"), &json!({"spec": self.spec(version, tag)})).await
            }
            ["module", "delete"] => _ = self.send("DELETE", &format!("{MODULES}/mod"), "application/json", &json!({})).await,
            ["node", name, "gone"] => {
                _ = self.send("DELETE", &format!("/api/v1/nodes/{name}"), "application/json", &json!({})).await
            }
            ["node", name, "cordon"] => {
                self.merge(&format!("/api/v1/nodes/{name}"), &json!({"spec": {"unschedulable": true}})).await
            }
            ["node", name, "uncordon"] => {
                self.merge(&format!("/api/v1/nodes/{name}"), &json!({"spec": {"unschedulable": null}})).await
            }
            ["node", name, change] => {
                let (word, value) = match change.split_once('=') {
                    Some((word, value)) => (word, json!(value)),
                    None => (change.trim_end_matches('-'), Value::Null),
                };
                let label = match word {
                    "want" => Label::Desired,
                    "worker" => Label::Loader,
                    "schedule" => Label::Schedule,
                    "ready" => Label::Ready,
                    other => panic!("{other}"),
                };
                let key = key(label, &crate::kmm::tests::world::module());
                self.merge(&format!("/api/v1/nodes/{name}"), &json!({"metadata": {"labels": {key: value}}})).await;
            }
            ["worker", node, "evicted"] => {
                let name = format!("kmm-worker-{node}-mod");
                let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "drv"}});
                self.send("POST", &format!("/api/v1/namespaces/drv/pods/{name}/eviction"), "application/json", &body).await;
            }
            // The workload pod of the drain has no part in what KMM does.
            ["user-pod", ..] => {}
            other => panic!("the user cannot {other:?}"),
        }
    }

    /// The user's part of a step at the recorded times, then time for everybody else. Returns what was written.
    pub async fn play(&mut self, step: &Step, at_least: Duration) -> Told {
        let mut at = 0;
        for event in step.events.iter().filter(|event| event.who == "user") {
            pass(Duration::from_millis(event.ms - at)).await;
            at = event.ms;
            self.act(&event.what).await;
        }
        let last = step.events.last().map_or(0, |event| event.ms);
        let rest = Duration::from_millis((last + last / 3).saturating_sub(at)) + Duration::from_secs(4);
        pass(rest.max(at_least)).await;
        self.told()
    }
}

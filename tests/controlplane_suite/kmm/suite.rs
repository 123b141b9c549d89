//! A Module of KMM on a site of its own, with nodes, pods that hold its devices and pods that do not; and what can be said of them.

use std::{collections::BTreeSet, time::Duration};

use kube::Api;
use lockkeeper::{
    api::{NodeHandoff, NodeHandoffStatus, Phase, keys::CORDON},
    sim::{
        actors::{MachineSpec, kmm::Kmm},
        kernel::What,
        people::{
            hands::{Hands, No},
            kmm as people, seen,
        },
        scenarios::{
            kmm::{GPU, NAMESPACE, OLD},
            objects,
        },
    },
};
use serde_json::{Value, json};

use crate::{site::Site, support::controlplane::User, wait::eventually};

/// The longest that anything here takes, on a busy machine.
pub const LONG: Duration = Duration::from_secs(300);
/// Where the pods are.
pub const APPS: &str = "ml";

pub struct Suite<'a> {
    pub site: &'a Site,
    pub admin: Hands,
    pub nodes: Vec<String>,
    pub kmm: Option<Kmm>,
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl<'a> Suite<'a> {
    /// KMM has brought version 1.0 to every node, pods hold devices there, and the component follows the Module.
    pub async fn open(site: &'a Site, nodes: usize, claimants: u32) -> Suite<'a> {
        let nodes: Vec<String> = (1..=nodes).map(|number| format!("gpu-{number}")).collect();
        let suite = Suite { site, admin: site.hands(User::Admin).await, nodes, kmm: Some(site.kmm().await) };
        for node in &suite.nodes {
            site.kubelets.add_machine(MachineSpec::new(node).label("pool", GPU.name));
        }
        suite.apply(&objects::namespace(NAMESPACE)).await;
        suite.apply(&objects::namespace(APPS)).await;
        let mut module = GPU.object(OLD);
        module.body["metadata"]["annotations"]["sim.lockkeeper.dev/pull.exit-after-seconds"] = json!("0.1");
        suite.apply(&module).await;
        for node in &suite.nodes {
            eventually(node, LONG, || async { people::label(&suite.admin, GPU, node, Some(OLD)).await.map(Some) }).await;
        }
        for node in &suite.nodes {
            suite.runs(node, OLD).await;
        }
        let Some(resource) = suite.resource() else { return suite };
        suite
            .apply(&objects::deployment(APPS, "training", claimants, objects::template("training", Some((resource, 1)), 5)))
            .await;
        suite.apply(&objects::budget(APPS, "training", "maxUnavailable", json!(2))).await;
        let mut plain = objects::template("plain", None, 5);
        plain["spec"]["nodeSelector"] = json!({"pool": GPU.name});
        suite.apply(&objects::deployment(APPS, "plain", 4, plain)).await;
        suite.running("training", claimants as usize).await;
        suite.running("plain", 4).await;
        let mut component = GPU.component(1);
        component.body["spec"]["rollout"] = json!({"soak": "500ms", "maxFailures": 100, "paused": true});
        component.body["spec"]["verify"] = json!({"stableFor": "1s"});
        suite.apply(&component).await;
        suite
    }

    fn resource(&self) -> Option<&'static str> {
        match GPU.devices {
            lockkeeper::sim::scenarios::kmm::Devices::Plugin(resource) => Some(resource),
            lockkeeper::sim::scenarios::kmm::Devices::Dra { .. } => None,
        }
    }

    pub async fn apply(&self, object: &objects::Object) {
        eventually(object.kind, LONG, || async { self.admin.create(object).await.map(Some) }).await;
    }

    /// The Module at another version, image and version in one edit.
    pub async fn release(&self, version: &str) {
        self.admin.merge(&GPU.module_path(), &GPU.release(version)).await.expect("edit the Module");
    }

    /// From here on the queue is worked off.
    pub async fn begin(&self) {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{}", GPU.name);
        self.admin.merge(&path, &json!({"spec": {"rollout": {"paused": false}}})).await.expect("edit the component");
    }

    fn path(node: &str) -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{}.{node}", GPU.name)
    }

    /// Asks for whatever version the Module has; `more` is added to the spec.
    pub async fn ask(&self, node: &str, more: Value) {
        let mut spec = json!({"component": GPU.name, "node": node, "requestedBy": "operator"});
        spec.as_object_mut().expect("object").extend(more.as_object().cloned().unwrap_or_default());
        let mut handoff = objects::handoff(NAMESPACE, GPU.name, node, "", 1);
        handoff.body["spec"] = spec;
        self.apply(&handoff).await;
    }

    pub async fn edit(&self, node: &str, spec: Value) {
        self.admin.merge(&Self::path(node), &json!({"spec": spec})).await.expect("edit the NodeHandoff");
    }

    pub async fn handoffs(&self) -> Api<NodeHandoff> {
        Api::namespaced(self.site.plane.client(User::Admin).await, NAMESPACE)
    }

    /// Waits until the node's handoff stands so.
    pub async fn stands(&self, node: &str, what: &str, is: impl Fn(&NodeHandoffStatus) -> bool) -> NodeHandoffStatus {
        let handoffs = self.handoffs().await;
        let name = format!("{}.{node}", GPU.name);
        eventually(&format!("{node}: {what}"), LONG, || async {
            let status =
                handoffs.get_opt(&name).await.map_err(|error| error.to_string())?.and_then(|it| it.status).unwrap_or_default();
            if is(&status) { Ok(Some(status)) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    pub async fn ended(&self, node: &str, attempt: u32) -> NodeHandoffStatus {
        self.stands(node, &format!("attempt {attempt} done"), |status| {
            status.phase == Phase::Done && status.run.as_ref().is_some_and(|run| run.attempt == attempt)
        })
        .await
    }

    /// Waits until labels, kernel and driver say so, and the node is open with nothing of ours left on it.
    pub async fn runs(&self, node: &str, version: &str) {
        eventually(&format!("{node} on {version}"), LONG, || async {
            let Some(found): Option<seen::Node> = self.admin.find(&format!("/api/v1/nodes/{node}")).await? else {
                return Ok(None);
            };
            let loaded = self.loaded(node).as_deref() == Some(version);
            let clean = !found.metadata.annotations.keys().any(|key| key.starts_with("lockkeeper.dev/handoff.") || key == CORDON);
            let object = self.admin.get(&format!("/api/v1/nodes/{node}")).await?;
            let open = object.pointer("/spec/unschedulable") != Some(&json!(true));
            Ok::<_, No>((people::shows(&found, GPU, version) && loaded && clean && open).then_some(()))
        })
        .await;
    }

    pub fn loaded(&self, node: &str) -> Option<String> {
        self.site.kubelets.kernel(node)?.modules.get(GPU.name).cloned()
    }

    /// Whatever KMM's pods on a node take their time for is over.
    pub async fn hurry(&self, node: &str) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let pods: Vec<Value> = eventually("KMM's pods", LONG, || async { self.admin.items(&path).await.map(Some) }).await;
        for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == node) {
            self.site.kubelets.hurry(node, &format!("{NAMESPACE}/{}", text(pod, "/metadata/name")));
        }
    }

    pub async fn boot(&self, node: &str) -> String {
        let node = self.admin.get(&format!("/api/v1/nodes/{node}")).await.expect("the node");
        text(&node, "/status/nodeInfo/bootID").to_owned()
    }

    /// UIDs of the running pods of an app, once there are so many and no others.
    pub async fn running(&self, app: &str, count: usize) -> BTreeSet<String> {
        eventually(&format!("{count} pods of {app}"), LONG, || async {
            let pods: Vec<Value> = self.admin.items(&format!("/api/v1/namespaces/{APPS}/pods?labelSelector=app%3D{app}")).await?;
            let runs = |pod: &&Value| text(pod, "/status/phase") == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
            let uids: BTreeSet<String> = pods.iter().filter(runs).map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
            Ok::<_, No>((uids.len() == count && pods.len() == count).then_some(uids))
        })
        .await
    }

    /// What happened to the module in a node's kernel, in order: `+1.0 -1.0 +2.0`. Panics when anything happened that never may.
    pub fn story(&self, node: &str) -> String {
        let mut story = Vec::new();
        for event in self.site.kubelets.events(0).into_iter().filter(|event| event.node == node) {
            match &event.what {
                What::ModuleLoaded { version, .. } => story.push(format!("+{version}")),
                What::ModuleUnloaded { version, forced: false, .. } => story.push(format!("-{version}")),
                What::ModuleUnloaded { forced: true, .. }
                | What::LoadRefused { .. }
                | What::ProviderWithoutModule { .. }
                | What::UnloadRefused { .. }
                | What::Disrupted { .. } => panic!("on {node}: {event:?}"),
                _ => {}
            }
        }
        story.join(" ")
    }

    /// All that the reconciler has asked for: of KMM's things the version label alone, of a Node else the cordon and its own annotations,
    /// pods of the workloads evicted, and its own objects.
    pub fn wrote_the_version_label_alone(&self) {
        let mut moved = 0;
        for (node, patch) in self.site.node_patches() {
            let keys = |pointer: &str| -> Vec<String> {
                patch.pointer(pointer).and_then(Value::as_object).map(|map| map.keys().cloned().collect()).unwrap_or_default()
            };
            let labels = keys("/metadata/labels");
            moved += labels.len();
            assert!(labels.iter().all(|key| *key == GPU.desired_key()), "labels of {node}: {patch}");
            assert!(
                keys("/metadata/annotations").iter().all(|key| key.starts_with("lockkeeper.dev/")),
                "annotations of {node}: {patch}"
            );
            assert!(keys("/spec").iter().all(|key| key == "unschedulable"), "spec of {node}: {patch}");
            let known = ["labels", "annotations", "uid", "resourceVersion"];
            assert!(keys("/metadata").iter().all(|key| known.contains(&key.as_str())), "metadata of {node}: {patch}");
            assert!(
                keys("").iter().all(|key| ["apiVersion", "kind", "metadata", "spec"].contains(&key.as_str())),
                "{node}: {patch}"
            );
        }
        assert!(moved >= self.nodes.len(), "{moved} changes of the version label");
        for asked in self.site.asked(User::Reconciler).iter().filter(|asked| asked.writes()) {
            let allowed = match (asked.group.as_str(), asked.resource.as_str()) {
                ("lockkeeper.dev", _) | ("coordination.k8s.io", "leases") => true,
                ("" | "events.k8s.io", "events") => asked.verb != "delete",
                ("", "nodes") => asked.verb == "patch",
                ("", "pods/eviction") => asked.namespace == APPS && asked.name.starts_with("training-"),
                _ => false,
            };
            assert!(allowed, "{asked:?}");
        }
    }
}

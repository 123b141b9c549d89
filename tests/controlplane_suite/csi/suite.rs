//! A nodeplugin of one test on a site, with nodes, namespaces, volumes and pods of its own; and what can be said of them.

use std::{collections::BTreeMap, time::Duration};

use kube::Api;
use lockkeeper::{
    api::{ComponentKey, NodeHandoff, NodeHandoffStatus, Phase, keys::CORDON},
    sim::{
        actors::MachineSpec,
        people::hands::{Hands, No},
        scenarios::objects::{self, Object},
    },
};
use serde_json::{Value, json};

use crate::{
    site::{Asked, Site},
    support::controlplane::User,
    wait::eventually,
};

/// The longest that anything here takes, on a busy machine.
pub const LONG: Duration = Duration::from_secs(300);

/// What the nodeplugin is.
#[derive(Debug, Clone, Copy)]
pub struct Plugin {
    /// Namespace of the nodeplugin and its component, beginning of all other names, label `pool` of its nodes.
    pub name: &'static str,
    /// `--type`, and the component's name.
    pub kind: &'static str,
    pub nodes: usize,
}

pub struct Suite<'a> {
    pub site: &'a Site,
    pub admin: Hands,
    pub nodes: Vec<String>,
    pub plugin: Plugin,
}

/// Node and image of a pod.
pub type Place = (String, String);

pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What of a Node or pod is people's and ours; its kubelet and controllers write the rest in their own time.
pub fn given(object: &Value) -> Value {
    let meta = &object["metadata"];
    let (labels, annotations, leaving) = (&meta["labels"], &meta["annotations"], &meta["deletionTimestamp"]);
    json!({"uid": meta["uid"], "labels": labels, "annotations": annotations, "finalizers": meta["finalizers"], "leaving": leaving,
        "spec": object["spec"]})
}

pub fn object(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespace: Option<&str>,
    mut body: Value,
) -> Object {
    body["apiVersion"] = json!(api_version);
    body["kind"] = json!(kind);
    if let Some(namespace) = namespace {
        body["metadata"]["namespace"] = json!(namespace);
    }
    Object { api_version, kind, plural, namespace: namespace.map(str::to_owned), body }
}

impl Plugin {
    pub fn key(self) -> ComponentKey {
        ComponentKey::new(self.name, self.kind)
    }

    pub fn driver(self) -> String {
        format!("{}.{}.csi.ceph.com", self.name, self.kind)
    }

    /// The DaemonSet's name, and label `app` of its pods.
    pub fn set(self) -> String {
        format!("csi-{}plugin", self.kind)
    }

    pub fn set_path(self) -> String {
        format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", self.name, self.set())
    }

    pub fn handoff_path(self, node: &str) -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/{}.{node}", self.name, self.kind)
    }

    fn containers(self, version: &str) -> Value {
        let args = json!([format!("--type={}", self.kind), format!("--drivername={}", self.driver())]);
        json!([{"name": self.set(), "image": format!("cephcsi:{version}"), "args": args}])
    }

    fn template(self) -> Value {
        let annotations = json!({"sim.lockkeeper.dev/behaviour": "csi-node-plugin", "sim.lockkeeper.dev/driver": self.driver()});
        let socket = format!("/var/lib/kubelet/plugins/{}", self.driver());
        let spec = json!({
            "hostNetwork": true, "terminationGracePeriodSeconds": 5, "tolerations": [{"operator": "Exists"}],
            "containers": self.containers("v1"),
            "volumes": [{"name": "socket", "hostPath": {"path": socket}},
                {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
        });
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }
}

impl<'a> Suite<'a> {
    /// Nodes `NAME-1` and so on with the nodeplugin `v1` and its driver, which needs attachments, and the component. `tune` edits the
    /// nodeplugin's pod template before.
    pub async fn open(site: &'a Site, plugin: Plugin, tune: impl FnOnce(&mut Value)) -> Suite<'a> {
        let nodes: Vec<String> = (1..=plugin.nodes).map(|number| format!("{}-{number}", plugin.name)).collect();
        let suite = Suite { site, admin: site.hands(User::Admin).await, nodes, plugin };
        for node in &suite.nodes {
            site.kubelets.add_machine(MachineSpec::new(node).label("pool", plugin.name));
        }
        suite.apply(&objects::namespace(plugin.name)).await;
        suite.apply(&objects::namespace(&suite.apps())).await;
        let driver = json!({"metadata": {"name": plugin.driver()}, "spec": {"attachRequired": true}});
        suite.apply(&object("storage.k8s.io/v1", "CSIDriver", "csidrivers", None, driver)).await;
        let mut template = plugin.template();
        tune(&mut template);
        let pool = json!({"pool": plugin.name});
        suite.apply(&objects::daemon_set(plugin.name, &plugin.set(), pool, json!({"type": "OnDelete"}), template)).await;
        suite.ready(plugin.name, &plugin.set(), plugin.nodes).await;
        let component = json!({
            "csiNodePlugin": {"driver": plugin.driver()}, "nodeSelector": {"pool": plugin.name},
            "rollout": {"soak": "500ms", "maxFailures": 100, "blocked": "Skip"}, "verify": {"stableFor": "1s"},
        });
        suite.apply(&objects::component(plugin.name, plugin.kind, component)).await;
        suite
    }

    /// The namespace of the workloads.
    pub fn apps(&self) -> String {
        format!("{}-apps", self.plugin.name)
    }

    pub async fn apply(&self, object: &Object) {
        eventually(object.kind, LONG, || async { self.admin.create(object).await.map(Some) }).await;
    }

    /// A claim with this name, bound to a volume with these attributes.
    pub async fn volume(&self, name: &str, attributes: Value) {
        let (apps, volume) = (self.apps(), format!("{}-{name}", self.plugin.name));
        let spec = json!({"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume, "storageClassName": ""});
        let body = json!({"metadata": {"name": name}, "spec": spec});
        let claim = object("v1", "PersistentVolumeClaim", "persistentvolumeclaims", Some(&apps), body);
        self.apply(&claim).await;
        let made = self.admin.get(&format!("{}/{name}", claim.collection())).await.expect("the claim");
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "csi": {"driver": self.plugin.driver(), "volumeHandle": format!("handle-{name}"), "volumeAttributes": attributes},
            "claimRef": {"namespace": apps, "name": name, "uid": text(&made, "/metadata/uid")}});
        let body = json!({"metadata": {"name": volume}, "spec": spec});
        self.apply(&object("v1", "PersistentVolume", "persistentvolumes", None, body)).await;
    }

    /// A pod template with the volume of the claim of that name.
    pub fn mounting(&self, name: &str) -> Value {
        let mut template = objects::template(name, None, 5);
        template["spec"]["nodeSelector"] = json!({"pool": self.plugin.name});
        template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        template["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        template
    }

    /// A Deployment whose pods mount one volume.
    pub fn app(&self, name: &str, replicas: u32) -> Object {
        objects::deployment(&self.apps(), name, replicas, self.mounting(name))
    }

    /// One pod of it, on one node or nowhere.
    pub fn app_on(&self, name: &str, node: &str) -> Object {
        let mut template = self.mounting(name);
        template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        objects::deployment(&self.apps(), name, 1, template)
    }

    /// Ready pods of an app that are not on their way out, by UID.
    pub async fn pods(&self, namespace: &str, app: &str) -> Result<BTreeMap<String, Place>, No> {
        let pods: Vec<Value> =
            self.admin.items(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}")).await?;
        let ready = |pod: &&Value| pod.pointer("/status/containerStatuses/0/ready") == Some(&json!(true));
        let live = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).filter(ready);
        let told = live.map(|pod| {
            let of = |pointer| text(pod, pointer).to_owned();
            (of("/metadata/uid"), (of("/spec/nodeName"), of("/spec/containers/0/image")))
        });
        Ok(told.collect())
    }

    pub async fn ready(&self, namespace: &str, app: &str, count: usize) -> BTreeMap<String, Place> {
        let what = format!("{count} pods of {app}");
        eventually(&what, LONG, || async {
            Ok::<_, No>(Some(self.pods(namespace, app).await?).filter(|pods| pods.len() == count))
        })
        .await
    }

    /// The nodeplugin's pods on a node, those on their way out too.
    pub async fn plugin_pods(&self, node: &str) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{}/pods?labelSelector=app%3D{}", self.plugin.name, self.plugin.set());
        let pods: Vec<Value> = eventually("the plugin pods", LONG, || async { self.admin.items(&path).await.map(Some) }).await;
        pods.into_iter().filter(|pod| text(pod, "/spec/nodeName") == node).collect()
    }

    /// Another template for the nodeplugin: with OnDelete nothing moves until nodes are handed over. Returns its revision.
    pub async fn release(&self, version: &str) -> String {
        let containers = json!({"spec": {"template": {"spec": {"containers": self.plugin.containers(version)}}}});
        self.admin.merge(&self.plugin.set_path(), &containers).await.expect("a template");
        self.revision(version).await
    }

    /// The hash of the ControllerRevision with this version, once its controller has made one.
    pub async fn revision(&self, version: &str) -> String {
        let path = format!("/apis/apps/v1/namespaces/{}/controllerrevisions", self.plugin.name);
        let image = format!("cephcsi:{version}");
        eventually(&format!("a revision of {version}"), LONG, || async {
            let all: Vec<Value> = self.admin.items(&path).await?;
            let of = |it: &&Value| text(it, "/data/spec/template/spec/containers/0/image") == image;
            Ok::<_, No>(all.iter().find(of).map(|it| text(it, "/metadata/labels/controller-revision-hash").to_owned()))
        })
        .await
    }

    /// Asks for a handoff of a node; `more` is put into its spec.
    pub async fn ask(&self, node: &str, more: Value) {
        let mut spec = json!({"component": self.plugin.kind, "node": node, "requestedBy": "operator"});
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let body = json!({"metadata": {"name": format!("{}.{node}", self.plugin.kind)}, "spec": spec});
        self.apply(&object("lockkeeper.dev/v1alpha1", "NodeHandoff", "nodehandoffs", Some(self.plugin.name), body)).await;
    }

    /// Edits what is asked for.
    pub async fn ask_again(&self, node: &str, spec: Value) {
        self.admin.merge(&self.plugin.handoff_path(node), &json!({"spec": spec})).await.expect("an edit");
    }

    pub async fn handoffs(&self) -> Api<NodeHandoff> {
        Api::namespaced(self.site.plane.client(User::Admin).await, self.plugin.name)
    }

    pub async fn status(&self, node: &str) -> NodeHandoffStatus {
        let path = self.plugin.handoff_path(node);
        eventually("a NodeHandoff", LONG, || async {
            let handoff: Option<NodeHandoff> = self.admin.find(&path).await?;
            Ok::<_, No>(Some(handoff.and_then(|handoff| handoff.status).unwrap_or_default()))
        })
        .await
    }

    /// Waits until the node's NodeHandoff says so.
    pub async fn until(&self, node: &str, what: &str, holds: impl Fn(&NodeHandoffStatus) -> bool) -> NodeHandoffStatus {
        eventually(&format!("{what} on {node}"), LONG, || async {
            let status = self.status(node).await;
            if holds(&status) { Ok(Some(status)) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Waits for the end of an attempt.
    pub async fn ended(&self, node: &str, attempt: u32, phase: Phase) -> NodeHandoffStatus {
        let there =
            |status: &NodeHandoffStatus| status.phase == phase && status.run.as_ref().is_some_and(|run| run.attempt == attempt);
        self.until(node, &format!("the {phase} of attempt {attempt}"), there).await
    }

    /// Waits until the node's only plugin pod is of this version.
    pub async fn runs(&self, node: &str, version: &str) {
        let image = format!("cephcsi:{version}");
        eventually(&format!("{node} on {version}"), LONG, || async {
            let pods = self.pods(self.plugin.name, &self.plugin.set()).await?;
            let here: Vec<&str> = pods.values().filter(|(on, _)| on == node).map(|(_, image)| image.as_str()).collect();
            Ok::<_, No>((here == [image.as_str()]).then_some(()))
        })
        .await;
    }

    /// Waits until the node is open and nothing of a handoff is left on it.
    pub async fn is_as_before(&self, node: &str) {
        let path = format!("/api/v1/nodes/{node}");
        eventually(&format!("{node} to be as it was"), LONG, || async {
            let node = self.admin.get(&path).await.map_err(|no| no.to_string())?;
            let annotations = node["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let ours = |key: &&String| *key == CORDON || key.starts_with("lockkeeper.dev/handoff.");
            let left = annotations.keys().find(ours);
            let there = node["spec"]["unschedulable"] != true && left.is_none();
            if there { Ok(Some(())) } else { Err(format!("{} {annotations:?}", node["spec"])) }
        })
        .await;
    }

    /// What the reconciler has changed in a namespace, of one resource: `pods/eviction`.
    pub fn wrote(&self, verb: &str, resource: &str, namespace: &str) -> Vec<Asked> {
        let asked = self.site.asked(User::Reconciler);
        let of = |it: &Asked| it.verb == verb && it.resource == resource && it.namespace == namespace && it.wrote();
        asked.into_iter().filter(of).collect()
    }

    /// No pod of the workloads has lost its mount, but for those of this DaemonSet.
    pub fn undisturbed(&self, but: &str) {
        let apps = self.apps();
        let lost: Vec<_> = self.site.kubelets.disruptions().into_iter().filter(|it| it.pod.namespace == apps).collect();
        let lost: Vec<_> = lost.into_iter().filter(|it| but.is_empty() || !it.pod.name.starts_with(but)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

//! A CSI nodeplugin under the real DaemonSet and attach-detach controllers: upgraded node by node, its volumes detached before, and brought
//! back by `rollout undo`.

use std::{collections::BTreeMap, time::Duration};

use lockkeeper::sim::{
    actors::MachineSpec,
    people::hands::{Hands, No},
    scenarios::objects::{self, Object},
};
use serde_json::{Value, json};

use crate::{
    site::{Site, arena, block_on},
    support::controlplane::User,
    wait::eventually,
};

const NAME: &str = "csi";
const APPS: &str = "csi-apps";
const DRIVER: &str = "suite.rbd.csi.ceph.com";
const SET: &str = "/apis/apps/v1/namespaces/csi/daemonsets/csi-rbdplugin";
const LONG: Duration = Duration::from_secs(240);

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn object(
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

fn containers(version: &str) -> Value {
    let args = json!(["--type=rbd", format!("--drivername={DRIVER}")]);
    json!([{"name": "csi-rbdplugin", "image": format!("cephcsi:{version}"), "args": args}])
}

fn plugin() -> Object {
    let annotations = json!({"sim.lockkeeper.dev/behaviour": "csi-node-plugin", "sim.lockkeeper.dev/driver": DRIVER});
    let socket = format!("/var/lib/kubelet/plugins/{DRIVER}");
    let spec = json!({
        "hostNetwork": true, "terminationGracePeriodSeconds": 5, "tolerations": [{"operator": "Exists"}],
        "containers": containers("v1"),
        "volumes": [{"name": "socket", "hostPath": {"path": socket}},
            {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
    });
    let template = json!({"metadata": {"annotations": annotations}, "spec": spec});
    objects::daemon_set(NAME, "csi-rbdplugin", json!({"pool": NAME}), json!({"type": "OnDelete"}), template)
}

/// Three pods that mount one volume.
fn app(name: &str) -> Object {
    let mut template = objects::template(name, None, 5);
    template["spec"]["nodeSelector"] = json!({"pool": NAME});
    template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    template["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    objects::deployment(APPS, name, 3, template)
}

struct Suite<'a> {
    site: &'a Site,
    admin: Hands,
    nodes: Vec<String>,
}

impl Suite<'_> {
    async fn apply(&self, object: &Object) {
        eventually(object.kind, LONG, || async { self.admin.create(object).await.map(Some) }).await;
    }

    async fn volume(&self, name: &str, attributes: Value) {
        let spec = json!({"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": format!("csi-suite-{name}"), "storageClassName": ""});
        let claim = object(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            Some(APPS),
            json!({"metadata": {"name": name}, "spec": spec}),
        );
        self.apply(&claim).await;
        let made = self.admin.get(&format!("{}/{name}", claim.collection())).await.expect("the claim");
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "csi": {"driver": DRIVER, "volumeHandle": format!("handle-{name}"), "volumeAttributes": attributes},
            "claimRef": {"namespace": APPS, "name": name, "uid": text(&made, "/metadata/uid")}});
        let body = json!({"metadata": {"name": format!("csi-suite-{name}")}, "spec": spec});
        self.apply(&object("v1", "PersistentVolume", "persistentvolumes", None, body)).await;
    }

    /// Pods of an app that are not on their way out: UID, node and image.
    async fn pods(&self, namespace: &str, app: &str) -> Result<BTreeMap<String, (String, String)>, No> {
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

    async fn ready(&self, namespace: &str, app: &str, count: usize) -> BTreeMap<String, (String, String)> {
        let what = format!("{count} pods of {app}");
        eventually(&what, LONG, || async {
            Ok::<_, No>(Some(self.pods(namespace, app).await?).filter(|pods| pods.len() == count))
        })
        .await
    }

    async fn ask(&self, node: &str, attempt: u32) {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAME}/nodehandoffs/rbd.{node}");
        if attempt > 1 {
            self.admin.merge(&path, &json!({"spec": {"attempt": attempt}})).await.expect("another attempt");
            return;
        }
        let spec = json!({"component": "rbd", "node": node, "requestedBy": "operator"});
        let body = json!({"metadata": {"name": format!("rbd.{node}")}, "spec": spec});
        self.apply(&object("lockkeeper.dev/v1alpha1", "NodeHandoff", "nodehandoffs", Some(NAME), body)).await;
    }

    async fn done(&self, node: &str, attempt: u32) -> Value {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAME}/nodehandoffs/rbd.{node}");
        eventually(&format!("attempt {attempt} on {node}"), LONG, || async {
            let handoff = self.admin.get(&path).await?;
            let ended = text(&handoff, "/status/phase") == "Done" && handoff["status"]["run"]["attempt"] == json!(attempt);
            Ok::<_, No>(ended.then_some(handoff))
        })
        .await
    }

    async fn runs(&self, node: &str, version: &str) {
        eventually(&format!("{node} on {version}"), LONG, || async {
            let pods = self.pods(NAME, "csi-rbdplugin").await?;
            let here: Vec<&str> = pods.values().filter(|(on, _)| on == node).map(|(_, image)| image.as_str()).collect();
            Ok::<_, No>((here == [format!("cephcsi:{version}")]).then_some(()))
        })
        .await;
    }
}

#[test]
fn five_nodes_get_the_current_revision_and_go_back_with_the_template() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let suite = Suite {
            site: &arena.site,
            admin: arena.site.hands(User::Admin).await,
            nodes: (1..=5).map(|number| format!("{NAME}-{number}")).collect(),
        };
        for node in &suite.nodes {
            suite.site.kubelets.add_machine(MachineSpec::new(node).label("pool", NAME));
        }
        suite.apply(&objects::namespace(NAME)).await;
        suite.apply(&objects::namespace(APPS)).await;
        let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}});
        suite.apply(&object("storage.k8s.io/v1", "CSIDriver", "csidrivers", None, driver)).await;
        suite.apply(&plugin()).await;
        suite.ready(NAME, "csi-rbdplugin", 5).await;
        for (name, attributes) in [("nbd", json!({"mounter": "rbd-nbd"})), ("krbd", json!({"imageFormat": "2"}))] {
            suite.volume(name, attributes).await;
            suite.apply(&app(name)).await;
            suite.ready(APPS, name, 3).await;
        }
        let component = json!({
            "csiNodePlugin": {"driver": DRIVER}, "nodeSelector": {"pool": NAME},
            "rollout": {"soak": "500ms", "maxFailures": 100}, "verify": {"stableFor": "1s"},
        });
        suite.apply(&objects::component(NAME, "rbd", component)).await;
        let kernel = suite.pods(APPS, "krbd").await.expect("pods");
        let before = suite.pods(APPS, "nbd").await.expect("pods");
        // A new template: with OnDelete nothing moves until nodes are handed over.
        suite
            .admin
            .merge(SET, &json!({"spec": {"template": {"spec": {"containers": containers("v2")}}}}))
            .await
            .expect("a template");
        for node in &suite.nodes {
            suite.ask(node, 1).await;
        }
        for node in &suite.nodes {
            let handoff = suite.done(node, 1).await;
            suite.runs(node, "v2").await;
            if before.values().any(|(on, _)| on == node) {
                let proofs = handoff["status"]["proofs"].to_string();
                assert!(proofs.contains("no volume of this run is attached"), "{proofs}");
            }
        }
        assert_eq!(suite.pods(APPS, "krbd").await.expect("pods"), kernel, "the kernel's mounts live on, and nobody moved them");
        let after = suite.ready(APPS, "nbd", 3).await;
        assert!(before.keys().all(|uid| !after.contains_key(uid)), "each of them left its node once at least");
        // Rolling back: the template first, then the nodes.
        suite.site.plane.kubectl(["rollout", "undo", "daemonset/csi-rbdplugin", "-n", NAME]).expect_ok();
        suite.ask(&suite.nodes[0], 2).await;
        suite.done(&suite.nodes[0], 2).await;
        suite.runs(&suite.nodes[0], "v1").await;
        suite.runs(&suite.nodes[1], "v2").await;
        let lost: Vec<_> = suite.site.kubelets.disruptions().into_iter().filter(|it| it.pod.namespace == APPS).collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}

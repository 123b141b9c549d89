//! Nodes and objects written by hand, for tests that need no kubelet that runs pods.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::wait::{CONTROLLER, eventually};

/// A node that a controller sees as alive for as long as this value lives.
pub struct HandMadeNode {
    pub name: String,
    client: Client,
    heartbeat: tokio::task::JoinHandle<()>,
}

impl HandMadeNode {
    /// A Ready node with room for pods, labelled `kubernetes.io/hostname` = its name, and with the labels given.
    pub async fn ready(client: &Client, name: &str, labels: &[(&str, &str)]) -> HandMadeNode {
        let nodes: Api<Node> = Api::all(client.clone());
        let mut all: BTreeMap<&str, &str> = labels.iter().copied().collect();
        all.insert("kubernetes.io/hostname", name);
        let node = json!({
            "metadata": {"name": name, "labels": all},
            "status": {
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": format!("{name}-boot-1"), "containerRuntimeVersion": "none://1", "kernelVersion": "6.12.0",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.37.2", "machineID": name, "operatingSystem": "linux", "osImage": "none",
                    "systemUUID": name,
                },
            },
        });
        let node: Node = serde_json::from_value(node).expect("node");
        nodes.create(&PostParams::default(), &node).await.expect("create a node");
        // A server that has just started makes the namespace of the leases a moment later.
        eventually("a node's lease", CONTROLLER, || async { renew(client, name).await.map(Some) }).await;
        let heartbeat = tokio::spawn({
            let (client, name) = (client.clone(), name.to_owned());
            async move {
                loop {
                    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
                    // A server that is down for a while is a normal part of these tests.
                    renew(&client, &name).await.ok();
                }
            }
        });
        HandMadeNode { name: name.to_owned(), client: client.clone(), heartbeat }
    }

    /// From now on nobody renews its lease.
    pub fn die(&self) {
        self.heartbeat.abort();
    }

    pub async fn delete(self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete(&self.name, &DeleteParams::default()).await.expect("delete a node");
    }
}

impl Drop for HandMadeNode {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

async fn renew(client: &Client, node: &str) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    #[expect(clippy::disallowed_methods, reason = "a real server compares with its own clock")]
    let now = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": format!("{now:.6}")},
    });
    leases.patch(node, &PatchParams::apply("kubelet").force(), &Patch::Apply(&lease)).await.map(drop)
}

/// A namespace of a test's own.
pub async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("create a namespace");
}

//! The control plane itself: that the tests run on what they think they run on.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::{
    by_hand::{HandMadeNode, namespace},
    support::controlplane::{Component, ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

/// A DaemonSet for the nodes with the label `pool` = its name.
async fn daemon_set(client: &Client, namespace: &str, name: &str) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let set = json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": {"pool": name}, "containers": [{"name": "main", "image": "none"}]},
            },
        },
    });
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("DaemonSet")).await.expect("create a DaemonSet");
}

/// The nodes that pods of a DaemonSet of [`daemon_set`] are bound to.
async fn bound(client: &Client, namespace: &str, app: &str) -> kube::Result<BTreeSet<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&format!("app={app}"))).await?;
    Ok(pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect())
}

#[tokio::test]
async fn the_server_answers_and_is_kubernetes_1_37() {
    let Some(plane) = ControlPlane::shared() else {
        return;
    };
    let version = plane.client(User::Admin).await.apiserver_version().await.expect("version");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "37"), "{}", version.git_version);
}

#[tokio::test]
async fn kubectl_is_of_the_same_version_and_speaks_to_the_same_server() {
    let Some(plane) = ControlPlane::shared() else {
        return;
    };
    let said = plane.kubectl(["version", "-o", "json"]).expect_ok();
    let version: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(version["clientVersion"]["gitVersion"], version["serverVersion"]["gitVersion"], "{said}");
    let applied = plane.kubectl_as(
        User::Admin,
        ["apply", "-f", "-"],
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied","namespace":"default"},"data":{"a":"b"}}"#,
    );
    assert_eq!(applied.expect_ok().trim(), "configmap/applied created");
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(User::Admin).await, "default");
    assert!(maps.get("applied").await.is_ok());
}

#[tokio::test]
async fn users_other_than_admin_have_no_rights_until_a_test_gives_them() {
    let Some(plane) = ControlPlane::shared() else {
        return;
    };
    for user in [User::Operator, User::Reconciler, User::Viewer] {
        let said = plane.kubectl_as(user, ["get", "configmaps", "-n", "kube-system"], "").expect_refusal();
        assert!(said.contains(&format!("User \"{}\" cannot list resource", user.name())), "{said}");
    }
}

#[tokio::test]
async fn controllers_and_scheduler_run_pods_of_a_daemon_set_on_nodes_made_by_hand() {
    let Some(plane) = ControlPlane::shared() else {
        return;
    };
    let client = plane.client(User::Admin).await;
    namespace(&client, "launcher-daemons").await;
    let first = HandMadeNode::ready(&client, "launcher-1", &[("pool", "launcher")]).await;
    let second = HandMadeNode::ready(&client, "launcher-2", &[("pool", "launcher")]).await;
    daemon_set(&client, "launcher-daemons", "launcher").await;

    let both: BTreeSet<String> = [first.name.clone(), second.name.clone()].into();
    eventually("a pod of the DaemonSet on both nodes", CONTROLLER, || async {
        Ok::<_, kube::Error>(bound(&client, "launcher-daemons", "launcher").await?.eq(&both).then_some(()))
    })
    .await;

    let nodes: Api<Node> = Api::all(client.clone());
    eventually("a Ready node to keep no taint", CONTROLLER, || async {
        let node = nodes.get(&first.name).await.map_err(|error| error.to_string())?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if taints.is_empty() { Ok(Some(())) } else { Err(format!("{taints:?}")) }
    })
    .await;
    let said = plane.kubectl(["get", "node", &first.name, "--no-headers"]).expect_ok();
    assert!(said.contains(" Ready "), "{said}");
    first.delete().await;
    second.delete().await;
}

#[tokio::test]
async fn parts_can_be_killed_started_frozen_and_thawed_and_nodes_die() {
    let Some(plane) = ControlPlane::own(&[]) else {
        return;
    };
    let client = plane.client(User::Admin).await;
    let node = HandMadeNode::ready(&client, "mortal", &[("pool", "frozen")]).await;
    // A node without a heartbeat turns Unknown while the rest of the test goes on.
    let lonely = HandMadeNode::ready(&client, "lonely", &[]).await;
    lonely.die();

    plane.stop(Component::ControllerManager);
    daemon_set(&client, "default", "frozen").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(bound(&client, "default", "frozen").await.expect("list").is_empty(), "a frozen controller made a pod");
    plane.go_on(Component::ControllerManager);
    eventually("a pod once the controllers are thawed", CONTROLLER, || async {
        Ok::<_, kube::Error>(bound(&client, "default", "frozen").await?.contains(&node.name).then_some(()))
    })
    .await;

    plane.kill(Component::ApiServer);
    let nodes: Api<Node> = Api::all(client.clone());
    let refused = nodes.get(&node.name).await;
    assert!(matches!(refused, Err(kube::Error::Service(_) | kube::Error::HyperError(_))), "{refused:?}");
    let pid = plane.start_again(Component::ApiServer);
    assert_ne!(Some(pid), plane.first_pid(Component::ApiServer));
    assert!(nodes.get(&node.name).await.is_ok(), "data survive a kill of the API server");

    eventually("the node without a heartbeat to turn Unknown", CONTROLLER, || async {
        let status = nodes.get(&lonely.name).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        Ok::<_, kube::Error>(ready.is_some_and(|ready| ready.status == "Unknown").then_some(()))
    })
    .await;

    let (server, dir) = (plane.server().to_owned(), plane.dir().to_owned());
    drop(plane);
    assert!(!dir.exists(), "{} stays", dir.display());
    let address = server.trim_start_matches("https://");
    assert!(std::net::TcpStream::connect(address).is_err(), "{server} still answers");
}

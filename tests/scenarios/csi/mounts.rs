//! Mounts that died are listed, volumes are mounted anew without any new pod of the plugin, and holders are handed over like plugins.

use std::{collections::BTreeSet, time::Duration};

use lockkeeper::{
    cli::render::status,
    sim::scenarios::{
        csi::{CEPHFS, NAMESPACE},
        objects,
    },
};
use serde_json::{Value, json};

use super::shop::{Shop, left, text};
use crate::stage::play;

impl Shop {
    /// A condition of the component: its status and message.
    fn condition(&self, component: &str, kind: &str) -> (String, String) {
        let object = self.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, component).unwrap();
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let one = all.into_iter().find(|it| it["type"] == kind).unwrap_or_default();
        (text(&one, "/status").to_owned(), text(&one, "/message").to_owned())
    }

    /// Apps with pods on a node that are not on their way out.
    fn present(&self, node: &str) -> Vec<String> {
        let apps: BTreeSet<String> = self.apps(node).into_values().collect();
        apps.into_iter().collect()
    }

    fn uid(&self, node: &str) -> String {
        text(&self.plugin_pod(CEPHFS, node).unwrap(), "/metadata/uid").to_owned()
    }
}

#[test]
fn mounts_that_died_with_a_crashed_plugin_are_listed_with_what_brings_them_back_though_nobody_upgraded_anything() {
    play(|| async {
        let shop = Shop::open(21, 3).await;
        let node = shop.with("fuse-a");
        shop.until("nothing is to be said", || shop.condition("cephfs", "StaleMounts").0 == "False").await;
        let pod = shop.plugin_pod(CEPHFS, &node).unwrap();
        shop.world.kubelets.crash(&node, &format!("{NAMESPACE}/{}", text(&pod, "/metadata/name")));
        shop.until("the component says so", || shop.condition("cephfs", "StaleMounts").0 == "True").await;
        let wanted: Vec<String> =
            shop.present(&node).into_iter().filter(|app| ["fuse-a", "fuse-b", "inline", "logs"].contains(&&**app)).collect();
        let message = shop.condition("cephfs", "StaleMounts").1;
        assert!(wanted.iter().all(|app| message.contains(&format!("shop/{app}-"))), "{wanted:?}: {message}");
        assert!(!message.contains("shop/kernel-"), "what the kernel serves lives on: {message}");
        // As `lockkeeper status` has it: each pod, and the command.
        let picture = shop.engine.pictures().borrow().clone();
        let report = status::report(&picture, None);
        let mut listed: Vec<String> =
            report.stale_mounts.iter().map(|it| it.pod.rsplitn(3, '-').last().unwrap().replace("shop/", "")).collect();
        listed.sort();
        listed.dedup();
        assert!(report.stale_mounts.iter().all(|it| it.node == node && it.component == "ceph/cephfs"));
        assert!(
            wanted.iter().all(|app| report.stale_mounts.iter().any(|it| it.pod.starts_with(&format!("shop/{app}-")))),
            "{listed:?}"
        );
        let table = status::table(&report, false);
        assert!(table.contains("DEAD MOUNT IN") && table.contains("kubectl -n shop delete pod fuse-a-"), "{table}");
        // A person does what is said.
        for it in &report.stale_mounts {
            let (namespace, name) = it.pod.split_once('/').unwrap();
            shop.hands.delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await.unwrap();
        }
        shop.until("nothing is left to say", || shop.condition("cephfs", "StaleMounts").0 == "False").await;
        let picture = shop.engine.pictures().borrow().clone();
        assert!(status::report(&picture, None).stale_mounts.is_empty());
        assert_eq!(shop.world.report().claimants_evicted, 0, "nobody was evicted for it");
    });
}

#[test]
fn a_remount_moves_every_pod_with_a_volume_once_and_replaces_no_plugin_pod() {
    play(|| async {
        let shop = Shop::open(22, 3).await;
        let node = shop.with("kernel");
        let (before, plugin) = (shop.apps(&node), shop.uid(&node));
        let wanted: Vec<String> = shop
            .present(&node)
            .into_iter()
            .filter(|app| ["fuse-a", "fuse-b", "inline", "kernel", "logs"].contains(&&**app))
            .collect();
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/cephfs");
        let remount = |word: &'static str| {
            let body = json!({"spec": {"csiNodePlugin": {"remount": word}}});
            let (hands, path) = (shop.hands.clone(), path.clone());
            async move { hands.merge(&path, &body).await.unwrap() }
        };
        remount("keys-1").await;
        // Nothing moves by itself.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(left(&before, &shop.apps(&node)), Vec::<String>::new());
        shop.ask(CEPHFS, &node).await;
        shop.until("it is done", || shop.phase(CEPHFS, &node) == "Done").await;
        assert_eq!(left(&before, &shop.apps(&node)), wanted, "kernel mounts too");
        assert_eq!(shop.uid(&node), plugin, "no plugin pod is replaced");
        assert!(shop.is_open(&node));
        assert_eq!(text(&shop.handoff(CEPHFS, &node), "/status/run/target"), "keys-1");
        // The same word again moves nobody; the next one is another round.
        let again = |attempt: u32| {
            let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/cephfs.{node}");
            let hands = shop.hands.clone();
            async move { hands.merge(&path, &json!({"spec": {"attempt": attempt}})).await.unwrap() }
        };
        let done = |attempt: u32| {
            let handoff = shop.handoff(CEPHFS, &node);
            text(&handoff, "/status/phase") == "Done"
                && handoff["status"]["history"].as_array().map_or(0, Vec::len) >= attempt as usize
        };
        let after = shop.apps(&node);
        again(2).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(left(&after, &shop.apps(&node)), Vec::<String>::new(), "{}", shop.handoff(CEPHFS, &node)["status"]);
        remount("keys-2").await;
        again(3).await;
        shop.until("the next round is done", || done(2) && text(&shop.handoff(CEPHFS, &node), "/status/run/target") == "keys-2")
            .await;
        assert_eq!(shop.uid(&node), plugin);
        shop.clean();
    });
}

const HOLDER: &str = "csi-cephfsplugin-holder-main";

fn holder(image: &str) -> Value {
    let mut template = objects::template(HOLDER, None, 5);
    template["spec"]["containers"][0]["image"] = json!(image);
    template["metadata"]["annotations"] =
        json!({"sim.lockkeeper.dev/behaviour": "csi-holder", "sim.lockkeeper.dev/driver": CEPHFS.driver});
    template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    template
}

#[test]
fn a_holder_is_handed_over_like_a_plugin_and_all_mounts_hang_on_it() {
    play(|| async {
        let shop = Shop::open(23, 3).await;
        let on_delete = json!({"type": "OnDelete"});
        shop.hands
            .create(&objects::daemon_set(NAMESPACE, HOLDER, json!({"pool": "worker"}), on_delete, holder("holder:1")))
            .await
            .unwrap();
        let spec = json!({"csiNodePlugin": {"driver": CEPHFS.driver, "daemonSet": HOLDER}, "nodeSelector": {"pool": "worker"},
            "rollout": {"soak": "5s"}});
        shop.hands.create(&objects::component(NAMESPACE, "holder", spec)).await.unwrap();
        let pod = |node: &str| {
            let pods = shop.world.api.list("pods");
            let own =
                |pod: &&std::sync::Arc<Value>| text(pod, "/spec/nodeName") == node && text(pod, "/metadata/labels/app") == HOLDER;
            pods.iter()
                .find(own)
                .map(|pod| (text(pod, "/metadata/uid").to_owned(), text(pod, "/spec/containers/0/image").to_owned()))
        };
        shop.until("holders run", || shop.nodes.iter().all(|node| pod(node).is_some())).await;
        let accepted = || ["holder", "cephfs"].iter().all(|name| shop.condition(name, "Invalid").0 == "False");
        shop.until("both components are accepted", accepted).await;
        let release = json!({"spec": {"template": {"spec": {"containers": holder("holder:2")["spec"]["containers"]}}}});
        shop.hands.merge(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{HOLDER}"), &release).await.unwrap();
        let node = shop.with("kernel");
        let (before, plugin, old) = (shop.apps(&node), shop.uid(&node), pod(&node).unwrap());
        let wanted: Vec<String> = shop
            .present(&node)
            .into_iter()
            .filter(|app| ["fuse-a", "fuse-b", "inline", "kernel", "logs"].contains(&&**app))
            .collect();
        let ask = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
            "metadata": {"name": format!("holder.{node}"), "namespace": NAMESPACE},
            "spec": {"component": "holder", "node": node, "requestedBy": "operator"}});
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs");
        shop.hands.send(http::Method::POST, &path, "application/json", Some(&ask)).await.unwrap();
        let handoff = || {
            shop.world
                .api
                .get("nodehandoffs.lockkeeper.dev", NAMESPACE, &format!("holder.{node}"))
                .map(|it| (*it).clone())
                .unwrap_or_default()
        };
        shop.until("it is done", || text(&handoff(), "/status/phase") == "Done").await;
        assert_eq!(left(&before, &shop.apps(&node)), wanted, "those with kernel mounts too; the DaemonSet's is restarted");
        let new = pod(&node).unwrap();
        assert!(new.0 != old.0 && new.1 == "holder:2", "{new:?}");
        assert_eq!(shop.uid(&node), plugin, "the plugin pod is not touched");
        assert!(shop.is_open(&node));
        // The nodeplugin beside it is at risk for what lives in it alone.
        shop.clean();
    });
}

//! What speaks against a handoff of a nodeplugin is said, with the way out, and nothing is touched.

use std::time::Duration;

use lockkeeper::{
    console::plan::{self, Request},
    engine::intent::{Intent, IntentOutcome, NodeTarget},
    sim::{
        people::storage,
        scenarios::csi::{CEPHFS, NAMESPACE, OLD, Plugin, RBD, SHOP},
    },
};
use serde_json::{Value, json};

use super::shop::{Shop, left, text};
use crate::stage::play;

impl Shop {
    /// Asks for it; these words are said of it, by its NodeHandoff or its NodeComponent, and nothing of the node is touched.
    async fn refused(&self, plugin: Plugin, node: &str, words: &str) {
        let (before, pod) = (self.apps(node), self.plugin_pod(plugin, node));
        let uid = |pod: Option<&Value>| pod.map(|pod| text(pod, "/metadata/uid").to_owned());
        self.ask(plugin, node).await;
        let said = || {
            let component = self.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, plugin.name).unwrap();
            [&self.handoff(plugin, node)["status"], &component["status"]].iter().any(|it| it.to_string().contains(words))
        };
        self.until(words, said).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(said(), "it is no longer said");
        assert_eq!(left(&before, &self.apps(node)), Vec::<String>::new());
        assert_eq!(uid(pod.as_deref()), uid(self.plugin_pod(plugin, node).as_deref()));
        assert!(self.is_open(node));
        assert_eq!(self.world.report().claimants_evicted, 0);
    }

    async fn spec(&self, plugin: Plugin, spec: Value) {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{}", plugin.name);
        self.hands.merge(&path, &json!({"spec": spec})).await.unwrap();
    }

    /// A node with a pod of this app.
    pub fn with(&self, app: &str) -> String {
        self.nodes.iter().find(|node| self.apps(node).values().any(|known| known == app)).expect("somewhere").clone()
    }
}

#[test]
fn a_taint_that_keeps_the_next_pod_away_is_refused_before_anything_is_written() {
    play(|| async {
        let shop = Shop::open(2, 2).await;
        let node = shop.nodes[0].clone();
        // The template tolerates nothing any more, and the node has a taint.
        let bare = json!({"spec": {"template": {"spec": {"tolerations": null}}}});
        shop.hands.merge(&CEPHFS.set_path(), &bare).await.unwrap();
        let taint = json!({"spec": {"taints": [{"key": "storage", "value": "no", "effect": "NoSchedule"}]}});
        shop.hands.merge(&format!("/api/v1/nodes/{node}"), &taint).await.unwrap();
        let (before, old) = (shop.apps(&node), shop.plugin_pod(CEPHFS, &node).unwrap());
        shop.ask(CEPHFS, &node).await;
        let said = || shop.handoff(CEPHFS, &node)["status"].to_string().contains("taint storage=no:NoSchedule is not tolerated");
        shop.until("the taint is named", said).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(left(&before, &shop.apps(&node)), Vec::<String>::new());
        assert_eq!(text(&old, "/metadata/uid"), text(&shop.plugin_pod(CEPHFS, &node).unwrap(), "/metadata/uid"));
        assert!(shop.is_open(&node));
        shop.clean();
    });
}

#[test]
fn a_rolling_update_strategy_is_refused_with_the_command_that_changes_it() {
    play(|| async {
        let shop = Shop::open(3, 2).await;
        let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
        shop.hands.merge(&RBD.set_path(), &rolling).await.unwrap();
        shop.ask(RBD, &shop.nodes[0]).await;
        let said = || {
            let status = shop.handoff(RBD, &shop.nodes[0])["status"].to_string();
            let component = shop.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, RBD.name).unwrap();
            [status, component["status"].to_string()].iter().any(|text| text.contains("patch daemonset csi-rbdplugin"))
        };
        shop.until("the fix is named", said).await;
        assert!(shop.nodes.iter().all(|node| shop.is_open(node)));
        shop.clean();
    });
}

#[test]
fn a_driver_that_no_daemon_set_registers_is_refused_with_where_to_look() {
    play(|| async {
        let shop = Shop::open(5, 2).await;
        shop.release(CEPHFS).await;
        shop.spec(CEPHFS, json!({"csiNodePlugin": {"driver": "nobody.csi.example.com", "daemonSet": null}})).await;
        let words = "no DaemonSet of namespace ceph registers driver nobody.csi.example.com";
        shop.refused(CEPHFS, &shop.nodes[0], words).await;
        shop.clean();
    });
}

#[test]
fn two_daemon_sets_for_one_driver_are_refused_until_one_is_named() {
    play(|| async {
        let shop = Shop::open(6, 2).await;
        let mut second = CEPHFS.set("v3.11", "OnDelete");
        second.body["metadata"]["name"] = json!("csi-cephfsplugin-copy");
        second.body["spec"]["selector"] = json!({"matchLabels": {"app": "copy"}});
        second.body["spec"]["template"]["metadata"]["labels"] = json!({"app": "copy"});
        second.body["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "nowhere"});
        shop.hands.create(&second).await.unwrap();
        shop.spec(CEPHFS, json!({"csiNodePlugin": {"daemonSet": null}})).await;
        shop.release(CEPHFS).await;
        let node = shop.nodes[0].clone();
        shop.refused(CEPHFS, &node, "2 DaemonSets of namespace ceph register driver cephfs.csi.ceph.com").await;
        shop.spec(CEPHFS, json!({"csiNodePlugin": {"daemonSet": CEPHFS.daemon_set}})).await;
        shop.until("it goes on once one is named", || shop.phase(CEPHFS, &node) == "Done").await;
        shop.clean();
    });
}

#[test]
fn a_claim_or_a_volume_that_is_gone_under_a_running_pod_is_named_and_nobody_is_evicted() {
    play(|| async {
        for (seed, path, words) in [
            (
                7,
                format!("/api/v1/namespaces/{SHOP}/persistentvolumeclaims/fuse-a"),
                "PersistentVolumeClaim shop/fuse-a does not exist",
            ),
            (
                8,
                "/api/v1/persistentvolumes/pv-fuse-a".to_owned(),
                "PersistentVolume pv-fuse-a of its claim shop/fuse-a does not exist",
            ),
        ] {
            let shop = Shop::open(seed, 2).await;
            shop.hands.delete(&path).await.unwrap();
            shop.release(CEPHFS).await;
            shop.refused(CEPHFS, &shop.with("fuse-a"), words).await;
            shop.clean();
        }
    });
}

#[test]
fn a_node_that_is_not_ready_is_passed_over_and_taken_when_it_is_back() {
    play(|| async {
        let shop = Shop::open(9, 2).await;
        let (node, other) = (shop.nodes[0].clone(), shop.nodes[1].clone());
        shop.release(CEPHFS).await;
        shop.world.kubelets.kill(&node);
        let ready = || {
            let node = shop.world.api.get("nodes", "", &node).unwrap();
            node["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
        };
        shop.until("it is NotReady", || !ready()).await;
        shop.refused(CEPHFS, &node, "not Ready: it is passed over until it is").await;
        shop.ask(CEPHFS, &other).await;
        shop.until("the other one is not behind it", || shop.phase(CEPHFS, &other) == "Draining").await;
        shop.world.kubelets.revive(&node);
        shop.until("both are done", || [&node, &other].iter().all(|node| shop.phase(CEPHFS, node) == "Done")).await;
        shop.clean();
    });
}

#[test]
fn a_plugin_pod_that_has_failed_is_left_to_its_daemon_set() {
    play(|| async {
        let shop = Shop::open(10, 2).await;
        let node = shop.nodes[0].clone();
        shop.release(RBD).await;
        // With its kubelet away the pod stays as it is for a while: failed.
        let old = shop.plugin_pod(RBD, &node).unwrap();
        let name = text(&old, "/metadata/name").to_owned();
        let failed = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        shop.world.kubelets.kill(&node);
        shop.hands.merge(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"), &failed).await.unwrap();
        shop.ask(RBD, &node).await;
        // Its controller takes it away and makes the next one, of the current revision: there is nothing left to replace.
        shop.world.kubelets.revive(&node);
        shop.until("its DaemonSet has replaced it", || {
            shop.plugin_pod(RBD, &node).is_some_and(|pod| text(&pod, "/metadata/uid") != text(&old, "/metadata/uid"))
        })
        .await;
        shop.until("it is done", || shop.phase(RBD, &node) == "Done").await;
        assert!(shop.is_open(&node));
    });
}

#[test]
fn a_plan_says_whose_mounts_die_where_nobody_is_to_leave() {
    play(|| async {
        let shop = Shop::open(11, 2).await;
        shop.release(RBD).await;
        shop.spec(RBD, json!({"csiNodePlugin": {"drain": "None"}})).await;
        let node = shop.with("nbd");
        let plan = || {
            let picture = shop.engine.pictures().borrow().clone();
            let to = picture.fleet.components.get(&RBD.key()).and_then(|it| it.aim()).unwrap_or_else(|| "none".into());
            let uid = picture.fleet.node(&node.as_str().into()).and_then(|it| it.record.as_ref().map(|it| it.meta.uid.clone()));
            let target = NodeTarget { node: node.as_str().into(), uid };
            plan::from_facts(&picture, &Request { component: RBD.key(), nodes: vec![target], to })
        };
        let warned = |words: &str| {
            let plan = plan();
            plan.warnings.iter().chain(plan.nodes.iter().flat_map(|node| &node.warnings)).any(|it| it.contains(words))
        };
        shop.until("it is said", || warned("lose their mounts with the plugin pod: shop/nbd-")).await;
        assert!(plan().nodes[0].pods.is_empty(), "nobody leaves");
        shop.spec(RBD, json!({"csiNodePlugin": {"drain": "AtRisk"}})).await;
        shop.until("they leave, and nothing dies", || !warned("lose their mounts") && !plan().nodes[0].pods.is_empty()).await;
    });
}

/// Of a nodeplugin there is only what is current: whoever asks for another revision is told the way, and an object that was written by hand
/// all the same keeps nobody behind it from going.
#[test]
fn a_revision_that_is_not_current_is_refused_with_the_way_back_and_holds_nobody_up() {
    play(|| async {
        let shop = Shop::open(12, 3).await;
        let [first, second, third] = [0, 1, 2].map(|at| shop.nodes[at].clone());
        shop.release(CEPHFS).await;
        shop.ask(CEPHFS, &first).await;
        shop.until("the first is done", || shop.phase(CEPHFS, &first) == "Done").await;
        let old = text(&shop.handoff(CEPHFS, &first), "/status/run/from").to_owned();
        let new = text(&shop.handoff(CEPHFS, &first), "/status/run/target").to_owned();
        let way = "kubectl -n ceph rollout undo daemonset/csi-cephfsplugin";
        let asked = |intent: Intent| async {
            match shop.engine.ask(intent).await {
                IntentOutcome::Refused { message } => message,
                other => panic!("it was not refused: {other:?}"),
            }
        };
        let told = asked(Intent::RollBack { component: CEPHFS.key(), node: first.as_str().into() }).await;
        assert!([&old, &new, way].iter().all(|word| told.contains(word)), "{told}");
        let told = asked(Intent::HandOver {
            component: CEPHFS.key(),
            nodes: vec![NodeTarget { node: second.as_str().into(), uid: None }],
            to: old.as_str().into(),
            pause_after: Vec::new(),
            reason: String::new(),
        })
        .await;
        assert!(told.contains(way), "{told}");
        assert!(shop.handoff(CEPHFS, &second).is_null(), "nothing was written");

        let by_hand = json!({"spec": {"version": old, "attempt": 2, "position": 1}});
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/cephfs.{first}");
        shop.hands.merge(&path, &by_hand).await.unwrap();
        let said = || shop.handoff(CEPHFS, &first)["status"]["blockers"].to_string();
        shop.until("it says why it waits", || said().contains("UnknownVersion") && said().contains(way)).await;
        shop.ask(CEPHFS, &third).await;
        shop.until("the one behind it is done", || shop.phase(CEPHFS, &third) == "Done").await;
        assert_eq!(shop.phase(CEPHFS, &first), "Queued");
        // Once the template is back it is what was asked for.
        storage::release(&shop.hands, CEPHFS, OLD).await.unwrap();
        shop.until("it goes back", || shop.phase(CEPHFS, &first) == "Done").await;
        assert_eq!(text(&shop.handoff(CEPHFS, &first), "/status/run/target"), old);
        shop.clean();
    });
}

/// What was asked of a component that is gone is not asked of the next one of that name.
#[test]
fn what_is_queued_for_a_component_that_is_deleted_ends_with_it() {
    play(|| async {
        let shop = Shop::open(13, 2).await;
        let node = shop.nodes[0].clone();
        shop.spec(CEPHFS, json!({"rollout": {"paused": true}})).await;
        shop.release(CEPHFS).await;
        shop.ask(CEPHFS, &node).await;
        let noted = || text(&shop.handoff(CEPHFS, &node), "/status/componentUid").to_owned();
        shop.until("it is queued for this component", || !noted().is_empty()).await;
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{}", CEPHFS.name);
        shop.hands.delete(&path).await.unwrap();
        shop.until("it is gone", || shop.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, CEPHFS.name).is_none()).await;
        let reason = || {
            let handoff = shop.handoff(CEPHFS, &node);
            (text(&handoff, "/status/phase").to_owned(), text(&handoff, "/status/reason/word").to_owned())
        };
        let ended = ("Aborted".to_owned(), "ComponentDeleted".to_owned());
        shop.until("it has ended", || reason() == ended).await;
        let uid = || shop.plugin_pod(CEPHFS, &node).map(|pod| text(&pod, "/metadata/uid").to_owned());
        let before = uid();
        shop.hands.create(&CEPHFS.component()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!((reason(), uid()), (ended, before), "nobody has asked the new one");
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/cephfs.{node}");
        shop.hands.merge(&path, &json!({"spec": {"attempt": 2}})).await.unwrap();
        shop.until("asked again it goes", || shop.phase(CEPHFS, &node) == "Done").await;
        shop.clean();
    });
}

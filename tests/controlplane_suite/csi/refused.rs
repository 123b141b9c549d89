//! What keeps a nodeplugin from coming back is said before anything is written: by `plan`, and by the handoff that is asked for all the same.

use std::process::Command;

use lockkeeper::api::Phase;
use serde_json::{Value, json};

use super::suite::{LONG, Plugin, Suite, given, text};
use crate::{
    site::{Asked, arena, block_on},
    support::controlplane::User,
    wait::eventually,
};

#[test]
fn an_untolerated_taint_is_refused_before_anything_is_written() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let plugin = Plugin { name: "csi-taint", kind: "cephfs", nodes: 2 };
        let bare = |template: &mut Value| template["spec"]["tolerations"] = Value::Null;
        let suite = Suite::open(&arena.site, plugin, bare).await;
        let apps = suite.apps();
        let [node, other] = [&suite.nodes[0], &suite.nodes[1]];
        suite.volume("fuse", json!({"mounter": "fuse"})).await;
        suite.apply(&suite.app_on("fuse", node)).await;
        let users = suite.ready(&apps, "fuse", 1).await;
        suite.release("v2").await;
        let path = format!("/api/v1/nodes/{node}");
        let taint = json!({"spec": {"taints": [{"key": "storage", "value": "no", "effect": "NoSchedule"}]}});
        suite.admin.merge(&path, &taint).await.expect("a taint");
        let before = suite.admin.get(&path).await.expect("the Node");
        let pods = suite.plugin_pods(node).await;
        let set = suite.admin.get(&plugin.set_path()).await.expect("the DaemonSet");
        let begin = suite.site.asked(User::Reconciler).len();

        // What it sees may be a moment old.
        eventually("plan to say that the taint is not tolerated", LONG, || async {
            let mut plan = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
            plan.args(["plan", &plugin.key().to_string(), node, "--kubeconfig"]).arg(suite.site.plane.kubeconfig(User::Admin));
            let planned = tokio::task::block_in_place(|| plan.output()).expect("run lockkeeper plan");
            let said = String::from_utf8_lossy(&planned.stdout).into_owned() + &String::from_utf8_lossy(&planned.stderr);
            let refused = planned.status.code() == Some(3) && said.contains("taint storage=no:NoSchedule is not tolerated");
            if refused { Ok(Some(())) } else { Err(format!("{}: {said}", planned.status)) }
        })
        .await;

        // Both are asked for. The other one goes through, so that the engine has had its time for the first.
        suite.ask(node, json!({})).await;
        suite.ask(other, json!({})).await;
        let refused = suite
            .until(node, "the taint named", |status| {
                let named = |text: &str| text.contains("taint storage=no:NoSchedule is not tolerated");
                status.reason.as_ref().is_some_and(|reason| named(&reason.message))
                    || status.blockers.iter().any(|blocker| named(&blocker.message))
            })
            .await;
        assert!(matches!(refused.phase, Phase::Queued | Phase::Preflight), "{refused:?}");
        suite.ended(other, 1, Phase::Done).await;
        suite.runs(other, "v2").await;

        let after = suite.admin.get(&path).await.expect("the Node");
        assert_eq!(given(&before), given(&after), "the node");
        let all_given = |pods: &[Value]| pods.iter().map(given).collect::<Vec<_>>();
        assert_eq!(all_given(&pods), all_given(&suite.plugin_pods(node).await), "not even a label of it");
        assert_eq!(suite.ready(&apps, "fuse", 1).await, users);
        let now = suite.admin.get(&plugin.set_path()).await.expect("the DaemonSet");
        assert_eq!(set["metadata"]["generation"], now["metadata"]["generation"]);
        let pod = text(&pods[0], "/metadata/name");
        let touched: Vec<Asked> = suite.site.asked(User::Reconciler).split_off(begin);
        let touched: Vec<&Asked> = touched
            .iter()
            .filter(|it| it.writes())
            .filter(|it| {
                it.resource == "nodes" && it.name == *node
                    || it.namespace == plugin.name && it.name == pod
                    || it.namespace == apps
                    || it.resource == "daemonsets" && it.namespace == plugin.name
            })
            .collect();
        assert!(touched.is_empty(), "the engine asked for {touched:?}");

        // Once the taint is tolerated, the same handoff goes on by itself.
        let tolerant = json!({"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}});
        suite.admin.merge(&plugin.set_path(), &tolerant).await.expect("tolerations");
        suite.ended(node, 1, Phase::Done).await;
        suite.runs(node, "v2").await;
        suite.is_as_before(node).await;
        suite.undisturbed("");
    });
}

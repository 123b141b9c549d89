//! The template changes while a node is being handed over: before the pod's deletion nothing is replaced by what nobody asked for, after it
//! what comes is what is current.

use lockkeeper::{
    api::{Phase, handoff::Step},
    handoff::csi_node_plugin::REVISION_CHANGED,
    sim::scenarios::objects,
};
use serde_json::{Value, json};

use super::suite::{LONG, Plugin, Suite, given, text};
use crate::{
    site::{arena, block_on},
    wait::eventually,
};

/// Two nodes; on each one pod with a FUSE mount that its budget does not let go, for the only other pod of it is not well.
async fn besieged<'a>(site: &'a crate::site::Site, plugin: Plugin) -> Suite<'a> {
    let suite = Suite::open(site, plugin, |_| {}).await;
    for (number, node) in (1..).zip(&suite.nodes) {
        let app = format!("fuse-{number}");
        suite.volume(&app, json!({"mounter": "fuse"})).await;
        suite.apply(&objects::budget(&suite.apps(), &app, "maxUnavailable", json!(1))).await;
        let mut sick = objects::deployment(&suite.apps(), &app, 1, objects::template(&app, None, 5));
        sick.body["metadata"]["name"] = json!(format!("sick-{number}"));
        sick.body["spec"]["selector"] = json!({"matchLabels": {"app": app, "sick": "yes"}});
        let template = &mut sick.body["spec"]["template"];
        template["metadata"]["labels"]["sick"] = json!("yes");
        template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        template["spec"]["nodeSelector"] = json!({"pool": plugin.name});
        suite.apply(&sick).await;
        suite.apply(&suite.app_on(&app, node)).await;
        suite.ready(&suite.apps(), &app, 1).await;
    }
    suite
}

fn blocked(status: &lockkeeper::api::NodeHandoffStatus) -> bool {
    status.phase == Phase::Draining && status.blockers.iter().any(|it| it.kind == "DisruptionBudget")
}

#[test]
fn before_the_deletion_a_new_revision_begins_again_or_ends_what_was_asked_for_by_name() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let suite = besieged(&arena.site, Plugin { name: "csi-early", kind: "cephfs", nodes: 2 }).await;
        let apps = suite.apps();
        let [any, named] = [&suite.nodes[0], &suite.nodes[1]];
        let second = suite.release("v2").await;
        suite.ask(any, json!({})).await;
        let waits = suite.until(any, "Draining, blocked by the budget", blocked).await;
        assert_eq!(waits.run.and_then(|run| run.target), Some(second.clone()));
        let plugin_on = async |node: &str| suite.plugin_pods(node).await.iter().map(given).collect::<Vec<_>>();
        let old = plugin_on(any).await;

        let third = suite.release("v3").await;
        let again = suite
            .until(any, "the new revision as its target", |status| {
                status.run.as_ref().is_some_and(|run| run.target.as_deref() == Some(&*third)) && blocked(status)
            })
            .await;
        let phases: Vec<Phase> = again.steps.iter().map(|step: &Step| step.phase).collect();
        let preflights = phases.iter().filter(|phase| **phase == Phase::Preflight).count();
        assert_eq!(preflights, 2, "it has begun again with Preflight: {phases:?}");
        assert_eq!(plugin_on(any).await, old, "nothing was replaced");
        suite.admin.delete(&format!("/apis/policy/v1/namespaces/{apps}/poddisruptionbudgets/fuse-1")).await.expect("no budget");
        suite.ended(any, 1, Phase::Done).await;
        suite.runs(any, "v3").await;
        suite.is_as_before(any).await;

        // Asked for by its name: another one is not what was asked for.
        suite.ask(named, json!({"version": third})).await;
        suite.until(named, "Draining, blocked by the budget", blocked).await;
        let (old, user) = (plugin_on(named).await, suite.pods(&apps, "fuse-2").await.expect("pods"));
        suite.release("v4").await;
        let ended = suite.ended(named, 1, Phase::Aborted).await;
        let reason = ended.reason.expect("a reason");
        assert_eq!(reason.word, REVISION_CHANGED);
        assert!(reason.message.contains("-n csi-early rollout undo daemonset/csi-cephfsplugin"), "{}", reason.message);
        assert_eq!(plugin_on(named).await, old);
        assert_eq!(suite.pods(&apps, "fuse-2").await.expect("pods"), user, "nobody was moved");
        suite.is_as_before(named).await;
        suite.undisturbed("");
    });
}

#[test]
fn after_the_deletion_the_pod_that_comes_is_of_the_current_revision() {
    let Some(arena) = arena() else { return };
    block_on(async {
        // Its process does not end before it is told to.
        let slow = |template: &mut Value| {
            template["metadata"]["annotations"]["sim.lockkeeper.dev/stop-seconds"] = json!("3600");
            template["spec"]["terminationGracePeriodSeconds"] = json!(3600);
        };
        let suite = Suite::open(&arena.site, Plugin { name: "csi-late", kind: "cephfs", nodes: 1 }, slow).await;
        let node = &suite.nodes[0];
        let second = suite.release("v2").await;
        suite.ask(node, json!({})).await;
        let going = eventually("the old pod on its way out", LONG, || async {
            let pods = suite.plugin_pods(node).await;
            Ok::<_, String>(pods.into_iter().find(|pod| !pod["metadata"]["deletionTimestamp"].is_null()))
        })
        .await;
        let status = suite.status(node).await;
        assert_eq!((status.phase, status.run.and_then(|run| run.target)), (Phase::ReplacingPod, Some(second)));
        let third = suite.release("v3").await;
        let target = |status: &lockkeeper::api::NodeHandoffStatus| {
            status.run.as_ref().is_some_and(|run| run.target.as_deref() == Some(&*third))
        };
        let status = suite.until(node, "the new revision as its target", target).await;
        assert_eq!(status.phase, Phase::ReplacingPod, "there is no way back from a deleted pod: {status:?}");
        assert_eq!(suite.plugin_pods(node).await.len(), 1, "the next one comes when the old one is gone");
        let name = format!("{}/{}", suite.plugin.name, text(&going, "/metadata/name"));
        suite.site.kubelets.end(node, &name);
        let done = suite.ended(node, 1, Phase::Done).await;
        assert!(target(&done), "{done:?}");
        suite.runs(node, "v3").await;
        suite.is_as_before(node).await;
        assert_eq!(suite.wrote("delete", "pods", suite.plugin.name).len(), 1);
    });
}

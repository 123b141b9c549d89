//! What becomes of versions: failures and the ways out of them, and the end of DaemonSets that nobody needs any more.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, api::ListParams};
use lockkeeper::{
    api::{Phase, keys},
    engine::intent::Intent,
    handoff::verdict::BlockerKind,
    sim::scenarios::objects,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, LONG, phase_of},
    site::{arena, block_on},
    support::controlplane::User,
    wait::eventually,
};

#[test]
fn a_node_is_tried_again_and_rolled_back() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "back", 1, |_| {}).await;
        let (node, engine) = ("back-1", &arena.engine);
        let again =
            |intent: fn(lockkeeper::api::ComponentKey, lockkeeper::api::NodeName) -> Intent| intent(fleet.key(), node.into());
        let retry = || again(|component, node| Intent::Retry { component, node });
        let roll_back = || again(|component, node| Intent::RollBack { component, node });
        // A budget that does not allow anything until its other pod is well.
        let mut sick = fleet.bystanders("sick", 1);
        sick.body["spec"]["template"]["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        sick.body["spec"]["template"]["metadata"]["labels"]["service"] = json!("shop");
        let mut model = fleet.claimants("model", 1);
        model.body["spec"]["template"]["metadata"]["labels"]["service"] = json!("shop");
        let mut budget = objects::budget(&fleet.apps(), "shop", "minAvailable", json!(1));
        budget.body["spec"]["selector"] = json!({"matchLabels": {"service": "shop"}});
        fleet.apply(&[sick, model, budget]).await;
        fleet.running("model", 1).await;
        fleet.running("sick", 1).await;

        // In force only where a deadline is to be missed: others may take their time.
        fleet.edit_component(json!({"drain": {"timeout": "10s"}})).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        fleet.ask(engine, fleet.to(node, "2.0")).await;
        let status = fleet.ended(node, 2, Phase::Failed).await;
        let reason = status.reason.expect("a reason");
        assert_eq!(reason.word, "DeadlineExceeded");
        assert!(
            reason.message.contains("PodDisruptionBudget back-apps/shop") && reason.message.contains("allows 0"),
            "{}",
            reason.message
        );
        // Its component works, so it is open.
        fleet.runs(node, "1.0").await;

        fleet
            .admin
            .delete(&format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/shop", fleet.apps()))
            .await
            .expect("delete");
        fleet.edit_component(json!({"drain": {"timeout": null}})).await;
        fleet.ask(engine, retry()).await;
        let status = fleet.ended(node, 3, Phase::Done).await;
        assert_eq!(
            status.history.iter().map(|end| (end.attempt, end.phase)).collect::<Vec<_>>(),
            [(1, Phase::Done), (2, Phase::Failed), (3, Phase::Done)]
        );
        fleet.runs(node, "2.0").await;
        fleet.running("model", 1).await;

        fleet.ask(engine, roll_back()).await;
        fleet.ended(node, 4, Phase::Done).await;
        fleet.runs(node, "1.0").await;
        fleet.running("model", 1).await;

        // A version whose loader does not start.
        let mut broken = fleet.module("3.0");
        broken["daemonSets"]["loader"]["metadata"]["annotations"]["sim.lockkeeper.dev/crash"] = json!("true");
        fleet.edit_component(json!({"deadlines": {"Loading": "8s"}})).await;
        fleet.release("3.0", broken).await;
        fleet.ask(engine, fleet.to(node, "3.0")).await;
        let status = fleet.ended(node, 5, Phase::Failed).await;
        let reason = status.reason.expect("a reason");
        assert!(reason.word == "DeadlineExceeded" && reason.message.contains("stays closed and keeps its slot"), "{reason:?}");
        let found = fleet.node(node).await;
        assert_eq!(found.spec.and_then(|spec| spec.unschedulable), Some(true));
        assert!(fleet.slots().await.expect("slots").iter().any(|slot| slot.node == node));
        fleet.blocker_saying(engine, node, BlockerKind::LoaderNotReady, "CrashLoopBackOff").await;
        eventually("one pod that no device is left for", LONG, || async {
            let phases: Vec<String> = fleet.pods("model").await.iter().map(|pod| phase_of(pod).to_owned()).collect();
            if phases == ["Pending"] { Ok(Some(())) } else { Err(format!("{phases:?}")) }
        })
        .await;

        fleet.edit_component(json!({"deadlines": {"Loading": null}})).await;
        fleet.ask(engine, roll_back()).await;
        fleet.ended(node, 6, Phase::Done).await;
        fleet.runs(node, "1.0").await;
        fleet.running("model", 1).await;
        assert_eq!(fleet.story(node), "+1.0 -1.0 +2.0 -2.0 +1.0 -1.0 +1.0");
        fleet.undisturbed();
    });
}

#[test]
fn daemon_sets_of_versions_that_nobody_needs_are_collected() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "collect", 1, |spec| spec["rollout"]["keepVersions"] = json!(1)).await;
        let sets: Api<DaemonSet> = Api::namespaced(arena.site.plane.client(User::Admin).await, fleet.name);
        let versions = || async {
            let all = sets.list(&ListParams::default().labels(keys::COMPONENT)).await?;
            let mut found: Vec<String> = all
                .iter()
                .filter_map(|set| {
                    let labels = set.metadata.labels.as_ref()?;
                    Some(format!("{} {}", labels.get(keys::VERSION)?, labels.get(keys::ROLE)?))
                })
                .collect();
            found.sort();
            Ok::<_, kube::Error>(found)
        };
        let both = |version: &str| [format!("{version} loader"), format!("{version} plugin")];
        let exactly = |wanted: Vec<String>| {
            let versions = &versions;
            async move {
                eventually(&format!("the DaemonSets {wanted:?}"), LONG, || async {
                    let found = versions().await.map_err(|error| error.to_string())?;
                    if found == wanted { Ok(Some(())) } else { Err(format!("{found:?}")) }
                })
                .await;
            }
        };
        fleet.release("2.0", fleet.module("2.0")).await;
        fleet.ask(&arena.engine, fleet.to("collect-1", "2.0")).await;
        fleet.ended("collect-1", 2, Phase::Done).await;
        fleet.runs("collect-1", "2.0").await;
        // Its handoff came from 1.0 and may want to go back.
        exactly([both("1.0"), both("2.0")].concat()).await;

        fleet.release("3.0", fleet.module("3.0")).await;
        fleet.ask(&arena.engine, fleet.to("collect-1", "3.0")).await;
        fleet.ended("collect-1", 3, Phase::Done).await;
        fleet.runs("collect-1", "3.0").await;
        exactly([both("2.0"), both("3.0")].concat()).await;

        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/gpu.collect-1", fleet.name);
        fleet.operator.delete(&path).await.expect("the operator may delete a NodeHandoff");
        exactly(both("3.0").to_vec()).await;
        fleet.runs("collect-1", "3.0").await;
        assert_eq!(fleet.story("collect-1"), "+1.0 -1.0 +2.0 -2.0 +3.0");
    });
}

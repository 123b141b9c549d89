//! Evictions and what holds them up: a budget is named with its arithmetic until it allows, and a pod's namesake is never touched.

use lockkeeper::{
    api::{ObjectKey, Phase},
    cluster::{Writer, Written, write::open},
    handoff::{action::PodRef, verdict::BlockerKind},
    sim::scenarios::objects,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, LONG, node_of, uid_of, version_of},
    site::{arena, block_on},
    support::controlplane::User,
    wait::eventually,
};

#[test]
fn a_budget_that_can_never_allow_refuses_the_start_until_it_is_changed() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "never", 2, |_| {}).await;
        let apps = fleet.apps();
        fleet.apply(&[fleet.claimants_apart("db", 1), objects::budget(&apps, "db", "minAvailable", json!(1))]).await;
        let node = node_of(&fleet.running("db", 1).await[0]).to_owned();
        fleet.release("2.0", fleet.module("2.0")).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;

        let words = "needs 1 healthy of 1, has 1, allows 0 (minAvailable: 1)";
        let seen = fleet.blocker_saying(&arena.engine, &node, BlockerKind::DisruptionBudgetNever, words).await;
        assert_eq!(seen.object.to_string(), "PodDisruptionBudget never-apps/db");
        assert!(seen.message.contains("It holds never-apps/db-"), "{}", seen.message);
        let recorded = fleet.recorded_saying(&node, BlockerKind::DisruptionBudgetNever, words).await;
        assert_eq!((recorded.object, recorded.message), (seen.object.to_string(), seen.message));
        let status = fleet.handoff(&node).await.and_then(|handoff| handoff.status).expect("a status");
        assert_eq!(status.phase, Phase::Queued);
        fleet.runs(&node, "1.0").await;

        fleet
            .admin
            .merge(&format!("/apis/apps/v1/namespaces/{apps}/deployments/db"), &json!({"spec": {"replicas": 2}}))
            .await
            .expect("scale");
        fleet.ended(&node, attempt, Phase::Done).await;
        fleet.runs(&node, "2.0").await;
        assert_eq!(fleet.evicted().len(), 1);
        fleet.undisturbed();
    });
}

#[test]
fn a_budget_that_waits_for_a_sick_pod_is_named_and_then_allows() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "sick", 2, |_| {}).await;
        let apps = fleet.apps();
        // Two Deployments of one service; one of them is not well.
        let labelled = |app: &str, mut object: objects::Object| {
            object.body["spec"]["template"]["metadata"]["labels"] = json!({"app": app, "service": "shop"});
            object
        };
        let mut sick = labelled("cache", fleet.bystanders("cache", 1));
        sick.body["spec"]["template"]["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        let mut budget = objects::budget(&apps, "shop", "minAvailable", json!(1));
        budget.body["spec"]["selector"] = json!({"matchLabels": {"service": "shop"}});
        fleet.apply(&[labelled("model", fleet.claimants("model", 1)), sick, budget]).await;
        let model = fleet.running("model", 1).await.remove(0);
        fleet.running("cache", 1).await;
        let node = node_of(&model).to_owned();
        fleet.release("2.0", fleet.module("2.0")).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;

        let words = "needs 1 healthy of 2, has 1, allows 0; sick-apps/cache-";
        let seen = fleet.blocker_saying(&arena.engine, &node, BlockerKind::DisruptionBudget, words).await;
        assert_eq!(seen.object.to_string(), "PodDisruptionBudget sick-apps/shop");
        assert!(seen.message.contains("is not Ready"), "{}", seen.message);
        let recorded = fleet.recorded_saying(&node, BlockerKind::DisruptionBudget, "needs 1 healthy of 2, has 1, allows 0").await;
        assert_eq!(recorded.object, seen.object.to_string());
        let status = fleet.handoff(&node).await.and_then(|handoff| handoff.status).expect("a status");
        assert_eq!(status.phase, Phase::Draining);
        assert_eq!(uid_of(&fleet.running("model", 1).await[0]), uid_of(&model), "nobody went past the budget");

        let well = json!({"spec": {"template": {"metadata": {"annotations": {"sim.lockkeeper.dev/unready": null}}}}});
        fleet.admin.merge(&format!("/apis/apps/v1/namespaces/{apps}/deployments/cache"), &well).await.expect("repair");
        let status = fleet.ended(&node, attempt, Phase::Done).await;
        assert!(status.blockers.is_empty(), "{:?}", status.blockers);
        fleet.runs(&node, "2.0").await;
        assert_eq!(fleet.evicted().len(), 1);
        fleet.undisturbed();
    });
}

#[test]
fn a_replacement_under_the_same_name_survives() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "names", 1, |_| {}).await;
        // Its pod minds no cordon, and has no other node to go to.
        let mut template = fleet.claimant("db");
        template["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
        fleet.apply(&[objects::stateful_set(&fleet.apps(), "db", 1, template)]).await;
        let first = fleet.running("db", 1).await.remove(0);
        fleet.release("2.0", fleet.module("2.0")).await;
        let attempt = fleet.hand_over("names-1", "2.0", 1).await;

        let second = eventually("the replacement", LONG, || async {
            let found = fleet.running("db", 1).await.remove(0);
            Ok::<_, String>((uid_of(&found) != uid_of(&first)).then_some(found))
        })
        .await;
        let named = fleet.blocker(&arena.engine, "names-1", BlockerKind::EvictionRefused).await;
        assert_eq!(named.object.to_string(), "Pod names-apps/db-0", "{}", named.message);
        // An eviction of the first that comes late, as after a lost answer.
        let cluster = arena.site.cluster(User::Reconciler, false).await;
        let writer = Writer::new(&cluster, cluster.write_cap().expect("not read-only"), open());
        let stale = PodRef {
            key: ObjectKey::new(fleet.apps(), "db-0"),
            uid: uid_of(&first).into(),
            resource_version: version_of(&first).into(),
        };
        assert_eq!(writer.evict(&stale, None).await, Written::Gone);
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let now = fleet.running("db", 1).await.remove(0);
        assert_eq!(uid_of(&now), uid_of(&second), "it was left alone");
        assert_eq!(fleet.evicted(), ["db-0"], "once");
        assert_eq!(fleet.story("names-1"), "+1.0", "its module stays under it");

        let path = format!("/apis/apps/v1/namespaces/{}/statefulsets/db", fleet.apps());
        fleet.admin.merge(&path, &json!({"spec": {"replicas": 0}})).await.expect("scale");
        fleet.ended("names-1", attempt, Phase::Done).await;
        fleet.runs("names-1", "2.0").await;
        assert_eq!(fleet.evicted(), ["db-0"]);
        fleet.undisturbed();
    });
}

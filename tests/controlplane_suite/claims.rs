//! Devices held by ResourceClaims of every form, allocated by the real scheduler: exactly the claimants of this driver on this node leave.

use lockkeeper::{
    api::Phase,
    handoff::verdict::BlockerKind,
    sim::scenarios::{
        dra::{self, BY_NAME, BY_TEMPLATE},
        objects::{self, Object},
    },
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, node_of, uid_of},
    site::{arena, block_on},
};

const NAME: &str = "dra";
const DRIVER: &str = "dra.example.com";
const OTHER: &str = "net.dra.example.com";
const CLASS: &str = "dra-accelerator";
const OTHER_CLASS: &str = "dra-net";
/// What the class is called for pods that ask for it as for a device plugin's resource.
const EXTENDED: &str = "dra.example.com/accelerator";

/// The fleet's module with a DRA driver in the device plugin's place.
fn with_driver(mut module: Value) -> Value {
    let annotations = &mut module["daemonSets"]["devicePlugin"]["metadata"]["annotations"];
    annotations["sim.lockkeeper.dev/behaviour"] = json!("dra-driver");
    annotations["sim.lockkeeper.dev/driver"] = json!(DRIVER);
    annotations["sim.lockkeeper.dev/devices"] = json!("16");
    module["devices"] = json!({"draDrivers": [DRIVER]});
    module
}

fn classes() -> [Object; 2] {
    let mut own = dra::class(CLASS, DRIVER);
    own.body["spec"]["extendedResourceName"] = json!(EXTENDED);
    [own, dra::class(OTHER_CLASS, OTHER)]
}

/// Another driver on the same nodes.
fn other_driver() -> Object {
    let mut template = objects::template("net-driver", None, 2);
    template["metadata"]["annotations"] = json!({
        "sim.lockkeeper.dev/behaviour": "dra-driver", "sim.lockkeeper.dev/driver": OTHER, "sim.lockkeeper.dev/devices": "8",
    });
    objects::daemon_set(NAME, "net-driver", json!({"pool": NAME}), json!({"type": "OnDelete"}), template)
}

fn own(name: &str) -> Value {
    dra::request(name, CLASS)
}

#[test]
fn every_form_of_claim_makes_a_claimant_and_nobody_else_is_moved() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet =
            Fleet::start(&arena.site, NAME, 2, |spec| spec["kernelModule"] = with_driver(spec["kernelModule"].take())).await;
        let (apps, node) = (fleet.apps(), fleet.nodes[0].clone());
        // Claims with admin access are for such namespaces alone.
        let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
        fleet.admin.merge(&format!("/api/v1/namespaces/{apps}"), &labels).await.expect("a label");
        fleet.apply(&classes()).await;
        fleet.apply(&[other_driver()]).await;
        let mut admin = own("look");
        admin["exactly"]["adminAccess"] = json!(true);
        let sub = json!({"name": "any", "firstAvailable": [{"name": "best", "deviceClassName": CLASS}, {"name": "else", "deviceClassName": OTHER_CLASS}]});
        let on = |mut template: Value, node: &str| {
            template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
            template
        };
        let holder = |app: &str, replicas, how, claim: &str, node: &str| {
            objects::deployment(&apps, app, replicas, on(dra::holder(app, how, claim, 2), node))
        };
        fleet
            .apply(&[
                dra::claim(&apps, "direct", json!([own("one")])),
                dra::claim(&apps, "shared", json!([own("one")])),
                dra::claim(&apps, "admin", json!([admin])),
                dra::claim(&apps, "several", json!([dra::request("net", OTHER_CLASS), own("compute")])),
                dra::claim(&apps, "subrequest", json!([sub])),
                dra::claim(&apps, "foreign", json!([dra::request("net", OTHER_CLASS)])),
                dra::claim(&apps, "far", json!([own("one")])),
                dra::claim_template(&apps, "each", json!([own("one")])),
                holder("direct", 1, BY_NAME, "direct", &node),
                holder("each", 2, BY_TEMPLATE, "each", &node),
                holder("shared", 2, BY_NAME, "shared", &node),
                holder("admin", 1, BY_NAME, "admin", &node),
                holder("several", 1, BY_NAME, "several", &node),
                holder("subrequest", 1, BY_NAME, "subrequest", &node),
                objects::deployment(&apps, "extended", 1, on(objects::template("extended", Some((EXTENDED, 1)), 2), &node)),
                holder("foreign", 1, BY_NAME, "foreign", &node),
                holder("far", 1, BY_NAME, "far", &fleet.nodes[1]),
                objects::deployment(&apps, "plain", 1, on(objects::template("plain", None, 2), &node)),
            ])
            .await;
        let leave = [("direct", 1), ("each", 2), ("shared", 2), ("admin", 1), ("several", 1), ("subrequest", 1), ("extended", 1)];
        let mut wanted = Vec::new();
        for (app, replicas) in leave {
            for pod in fleet.running(app, replicas).await {
                wanted.push(pod.metadata.name.clone().unwrap_or_default());
            }
        }
        let mut stay = Vec::new();
        for app in ["foreign", "far", "plain"] {
            stay.push(uid_of(&fleet.running(app, 1).await[0]).to_owned());
        }
        let extended = &fleet.pods("extended").await[0];
        let status = serde_json::to_value(extended).expect("JSON")["status"]["extendedResourceClaimStatus"].clone();
        assert!(status["resourceClaimName"].is_string(), "the scheduler made no claim for the extended resource: {status}");

        fleet.release("2.0", with_driver(fleet.module("2.0"))).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;
        let status = fleet.ended(&node, attempt, Phase::Done).await;
        fleet.runs(&node, "2.0").await;

        let mut evicted = fleet.evicted();
        evicted.sort();
        wanted.sort();
        assert_eq!(evicted, wanted);
        let mut after = Vec::new();
        for app in ["foreign", "far", "plain"] {
            after.push(uid_of(&fleet.running(app, 1).await[0]).to_owned());
        }
        assert_eq!(after, stay, "a bystander was moved");
        let proof = status.proofs.iter().find(|proof| proof.phase == Phase::Verifying).expect("a proof");
        assert!(proof.fact.contains(&format!("{DRIVER}: 16")), "{}", proof.fact);
        assert_eq!(fleet.story(&node), "+1.0 -1.0 +2.0");
        for (app, replicas) in leave {
            assert!(fleet.running(app, replicas).await.iter().all(|pod| node_of(pod) == node), "{app} is back on its node");
        }
        fleet.undisturbed();
    });
}

#[test]
fn a_reservation_for_what_is_no_pod_holds_the_driver_by_name() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let held = |module: Value| {
            let mut module = with_driver(module);
            module["daemonSets"]["devicePlugin"]["metadata"]["annotations"]["sim.lockkeeper.dev/driver"] =
                json!("job.example.com");
            module["devices"] = json!({"draDrivers": ["job.example.com"]});
            module
        };
        let fleet =
            Fleet::start(&arena.site, "draheld", 1, |spec| spec["kernelModule"] = held(spec["kernelModule"].take())).await;
        let (apps, node) = (fleet.apps(), fleet.nodes[0].clone());
        fleet
            .apply(&[
                dra::class("draheld", "job.example.com"),
                dra::claim(&apps, "night", json!([dra::request("one", "draheld")])),
            ])
            .await;
        let status = json!({"status": {
            "allocation": {"devices": {"results": [{"request": "one", "driver": "job.example.com", "pool": node, "device": "d0"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}},
            "reservedFor": [{"apiGroup": "batch.example.com", "resource": "jobs", "name": "night", "uid": "6f1c7a52-93c1-4a6b-8f43-7d1c0b3f2a11"}],
        }});
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{apps}/resourceclaims/night/status");
        fleet.admin.merge(&path, &status).await.expect("an allocation");
        fleet.release("2.0", held(fleet.module("2.0"))).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;
        let seen = fleet.blocker(&arena.engine, &node, BlockerKind::ClaimReserved).await;
        assert_eq!(seen.object.to_string(), format!("ResourceClaim {apps}/night"));
        let status = fleet.recorded(&node, BlockerKind::ClaimReserved).await;
        assert_eq!(status.object, seen.object.to_string());
        assert_eq!(fleet.handoff(&node).await.and_then(|it| it.status).map(|it| it.phase), Some(Phase::Detaching));
        fleet.admin.merge(&path, &json!({"status": {"reservedFor": null, "allocation": null}})).await.expect("a release");
        fleet.ended(&node, attempt, Phase::Done).await;
        fleet.runs(&node, "2.0").await;
        assert_eq!(fleet.story(&node), "+1.0 -1.0 +2.0");
    });
}

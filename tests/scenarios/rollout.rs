//! `rollout.mode: Auto`: a new version goes through the fleet by itself, within its canary, soak, failure budget, pause and windows; a
//! person's own handoffs are left alone.

use lockkeeper::{
    handoff::verdict::BlockerKind,
    sim::{
        actors::{KubeletOptions, Range},
        scenarios::{
            kernel_module::{self as scenario, NAME, NAMESPACE},
            objects,
        },
        world::WorldOptions,
    },
};
use serde_json::{Value, json};

use crate::{
    pods::{bare, device_user, pinned},
    stage::{Stage, handoff_path, play},
    trace::Trace,
};

/// Installed by hand at 1.0 and then set to roll out by itself.
async fn auto(seed: u64, nodes: usize, rollout: Value) -> Stage {
    let mut spec = scenario::component_spec("1.0");
    spec["rollout"] = json!({"mode": "Auto", "soak": "30s", "maxFailures": 1});
    spec["drain"]["cordon"] = json!("Always");
    spec["rollout"].as_object_mut().unwrap().extend(rollout.as_object().cloned().unwrap_or_default());
    // Slow enough to be caught in a phase.
    let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
    options.kubelets.stop = Range::millis(3000, 3001);
    options.kubelets.unload = Range::millis(3000, 3001);
    Stage::with(options, nodes).installed_as(&objects::component(NAMESPACE, NAME, spec)).await
}

async fn version(stage: &Stage, version: &str) {
    stage.spec(json!({"version": version, "kernelModule": scenario::kernel_module(version)})).await;
}

fn all_done(stage: &Stage, version: &str) -> bool {
    stage.nodes.iter().all(|node| stage.is_done(node, version))
}

#[test]
fn a_new_version_goes_through_the_fleet_in_order_with_the_soak_between() {
    play(|| async {
        let stage = auto(41, 3, json!({"soak": "120s"})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        let began = tokio::time::Instant::now();
        version(&stage, "2.0").await;
        stage.waits(&engine, NAME, "gpu-02", BlockerKind::Canary, &["0 of 1 canary nodes run 2.0"]).await;
        stage.until("the first is done", || stage.is_done("gpu-01", "2.0")).await;
        let soaking = stage.waits(&engine, NAME, "gpu-02", BlockerKind::Soaking, &["2m", "the next starts after"]).await;
        assert_eq!(soaking.object.to_string(), "NodeComponent gpu-system/gpu");
        stage.names("gpu-02", "Soaking", NAME, &["the next starts after"]).await;
        assert!(stage.named("gpu-03", "QueuedBehind", NAME, &[]), "{:?}", stage.blockers("gpu-03"));
        stage.until("all are", || all_done(&stage, "2.0")).await;
        assert!(began.elapsed().as_secs() >= 240, "two soaks of two minutes take longer than {:?}", began.elapsed());
        assert_eq!(trace.all("slot "), ["slot gpu.gpu-01", "slot gpu.gpu-02", "slot gpu.gpu-03"]);
        trace.in_order(&["free gpu.gpu-01", "slot gpu.gpu-02", "free gpu.gpu-02", "slot gpu.gpu-03", "free gpu.gpu-03"]);
        assert!(stage.nodes.iter().all(|node| stage.handoff(node)["spec"]["requestedBy"] == "rollout"));
        assert_eq!(stage.condition("Ready").0, "True");
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn the_failure_budget_stops_it_and_says_so_until_the_failure_is_dealt_with() {
    play(|| async {
        let stage = auto(42, 3, json!({"maxFailures": 1, "soak": "5s"})).await;
        let engine = stage.engine();
        // The new version's plugin never gets Ready.
        let mut broken = scenario::kernel_module("2.0");
        broken["daemonSets"]["devicePlugin"]["metadata"]["annotations"]["sim.lockkeeper.dev/unready"] = json!("true");
        let trace = Trace::of(&stage);
        stage.spec(json!({"version": "2.0", "kernelModule": broken})).await;
        stage.until("the first fails", || stage.phase("gpu-01") == "Failed").await;
        let (word, message) = stage.reason("gpu-01");
        assert_eq!(word, "DeadlineExceeded");
        assert!(
            message.contains("StartingPlugin") && message.contains("Roll back") && message.contains("stays closed"),
            "{message}"
        );
        let spent = stage
            .waits(&engine, NAME, "gpu-02", BlockerKind::FailureBudgetSpent, &["1 handoffs have failed", "maxFailures is 1"])
            .await;
        assert_eq!(spent.object.to_string(), "NodeComponent gpu-system/gpu");
        stage.pass(900).await;
        assert!(stage.named("gpu-03", "FailureBudgetSpent", NAME, &["maxFailures is 1"]), "{:?}", stage.blockers("gpu-03"));
        assert_eq!(stage.condition("FailureBudgetSpent").0, "True");
        assert_eq!(trace.all("slot "), ["slot gpu.gpu-01"], "the rollout went on after its failure budget was spent");
        assert!(!stage.is_open("gpu-01") && stage.runs("gpu-02", "1.0") && stage.runs("gpu-03", "1.0"));
        // A version that works takes its place, by itself: the failed node first, since it is out of service.
        let mut sound = scenario::kernel_module("2.1");
        sound["daemonSets"]["devicePlugin"]["metadata"]["annotations"]["sim.lockkeeper.dev/unready"] = Value::Null;
        stage.spec(json!({"version": "2.1", "kernelModule": sound})).await;
        stage.until("all run the next version", || all_done(&stage, "2.1")).await;
        assert_eq!(stage.condition("FailureBudgetSpent").0, "False");
        assert!(
            trace.all("loader gpu.gpu-02").iter().all(|line| !line.contains(" 2.0")),
            "2.0 went further: {:?}",
            trace.lines()
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_pause_holds_what_has_not_begun_and_lets_what_runs_go_on() {
    play(|| async {
        let stage = auto(43, 3, json!({"soak": "5s"})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        version(&stage, "2.0").await;
        stage.until("the first is under way", || stage.phase("gpu-01") == "StoppingPlugin").await;
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.until("it ends all the same", || stage.is_done("gpu-01", "2.0")).await;
        for node in ["gpu-02", "gpu-03"] {
            stage.names(node, "Paused", NAME, &["spec.rollout.paused is true", "what runs goes on"]).await;
        }
        stage.pass(900).await;
        assert_eq!(trace.all("slot "), ["slot gpu.gpu-01"]);
        assert!(stage.runs("gpu-02", "1.0") && stage.phase("gpu-02") == "Queued");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("the rest follows", || all_done(&stage, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn outside_its_windows_nothing_starts_and_the_next_one_is_named() {
    play(|| async {
        let stage = auto(44, 2, json!({"soak": "50s"})).await;
        let engine = stage.engine();
        // In half an hour, for one minute: one handoff begins in it, and ends after it.
        let soon = || {
            let opens =
                stage.world.api.now().checked_add(jiff::SignedDuration::from_mins(30)).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
            let opens = opens.with().second(0).subsec_nanosecond(0).build().unwrap();
            (json!([{"start": format!("{:02}:{:02}", opens.hour(), opens.minute()), "duration": "1m"}]), opens.timestamp())
        };
        let (windows, opens) = soon();
        stage.spec(json!({"rollout": {"windows": windows}})).await;
        let trace = Trace::of(&stage);
        version(&stage, "2.0").await;
        let words = ["outside the rollout's windows", "the next opens at", &opens.to_string()];
        stage.waits(&engine, NAME, "gpu-01", BlockerKind::OutsideWindow, &words).await;
        stage.pass(1200).await;
        assert!(trace.all("slot ").is_empty());
        stage.until("the first begins", || !trace.all("slot ").is_empty()).await;
        let late = stage.world.api.now().duration_since(opens).as_secs();
        assert!((0..60).contains(&late), "it began {late} s after the window opened");
        stage.until("it ends", || stage.is_done("gpu-01", "2.0")).await;
        // The soak outlasts the window: the second waits for another.
        stage.pass(900).await;
        assert_eq!(trace.all("slot "), ["slot gpu.gpu-01"], "the window was closed");
        stage.waits(&engine, NAME, "gpu-02", BlockerKind::OutsideWindow, &["the next opens at"]).await;
        let (windows, opens) = soon();
        stage.spec(json!({"rollout": {"windows": windows}})).await;
        stage.until("the second begins in the next", || stage.is_done("gpu-02", "2.0")).await;
        assert!(stage.world.api.now() > opens);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn the_newest_version_takes_the_place_of_one_that_is_still_queued() {
    play(|| async {
        let stage = auto(45, 3, json!({"soak": "10s"})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        version(&stage, "2.0").await;
        stage.until("the first is under way", || stage.phase("gpu-01") == "Unloading").await;
        assert_eq!(stage.handoff("gpu-02")["spec"]["version"], "2.0");
        version(&stage, "3.0").await;
        stage
            .until("the queued ones aim at the newest", || {
                ["gpu-02", "gpu-03"]
                    .iter()
                    .all(|node| stage.handoff(node)["spec"]["version"] == "3.0" && stage.phase(node) == "Queued")
            })
            .await;
        assert!(
            matches!(stage.phase("gpu-01").as_str(), "Unloading" | "Loading" | "StartingPlugin" | "Verifying"),
            "{}",
            stage.phase("gpu-01")
        );
        stage.until("all run the newest", || all_done(&stage, "3.0")).await;
        // What had begun ended where it headed for, and went on from there; the others never saw 2.0.
        assert_eq!(
            trace.all("loader gpu.gpu-01"),
            ["loader gpu.gpu-01 1.0 -", "loader gpu.gpu-01 - 2.0", "loader gpu.gpu-01 2.0 -", "loader gpu.gpu-01 - 3.0"]
        );
        for node in ["gpu-02", "gpu-03"] {
            assert_eq!(
                trace.all(&format!("loader gpu.{node}")),
                [format!("loader gpu.{node} 1.0 -"), format!("loader gpu.{node} - 3.0")]
            );
        }
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_persons_handoff_is_left_alone_until_the_version_changes() {
    play(|| async {
        let stage = auto(46, 2, json!({"soak": "5s"})).await;
        let engine = stage.engine();
        version(&stage, "2.0").await;
        stage.until("all run 2.0", || all_done(&stage, "2.0")).await;
        // A person takes one node back: the rollout does not fight them.
        stage.edit("gpu-01", json!({"version": "1.0", "requestedBy": "ann"}), true).await;
        stage.until("it is back on 1.0", || stage.is_done("gpu-01", "1.0")).await;
        stage.pass(900).await;
        assert!(stage.runs("gpu-01", "1.0") && stage.handoff("gpu-01")["spec"]["requestedBy"] == "ann");
        // A queued one of theirs is theirs, too.
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.edit("gpu-02", json!({"version": "1.0", "requestedBy": "ann"}), true).await;
        stage.until("it is queued", || stage.phase("gpu-02") == "Queued").await;
        version(&stage, "3.0").await;
        stage.pass(600).await;
        assert_eq!(stage.handoff("gpu-02")["spec"]["version"], "1.0", "a person's queued handoff was taken over");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("each has its order", || stage.is_done("gpu-01", "3.0") && stage.is_done("gpu-02", "1.0")).await;
        stage.pass(600).await;
        assert!(stage.runs("gpu-02", "1.0"), "their handoff began under this aim, and is left alone");
        version(&stage, "4.0").await;
        stage.until("the next aim counts for both", || all_done(&stage, "4.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_node_that_preflight_refuses_is_named_and_with_skip_the_others_go_on() {
    play(|| async {
        let stage = auto(47, 2, json!({"soak": "5s", "blocked": "Skip"})).await;
        stage.apply(&[bare("ml", "pet", pinned(device_user("pet"), "gpu-01"))]).await;
        stage.until("it runs", || crate::pods::running(&stage, "pet") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        version(&stage, "2.0").await;
        stage.until("the other one is done", || stage.is_done("gpu-02", "2.0")).await;
        stage.names("gpu-01", "Unmanaged", "Pod ml/pet", &["no controller would bring it back", "evictUnmanaged: true"]).await;
        assert!(trace.all("slot gpu.gpu-01").is_empty() && stage.runs("gpu-01", "1.0"));
        stage.hands.delete("/api/v1/namespaces/ml/pods/pet").await.unwrap();
        stage.until("it follows", || all_done(&stage, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_rollout_that_is_withdrawn_by_its_version_ends_where_it_stands() {
    play(|| async {
        let stage = auto(48, 3, json!({"soak": "60s"})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        version(&stage, "2.0").await;
        stage.until("the first is done", || stage.is_done("gpu-01", "2.0")).await;
        // Back to what was: the queued ones have nothing to do, the done one goes back in its turn.
        version(&stage, "1.0").await;
        stage.until("all run 1.0 again", || all_done(&stage, "1.0")).await;
        assert!(
            ["gpu-02", "gpu-03"].iter().all(|node| trace.all(&format!("loader gpu.{node}")).is_empty()),
            "{}",
            trace.lines().join("\n")
        );
        assert_eq!(
            trace.all("loader gpu.gpu-01"),
            ["loader gpu.gpu-01 1.0 -", "loader gpu.gpu-01 - 2.0", "loader gpu.gpu-01 2.0 -", "loader gpu.gpu-01 - 1.0"]
        );
        assert!(stage.hands.get(&handoff_path("gpu-02")).await.is_ok());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g21_a_queued_node_that_the_selector_no_longer_covers_is_dropped_and_counts_nowhere() {
    play(|| async {
        let stage = auto(49, 3, json!({"soak": "5s"})).await;
        stage.spec(json!({"rollout": {"paused": true}})).await;
        let engine = stage.engine();
        version(&stage, "2.0").await;
        stage.until("all are queued", || stage.nodes.iter().all(|node| stage.phase(node) == "Queued")).await;
        stage.hands.label_node("gpu-02", "pool", Some("other")).await.unwrap();
        // Nobody looks on when it happens.
        engine.abort();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.until("it is dropped", || stage.phase("gpu-02") == "Aborted").await;
        let (word, message) = stage.reason("gpu-02");
        assert!(
            word == "NotSelected" && message.contains("gpu-02 no longer matches the nodeSelector of gpu-system/gpu"),
            "{word}: {message}"
        );
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("the others are done", || ["gpu-01", "gpu-03"].iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.pass(600).await;
        let status = stage.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, NAME).unwrap()["status"]["nodes"].clone();
        assert_eq!((&status["total"], &status["current"], &status["queued"]), (&json!(2), &json!(2), &json!(0)), "{status}");
        assert!(trace.lines().iter().all(|line| !line.contains("slot gpu.gpu-02")));
        let annotations = stage.node("gpu-02")["metadata"]["annotations"].to_string();
        assert!(
            !annotations.contains("lockkeeper.dev/cordon") && !annotations.contains("lockkeeper.dev/handoff"),
            "{annotations}"
        );
        stage.clean();
        engine.stop().await;
    });
}

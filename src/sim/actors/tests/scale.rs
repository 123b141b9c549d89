//! The same seed gives the same log. What a thousand nodes cost is measured by `tests/bench/upgrade.rs`.

use super::*;

async fn story(seed: u64) -> (u64, String) {
    let world = world_with(4, seed, KubeletOptions::default(), ControllerOptions::default());
    module(&world, "1");
    world.install(claimants(6));
    world.install(budget(json!({"maxUnavailable": 1})));
    pass(5).await;
    for node in 1..=4 {
        label(&world, &format!("n{node}"), json!({"loader": "1", "plugin": "1"})).await;
    }
    pass(60).await;
    world.kubelets.reboot("n2");
    world.kubelets.kill("n3");
    pass(200).await;
    world.kubelets.revive("n3");
    pass(60).await;
    (world.api.log().digest(), format!("{:?}", world.kubelets.events(0)))
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let run = |seed| {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(story(seed))
    };
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one, two);
    assert_ne!(one.0, other.0);
}

//! What people do without lockkeeper, on the same fleet: the monitor must be able to see what that breaks.

use std::{sync::Arc, time::Duration};

use super::DemoOptions;
use crate::sim::{
    people::{
        hands::{Hands, No},
        operator::{self, Outcome},
    },
    scenarios::kernel_module as scenario,
    world::World,
};

const INSTALL: Duration = Duration::from_secs(2 * 3600);
const SETTLE: Duration = Duration::from_secs(300);

/// Both DaemonSets replaced by a plain rolling update.
///
/// # Errors
/// The scenario cannot be set up; the text says which request failed.
pub async fn rolling_update(
    world: &Arc<World>,
    hands: &Hands,
    nodes: &[String],
    options: &DemoOptions,
) -> Result<Outcome, String> {
    let no = |no: No| no.to_string();
    operator::apply(hands, &scenario::baseline_daemon_sets(scenario::OLD)).await.map_err(no)?;
    let on = |version: &str| {
        let has = |node: &&String| {
            world.kubelets.kernel(node).is_some_and(|kernel| kernel.modules.get(scenario::MODULE).is_some_and(|it| it == version))
        };
        nodes.iter().filter(has).count()
    };
    wait(INSTALL, || on(scenario::OLD) == nodes.len()).await;
    operator::apply(hands, &scenario::workloads(nodes.len(), options.pods_per_node)).await.map_err(no)?;
    operator::settled(hands, SETTLE).await;
    for object in scenario::baseline_daemon_sets(scenario::NEW) {
        let body = serde_json::json!({"spec": {"template": object.body["spec"]["template"]}});
        hands.merge(&format!("{}/{}", object.collection(), object.name()), &body).await.map_err(no)?;
    }
    wait(INSTALL, || on(scenario::NEW) == nodes.len()).await;
    tokio::time::sleep(SETTLE).await;
    Ok(Outcome { upgraded: on(scenario::NEW), ..Outcome::default() })
}

async fn wait(within: Duration, done: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + within;
    while !done() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{
        demo::Scenario,
        world::{Profile, WorldOptions},
    };

    #[tokio::test(start_paused = true)]
    async fn a_plain_rolling_update_disrupts_and_the_monitor_sees_it() {
        let options = DemoOptions {
            scenario: Scenario::KernelModule,
            seed: 1,
            faults: Profile::None,
            baseline: None,
            nodes: 6,
            pods_per_node: 2,
            keep_log: false,
            tell: false,
        };
        let world = Arc::new(World::start(&WorldOptions::new(1), &scenario::cluster(options.nodes)));
        let hands = world.hands("operator");
        let outcome = rolling_update(&world, &hands, &scenario::node_names(options.nodes), &options).await.unwrap();
        assert_eq!(outcome.upgraded, 6);
        assert!(world.report().disruptions > 0, "{:?}", world.report());
    }
}

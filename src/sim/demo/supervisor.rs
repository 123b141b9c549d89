//! Runs an engine on the simulated cluster as a Deployment would: after a crash another life of it starts, with a new identity.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    engine::{Engine, EngineOptions, picture::Mode, probes::Probes},
    sim::{apiserver::Identity, world::World},
};

/// From a crash to the next life.
const RESTART: Duration = Duration::from_secs(3);

/// Runs engines under one name until `stop`; returns how many lives there were.
pub async fn keep_running(world: Arc<World>, name: String, cluster_max_unavailable: u32, stop: Arc<Notify>) -> u32 {
    run(world, name, cluster_max_unavailable, stop, Probes::default).await
}

/// As [`keep_running`], and tells what it does as Events of the cluster.
pub async fn keep_telling(world: Arc<World>, name: String, cluster_max_unavailable: u32, stop: Arc<Notify>) -> u32 {
    run(world, name, cluster_max_unavailable, stop, Probes::announcing).await
}

async fn run(world: Arc<World>, name: String, cluster_max_unavailable: u32, stop: Arc<Notify>, probes: fn() -> Probes) -> u32 {
    let identity = Identity::new(name.as_str());
    let crashed = world.api.crashed(&identity);
    let mut life = 0;
    loop {
        life += 1;
        let options = EngineOptions {
            mode: Mode::Engine,
            identity: format!("{name}#{life}"),
            cluster_max_unavailable,
            probes: probes(),
            ..EngineOptions::default()
        };
        let engine = Engine::start(world.cluster(&name, false), options);
        tokio::select! {
            biased;
            () = crashed.notified() => engine.abort(),
            () = stop.notified() => {
                engine.stop().await;
                return life;
            }
        }
        tokio::time::sleep(RESTART).await;
    }
}

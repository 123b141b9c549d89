//! What most commands begin with: a cluster, its pictures, and whether they may write.

use std::time::Duration;

use super::{Failure, Global, connect, pictures::Pictures};
use crate::{
    api::ComponentKey,
    cluster::{Cluster, Writer, write},
    engine::{
        Engine, EngineOptions,
        picture::{Mode, Picture},
    },
};

/// What a command is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Read,
    Write,
}

pub struct Session {
    pub cluster: Cluster,
    /// Of the kubeconfig context, for names given without one.
    pub namespace: String,
    pub pictures: Pictures,
    _engine: Engine,
}

/// Connect and begin to watch.
pub async fn open(global: &Global, need: Need) -> Result<Session, Failure> {
    if need == Need::Write && global.read_only {
        return Err(Failure::usage("--read-only and a command that writes contradict one another; `lockkeeper plan` only looks"));
    }
    let connected = connect::connect(global, connect::Terminal::Ours).await?;
    // It watches and decides as every engine does, but does not act: whoever holds the Lease does.
    let mode = if global.read_only { Mode::ReadOnly } else { Mode::Intents };
    let engine = Engine::start(connected.cluster.clone(), EngineOptions { mode, ..EngineOptions::default() });
    let pictures = Pictures::over(engine.pictures());
    Ok(Session { cluster: connected.cluster, namespace: connected.namespace, pictures, _engine: engine })
}

impl Session {
    pub async fn complete(&mut self, limit: Duration) -> Result<Picture, Failure> {
        let name = self.name();
        self.pictures.complete(limit, &name).await
    }

    /// How texts call the cluster.
    pub fn name(&self) -> String {
        format!("the cluster of {} at {}", self.cluster.info().context, self.cluster.info().server)
    }

    /// Writes of specs: no lease is needed for those.
    pub fn writer(&self) -> Result<Writer, Failure> {
        let cap = self.cluster.write_cap().ok_or_else(|| Failure::usage("--read-only: nothing may be written"))?;
        Ok(Writer::new(&self.cluster, cap, write::open()))
    }

    /// Who asks, for `requestedBy`. It informs; the audit log is the proof.
    pub fn user(&self) -> String {
        match self.cluster.info().user.as_str() {
            "" => std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
            user => user.to_owned(),
        }
    }
}

/// The component is not there: say which are.
pub fn no_component(picture: &Picture, wanted: &ComponentKey) -> Failure {
    let there: Vec<String> = picture.fleet.components.keys().map(ToString::to_string).collect();
    let there = if there.is_empty() { "there are none".to_owned() } else { format!("there are {}", there.join(", ")) };
    Failure::usage(format!("there is no NodeComponent {wanted} on {}; {there}", picture.fleet.cluster.context))
}

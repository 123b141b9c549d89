//! `abort`, `retry`, `hold`, `continue`, `rollback`, `leave` and `withdraw`: what a person says to handoffs that exist already.

use std::time::Duration;

use clap::Args;

use super::{
    ComponentName, Exit, Failure, Global, ask,
    handoff::{asked, follow},
    out::Out,
    render::progress::Progress,
    session, text,
};
use crate::{
    api::{ComponentKey, NodeName},
    engine::intent::Intent,
};

#[derive(Debug, Clone, Args)]
pub struct Steer {
    /// NAME or NAMESPACE/NAME of a NodeComponent
    pub component: ComponentName,
    /// Names of Nodes
    #[arg(required = true)]
    pub node: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Abort {
    #[command(flatten)]
    pub steer: Steer,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

#[derive(Debug, Clone, Args)]
pub struct Again {
    #[command(flatten)]
    pub steer: Steer,
    /// Wait until all of them are done; exit code 1 when one is not
    #[arg(long)]
    pub wait: bool,
}

/// The same request for each node; `wait` follows them to their end.
pub async fn run(
    steer: &Steer,
    global: &Global,
    wait: bool,
    intent: impl Fn(ComponentKey, NodeName) -> Intent,
) -> Result<Exit, Failure> {
    let mut session = session::open(global, session::Need::Write).await?;
    let picture = session.complete(Duration::from_secs(60)).await?;
    let component = steer.component.key(global, &session.namespace);
    let intents: Vec<Intent> = steer.node.iter().map(|node| intent(component.clone(), node.as_str().into())).collect();
    let sent = ask::ask(&mut session, picture, &intents, |_| ()).await?;
    let mut out = Out::stdout();
    for (_, said) in &sent {
        out.line(&text::plain(said))?;
    }
    if !wait {
        return Ok(Exit::Done);
    }
    let asked = sent.iter().filter_map(|(op, _)| asked(&component, op)).collect();
    follow(Progress::of(asked), &mut session.pictures, &mut out, None).await
}

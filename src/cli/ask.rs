//! Turns intents into writes and sends them: all are planned before the first is sent, so that a refusal leaves nothing half done.

use std::time::Duration;

use super::{Failure, session::Session};
use crate::{
    cluster::{Writer, Written},
    engine::{
        intent::Intent,
        intent_plan::{self, Refusal},
        picture::Picture,
    },
    handoff::action::Op,
};

/// How often a write is planned anew when somebody else was faster.
const TRIES: usize = 5;

/// What was written: a line for each, as kubectl says it.
pub type Sent = Vec<(Op, String)>;

/// Plan on the picture, let `adjust` have a last word on the writes, send them.
pub async fn ask(
    session: &mut Session,
    mut picture: Picture,
    intents: &[Intent],
    adjust: impl Fn(&mut Vec<Op>),
) -> Result<Sent, Failure> {
    let writer = session.writer()?;
    let user = session.user();
    let mut sent = Vec::new();
    for (at, intent) in intents.iter().enumerate() {
        let mut tries = 0;
        'again: loop {
            // A later one is looked at now too: what cannot be done is said before the first write.
            if at == 0 && tries == 0 {
                for intent in intents {
                    intent_plan::plan(&picture.fleet, intent, &user).map_err(|why| refused(session, &why))?;
                }
            }
            let mut ops = match intent_plan::plan(&picture.fleet, intent, &user) {
                Ok(ops) => ops,
                Err(why) => return Err(partly(&sent, &refused(session, &why))),
            };
            adjust(&mut ops);
            for op in ops {
                match send(&writer, &op).await {
                    Written::Applied(_) => sent.push((op.clone(), said(&op))),
                    Written::Conflict { .. } | Written::AlreadyExists | Written::Gone if tries < TRIES => {
                        tries += 1;
                        picture = fresh(session).await?;
                        continue 'again;
                    }
                    other => return Err(partly(&sent, &failed(session, &op, &other))),
                }
            }
            break;
        }
    }
    Ok(sent)
}

/// A picture that has had time to hear of what was in the way.
async fn fresh(session: &mut Session) -> Result<Picture, Failure> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.complete(Duration::from_secs(30)).await
}

async fn send(writer: &Writer, op: &Op) -> Written {
    match op {
        Op::CreateHandoff { key, spec } => writer.create_handoff(key, spec).await,
        Op::PatchHandoffSpec { of, spec } => writer.patch_handoff_spec(of, spec).await,
        Op::DeleteHandoff(of) => writer.delete_handoff(&of.key, &of.uid).await,
        Op::SetPaused { key, uid, resource_version, paused } => {
            let spec = serde_json::json!({"rollout": {"paused": paused}});
            writer.patch_component_spec(key, uid, resource_version, &spec).await
        }
        other => Written::NotSent { why: format!("a person's request never is {other:?}") },
    }
}

fn said(op: &Op) -> String {
    match op {
        Op::CreateHandoff { key, .. } => format!("nodehandoff.lockkeeper.dev/{} created", key.name),
        Op::PatchHandoffSpec { of, .. } => format!("nodehandoff.lockkeeper.dev/{} patched", of.key.name),
        Op::DeleteHandoff(of) => format!("nodehandoff.lockkeeper.dev/{} deleted", of.key.name),
        Op::SetPaused { key, paused, .. } => {
            format!("nodecomponent.lockkeeper.dev/{} {}", key.name, if *paused { "paused" } else { "resumed" })
        }
        other => format!("{other:?}"),
    }
}

fn object(op: &Op) -> String {
    match op {
        Op::CreateHandoff { key, .. } => format!("create NodeHandoff {key}"),
        Op::PatchHandoffSpec { of, .. } => format!("patch NodeHandoff {}", of.key),
        Op::DeleteHandoff(of) => format!("delete NodeHandoff {}", of.key),
        Op::SetPaused { key, .. } => format!("patch NodeComponent {key}"),
        other => format!("{other:?}"),
    }
}

fn refused(session: &Session, why: &Refusal) -> Failure {
    Failure::usage(format!("{why} (on {})", session.name()))
}

fn failed(session: &Session, op: &Op, written: &Written) -> Failure {
    let why = match written {
        Written::Refused(refusal) => refusal.to_string(),
        Written::Unknown { message, .. } => format!("{message}; it may have been applied all the same: lockkeeper status"),
        Written::NotSent { why } => why.clone(),
        Written::Conflict { message } => format!("it kept changing under us: {message}"),
        Written::AlreadyExists => "it exists, and is not seen: is the watch of NodeHandoffs cut off?".to_owned(),
        Written::Gone => "it is gone".to_owned(),
        Written::Applied(_) => String::new(),
    };
    Failure::environment(format!("cannot {} on {}: {why}", object(op), session.name()))
}

/// A failure after some writes says which were done.
fn partly(sent: &Sent, failure: &Failure) -> Failure {
    if sent.is_empty() {
        return failure.clone();
    }
    let done: Vec<String> = sent.iter().map(|(_, said)| format!("\n  {said}")).collect();
    Failure::NotAllDone(format!("{failure}\ndone before that:{}", done.concat()))
}

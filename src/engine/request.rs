//! Carries out a person's request: plans it on a picture and writes specs, without the Lease. Used by the console, the engine and the command line.

use super::{
    execute::execute,
    intent::{Intent, IntentOutcome},
    intent_plan,
};
use crate::{
    cluster::{Cluster, Writer, write},
    fleet::{event::Record, view::FleetView},
    handoff::action::{Action, Evidence, Op},
};

/// The outcome, and the objects as the server returned them. Stops at the first write that is refused: the ones before it stand, and are named.
pub async fn carry_out(cluster: &Cluster, view: &FleetView, intent: &Intent) -> (IntentOutcome, Vec<Record>) {
    let refuse = |message: String| (IntentOutcome::Refused { message }, Vec::new());
    let Some(cap) = cluster.write_cap() else { return refuse("this process is read-only".to_owned()) };
    let ops = match intent_plan::plan(view, intent, &cluster.info().user) {
        Ok(ops) => ops,
        Err(refusal) => return refuse(refusal.to_string()),
    };
    let writer = Writer::new(cluster, cap, write::open());
    let (mut written, mut records) = (Vec::new(), Vec::new());
    for op in ops {
        let name = object(&op);
        let action = Action { op, evidence: Evidence::Watched, why: format!("asked for by {}", asker(cluster)) };
        let executed = execute(&writer, None, view, &action).await;
        if let Some(done) = executed.results.iter().find(|done| !done.written.is_applied()) {
            let before = if written.is_empty() { String::new() } else { format!("; written before it: {}", written.join(", ")) };
            return (IntentOutcome::Refused { message: format!("{name}: {}{before}", done.written) }, records);
        }
        written.push(name);
        records.extend(executed.records());
    }
    (IntentOutcome::Done { message: written.join(", ") }, records)
}

fn asker(cluster: &Cluster) -> &str {
    match cluster.info().user.as_str() {
        "" => "a person",
        user => user,
    }
}

/// The object of a person's request, as people name it.
fn object(op: &Op) -> String {
    match op {
        Op::CreateHandoff { key, .. } => format!("NodeHandoff {key} created"),
        Op::PatchHandoffSpec { of, .. } => format!("NodeHandoff {} changed", of.key),
        Op::DeleteHandoff(of) => format!("NodeHandoff {} deleted", of.key),
        Op::SetPaused { key, paused, .. } => format!("NodeComponent {key} {}", if *paused { "paused" } else { "resumed" }),
        _ => "object written".to_owned(),
    }
}

//! `lockkeeper plan`: exactly what a handoff would do, before anything does. It writes nothing.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{
    ComponentName, Exit, Failure, Global, out,
    render::{self, plan as shown},
    session,
};
use crate::{
    api::{ComponentKey, NodeName, Phase, Version},
    console::{
        facts::Facts,
        plan::{Request, from_facts, held_back},
    },
    engine::{intent::NodeTarget, intent_plan, picture::Picture},
};

#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// NAME or NAMESPACE/NAME of a NodeComponent
    pub component: ComponentName,
    /// Names of Nodes
    #[arg(required = true)]
    pub node: Vec<String>,
    /// The version to hand over to [default: the component's]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub to: Option<Version>,
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// VERSION on the command line.
pub fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|error| error.to_string())
}

/// Exit code 3 when a handoff would be refused.
pub async fn run(plan: Plan, global: &Global) -> Result<Exit, Failure> {
    let mut session = session::open(global, session::Need::Read).await?;
    let picture = session.complete(Duration::from_secs(60)).await?;
    let component = plan.component.key(global, &session.namespace);
    let report = report(&picture, &component, &plan.node, plan.to.as_ref())?;
    out::print(&match plan.output {
        Format::Text => shown::text(&report),
        Format::Json => render::json(&report)?,
    })?;
    Ok(if report.refused { Exit::Refused } else { Exit::Done })
}

/// What a handoff of these nodes would do. `to` is the component's own version when left out.
pub fn report(
    picture: &Picture,
    component: &ComponentKey,
    nodes: &[String],
    to: Option<&Version>,
) -> Result<shown::Report, Failure> {
    let to = target(picture, component, to)?;
    let nodes = targets(picture, nodes)?;
    let mut plan = from_facts(picture, &Request { component: component.clone(), nodes, to: to.clone() });
    plan.warnings.extend(held_back(picture, component, &to));
    for node in &mut plan.nodes {
        node.warnings.extend(under_way(picture, component, &node.node));
    }
    Ok(shown::report(&picture.fleet.cluster.context, &component.to_string(), to.as_str(), &plan))
}

/// A handoff that is there already: a new one would be refused, or would take its place in the queue.
fn under_way(picture: &Picture, component: &ComponentKey, node: &NodeName) -> Option<String> {
    let facts = Facts::of(picture, component, node)?;
    let handoff = facts.handoff()?;
    let to = facts.heading();
    match handoff.status.phase {
        phase if phase.is_ended() => None,
        Phase::Queued => Some(format!("NodeHandoff {} to {to} is queued already: a new one takes its place", handoff.key)),
        phase => Some(format!(
            "NodeHandoff {} to {to} is in {phase}: a new one is refused until it has ended; let it end, or abort it",
            handoff.key
        )),
    }
}

pub fn target(picture: &Picture, component: &ComponentKey, to: Option<&Version>) -> Result<Version, Failure> {
    let view = picture.fleet.components.get(component).ok_or_else(|| session::no_component(picture, component))?;
    match (to, view.aim()) {
        (Some(to), _) => Ok(to.clone()),
        (None, Some(aim)) => Ok(aim),
        (None, None) if view.csi.is_some() => Err(Failure::usage(format!(
            "which revision of NodeComponent {component} is current is not known: {}",
            view.refusals.join("; ")
        ))),
        (None, None) if view.kmm.is_some() => Err(Failure::usage(format!(
            "which version the Module of NodeComponent {component} has is not known: {}",
            view.refusals.join("; ")
        ))),
        (None, None) => {
            Err(Failure::usage(format!("NodeComponent {component} does not decode, so it has no version of its own: give --to")))
        }
    }
}

/// The component has this version to hand over to now, and its handoffs may pause after these phases: anything else names what is not there.
pub fn possible(picture: &Picture, component: &ComponentKey, to: Option<&Version>, pauses: &[Phase]) -> Result<(), Failure> {
    let view = picture.fleet.components.get(component).ok_or_else(|| session::no_component(picture, component))?;
    let offered = to.map_or(Ok(()), |to| intent_plan::offered(view, to));
    let possible = offered.and_then(|()| intent_plan::pausable(view, pauses));
    possible.map_err(|why| Failure::usage(format!("{why} (on {})", picture.fleet.cluster.context)))
}

/// Nodes that would not pass through a phase after which they are to pause, as things stand.
pub fn passed_by(report: &shown::Report, pauses: &[Phase]) -> Vec<String> {
    let enters = |node: &shown::Node, phase: &Phase| node.steps.iter().any(|step| step.starts_with(&format!("{phase}:")));
    let of = |node: &shown::Node| -> Vec<String> {
        let skipped = pauses.iter().filter(|phase| !node.steps.is_empty() && !enters(node, phase));
        let name = node.node.clone();
        skipped
            .map(move |phase| format!("{name} does not pass through {phase} as things stand, and so does not pause after it"))
            .collect()
    };
    report.nodes.iter().flat_map(of).collect()
}

/// The nodes by name, each once, as they are seen now.
pub fn targets(picture: &Picture, nodes: &[String]) -> Result<Vec<NodeTarget>, Failure> {
    let mut targets: Vec<NodeTarget> = Vec::new();
    for name in nodes {
        let node = NodeName::from(name.as_str());
        let record = picture.fleet.node(&node).and_then(|node| node.record.as_ref());
        let Some(record) = record else {
            return Err(Failure::usage(format!("there is no Node {name} on {}", picture.fleet.cluster.context)));
        };
        if targets.iter().any(|target| target.node == node) {
            return Err(Failure::usage(format!("Node {name} is named twice")));
        }
        targets.push(NodeTarget { node, uid: Some(record.meta.uid.clone()) });
    }
    Ok(targets)
}

//! What a handoff would do, by the engine's own preflight on a handoff that is only imagined. For `plan`, `handoff` and the console's plan dialog.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{ComponentKey, ObjectKey, Version, handoff::HandoffAction},
    console::plan::{NodePlan, Plan, Planner, Request, from_facts},
    engine::{intent_plan::handoff_key, picture::Picture},
    fleet::{
        records::{DaemonSetRecord, HandoffRecord, Meta},
        view::{ComponentView, Occupancy},
    },
    handoff::{
        facts::{Context, Facts},
        observed::Observed,
        preflight,
        verdict::BlockerKind,
    },
};

/// For [`crate::console::ConsoleOptions`].
pub fn planner() -> Planner {
    Arc::new(plan)
}

/// Pods and steps from the picture, refusals and warnings from preflight.
pub fn plan(picture: &Picture, request: &Request) -> Plan {
    let mut plan = from_facts(picture, request);
    for node in &mut plan.nodes {
        judge(picture, &request.component, &request.to, node);
    }
    // What is wrong with the component as a whole is said once.
    let whole: BTreeSet<String> = plan.refusals.iter().cloned().collect();
    for node in &mut plan.nodes {
        node.refusals.retain(|why| !whole.iter().any(|said| why.contains(said.as_str())));
    }
    plan
}

/// Replace what facts alone say by what preflight says, where the node and the component are there to be judged.
fn judge(picture: &Picture, key: &ComponentKey, to: &Version, plan: &mut NodePlan) {
    let fleet = &picture.fleet;
    let Some(component) = fleet.components.get(key) else { return };
    let component = &awaited(component, to);
    let Some(node) = fleet.node(&plan.node) else { return };
    let Some(occupancy) = node.components.get(key) else { return };
    let imagined = imagined(key, plan, to, occupancy);
    let context =
        Context { lease_held: true, epoch: 0, identity: "plan".into(), cluster_max_unavailable: u32::MAX, read_only: true };
    let observed = Observed::default();
    let facts = Facts {
        now: fleet.now,
        key,
        component,
        node,
        occupancy: &imagined,
        slot: None,
        others: &[],
        admission: None,
        budgets: &fleet.budgets,
        observed: &observed,
        context: &context,
        stale: None,
    };
    let replaced = plan.refusals.iter().filter(|why| why.contains("made again")).cloned().collect::<Vec<_>>();
    plan.refusals = replaced;
    for blocker in preflight::refusals(&facts) {
        // A node that does not answer now may do so when its turn comes.
        let passes = matches!(blocker.kind, BlockerKind::NodeNotReady | BlockerKind::ForeignMaintenance);
        let said =
            if blocker.object.name.is_empty() { blocker.message } else { format!("{}: {}", blocker.object, blocker.message) };
        let list = if passes { &mut plan.warnings } else { &mut plan.refusals };
        if !list.contains(&said) {
            list.push(said);
        }
    }
    for warning in preflight::warnings(&facts) {
        if !plan.warnings.contains(&warning) {
            plan.warnings.push(warning);
        }
    }
}

/// The engine makes the DaemonSets of a component's own version when its first handoff waits for them: that they are not there yet refuses nothing.
fn awaited(component: &ComponentView, to: &Version) -> ComponentView {
    let mut component = component.clone();
    let aim = component.spec().is_some_and(|spec| spec.version == to.as_str());
    let namespace = component.record.key.namespace.clone();
    if let Some(view) = component.versions.get_mut(to).filter(|_| aim) {
        for set in [&mut view.loader, &mut view.plugin] {
            set.get_or_insert_with(|| Arc::new(daemon_set(ObjectKey::new(namespace.clone(), "not-made-yet"))));
        }
    }
    component
}

fn daemon_set(key: ObjectKey) -> DaemonSetRecord {
    DaemonSetRecord {
        key,
        meta: meta(),
        labels: Arc::default(),
        annotations: BTreeMap::new(),
        generation: 1,
        observed_generation: 1,
        on_delete: true,
        node_selector: BTreeMap::new(),
        spec: None,
        desired: 0,
        ready: 0,
        current: 0,
        claims_resources: BTreeMap::new(),
        requires_labels: Vec::new(),
    }
}

fn meta() -> Meta {
    Meta { uid: "".into(), resource_version: "".into(), created: None, deletion: None }
}

/// The same node with a handoff to `to` in its first moment.
fn imagined(key: &ComponentKey, plan: &NodePlan, to: &Version, occupancy: &Occupancy) -> Occupancy {
    let spec = crate::api::NodeHandoffSpec {
        component: key.name.to_string(),
        node: plan.node.to_string(),
        version: Some(to.to_string()),
        position: None,
        action: HandoffAction::Run,
        attempt: 1,
        pause_after: Vec::new(),
        overrides: Vec::new(),
        requested_by: String::new(),
        reason: String::new(),
    };
    let record = HandoffRecord {
        key: handoff_key(key, &plan.node),
        meta: meta(),
        generation: 1,
        spec: Ok(spec),
        status: Default::default(),
        finalizers: Vec::new(),
    };
    Occupancy { handoff: Some(Arc::new(record)), ..occupancy.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::render::sample::{Sample, gpu},
        engine::intent::NodeTarget,
        fleet::view::ClaimantClass,
    };

    fn planned(sample: Sample, node: &str, to: &str) -> Plan {
        let nodes = vec![NodeTarget { node: node.into(), uid: Some(node.into()) }];
        plan(&sample.picture(), &Request { component: gpu(), nodes, to: to.into() })
    }

    #[test]
    fn preflight_has_the_last_word() {
        let fine = planned(Sample::new().node("n1", "1.0"), "n1", "2.0");
        assert!(!fine.is_refused(), "{fine:?}");
        let fixed = planned(Sample::new().node("n1", "1.0").claimant("n1", "static", ClaimantClass::Mirror), "n1", "2.0");
        assert!(fixed.nodes[0].refusals.iter().any(|why| why.contains("work/static")), "{fixed:?}");
        let nowhere = planned(Sample::new().node("n1", "1.0"), "n1", "9.9");
        assert!(nowhere.is_refused(), "{nowhere:?}");
        let again = planned(Sample::new().node("n1", "2.0").claimant("n1", "static", ClaimantClass::Mirror), "n1", "2.0");
        assert!(!again.is_refused(), "nothing moves: {again:?}");
    }
}

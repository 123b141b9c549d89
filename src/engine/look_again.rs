//! The second look: before anything destructive, the facts are read from the API server and decided upon again. Only the same decision is carried out.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::brain::Mind;
use crate::{
    api::{ComponentKey, NodeName, ObjectKey, Phase, keys},
    cluster::{
        Cluster,
        call::Call,
        fresh::{self, FreshError, FreshNode, Wanted},
        kinds::served,
    },
    drain::{claimants::Claims, incoming::VolumeClaims},
    fleet::{
        event::{Kind, Record},
        node_labels,
        occupancy::{NodeFacts, component_of},
        records::{HandoffRecord, Meta},
        view::NodeView,
    },
    handoff::{
        action::{Action, Evidence, Op, Subject},
        verdict::Verdict,
    },
    kmm::records::ModuleRecord,
};

/// Between two reads of which both must say the same: a binding under way becomes visible.
const BETWEEN: Duration = Duration::from_millis(500);

/// What the second look says.
#[derive(Debug)]
pub enum Second {
    /// The same decision on fresh facts, with their resource versions.
    Same(Box<Action>),
    /// Another decision; nothing is sent.
    Other,
    /// The facts could not be read; nothing is sent.
    Unread(String),
}

/// Looks again, as often as the evidence asks. Everything read goes to `read`, so that the stores know it before the watches tell.
pub async fn look_again(cluster: &Cluster, mind: &Mind, subject: &Subject, first: &Action, read: &mut Vec<Record>) -> Second {
    match subject {
        Subject::Occupancy { component, node } => {
            let mut chosen = first.clone();
            let looks = if first.evidence == Evidence::FreshTwice { 2 } else { 1 };
            for look in 0..looks {
                if look > 0 {
                    tokio::time::sleep(BETWEEN).await;
                }
                let wanted = Wanted {
                    handoff: Some(ObjectKey::new(component.namespace.clone(), format!("{}.{node}", component.name))),
                    incoming: true,
                    devices: mind.uses_claims(component),
                    volumes: mind.attachments(component, node),
                    modules: mind.follows(component).is_some(),
                };
                match is_as_seen(cluster, mind, component, &first.op, read).await {
                    Ok(true) => {}
                    Ok(false) => return Second::Other,
                    Err(error) => return Second::Unread(error.to_string()),
                }
                let fresh = match fresh::node(cluster, node, &wanted).await {
                    Ok(fresh) => fresh,
                    Err(error) => return Second::Unread(error.to_string()),
                };
                read.extend(records(&fresh));
                let lease = fresh.our_lease.clone().map(Arc::new);
                let view = judge(mind, fresh);
                match mind.decide_again(subject, &view, lease, cluster.clock().now()) {
                    Some(Verdict::Act(action)) if chosen.is_same_as(&action) && action.evidence <= first.evidence => {
                        chosen = *action
                    }
                    _ => return Second::Other,
                }
            }
            Second::Same(Box::new(chosen))
        }
        Subject::Version { component, version } => {
            // The labels are what counts: a DaemonSet whose status lags may have pods to come.
            for role in [crate::api::keys::Role::Desired, crate::api::keys::Role::Loader, crate::api::keys::Role::Plugin] {
                let selector = format!("{}%3D{version}", role.key(component).replace('/', "%2F"));
                let uri = format!("{}?labelSelector={selector}&limit=1", served(Kind::Node).collection(""));
                match cluster.json(Call::get(uri)).await {
                    Ok(list) if list["items"].as_array().is_some_and(Vec::is_empty) => {}
                    Ok(_) => return Second::Other,
                    Err(error) => return Second::Unread(error.to_string()),
                }
            }
            match &first.op {
                Op::DeleteDaemonSet { key, uid } => match fresh::get(cluster, Kind::DaemonSet, &key.namespace, &key.name).await {
                    Ok(Some(Record::DaemonSet(set))) if set.meta.uid == *uid && set.current == 0 && set.desired == 0 => {
                        Second::Same(Box::new(first.clone()))
                    }
                    Ok(_) => Second::Other,
                    Err(error) => Second::Unread(error.to_string()),
                },
                _ => Second::Same(Box::new(first.clone())),
            }
        }
        Subject::Component(key) => again(removal(cluster, key, first).await, first),
        Subject::Lease => match orphan(cluster, mind, first, read).await {
            Ok(Some(Verdict::Act(action))) if first.is_same_as(&action) => Second::Same(action),
            Ok(_) => Second::Other,
            Err(error) => Second::Unread(error.to_string()),
        },
    }
}

/// What the decision rests on beside the node.
async fn is_as_seen(
    cluster: &Cluster,
    mind: &Mind,
    key: &ComponentKey,
    op: &Op,
    read: &mut Vec<Record>,
) -> Result<bool, FreshError> {
    Ok(plugin_set_is_as_seen(cluster, mind, key, op).await?
        && module_is_as_seen(cluster, mind, key).await?
        && component_is_as_seen(cluster, mind, key, op, read).await?)
}

/// Of the component of a handoff that is to begin: its pause, its policy and what counts as a claimant are the server's. What is read
/// instead goes to the stores. Later steps rest on the policy that the run keeps.
async fn component_is_as_seen(
    cluster: &Cluster,
    mind: &Mind,
    key: &ComponentKey,
    op: &Op,
    read: &mut Vec<Record>,
) -> Result<bool, FreshError> {
    let begins = matches!(op, Op::PutHandoffStatus { status, .. } if status.phase == Phase::Preflight);
    let Some(known) = mind.view.components.get(key).map(|view| &view.record).filter(|_| begins) else { return Ok(true) };
    let fresh = fresh::get(cluster, Kind::Component, &key.namespace, &key.name).await?.and_then(fresh::component_of);
    let Some(fresh) = fresh else { return Ok(false) };
    let same = fresh.meta.uid == known.meta.uid
        && fresh.meta.deletion.is_some() == known.meta.deletion.is_some()
        && fresh.spec == known.spec;
    if !same {
        read.push(Record::Component(fresh));
    }
    Ok(same)
}

/// Of the DaemonSet whose pod is to be deleted: the template and the strategy that the decision rests on are the server's.
async fn plugin_set_is_as_seen(cluster: &Cluster, mind: &Mind, key: &ComponentKey, op: &Op) -> Result<bool, FreshError> {
    let view = mind.view.components.get(key).and_then(|component| component.csi.as_ref());
    let Some(set) = view.and_then(|csi| csi.set.as_ref()).filter(|_| matches!(op, Op::DeletePod(_))) else { return Ok(true) };
    let fresh = fresh::get(cluster, Kind::DaemonSet, &set.key.namespace, &set.key.name).await?.and_then(fresh::daemon_set_of);
    Ok(fresh
        .is_some_and(|fresh| fresh.meta.uid == set.uid && fresh.on_delete && fresh.template.as_deref() == Some(&set.template)))
}

/// Of the Module that the component follows: what it says is the server's, though its counters may have moved.
async fn module_is_as_seen(cluster: &Cluster, mind: &Mind, key: &ComponentKey) -> Result<bool, FreshError> {
    let Some(view) = mind.follows(key) else { return Ok(true) };
    let Some(known) = view.module.as_deref() else { return Ok(true) };
    let fresh = fresh::get(cluster, Kind::KmmModule, &view.key.namespace, &view.key.name).await?.and_then(fresh::module_of);
    let meta = |module: &ModuleRecord| Meta { resource_version: known.meta.resource_version.clone(), ..module.meta.clone() };
    Ok(fresh.is_some_and(|fresh| ModuleRecord { meta: meta(&fresh), ..fresh } == *known))
}

fn again(still: Result<bool, FreshError>, first: &Action) -> Second {
    match still {
        Ok(true) => Second::Same(Box::new(first.clone())),
        Ok(false) => Second::Other,
        Err(error) => Second::Unread(error.to_string()),
    }
}

/// A component's removal takes a DaemonSet or the finalizer away: only while the component is being deleted, and when no node carries
/// anything of it and none of its pods is left. The finalizer goes last.
async fn removal(cluster: &Cluster, key: &ComponentKey, first: &Action) -> Result<bool, FreshError> {
    let fresh = fresh::get(cluster, Kind::Component, &key.namespace, &key.name).await?.and_then(fresh::component_of);
    let Some(component) = fresh.filter(|component| component.meta.deletion.is_some()) else { return Ok(false) };
    let own = format!("{}={}", keys::COMPONENT, key.name);
    let sets = fresh::labelled(cluster, Kind::DaemonSet, &key.namespace, &own).await?;
    let mut sets = sets.into_iter().filter_map(fresh::daemon_set_of);
    let as_decided = match &first.op {
        Op::DeleteDaemonSet { key, uid } => {
            sets.any(|set| set.key == *key && set.meta.uid == *uid && set.current == 0 && set.desired == 0)
        }
        Op::SetComponentFinalizer { uid, .. } => component.meta.uid == *uid && sets.next().is_none(),
        _ => true,
    };
    if !as_decided {
        return Ok(false);
    }
    // What a node carries is in labels and in annotations, which no selector finds.
    let nodes = fresh::list(cluster, Kind::Node, "", "").await?.into_iter().filter_map(fresh::node_of);
    if nodes.into_iter().any(|node| node_labels::parse(&node).get(key).is_some_and(|labels| !labels.is_bare())) {
        return Ok(false);
    }
    let pods = fresh::labelled(cluster, Kind::Pod, &key.namespace, &own).await?;
    Ok(!pods.into_iter().filter_map(fresh::pod_of).any(|pod| component_of(&pod).as_ref() == Some(key)))
}

/// A slot that no handoff speaks for, on what its node, its component and the Lease are now.
async fn orphan(cluster: &Cluster, mind: &Mind, first: &Action, read: &mut Vec<Record>) -> Result<Option<Verdict>, FreshError> {
    let Op::Release(slot) = &first.op else { return Ok(None) };
    let name = NodeName::from(slot.node.as_str());
    let component = slot.component.split_once('/').map(|(namespace, name)| ComponentKey::new(namespace, name));
    let handoff = component.as_ref().map(|key| ObjectKey::new(key.namespace.clone(), format!("{}.{}", key.name, slot.node)));
    let exists = match &component {
        Some(key) => fresh::get(cluster, Kind::Component, &key.namespace, &key.name).await?.is_some(),
        None => false,
    };
    // A component that has come is for the watches to show.
    if component.as_ref().is_some_and(|key| exists != mind.view.components.contains_key(key)) {
        return Ok(None);
    }
    let fresh = fresh::node(cluster, &name, &Wanted { handoff, ..Wanted::default() }).await?;
    read.extend(records(&fresh));
    let lease = fresh.our_lease.clone().map(Arc::new);
    let node = judge(mind, fresh);
    Ok(mind.decide_on_slots(node, lease, cluster.clock().now()))
}

/// Judged as the projection judges, by the same function.
fn judge(mind: &Mind, fresh: FreshNode) -> NodeView {
    let name = fresh.name.clone();
    let claims: Option<Claims> =
        fresh.claims.map(|claims| claims.into_iter().map(|claim| (claim.key.clone(), Arc::new(claim))).collect());
    let volume_claims: VolumeClaims = fresh.volume_claims.into_iter().map(|claim| (claim.key.clone(), Arc::new(claim))).collect();
    let facts = NodeFacts {
        record: fresh.node.map(Arc::new),
        lease: fresh.lease.map(Arc::new),
        pods: fresh.pods.into_iter().map(Arc::new).collect(),
        unbound: fresh.unbound.into_iter().flatten().map(Arc::new).collect(),
        claims: claims.unwrap_or_default(),
        volume_claims,
        volumes: fresh.volumes.into_iter().map(|volume| (volume.name.clone(), Arc::new(volume))).collect(),
        attachments: fresh.attachments.into_iter().map(Arc::new).collect(),
        csi_node: fresh.csi_node.map(Arc::new),
        config: fresh.config.map(Arc::new),
        slices: fresh.slices.into_iter().flatten().map(Arc::new).collect(),
        handoffs: handoffs(mind, &name, fresh.handoff.map(Arc::new)),
        name,
    };
    facts.view(&mind.view.rules)
}

/// The fresh handoff, and those of other components on the node as they were last seen.
fn handoffs(mind: &Mind, node: &NodeName, fresh: Option<Arc<HandoffRecord>>) -> Vec<Arc<HandoffRecord>> {
    let known = mind.view.node(node).into_iter().flat_map(|view| view.components.values());
    let mut all: BTreeMap<ObjectKey, Arc<HandoffRecord>> =
        known.filter_map(|occupancy| occupancy.handoff.clone()).map(|handoff| (handoff.key.clone(), handoff)).collect();
    if let Some(fresh) = fresh {
        all.insert(fresh.key.clone(), fresh);
    }
    all.into_values().collect()
}

/// What may go into the stores: each object newer than, or as new as, what they hold.
fn records(fresh: &FreshNode) -> Vec<Record> {
    let mut records = Vec::new();
    records.extend(fresh.node.clone().map(Record::Node));
    records.extend(fresh.lease.clone().map(Record::NodeLease));
    records.extend(fresh.our_lease.clone().map(Record::Lease));
    records.extend(fresh.handoff.clone().map(Record::Handoff));
    records.extend(fresh.config.clone().map(Record::KmmConfig));
    records.extend(fresh.pods.iter().cloned().map(Record::Pod));
    records
}

#[cfg(test)]
mod tests;

//! Whose cordon it is. Ours: our annotation names this component, and managedFields name us for `spec.unschedulable`.

use super::facts::Facts;
use crate::{
    api::{
        MANAGER,
        component::{CordonPolicy, VolumeDrain},
        handoff::RunPolicy,
    },
    fleet::records::NodeRecord,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordon {
    /// The node takes pods, and no annotation of ours is on it.
    Open,
    /// Our annotation is there but the node is open: somebody uncordoned it.
    Lifted,
    /// Closed, and ours to open.
    Ours,
    /// Closed by somebody else. `stale`: our annotation is still there, from a cordon of ours that was lifted and set again by another.
    Foreign { stale: bool },
}

pub fn state(f: &Facts<'_>) -> Cordon {
    let Some(record) = f.record() else { return Cordon::Open };
    let named = f.cordon_owners().is_some_and(|cordon| cordon.owners.contains(&f.owner()));
    match (record.unschedulable, named) {
        (false, false) => Cordon::Open,
        (false, true) => Cordon::Lifted,
        (true, true) if is_managed_by_us(record) => Cordon::Ours,
        (true, stale) => Cordon::Foreign { stale },
    }
}

/// The last one to set `spec.unschedulable` was lockkeeper.
pub fn is_managed_by_us(record: &NodeRecord) -> bool {
    record.unschedulable_managers.iter().any(|manager| &**manager == MANAGER)
}

/// Whether a run closes the node. A label moved by hand never does.
pub fn is_wanted(f: &Facts<'_>, policy: &RunPolicy) -> bool {
    if f.is_by_label() {
        return false;
    }
    match policy.drain.cordon {
        CordonPolicy::Always => true,
        // New users may come at any time, and nothing but a cordon keeps them away.
        _ if policy.csi_node_plugin.is_some() => {
            policy.csi_node_plugin.as_ref().is_some_and(|plugin| plugin.drain != VolumeDrain::None)
        }
        CordonPolicy::Never => false,
        // KMM unloads right after the plugin's end, whoever has come meanwhile: only a closed node stays empty.
        CordonPolicy::Auto if f.component.kmm.is_some() => true,
        // With extended resources and DRA only, no pod can come once the plugin has gone: an empty node need not be closed.
        CordonPolicy::Auto => {
            let occupancy = f.occupancy;
            f.unloads_by_reboot()
                || f.has_selector()
                || !occupancy.claimants.is_empty()
                || !occupancy.incoming.is_empty()
                || !occupancy.reserved_claims.is_empty()
        }
    }
}

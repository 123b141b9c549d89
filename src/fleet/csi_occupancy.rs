//! A CSI nodeplugin on one node: its pods, the uses of its volumes, who must leave, who is restarted, and what is still attached.

use std::{borrow::Cow, sync::Arc};

use super::{
    csi::{CsiView, revision_of},
    occupancy::NodeFacts,
    records::*,
    rules::{ComponentRules, Rules},
    should_run,
    view::{Claimant, CsiOccupancy, Incoming, IncomingReason, NodeLabels, Occupancy, VolumeUse},
};
use crate::{
    api::{ComponentKey, Phase, Version},
    drain::{
        claimants, incoming,
        volumes::{self, Ahead, Uses},
    },
};

impl NodeFacts {
    /// The component's nodes are those that carry a pod of the DaemonSet or would get one.
    pub(super) fn carries(&self, component: &ComponentRules, csi: &CsiView, node: &NodeRecord) -> bool {
        let Some(set) = &csi.set else { return false };
        component.selects(&node.labels)
            && (self.plugin_pods(csi).next().is_some() || should_run::should_run(node, &set.template).is_ok())
    }

    fn plugin_pods<'a>(&'a self, csi: &'a CsiView) -> impl Iterator<Item = &'a Arc<PodRecord>> {
        let uid = csi.set.as_ref().map(|set| &set.uid);
        self.pods.iter().filter(move |pod| uid.is_some() && pod.owner.as_ref().map(|owner| &owner.uid) == uid)
    }

    pub(super) fn of_csi(
        &self,
        rules: &Rules,
        component: &ComponentRules,
        csi: &CsiView,
        key: &ComponentKey,
        labels: NodeLabels,
    ) -> Occupancy {
        let handoff = self.own_handoffs().find(|(of, _)| of == key).map(|(_, handoff)| handoff.clone());
        let csi = as_begun(csi, handoff.as_deref());
        let pods: Vec<Arc<PodRecord>> = self.plugin_pods(&csi).cloned().collect();
        let live = || pods.iter().filter(|pod| pod.meta.deletion.is_none() && !pod.phase.is_terminal());
        // While an old one is there, or none, every mount is about to die or has died.
        let replaced = live().next().is_some() && pods.iter().all(|pod| csi.is_current(pod) || pod.phase.is_terminal());
        let remounted = csi.plugin.remount.as_ref().map(|word| is_remounted(handoff.as_deref(), word));
        let ahead = match remounted {
            Some(false) => Ahead::Remount { since: remount_began(handoff.as_deref()) },
            _ if replaced => Ahead::Repair,
            _ => Ahead::Replacement,
        };
        let began = live().filter_map(|pod| volumes::began(pod)).max();
        let attachments: Vec<Arc<AttachmentRecord>> =
            self.attachments.iter().filter(|it| it.node == self.name && *it.attacher == *csi.plugin.driver).cloned().collect();
        let kernel = self.record.as_ref().map(|node| node.kernel.clone()).unwrap_or_default();
        let others = self.pods.iter().filter(|pod| !pods.iter().any(|own| own.meta.uid == pod.meta.uid));
        let found = volumes::uses(&csi, others.clone(), &self.volume_claims, &self.volumes, &attachments, &kernel, began);

        let (mut leaving, mut restart) = (Vec::new(), Vec::new());
        for pod in others.filter(|pod| !pod.phase.is_terminal()) {
            let Some(why) = volumes::reason(pod, &found, csi.plugin.drain, ahead) else { continue };
            let class = claimants::class(pod, &component.ready_key, &rules.required_labels);
            let comes_back = pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set());
            let list = if comes_back { &mut restart } else { &mut leaving };
            list.push(Claimant { pod: pod.clone(), why, class });
        }
        let stays = |it: &&VolumeUse| !leaving.iter().any(|claimant| claimant.pod.meta.uid == it.pod.meta.uid);
        let kept: Vec<&VolumeUse> = found.uses.iter().filter(stays).collect();
        let attached = volumes::attached(&csi, self.record.as_deref(), &attachments, &self.volumes, &kept);
        let incoming = self.csi_incoming(&csi, &kernel);
        let node = self.record.as_deref();
        let should_run = match (node, &csi.set) {
            (Some(node), Some(set)) => should_run::should_run(node, &set.template),
            (None, _) => Err("the Node does not exist".to_owned()),
            (_, None) => Err("its DaemonSet does not exist".to_owned()),
        };
        Occupancy {
            selected: node.is_some_and(|node| self.carries(component, &csi, node)),
            labels,
            loader_pods: Vec::new(),
            plugin_pods: Vec::new(),
            unload_pods: Vec::new(),
            claimants: leaving,
            incoming,
            reserved_claims: Vec::new(),
            slices: Default::default(),
            allocatable: Default::default(),
            handoff,
            kmm: None,
            csi: Some(Box::new(CsiOccupancy {
                registered: self.csi_node.as_ref().is_some_and(|it| it.drivers.iter().any(|name| **name == *csi.plugin.driver)),
                revision: remounted.filter(|done| *done).and(csi.current.clone()).or_else(|| {
                    (pods.iter().filter(|pod| !pod.phase.is_terminal()).min_by_key(|pod| pod.meta.created))
                        .and_then(|pod| revision_of(pod))
                        .map(|hash| Version::from(&**hash))
                }),
                should_run,
                uses: found.uses,
                restart,
                attachments,
                attached,
                pods,
            })),
        }
    }

    /// Unbound pods on their way here that would be users. A claim that has chosen this node and is not bound yet may become one.
    fn csi_incoming(&self, csi: &CsiView, kernel: &str) -> Vec<Incoming> {
        let found: Uses = volumes::uses(csi, self.unbound.iter(), &self.volume_claims, &self.volumes, &[], kernel, None);
        let one = |pod: &Arc<PodRecord>| {
            let why = incoming::reason(pod, &self.name, &self.claims, &self.volume_claims)?;
            let may_be = matches!(&why, IncomingReason::VolumeSelectedNode { claim }
                if self.volume_claims.get(claim).is_some_and(|claim| !claim.bound));
            let uses = volumes::reason(pod, &found, csi.plugin.drain, Ahead::Replacement).is_some();
            (uses || may_be).then(|| Incoming { pod: pod.clone(), why })
        };
        self.unbound.iter().filter_map(one).collect()
    }
}

/// Every pod with a volume has left the node once for this word.
fn is_remounted(handoff: Option<&HandoffRecord>, word: &str) -> bool {
    let done = |end: &crate::api::handoff::Ended| end.phase == Phase::Done && end.target.as_deref() == Some(word);
    handoff.is_some_and(|handoff| handoff.status.history.iter().any(done))
}

/// What was mounted since the running attempt began is mounted anew already.
fn remount_began(handoff: Option<&HandoffRecord>) -> Option<jiff::Timestamp> {
    let running = handoff.filter(|it| !it.status.phase.is_ended() && it.status.phase != Phase::Queued);
    running.and_then(|it| it.status.run.as_ref()?.started_at.parse().ok())
}

/// With the policy that a running handoff began with: it ends under that one.
fn as_begun<'c>(csi: &'c CsiView, handoff: Option<&HandoffRecord>) -> Cow<'c, CsiView> {
    let running = handoff.filter(|it| !it.status.phase.is_ended() && it.status.phase != Phase::Queued);
    let policy = running.and_then(|it| it.status.run.as_ref()?.policy.csi_node_plugin.as_ref());
    match policy.filter(|policy| **policy != csi.plugin) {
        Some(policy) => {
            let driver = csi.plugin.driver.clone();
            Cow::Owned(CsiView { plugin: crate::api::component::CsiNodePlugin { driver, ..policy.clone() }, ..csi.clone() })
        }
        None => Cow::Borrowed(csi),
    }
}

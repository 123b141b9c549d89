//! Budgets, claims, slices, volumes, replica counts, other people's DaemonSets, and the Lease.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Records, key, meta};
use crate::{
    api::{NodeName, Uid, component::LabelSelector, keys::Slot},
    fleet::{event::Record, records::*},
};

macro_rules! builder {
    ($(#[$doc:meta])* $name:ident, $record:ident, $variant:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            record: $record,
        }
        impl $name {
            /// Any other change.
            pub fn but(mut self, change: impl FnOnce(&mut $record)) -> Self {
                change(&mut self.record);
                self
            }
            pub fn build(self) -> $record {
                self.record
            }
        }
        impl Records for $name {
            fn records(self) -> Vec<Record> {
                vec![Record::$variant(self.record)]
            }
        }
    };
}

builder!(BudgetBuilder, BudgetRecord, Budget);

/// A budget that selects nothing yet, up to date.
pub fn budget(name: &str) -> BudgetBuilder {
    BudgetBuilder {
        record: BudgetRecord {
            key: key(name),
            meta: meta("PodDisruptionBudget", &key(name).to_string()),
            generation: 1,
            observed_generation: 1,
            selector: None,
            min_available: None,
            max_unavailable: None,
            always_allow_unhealthy: false,
            disruptions_allowed: 0,
            current_healthy: 0,
            desired_healthy: 0,
            expected_pods: 0,
            sync_failed: None,
        },
    }
}

impl BudgetBuilder {
    pub fn selects(self, label: &str, value: &str) -> Self {
        let match_labels: BTreeMap<_, _> = [(label.to_owned(), value.to_owned())].into();
        self.but(|it| it.selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() }))
    }

    pub fn min_available(self, number: &str) -> Self {
        self.but(|it| it.min_available = Some(number.into()))
    }

    pub fn max_unavailable(self, number: &str) -> Self {
        self.but(|it| it.max_unavailable = Some(number.into()))
    }

    /// Healthy pods, how many must stay, how many there should be; allowed follows.
    pub fn counts(self, healthy: i32, desired: i32, expected: i32) -> Self {
        self.but(|it| {
            (it.current_healthy, it.desired_healthy, it.expected_pods) = (healthy, desired, expected);
            it.disruptions_allowed = (healthy - desired).max(0);
        })
    }

    pub fn always_allow_unhealthy(self) -> Self {
        self.but(|it| it.always_allow_unhealthy = true)
    }

    /// Its last sync failed at this time.
    pub fn sync_failed(self, message: &str, since: Timestamp) -> Self {
        self.but(|it| {
            it.disruptions_allowed = 0;
            it.sync_failed = Some(SyncFailed { message: message.into(), since: Some(since) });
        })
    }

    /// The controller has not counted yet.
    pub fn lagging(self) -> Self {
        self.but(|it| it.generation = it.observed_generation + 1)
    }
}

builder!(ClaimBuilder, ClaimRecord, Claim);

/// A ResourceClaim, not allocated.
pub fn claim(name: &str) -> ClaimBuilder {
    ClaimBuilder {
        record: ClaimRecord {
            key: key(name),
            meta: meta("ResourceClaim", &key(name).to_string()),
            devices: Vec::new(),
            reserved: Vec::new(),
            only_node: None,
            allocated: false,
        },
    }
}

impl ClaimBuilder {
    /// Allocated a device of this driver.
    pub fn device(self, driver: &str, pool: &str, device: &str) -> Self {
        self.but(|it| {
            it.allocated = true;
            it.devices.push((driver.into(), pool.into(), device.into()));
        })
    }

    pub fn only_on(self, node: &str) -> Self {
        self.but(|it| it.only_node = Some(NodeName::from(node)))
    }

    /// Reserved for a pod of its namespace, by name, with the UID that [`super::pod`] gives it.
    pub fn reserved_for(self, pod: &str) -> Self {
        self.but(|it| {
            let uid = Uid::from(format!("uid-Pod-{}/{pod}", it.key.namespace));
            it.reserved.push(Reservation { resource: "pods".into(), name: pod.into(), uid });
        })
    }

    /// Reserved for something that is no pod.
    pub fn reserved_for_other(self, resource: &str, name: &str) -> Self {
        self.but(|it| it.reserved.push(Reservation { resource: resource.into(), name: name.into(), uid: Uid::from(name) }))
    }
}

builder!(SliceBuilder, SliceRecord, Slice);

/// A ResourceSlice of a driver on a node.
pub fn slice(name: &str, driver: &str, node: &str, devices: u32) -> SliceBuilder {
    SliceBuilder {
        record: SliceRecord {
            name: name.into(),
            meta: meta("ResourceSlice", name),
            driver: driver.into(),
            node: Some(NodeName::from(node)),
            devices,
        },
    }
}

builder!(VolumeClaimBuilder, VolumeClaimRecord, VolumeClaim);

/// A PersistentVolumeClaim that is not bound.
pub fn volume_claim(name: &str) -> VolumeClaimBuilder {
    VolumeClaimBuilder {
        record: VolumeClaimRecord {
            volume: None,
            pod: None,
            key: key(name),
            meta: meta("PersistentVolumeClaim", &key(name).to_string()),
            selected_node: None,
            bound: false,
        },
    }
}

impl VolumeClaimBuilder {
    pub fn selected(self, node: &str) -> Self {
        self.but(|it| it.selected_node = Some(NodeName::from(node)))
    }

    pub fn bound(self) -> Self {
        self.but(|it| it.bound = true)
    }
}

builder!(ScaleBuilder, ScaleRecord, Scale);

/// A ReplicaSet or StatefulSet with so many replicas; its UID is the one that `owned_by` gives.
pub fn scale(kind: &str, name: &str, replicas: i32) -> ScaleBuilder {
    let key = key(name);
    ScaleBuilder { record: ScaleRecord { meta: meta(kind, &key.to_string()), key, kind: kind.into(), replicas } }
}

builder!(DaemonSetBuilder, DaemonSetRecord, DaemonSet);

/// Somebody else's DaemonSet; its UID is the one that `owned_by("DaemonSet", ...)` gives.
pub fn daemon_set(name: &str) -> DaemonSetBuilder {
    let key = key(name);
    DaemonSetBuilder {
        record: DaemonSetRecord {
            meta: meta("DaemonSet", &key.to_string()),
            key,
            labels: Labels::default(),
            annotations: BTreeMap::new(),
            generation: 1,
            observed_generation: 1,
            on_delete: false,
            node_selector: BTreeMap::new(),
            spec: None,
            desired: 0,
            ready: 0,
            current: 0,
            claims_resources: BTreeMap::new(),
            requires_labels: Vec::new(),
            template: None,
        },
    }
}

impl DaemonSetBuilder {
    /// Its pods need this label of ours on a node.
    pub fn requires(self, label: &str) -> Self {
        self.but(|it| it.requires_labels.push(label.into()))
    }

    pub fn claims(self, resource: &str, quantity: i64) -> Self {
        self.but(|it| {
            it.claims_resources.insert(resource.into(), quantity);
        })
    }
}

builder!(LeaseBuilder, LeaseRecord, Lease);

/// The one Lease, held by `holder`, epoch 1, without slots.
pub fn lease(holder: &str) -> LeaseBuilder {
    LeaseBuilder {
        record: LeaseRecord {
            meta: meta("Lease", "lockkeeper"),
            holder: Some(holder.into()),
            epoch: 1,
            slots: Vec::new(),
            slots_garbage: None,
            renewed: None,
        },
    }
}

impl LeaseBuilder {
    pub fn epoch(self, epoch: i64) -> Self {
        self.but(|it| it.epoch = epoch)
    }

    /// The node is admitted for the component (`ns/name`), with the UID that [`super::node`] gives it.
    pub fn slot(self, node: &str, component: &str) -> Self {
        self.but(|it| {
            it.slots.push(Slot { node: node.into(), node_uid: format!("uid-Node-{node}"), component: component.into() });
        })
    }

    pub fn renewed(self, at: Timestamp) -> Self {
        self.but(|it| it.renewed = Some(at))
    }
}

builder!(VolumeBuilder, VolumeRecord, Volume);

/// A PersistentVolume of a CSI driver, bound to the claim `namespace/name` as [`volume_claim`] makes it.
pub fn volume(name: &str, driver: &str, claim: &str) -> VolumeBuilder {
    let uid = meta("PersistentVolumeClaim", &key(claim).to_string()).uid;
    let csi = CsiSource { driver: driver.into(), handle: format!("handle-{name}").into(), attributes: BTreeMap::new() };
    VolumeBuilder {
        record: VolumeRecord {
            name: name.into(),
            meta: meta("PersistentVolume", name),
            claim: Some((key(claim), uid)),
            released: false,
            csi: Some(csi),
        },
    }
}

impl VolumeBuilder {
    pub fn attribute(self, name: &str, value: &str) -> Self {
        self.but(|it| {
            it.csi.get_or_insert_default().attributes.insert(name.into(), value.into());
        })
    }
}

builder!(AttachmentBuilder, AttachmentRecord, Attachment);

/// A VolumeAttachment, attached.
pub fn attachment(name: &str, driver: &str, node: &str, volume: &str) -> AttachmentBuilder {
    AttachmentBuilder {
        record: AttachmentRecord {
            name: name.into(),
            meta: meta("VolumeAttachment", name),
            attacher: driver.into(),
            node: NodeName::from(node),
            volume: Some(volume.into()),
            attached: true,
            detach_error: None,
        },
    }
}

builder!(CsiNodeBuilder, CsiNodeRecord, CsiNode);

/// A CSINode with these drivers registered.
pub fn csi_node(node: &str, drivers: &[&str]) -> CsiNodeBuilder {
    let drivers = drivers.iter().map(|driver| (*driver).into()).collect();
    CsiNodeBuilder { record: CsiNodeRecord { node: NodeName::from(node), meta: meta("CSINode", node), drivers } }
}

builder!(CsiDriverBuilder, CsiDriverRecord, CsiDriver);

pub fn csi_driver(name: &str, attach_required: bool) -> CsiDriverBuilder {
    CsiDriverBuilder { record: CsiDriverRecord { name: name.into(), meta: meta("CSIDriver", name), attach_required } }
}

builder!(RevisionBuilder, RevisionRecord, Revision);

/// A revision of a DaemonSet (`namespace/name`) whose template has this digest, and whose hash is `hash`.
pub fn revision(set: &str, hash: &str, number: i64, digest: &str) -> RevisionBuilder {
    let set = key(set);
    RevisionBuilder {
        record: RevisionRecord {
            key: crate::api::ObjectKey::new(set.namespace.clone(), format!("{}-{hash}", set.name)),
            meta: meta("ControllerRevision", &format!("{set}-{hash}")),
            owner: Some(Uid::from(format!("uid-DaemonSet-{set}"))),
            revision: number,
            hash: hash.into(),
            digest: digest.into(),
        },
    }
}

/// The OnDelete DaemonSet of a nodeplugin on the host's network, whose template has this digest.
pub fn nodeplugin(name: &str, driver: &str, digest: &str) -> DaemonSetBuilder {
    let template = TemplateRecord {
        digest: digest.into(),
        host_network: true,
        drivers: vec![driver.into()],
        registers: true,
        strategy: "OnDelete".into(),
        ..TemplateRecord::default()
    };
    daemon_set(name).but(|it| {
        it.on_delete = true;
        it.template = Some(Box::new(template));
    })
}

impl DaemonSetBuilder {
    pub fn template(self, change: impl FnOnce(&mut TemplateRecord)) -> Self {
        self.but(|it| change(it.template.get_or_insert_default()))
    }
}

impl VolumeClaimBuilder {
    /// Bound to this PersistentVolume.
    pub fn to_volume(self, name: &str) -> Self {
        self.but(|it| (it.bound, it.volume) = (true, Some(name.into())))
    }
}

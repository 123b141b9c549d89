//! Nodes.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{Records, at, key, meta};
use crate::{
    api::{
        BootId, MANAGER, NodeName, Uid, Version,
        keys::{self, CordonOwners, Loaded, Mark, Role},
    },
    fleet::{event::Record, records::*},
};

/// A Ready, open node in boot `boot-1`.
pub fn node(name: &str) -> NodeBuilder {
    let record = NodeRecord {
        name: NodeName::from(name),
        meta: meta("Node", name),
        labels: Labels::default(),
        annotations: BTreeMap::new(),
        unschedulable: false,
        unschedulable_managers: Vec::new(),
        taints: Vec::new(),
        ready: Ready { status: ReadyStatus::True, since: Some(at(-3600)), heartbeat: Some(at(-5)) },
        boot_id: BootId::from("boot-1"),
        kernel: "6.8.0".into(),
        allocatable: BTreeMap::new(),
        images: Vec::new(),
        csi_volumes: Vec::new(),
    };
    NodeBuilder { record, renewed: None }.label("kubernetes.io/hostname", name)
}

#[derive(Debug, Clone)]
pub struct NodeBuilder {
    record: NodeRecord,
    renewed: Option<Timestamp>,
}

impl NodeBuilder {
    pub fn label(mut self, key: &str, value: &str) -> Self {
        Arc::make_mut(&mut self.record.labels).insert(key.into(), value.into());
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.record.annotations.insert(key.into(), value.into());
        self
    }

    /// D, L, P, ready or nonce of a component (`ns/name`).
    pub fn role(self, role: Role, component: &str, value: &str) -> Self {
        self.label(&role.key(&key(component)), value)
    }

    pub fn desired(self, component: &str, version: &str) -> Self {
        self.role(Role::Desired, component, version)
    }

    pub fn loader(self, component: &str, version: &str) -> Self {
        self.role(Role::Loader, component, version)
    }

    pub fn plugin(self, component: &str, version: &str) -> Self {
        self.role(Role::Plugin, component, version)
    }

    /// The record R.
    pub fn loaded(self, component: &str, version: &str) -> Self {
        self.record_of(component, Loaded { version: Version::from(version), stopped_boot: None })
    }

    /// R with the boot in which the loader pod was seen gone.
    pub fn stopped(self, component: &str, version: &str, boot: &str) -> Self {
        self.record_of(component, Loaded { version: Version::from(version), stopped_boot: Some(BootId::from(boot)) })
    }

    fn record_of(self, component: &str, loaded: Loaded) -> Self {
        self.annotation(&Role::Loaded.key(&key(component)), &serde_json::to_string(&loaded).unwrap_or_default())
    }

    pub fn mark(self, component: &str, mark: &Mark) -> Self {
        self.annotation(&Role::Mark.key(&key(component)), &serde_json::to_string(mark).unwrap_or_default())
    }

    /// D = L = P = ready = R: in service.
    pub fn runs(self, component: &str, version: &str) -> Self {
        self.desired(component, version)
            .loader(component, version)
            .plugin(component, version)
            .role(Role::Ready, component, version)
            .loaded(component, version)
    }

    /// Closed, by this field manager.
    pub fn cordoned_by(mut self, manager: &str) -> Self {
        self.record.unschedulable = true;
        self.record.unschedulable_managers = vec![manager.into()];
        self
    }

    /// Closed by lockkeeper for this component (`ns/name`).
    pub fn cordoned_for(self, component: &str) -> Self {
        let owners = CordonOwners { owners: vec![component.to_owned()] };
        self.cordoned_by(MANAGER).annotation(keys::CORDON, &serde_json::to_string(&owners).unwrap_or_default())
    }

    pub fn open(mut self) -> Self {
        self.record.unschedulable = false;
        self.record.unschedulable_managers.clear();
        self
    }

    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        self.record.taints.push(Taint { key: key.into(), value: Str::default(), effect: effect.into() });
        self
    }

    pub fn ready(mut self, ready: bool) -> Self {
        self.record.ready.status = if ready { ReadyStatus::True } else { ReadyStatus::False };
        self
    }

    pub fn not_ready(self) -> Self {
        self.ready(false)
    }

    pub fn ready_since(mut self, since: Timestamp) -> Self {
        self.record.ready.since = Some(since);
        self
    }

    pub fn boot(mut self, boot: &str) -> Self {
        self.record.boot_id = BootId::from(boot);
        self
    }

    pub fn kernel(mut self, kernel: &str) -> Self {
        self.record.kernel = kernel.into();
        self
    }

    pub fn allocatable(mut self, resource: &str, quantity: i64) -> Self {
        self.record.allocatable.insert(resource.into(), quantity);
        self
    }

    pub fn image(mut self, name: &str) -> Self {
        self.record.images.push(name.into());
        self
    }

    /// Its Lease was renewed then.
    pub fn renewed(mut self, at: Timestamp) -> Self {
        self.renewed = Some(at);
        self
    }

    pub fn uid(mut self, uid: &str) -> Self {
        self.record.meta.uid = Uid::from(uid);
        self
    }

    /// The same under another name.
    pub fn but_name(mut self, name: &str) -> Self {
        self.record.name = NodeName::from(name);
        self.record.meta = meta("Node", name);
        self.label("kubernetes.io/hostname", name)
    }

    pub fn build(self) -> NodeRecord {
        self.record
    }
}

impl Records for NodeBuilder {
    fn records(self) -> Vec<Record> {
        let lease = self.renewed.map(|renewed| {
            let name = self.record.name.clone();
            Record::NodeLease(NodeLeaseRecord { meta: meta("Lease", name.as_str()), node: name, renewed: Some(renewed) })
        });
        [Record::Node(self.record)].into_iter().chain(lease).collect()
    }
}

//! NodeComponents, the DaemonSets of their versions, and NodeHandoffs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Records, key, meta};
use crate::{
    api::{
        ComponentKey, NodeComponentSpec, NodeHandoffSpec, NodeHandoffStatus, ObjectKey, Phase, Version,
        component::{DaemonSets, Devices, DrainPolicy, KernelModule, LabelSelector, Rollout, UnloadBy, Verify},
        handoff::HandoffAction,
        keys::{self, Role},
        versioned::{DaemonSetRole, content_hash, daemon_set_name},
    },
    fleet::{event::Record, records::*},
};

/// A component with resource `vendor.com/gpu`, version 1, an unload pod, on every node.
pub fn component(name: &str) -> ComponentBuilder {
    ComponentBuilder {
        key: key(name),
        spec: NodeComponentSpec {
            version: "1".into(),
            kernel_module: Some(default_module()),
            csi_node_plugin: None,
            node_selector: BTreeMap::new(),
            rollout: Rollout::default(),
            drain: DrainPolicy::default(),
            deadlines: BTreeMap::new(),
            verify: Verify::default(),
        },
        made: Vec::new(),
        finalizers: Vec::new(),
        broken: None,
    }
}

fn default_module() -> KernelModule {
    KernelModule {
        daemon_sets: Some(DaemonSets { loader: json!({}), device_plugin: json!({}), unload: Some(json!({})) }),
        kmm_module: None,
        devices: Devices { resource_names: vec!["vendor.com/gpu".into()], ..Devices::default() },
        unload_by: UnloadBy::Pod,
    }
}

#[derive(Debug, Clone)]
pub struct ComponentBuilder {
    key: ComponentKey,
    spec: NodeComponentSpec,
    made: Vec<String>,
    finalizers: Vec<Str>,
    broken: Option<String>,
}

impl ComponentBuilder {
    /// The aim of new handoffs.
    pub fn version(mut self, version: &str) -> Self {
        self.spec.version = version.into();
        self
    }

    /// The DaemonSets of this version exist, with this component's devices.
    pub fn made(mut self, version: &str) -> Self {
        self.made.push(version.into());
        self
    }

    pub fn devices(mut self, change: impl FnOnce(&mut Devices)) -> Self {
        change(&mut self.module().devices);
        self
    }

    fn module(&mut self) -> &mut KernelModule {
        self.spec.kernel_module.get_or_insert_with(default_module)
    }

    /// Any change of the module.
    pub fn of_module(mut self, change: impl FnOnce(&mut KernelModule)) -> Self {
        change(self.module());
        self
    }

    /// Only this extended resource.
    pub fn resource(self, name: &str) -> Self {
        self.devices(|devices| devices.resource_names = vec![name.into()])
    }

    /// Only this DRA driver.
    pub fn driver(self, name: &str) -> Self {
        self.devices(|devices| {
            devices.resource_names.clear();
            devices.dra_drivers = vec![name.into()];
        })
    }

    /// Pods of this namespace with this label use the device without a claim.
    pub fn pods(self, namespace: &str, label: &str, value: &str) -> Self {
        self.devices(|devices| {
            let match_labels = [(label.to_owned(), value.to_owned())].into();
            devices.pod_selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() });
            devices.pod_namespaces.push(namespace.into());
        })
    }

    pub fn on_nodes(mut self, label: &str, value: &str) -> Self {
        self.spec.node_selector.insert(label.into(), value.into());
        self
    }

    /// `unloadBy: Reboot`, without an unload pod.
    pub fn unload_by_reboot(mut self) -> Self {
        self.module().unload_by = UnloadBy::Reboot;
        if let Some(sets) = &mut self.module().daemon_sets {
            sets.unload = None;
        }
        self
    }

    pub fn rollout(mut self, change: impl FnOnce(&mut Rollout)) -> Self {
        change(&mut self.spec.rollout);
        self
    }

    pub fn drain(mut self, change: impl FnOnce(&mut DrainPolicy)) -> Self {
        change(&mut self.spec.drain);
        self
    }

    pub fn spec(mut self, change: impl FnOnce(&mut NodeComponentSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// The spec does not decode.
    pub fn broken(mut self, why: &str) -> Self {
        self.broken = Some(why.into());
        self
    }

    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizers.push(name.into());
        self
    }

    /// What a version's block is here: templates whose images name role and version.
    pub fn block(&self, version: &str) -> KernelModule {
        let template = |role: &str| {
            json!({"metadata": {"labels": {"app": role}},
                "spec": {"containers": [{"name": role, "image": format!("registry.example/{role}:{version}")}]}})
        };
        let mut block = self.spec.kernel_module.clone().unwrap_or_else(default_module);
        let Some(sets) = &mut block.daemon_sets else { return block };
        for (role, value) in [("loader", &mut sets.loader), ("plugin", &mut sets.device_plugin)] {
            if is_default(value) {
                *value = template(role);
            }
        }
        if let Some(unload) = sets.unload.as_mut().filter(|value| is_default(value)) {
            *unload = template("unload");
        }
        block
    }

    pub fn build(mut self) -> ComponentRecord {
        if self.spec.kernel_module.is_some() {
            self.spec.kernel_module = Some(self.block(&self.spec.version));
        }
        ComponentRecord {
            meta: meta("NodeComponent", &self.key.to_string()),
            key: self.key,
            generation: 1,
            spec: self.broken.map_or(Ok(self.spec), Err),
            status: Default::default(),
            finalizers: self.finalizers,
        }
    }
}

fn is_default(template: &Value) -> bool {
    template.as_object().is_some_and(|map| map.is_empty())
}

impl Records for ComponentBuilder {
    fn records(self) -> Vec<Record> {
        let mut records = Vec::new();
        for version in &self.made {
            for role in DaemonSetRole::ALL {
                records.push(Record::DaemonSet(versioned_daemon_set(&self.key, role, version, &self.block(version))));
            }
        }
        records.push(Record::Component(self.build()));
        records
    }
}

/// One of the two DaemonSets of a version, as lockkeeper makes it.
pub fn versioned_daemon_set(
    component: &ComponentKey,
    role: DaemonSetRole,
    version: &str,
    block: &KernelModule,
) -> DaemonSetRecord {
    let name = daemon_set_name(&component.name, role, &Version::from(version));
    let sets = block.daemon_sets.as_ref();
    let (label, template) = match role {
        DaemonSetRole::Loader => (Role::Loader, sets.map(|sets| &sets.loader)),
        DaemonSetRole::Plugin => (Role::Plugin, sets.map(|sets| &sets.device_plugin)),
    };
    let mut annotations: BTreeMap<Str, Str> = [(keys::CONTENT.into(), content_hash(block).into())].into();
    if role == DaemonSetRole::Loader {
        annotations.insert(keys::BLOCK.into(), serde_json::to_string(block).unwrap_or_default().into());
    }
    let labels: BTreeMap<Str, Str> = [
        (keys::COMPONENT.into(), component.name.clone()),
        (keys::ROLE.into(), role.word().into()),
        (keys::VERSION.into(), version.into()),
    ]
    .into();
    let key = ObjectKey::new(component.namespace.clone(), name);
    DaemonSetRecord {
        meta: meta("DaemonSet", &key.to_string()),
        key,
        labels: labels.into(),
        annotations,
        generation: 1,
        observed_generation: 1,
        on_delete: true,
        node_selector: [(label.key(component).into(), version.into())].into(),
        spec: Some(json!({"updateStrategy": {"type": "OnDelete"}, "template": template}).to_string().into()),
        desired: 0,
        ready: 0,
        current: 0,
        claims_resources: BTreeMap::new(),
        requires_labels: vec![label.key(component).into()],
        template: None,
    }
}

/// A queued handoff of a node to version 2.
pub fn handoff(component: &str, node: &str) -> HandoffBuilder {
    let component = key(component);
    let key = ObjectKey::new(component.namespace.clone(), format!("{}.{node}", component.name));
    HandoffBuilder {
        record: HandoffRecord {
            meta: meta("NodeHandoff", &key.to_string()),
            key,
            generation: 1,
            spec: Ok(NodeHandoffSpec {
                component: component.name.to_string(),
                node: node.into(),
                version: Some("2".into()),
                position: None,
                action: HandoffAction::Run,
                attempt: 1,
                pause_after: Vec::new(),
                overrides: Vec::new(),
                requested_by: "operator".into(),
                reason: String::new(),
            }),
            status: NodeHandoffStatus::default(),
            finalizers: Vec::new(),
        },
    }
}

#[derive(Debug, Clone)]
pub struct HandoffBuilder {
    record: HandoffRecord,
}

impl HandoffBuilder {
    pub fn to(self, version: &str) -> Self {
        self.spec(|spec| spec.version = Some(version.into()))
    }

    pub fn position(self, position: i32) -> Self {
        self.spec(|spec| spec.position = Some(position))
    }

    pub fn action(self, action: HandoffAction) -> Self {
        self.spec(|spec| spec.action = action)
    }

    pub fn spec(mut self, change: impl FnOnce(&mut NodeHandoffSpec)) -> Self {
        if let Ok(spec) = &mut self.record.spec {
            change(spec);
        }
        self
    }

    /// In this phase since then; with the finalizer once it has touched its node.
    pub fn phase(mut self, phase: Phase, since: jiff::Timestamp) -> Self {
        if !matches!(phase, Phase::Queued | Phase::Preflight) && !phase.is_ended() && self.record.finalizers.is_empty() {
            self.record.finalizers.push(keys::FINALIZER.into());
        }
        self.status(|status| {
            status.phase = phase;
            status.phase_since = Some(since.to_string());
        })
    }

    pub fn status(mut self, change: impl FnOnce(&mut NodeHandoffStatus)) -> Self {
        change(&mut self.record.status);
        self
    }

    /// Any other change.
    pub fn but(mut self, change: impl FnOnce(&mut HandoffRecord)) -> Self {
        change(&mut self.record);
        self
    }

    pub fn build(self) -> HandoffRecord {
        self.record
    }
}

impl Records for HandoffBuilder {
    fn records(self) -> Vec<Record> {
        vec![Record::Handoff(self.record)]
    }
}

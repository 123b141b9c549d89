//! Pods.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Records, at, key, meta};
use crate::{
    api::{
        NodeName, Uid,
        keys::{self, Role},
        versioned::{DaemonSetRole, UNLOAD, daemon_set_name},
    },
    fleet::{event::Record, records::*},
};

/// A pending pod without an owner; `namespace/name`.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder {
        record: PodRecord {
            key: key(name),
            meta: meta("Pod", &key(name).to_string()),
            labels: Labels::default(),
            owner: None,
            node: None,
            phase: PodPhase::Pending,
            ready: Ready::ABSENT,
            flags: PodFlags::default(),
            priority: 0,
            extra: None,
        },
    }
}

/// The loader pod of a version on a node, Running and Ready.
pub fn loader_pod(component: &str, version: &str, node: &str) -> PodBuilder {
    of_daemon_set(component, DaemonSetRole::Loader, version, node)
}

/// The device plugin's pod of a version on a node, Running and Ready.
pub fn plugin_pod(component: &str, version: &str, node: &str) -> PodBuilder {
    of_daemon_set(component, DaemonSetRole::Plugin, version, node)
}

fn of_daemon_set(component: &str, role: DaemonSetRole, version: &str, node: &str) -> PodBuilder {
    let component = key(component);
    let set = daemon_set_name(&component.name, role, &version.into());
    pod(&format!("{}/{set}-{node}", component.namespace))
        .owned_by("DaemonSet", &set)
        .own(&component.name, role.word(), version)
        .tolerates_all()
        .on(node)
}

/// The unload pod of a version on a node, made for a nonce, Running.
pub fn unload_pod(component: &str, version: &str, node: &str, nonce: &str) -> PodBuilder {
    let component = key(component);
    let mut builder = pod(&format!("{}/{}-unload-{node}", component.namespace, component.name))
        .own(&component.name, UNLOAD, version)
        .tolerates_all()
        .on(node);
    let extra = builder.extra();
    extra.annotations.insert(keys::NONCE.into(), nonce.into());
    extra.node_selector.insert(Role::Nonce.key(&component).into(), nonce.into());
    builder
}

#[derive(Debug, Clone)]
pub struct PodBuilder {
    record: PodRecord,
}

impl PodBuilder {
    fn extra(&mut self) -> &mut PodExtra {
        self.record.extra.get_or_insert_default()
    }

    /// Bound to the node, Running and Ready.
    pub fn on(mut self, node: &str) -> Self {
        self.record.node = Some(NodeName::from(node));
        self.record.phase = PodPhase::Running;
        self.ready(true)
    }

    pub fn phase(mut self, phase: PodPhase) -> Self {
        self.record.phase = phase;
        self
    }

    pub fn ready(mut self, ready: bool) -> Self {
        let status = if ready { ReadyStatus::True } else { ReadyStatus::False };
        self.record.ready = Ready { status, since: Some(at(-1800)), heartbeat: None };
        self
    }

    pub fn not_ready(self) -> Self {
        self.ready(false)
    }

    pub fn ready_since(mut self, since: Timestamp) -> Self {
        self.record.ready = Ready { status: ReadyStatus::True, since: Some(since), heartbeat: None };
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        Arc::make_mut(&mut self.record.labels).insert(key.into(), value.into());
        self
    }

    fn own(mut self, component: &str, role: &str, version: &str) -> Self {
        self.record.flags.ours = true;
        self.extra().start_time = Some(at(-1800));
        self.label(keys::COMPONENT, component).label(keys::ROLE, role).label(keys::VERSION, version)
    }

    /// Owned by a controller of group `apps`.
    pub fn owned_by(mut self, kind: &str, name: &str) -> Self {
        let uid = Uid::from(format!("uid-{kind}-{}/{name}", self.record.key.namespace));
        self.record.owner = Some(Owner { kind: kind.into(), name: name.into(), uid, is_apps: true });
        self
    }

    /// Asks for an extended resource.
    pub fn claims(mut self, resource: &str, quantity: i64) -> Self {
        self.extra().resources.insert(resource.into(), quantity);
        self
    }

    /// Names a ResourceClaim of its namespace.
    pub fn claim(mut self, name: &str) -> Self {
        self.extra().claims.push(name.into());
        self
    }

    /// An entry by template whose claim does not exist yet.
    pub fn unresolved_claim(mut self, entry: &str) -> Self {
        self.extra().unresolved_claims.push(entry.into());
        self
    }

    pub fn volume_claim(mut self, name: &str) -> Self {
        let source = PodVolumeSource::Claim { claim: name.into(), ephemeral: false };
        self.extra().volumes.push(PodVolume { name: name.into(), source, used: true });
        self
    }

    pub fn nominated(mut self, node: &str) -> Self {
        self.extra().nominated_node = Some(NodeName::from(node));
        self
    }

    /// The scheduler tried and found no place.
    pub fn unschedulable(mut self) -> Self {
        self.record.flags.unschedulable = true;
        self
    }

    pub fn priority(mut self, priority: i32) -> Self {
        self.record.priority = priority;
        self
    }

    pub fn empty_dir(mut self) -> Self {
        self.record.flags.empty_dir = true;
        self
    }

    pub fn mirror(mut self) -> Self {
        self.record.flags.mirror = true;
        self.record.owner = Some(Owner { kind: "Node".into(), name: "n".into(), uid: Uid::from("uid-Node"), is_apps: false });
        self
    }

    pub fn tolerates_all(mut self) -> Self {
        (self.record.flags.tolerates_all, self.record.flags.tolerates_cordon) = (true, true);
        self
    }

    /// Being deleted: its grace ends then.
    pub fn terminating(mut self, at: Timestamp) -> Self {
        self.record.meta.deletion = Some(Deletion { at, grace: 30 });
        self
    }

    pub fn created(mut self, at: Timestamp) -> Self {
        self.record.meta.created = Some(at);
        self.extra().start_time = Some(at);
        self
    }

    pub fn uid(mut self, uid: &str) -> Self {
        self.record.meta.uid = Uid::from(uid);
        self
    }

    /// Ended with this exit code of its only container.
    pub fn exited(mut self, exit_code: i32, message: &str, finished: Timestamp) -> Self {
        let phase = if exit_code == 0 { PodPhase::Succeeded } else { PodPhase::Failed };
        let reason: Str = if exit_code == 0 { "Completed".into() } else { "Error".into() };
        self.extra().containers = vec![ContainerRecord {
            last_exit: None,
            last_message: Default::default(),
            name: "main".into(),
            init: false,
            ready: false,
            restarts: 0,
            state: ContainerState::Terminated { exit_code, reason, message: message.into(), finished: Some(finished) },
        }];
        self.phase(phase).ready(false)
    }

    /// Its only container waits for this reason (`ImagePullBackOff`).
    pub fn waiting(mut self, reason: &str, message: &str) -> Self {
        self.extra().containers = vec![ContainerRecord {
            last_exit: None,
            last_message: Default::default(),
            name: "main".into(),
            init: false,
            ready: false,
            restarts: 0,
            state: ContainerState::Waiting { reason: reason.into(), message: message.into() },
        }];
        self.ready(false)
    }

    /// Any other change.
    pub fn but(mut self, change: impl FnOnce(&mut PodRecord)) -> Self {
        change(&mut self.record);
        self
    }

    pub fn build(self) -> PodRecord {
        self.record
    }
}

impl Records for PodBuilder {
    fn records(self) -> Vec<Record> {
        vec![Record::Pod(self.record)]
    }
}

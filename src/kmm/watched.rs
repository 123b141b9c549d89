//! KMM's pods and DaemonSets, from the slim records that are kept of all pods and DaemonSets. Their decoding is the fleet's.

use super::{
    decode::worker_image,
    keys::{self, Label},
    records::{Action, Part, Phase, PodRecord, SetRecord},
};
use crate::{
    api::ObjectKey,
    fleet::records::{self, ContainerState, Labels, PodPhase, Str},
};

/// The Module that the labels name, in the object's own namespace.
fn module_of(namespace: &Str, labels: &Labels) -> Option<ObjectKey> {
    let name = labels.get(keys::MODULE_NAME).or_else(|| labels.get(keys::IMAGE_OWNER)).filter(|name| !name.is_empty())?;
    Some(ObjectKey { namespace: namespace.clone(), name: name.clone() })
}

/// The version in the schedule label of this Module, of any generation.
fn scheduled_version(labels: &Labels, module: &ObjectKey) -> Option<Str> {
    let keys = Label::Schedule.keys(module);
    keys.iter().find_map(|key| labels.get(&**key)).filter(|version| !version.is_empty()).cloned()
}

fn part(pod: &records::PodRecord, module: &ObjectKey) -> Part {
    let labels = &pod.labels;
    let action = match labels.get(keys::WORKER_ACTION).map(|word| &**word) {
        Some("Load") => Some(Action::Load),
        Some("Unload") => Some(Action::Unload),
        _ => None,
    };
    if let Some(action) = action {
        let note = |key: &str| pod.extra.as_ref().and_then(|extra| extra.annotations.get(key));
        return Part::Worker {
            action,
            image: note(keys::WORKER_CONFIG).and_then(|config| worker_image(config)),
            version: note(keys::WORKER_VERSION).filter(|version| !version.is_empty()).cloned(),
        };
    }
    if labels.contains_key(keys::IMAGE_OWNER) {
        return Part::Pull { image: None };
    }
    let owned = pod.owner.as_ref().is_some_and(records::Owner::is_daemon_set);
    match labels.get(keys::ROLE).map(|role| &**role) {
        Some("dra") => Part::Plugin { dra: true, version: scheduled_version(labels, module) },
        Some("device-plugin") => Part::Plugin { dra: false, version: scheduled_version(labels, module) },
        // The plugins of 2.0 to 2.6 have no role.
        None if owned => Part::Plugin { dra: false, version: scheduled_version(labels, module) },
        _ => Part::Other,
    }
}

impl PodRecord {
    /// None: no pod of a Module's.
    #[must_use]
    pub fn of(pod: &records::PodRecord) -> Option<Self> {
        if !pod.flags.of_kmm {
            return None;
        }
        let module = module_of(&pod.key.namespace, &pod.labels)?;
        let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
        let waiting = containers.iter().find_map(|it| match &it.state {
            ContainerState::Waiting { reason, message } if !matches!(&**reason, "" | "ContainerCreating" | "PodInitializing") => {
                Some((reason.clone(), message.clone()))
            }
            _ => None,
        });
        let failed = containers.iter().find_map(|it| match &it.state {
            ContainerState::Terminated { exit_code, reason, message, .. } if *exit_code != 0 => {
                Some(((*exit_code, reason.clone()), message.clone()))
            }
            _ => it.last_exit.filter(|code| *code != 0).map(|code| ((code, Str::from("Error")), it.last_message.clone())),
        });
        let (failed, failed_message) = failed.unzip();
        Some(Self {
            key: pod.key.clone(),
            uid: pod.meta.uid.clone(),
            part: part(pod, &module),
            module,
            node: pod.node.clone(),
            phase: match pod.phase {
                PodPhase::Pending => Phase::Pending,
                PodPhase::Running => Phase::Running,
                PodPhase::Succeeded => Phase::Succeeded,
                PodPhase::Failed => Phase::Failed,
                PodPhase::Unknown => Phase::Unknown,
            },
            ready: pod.ready.is_true(),
            deleting: pod.meta.deletion.is_some(),
            created: pod.meta.created,
            restarts: containers.iter().map(|it| u32::try_from(it.restarts).unwrap_or(0)).max().unwrap_or(0),
            waiting: waiting.as_ref().map(|(reason, _)| reason.clone()),
            waiting_message: waiting.map(|(_, message)| message).unwrap_or_default(),
            failed,
            failed_message: failed_message.unwrap_or_default(),
        })
    }
}

impl SetRecord {
    /// None: no DaemonSet of a Module's.
    #[must_use]
    pub fn of(set: &records::DaemonSetRecord) -> Option<Self> {
        let module = module_of(&set.key.namespace, &set.labels)?;
        Some(Self {
            key: set.key.clone(),
            uid: set.meta.uid.clone(),
            dra: set.labels.get(keys::ROLE).is_some_and(|role| &**role == "dra"),
            version: scheduled_version(&set.labels, &module),
            module,
            desired: set.desired,
            ready: set.ready,
            deleting: set.meta.deletion.is_some(),
            labels: set.labels.clone(),
        })
    }
}

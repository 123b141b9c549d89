//! A pod's state in words, for blockers. It decides nothing.

use crate::fleet::records::{ContainerState, PodRecord};

/// One or two words on a pod, for people.
pub fn state_of(pod: &PodRecord) -> String {
    if pod.meta.deletion.is_some() {
        return "terminating".to_owned();
    }
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    let waiting = containers.iter().find_map(|container| match &container.state {
        ContainerState::Waiting { reason, message } if !reason.is_empty() && &**reason != "PodInitializing" => {
            Some(format!("waiting, container {}: {reason} {message}", container.name))
        }
        ContainerState::Terminated { exit_code, reason, .. } if *exit_code != 0 => {
            Some(format!("failing, container {} exited {exit_code} {reason}", container.name))
        }
        _ => None,
    });
    let phase = format!("{:?}", pod.phase);
    match waiting {
        Some(text) => text.trim_end().to_owned(),
        None if pod.ready.is_true() => "Ready".to_owned(),
        None => format!("{phase}, not Ready"),
    }
}

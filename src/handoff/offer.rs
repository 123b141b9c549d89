//! Which versions a component has to hand over to now, and what to do instead of asking for another one. It writes and refuses nothing itself.

use crate::{
    api::Version,
    fleet::{csi::CsiView, kmm::KmmView, view::ComponentView},
};

/// Why nothing can be handed over to this version as things stand, with what to do instead. None: the component has it, or what it has is
/// not known (that is refused for its own reasons).
pub fn not_offered(component: &ComponentView, version: &Version) -> Option<String> {
    if component.offers(version) {
        return None;
    }
    match (&component.csi, &component.kmm) {
        (Some(csi), _) => csi.current.as_ref().map(|current| of_plugin(csi, version, current)),
        (None, Some(kmm)) => kmm.aim().map(|aim| of_module(kmm, version, &aim)),
        (None, None) => {
            let known: Vec<&str> = component.versions.keys().map(Version::as_str).collect();
            Some(format!(
                "{version} is no version of it; known are {}. Ask for one of these, or put {version} into spec.version first, with its content",
                known.join(", ")
            ))
        }
    }
}

fn of_plugin(csi: &CsiView, version: &Version, current: &Version) -> String {
    let known = if csi.known.contains(version) { "is not the current revision" } else { "is no revision that is known" };
    format!("{version} {known}: {}", instead(csi, current))
}

/// What to do where another revision, or another word of a remount, is the aim by now.
pub(super) fn instead(csi: &CsiView, current: &Version) -> String {
    if csi.plugin.remount.is_some() {
        return format!("spec.csiNodePlugin.remount is {current} now: ask for {current}");
    }
    let undo = match &csi.set {
        Some(set) => format!("kubectl -n {} rollout undo daemonset/{}", set.key.namespace, set.key.name),
        None => "kubectl rollout undo".to_owned(),
    };
    format!(
        "a deleted pod always comes back with the DaemonSet's current revision, which is {current}. Ask for {current}, or bring the old \
         template back first ({undo}, or where its owner keeps it), then hand the nodes over to what is current"
    )
}

fn of_module(kmm: &KmmView, version: &Version, aim: &Version) -> String {
    format!(
        "the Module {} is at {aim}, and KMM loads nothing else. First put {version} and its image back into it, in one edit \
         (spec.moduleLoader.container: version and containerImage, or the images of its kernelMappings; kubectl -n {} edit \
         modules.kmm.sigs.x-k8s.io {}): no node at {aim} moves by that. Then ask again. Or ask for {aim}",
        kmm.key, kmm.key.namespace, kmm.key.name
    )
}

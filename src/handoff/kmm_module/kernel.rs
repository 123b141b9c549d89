//! Whether the module is out of the kernel, by what KMM has recorded and by boot IDs. A label or a pod that is no longer there proves nothing.

use jiff::Timestamp;

use super::{Followed, waits};
use crate::{
    api::Version,
    fleet::view::Occupancy,
    handoff::{
        facts::Facts,
        in_use,
        verdict::{Blocker, BlockerKind},
    },
};

/// What is waited for, and when time alone may change that.
pub(super) type Waits = (Vec<Blocker>, Option<Timestamp>);

/// Anything of the Module is on the node, as far as KMM, its labels or our record tell.
#[must_use]
pub fn is_there(occupancy: &Occupancy) -> bool {
    let labels = &occupancy.labels;
    occupancy.kmm.as_ref().is_some_and(|kmm| kmm.recorded.is_some() || kmm.wanted.is_some() || !kmm.workers.is_empty())
        || labels.loader.is_some()
        || labels.plugin.is_some()
        || labels.loaded.is_some()
        || !occupancy.plugin_pods.is_empty()
}

/// The proof that nothing of the Module is in the kernel.
///
/// # Errors
/// What still speaks against it.
pub(super) fn out(f: &Facts<'_>, k: Followed<'_>) -> Result<String, Waits> {
    let not_ready = in_use::not_ready(f);
    if !not_ready.is_empty() {
        return Err((not_ready, None));
    }
    let working = waits::workers(f, k);
    if !working.is_empty() {
        return Err((working, waits::look_again(f)));
    }
    if k.here.wanted.is_some() {
        let stuck = waits::stuck(f, k);
        if !stuck.is_empty() {
            return Err((stuck, None));
        }
        let (moving, recheck) = waits::kmm_moves(f, k, "take the module out of the node's NodeModulesConfig");
        return Err((vec![moving], recheck));
    }
    if let Some(entry) = &k.here.recorded {
        let what = match f.boot() {
            Some(boot) if *boot == entry.boot_id => "make its Unload pod",
            _ => "forget what was loaded before the reboot",
        };
        let (moving, recheck) = waits::kmm_moves(f, k, what);
        return Err((vec![moving], recheck));
    }
    recorded_by_us(f, k)
}

/// KMM has nothing down for it any more. What there was before decides what that means.
fn recorded_by_us(f: &Facts<'_>, k: Followed<'_>) -> Result<String, Waits> {
    let (node, boot) = (&f.node.name, f.boot());
    let seen = f.observed.kmm(node, f.key);
    let record = f.occupancy.labels.loaded.as_ref();
    // In this boot: KMM loads again after a reboot what it was taking out before, and stops that like any other.
    if seen.is_some_and(|seen| seen.load_cut_off) {
        let version = record.map(|record| &record.version);
        return Err((vec![unproven(f, k, version, "a Load pod was stopped on its way")], None));
    }
    let Some(record) = record else {
        return Ok(format!("KMM has nothing of Module {} recorded on {node}, and no worker pod there", k.view.key));
    };
    let version = &record.version;
    let began = record.stopped_boot.as_ref().or_else(|| f.occupancy.labels.mark.as_ref()?.boot.as_ref().map(|boot| &boot.id));
    if let (Some(began), Some(boot)) = (began, boot)
        && began != boot
    {
        return Ok(format!(
            "boot {boot} is not the {began} in which {version} was loaded: nothing of it is in the kernel of {node}"
        ));
    }
    if record.stopped_boot.is_some() {
        let run = f.run().and_then(|run| run.kmm_config.as_deref());
        let now = k.here.config.as_ref().map(crate::api::Uid::as_str);
        if run.is_some() && run != now {
            return Err((
                vec![unproven(f, k, Some(version), "its NodeModulesConfig was deleted meanwhile, with what it had recorded")],
                None,
            ));
        }
        let pod = seen.and_then(|seen| seen.unloaded.as_ref());
        let pod = pod.map(|(pod, uid)| format!("Unload pod {pod} (UID {uid}) succeeded; ")).unwrap_or_default();
        return Ok(format!(
            "{pod}KMM had {version} recorded as loaded on {node} in this boot and has taken the entry off, which it does only after its Unload pod has succeeded"
        ));
    }
    if let Some(why) = seen.and_then(|seen| seen.load_failed.as_ref()) {
        return Ok(format!("{why}: nothing of {version} was loaded on {node}"));
    }
    Err((vec![unproven(f, k, Some(version), "how its last load ended was not seen")], None))
}

fn unproven(f: &Facts<'_>, k: Followed<'_>, version: Option<&Version>, why: &str) -> Blocker {
    let module = k.view.module.as_ref().and_then(|module| module.kernel_module.as_deref()).unwrap_or(&k.view.key.name);
    let version = version.map(|version| format!("{version} of ")).unwrap_or_default();
    let message = format!(
        "{version}{module} may be in the kernel, and KMM knows nothing of it: {why}, and it makes no Unload pod. Reboot the node (a new boot ID \
         is the proof). Or look (kubectl debug node/{} -it --image=busybox -- grep '^{} ' /proc/modules), and if it is not there remove the \
         annotation {} from the node",
        f.node.name,
        module.replace('-', "_"),
        crate::api::keys::Role::Loaded.key(f.key)
    );
    f.on_node(BlockerKind::ModuleUnproven, message)
}

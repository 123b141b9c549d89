//! A CSI nodeplugin as a whole: which DaemonSet serves the driver, which of its revisions is current, and why it cannot be handed over.
//! What is on a node is `drain::volumes`.

use std::sync::Arc;

use jiff::Timestamp;

use super::records::*;
use crate::api::{ComponentKey, ObjectKey, Uid, Version, component::CsiNodePlugin};

/// What a csiNodePlugin component comes to, without anything that changes with every pod.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiView {
    pub plugin: CsiNodePlugin,
    pub set: Option<PluginSet>,
    /// The current revision, as pods carry it in `controller-revision-hash`; the word of a remount.
    pub current: Option<Version>,
    /// Since when it exists. A revision that was rolled back to is older than that.
    pub current_since: Option<Timestamp>,
    /// Hashes whose template is the current one: duplicates, which the controller merges, are all up to date.
    pub equal: Vec<Version>,
    /// Every hash that is known.
    pub known: Vec<Version>,
    /// `CSIDriver.spec.attachRequired`; true without such an object.
    pub attach_required: bool,
    /// Its DaemonSet holds a network namespace for the driver's kernel mounts and serves nothing: Rook's holder pods.
    pub holder: bool,
    /// Other DaemonSets of the namespace that register the driver too.
    pub twins: Vec<ObjectKey>,
    /// Another DaemonSet is the driver's holder: it is that one's pod that kernel mounts hang on, not the plugin's.
    pub held_by: Option<ObjectKey>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PluginSet {
    pub key: ObjectKey,
    pub uid: Uid,
    pub template: TemplateRecord,
}

impl CsiView {
    pub fn is_current(&self, pod: &PodRecord) -> bool {
        if self.plugin.remount.is_some() {
            return true;
        }
        revision_of(pod).is_some_and(|hash| self.equal.iter().any(|equal| *equal.as_str() == **hash))
    }

    /// The name of a holder DaemonSet of this kind of driver begins so.
    fn holder_prefix(&self) -> Option<String> {
        self.driver_type().map(|kind| format!("csi-{kind}{HOLDER}"))
    }

    /// What the driver is, for the rules that are built in: by `--type`, or the end of its name (Rook puts a prefix before it).
    pub fn driver_type(&self) -> Option<&str> {
        let by_flag = self.set.as_ref().and_then(|set| set.template.driver_type.as_deref());
        let ceph = |kind: &&str| {
            let suffix = format!("{kind}.csi.ceph.com");
            let driver = &self.plugin.driver;
            *driver == suffix || driver.strip_suffix(suffix.as_str()).is_some_and(|prefix| prefix.ends_with('.'))
        };
        let by_name = || ["cephfs", "rbd", "nfs", "nvmeof"].into_iter().find(ceph);
        by_flag.filter(|kind| matches!(*kind, "cephfs" | "rbd" | "nfs" | "nvmeof")).or_else(by_name)
    }
}

/// The revision that a pod was made from.
pub fn revision_of(pod: &PodRecord) -> Option<&Str> {
    pod.labels.get(REVISION_HASH).filter(|hash| !hash.is_empty())
}

/// What the names of holder DaemonSets have in common (Rook 1.9 to 1.15: `csi-cephfsplugin-holder-<cluster>`).
pub const HOLDER: &str = "plugin-holder";

/// Label of pods and revisions that the DaemonSet controller sets.
pub const REVISION_HASH: &str = "controller-revision-hash";

/// The view, and everything that speaks against the component as it is. `sets` are the DaemonSets of its namespace, `revisions` those of
/// a DaemonSet.
pub fn build<'r>(
    component: &ComponentKey,
    plugin: &CsiNodePlugin,
    sets: &[Arc<DaemonSetRecord>],
    revisions: impl Fn(&Uid) -> Vec<&'r Arc<RevisionRecord>>,
    driver: Option<&CsiDriverRecord>,
) -> (CsiView, Vec<String>) {
    let mut refusals = Vec::new();
    let mut view = CsiView {
        plugin: plugin.clone(),
        set: None,
        current: None,
        current_since: None,
        equal: Vec::new(),
        known: Vec::new(),
        attach_required: driver.is_none_or(|driver| driver.attach_required),
        holder: false,
        twins: Vec::new(),
        held_by: None,
    };
    let set = match find(component, plugin, sets) {
        Ok(set) => set,
        Err(why) => {
            refusals.push(why);
            return (view, refusals);
        }
    };
    let Some(template) = set.template.as_deref() else { return (view, refusals) };
    view.set = Some(PluginSet { key: set.key.clone(), uid: set.meta.uid.clone(), template: template.clone() });
    if let Some(prefix) = view.holder_prefix() {
        view.holder = is_holder(set, &prefix);
        let other = sets.iter().filter(|_| !view.holder).find(|set| is_holder(set, &prefix));
        view.held_by = other.map(|set| set.key.clone());
    }
    if !view.holder {
        let twins = sets.iter().filter(|other| other.key != set.key && registers(other, plugin));
        view.twins = twins.map(|other| other.key.clone()).collect();
    }
    if set.meta.deletion.is_some() {
        refusals.push(format!("DaemonSet {} is being deleted: its controller makes no pod any more", set.key));
    }
    if let Some(word) = &plugin.remount {
        // No pod is replaced, so neither the strategy nor the revision matters.
        (view.current, view.known) = (Some(Version::from(word.as_str())), vec![Version::from(word.as_str())]);
        return (view, refusals);
    }
    if !set.on_delete {
        refusals.push(not_on_delete(set, template, view.driver_type()));
    }
    let owned = revisions(&set.meta.uid);
    view.known = owned.iter().filter(|it| !it.hash.is_empty()).map(|it| Version::from(&*it.hash)).collect();
    if set.observed_generation < set.generation {
        refusals.push(format!(
            "the DaemonSet controller has not seen generation {} of {} yet (it knows {}): which revision is current is not known",
            set.generation, set.key, set.observed_generation
        ));
        return (view, refusals);
    }
    let mut equal: Vec<&&Arc<RevisionRecord>> =
        owned.iter().filter(|it| it.digest == template.digest && !it.hash.is_empty()).collect();
    equal.sort_by_key(|it| std::cmp::Reverse((it.revision, &it.hash)));
    view.equal = equal.iter().map(|it| Version::from(&*it.hash)).collect();
    match equal.first() {
        Some(current) => {
            view.current = Some(Version::from(&*current.hash));
            view.current_since = current.meta.created;
        }
        None => refusals.push(format!(
            "none of the {} ControllerRevisions of DaemonSet {} holds its template: which revision is current is not known. The \
             DaemonSet controller makes one within moments; if it does not, look at its log",
            owned.len(),
            set.key
        )),
    }
    (view, refusals)
}

fn is_holder(set: &DaemonSetRecord, prefix: &str) -> bool {
    set.key.name.starts_with(prefix) && set.template.as_ref().is_some_and(|template| !template.registers)
}

fn registers(set: &DaemonSetRecord, plugin: &CsiNodePlugin) -> bool {
    set.template.as_ref().is_some_and(|template| template.drivers.iter().any(|driver| **driver == *plugin.driver))
}

/// The DaemonSet that is named, or the only one that registers the driver.
fn find<'s>(
    component: &ComponentKey,
    plugin: &CsiNodePlugin,
    sets: &'s [Arc<DaemonSetRecord>],
) -> Result<&'s Arc<DaemonSetRecord>, String> {
    let registers = |set: &&Arc<DaemonSetRecord>| registers(set, plugin);
    let namespace = &component.namespace;
    if let Some(name) = &plugin.daemon_set {
        let Some(set) = sets.iter().find(|set| *set.key.name == **name) else {
            return Err(format!("there is no DaemonSet {namespace}/{name} (spec.csiNodePlugin.daemonSet)"));
        };
        let drivers = set.template.as_ref().map(|template| &template.drivers[..]).unwrap_or_default();
        if !drivers.is_empty() && !registers(&set) {
            let drivers: Vec<&str> = drivers.iter().map(|driver| &**driver).collect();
            return Err(format!(
                "DaemonSet {} registers {}, not {}: correct spec.csiNodePlugin.daemonSet or driver",
                set.key,
                drivers.join(", "),
                plugin.driver
            ));
        }
        return Ok(set);
    }
    let found: Vec<&Arc<DaemonSetRecord>> = sets.iter().filter(registers).collect();
    match found[..] {
        [set] => Ok(set),
        [] => Err(format!(
            "no DaemonSet of namespace {namespace} registers driver {}: put the component into the namespace of the nodeplugin, or name \
             its DaemonSet in spec.csiNodePlugin.daemonSet",
            plugin.driver
        )),
        _ => {
            let names: Vec<String> = found.iter().map(|set| set.key.name.to_string()).collect();
            Err(format!(
                "{} DaemonSets of namespace {namespace} register driver {}: {}. Name the one that is meant in \
                 spec.csiNodePlugin.daemonSet",
                names.len(),
                plugin.driver,
                names.join(", ")
            ))
        }
    }
}

/// The strategy is read from the DaemonSet, never from what should have set it; where to change it depends on who writes it.
fn not_on_delete(set: &DaemonSetRecord, template: &TemplateRecord, driver_type: Option<&str>) -> String {
    let (namespace, name) = (&set.key.namespace, &set.key.name);
    let strategy = r#"{"type":"OnDelete","rollingUpdate":null}"#;
    let fix = match &template.deployed_by {
        DeployedBy::Manifest => format!(
            "kubectl -n {namespace} patch daemonset {name} --type=merge -p '{{\"spec\":{{\"updateStrategy\":{strategy}}}}}', and in the \
             manifest that it comes from"
        ),
        DeployedBy::Helm { release } => format!(
            "helm -n {namespace} upgrade {release} CHART --reuse-values --set nodeplugin.updateStrategy=OnDelete (ceph-csi's charts; a \
             patch of the DaemonSet itself is undone by the next upgrade)"
        ),
        DeployedBy::CsiOperator { driver } => format!(
            "kubectl -n {namespace} patch drivers.csi.ceph.io {driver} --type=merge -p \
             '{{\"spec\":{{\"nodePlugin\":{{\"updateStrategy\":{strategy}}}}}}}' (the operator undoes a patch of the DaemonSet itself)"
        ),
        DeployedBy::Rook => {
            let word = driver_type.unwrap_or("rbd").to_uppercase();
            let also = if word == "RBD" {
                String::new()
            } else {
                ". Rook 1.18 and 1.19 with the CSI operator read CSI_RBD_PLUGIN_UPDATE_STRATEGY for every driver: set that one too"
                    .to_owned()
            };
            format!(
                "kubectl -n {namespace} patch configmap rook-ceph-operator-config --type=merge -p \
                 '{{\"data\":{{\"CSI_{word}_PLUGIN_UPDATE_STRATEGY\":\"OnDelete\"}}}}'{also}"
            )
        }
    };
    format!(
        "DaemonSet {} has update strategy {}: its controller replaces pods by itself, whoever's mounts die. Make it OnDelete: {fix}",
        set.key, template.strategy
    )
}

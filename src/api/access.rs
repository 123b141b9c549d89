//! Who may do what: one table, from which RBAC, `doctor` and the access reviews before taking the Lease are made. No YAML here.

use super::{GROUP, keys::LEASE};

/// A set of permissions that a person or process is given as a whole. None is aggregated into `admin` or `edit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sees what lockkeeper sees: `status`, `plan`, the console with `--read-only`.
    Viewer,
    /// Asks for handoffs, and declares components.
    Operator,
    /// May let a handoff delete a pod that its PodDisruptionBudget protects. Given beside Operator, to few.
    Overrider,
    /// The engine: `reconcile`, or a console that takes the Lease.
    Reconciler,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Overrider, Self::Reconciler];

    pub fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Overrider => "overrider",
            Self::Reconciler => "reconciler",
        }
    }

    /// What holding it means, for the one who grants it.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Viewer => "Reads what status, plan and the read-only console show. Writes nothing.",
            Self::Operator => {
                "Creating a NodeHandoff is cordoning its node and evicting every claimant on it, in any namespace. Creating a \
                 NodeComponent is root on the nodes that it matches, since it holds pod templates; the admission policy asks \
                 for the right to create DaemonSets too."
            }
            Self::Overrider => "Lets a handoff delete pods against their PodDisruptionBudget. Give it beside operator, to few.",
            Self::Reconciler => {
                "The engine. Root on every node that a NodeComponent matches: it makes DaemonSets and pods from its templates."
            }
        }
    }
}

/// Where a rule is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Cluster,
    Namespace(&'static str),
}

/// One permission, who has it, and why it is needed.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub roles: &'static [Role],
    pub scope: Scope,
    /// API group; empty is the core one.
    pub group: &'static str,
    /// Plural names, with `/subresource` where meant.
    pub resources: &'static [&'static str],
    /// Only these objects; empty is all.
    pub names: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub why: &'static str,
}

/// The verb that only the interlock's writer has, on `nodes` of lockkeeper's group: the admission policy asks for it.
pub const INTERLOCK: &str = "interlock";
/// The verb that `spec.overrides` of a NodeHandoff needs.
pub const OVERRIDE: &str = "override";

const READERS: &[Role] = &[Role::Viewer, Role::Operator, Role::Reconciler];
const READ: &[&str] = &["get", "list", "watch"];
const RECONCILER: &[Role] = &[Role::Reconciler];
const OPERATOR: &[Role] = &[Role::Operator];

const fn read(group: &'static str, resources: &'static [&'static str], why: &'static str) -> Rule {
    Rule { roles: READERS, scope: Scope::Cluster, group, resources, names: &[], verbs: READ, why }
}

const fn engine(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule { roles: RECONCILER, scope: Scope::Cluster, group, resources, names: &[], verbs, why }
}

const fn operator(resources: &'static [&'static str], verbs: &'static [&'static str], why: &'static str) -> Rule {
    Rule { roles: OPERATOR, scope: Scope::Cluster, group: GROUP, resources, names: &[], verbs, why }
}

/// Every permission that lockkeeper uses.
pub const RULES: &[Rule] = &[
    read("", &["nodes"], "Labels, cordon, boot ID and allocatable tell where a handoff stands."),
    read("", &["pods"], "Loader, plugin and unload pods; the claimants of a device, in any namespace."),
    read(
        "",
        &["persistentvolumeclaims"],
        "A claim's selected node tells of a pod that is on its way to a node; its volume, which CSI driver the pod uses.",
    ),
    read("", &["persistentvolumes"], "Which driver and which mounter a volume has: csiNodePlugin components only."),
    read(
        "storage.k8s.io",
        &["volumeattachments", "csinodes", "csidrivers"],
        "Whether a volume is detached and a driver registered: csiNodePlugin components only.",
    ),
    read("apps", &["controllerrevisions"], "Which revision of a nodeplugin is current: csiNodePlugin components only."),
    read(
        "kmm.sigs.x-k8s.io",
        &["modules", "nodemodulesconfigs", "moduleimagesconfigs"],
        "What Kernel Module Management wants and has loaded, for status and for components that follow a Module. Never written: of KMM's \
         things only the version label of nodes is.",
    ),
    read("apps", &["daemonsets"], "The versioned DaemonSets are the record of a version; other DaemonSets may claim the device."),
    read("apps", &["replicasets", "statefulsets"], "Whether an evicted pod comes back, and what its budget counts."),
    read("policy", &["poddisruptionbudgets"], "A blocked eviction is named with its arithmetic."),
    read(
        "resource.k8s.io",
        &["resourceclaims", "resourceslices"],
        "Claimants by dynamic resource allocation, and devices offered.",
    ),
    read(GROUP, &["nodecomponents", "nodehandoffs"], "What is wanted, and how far it is."),
    Rule {
        roles: READERS,
        scope: Scope::Cluster,
        group: "",
        resources: &["namespaces"],
        names: &["kube-system"],
        verbs: &["get"],
        why: "Its UID tells one cluster from another.",
    },
    Rule {
        roles: READERS,
        scope: Scope::Namespace("kube-node-lease"),
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: READ,
        why: "A node whose Lease is not renewed proves nothing by the absence of a pod.",
    },
    Rule {
        roles: READERS,
        scope: Scope::Namespace(LEASE.0),
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: READ,
        why: "Who acts, and which nodes are admitted.",
    },
    operator(
        &["nodehandoffs"],
        &["create", "patch", "update", "delete"],
        "Ask for a handoff, change its place, hold it, abort it. It cordons the node and evicts claimants of any namespace.",
    ),
    operator(
        &["nodecomponents"],
        &["create", "patch", "update", "delete"],
        "Declare a component, its next version and its policy. It is root on the matched nodes.",
    ),
    Rule {
        roles: &[Role::Overrider],
        scope: Scope::Cluster,
        group: GROUP,
        resources: &["nodehandoffs"],
        names: &[],
        verbs: &[OVERRIDE],
        why: "Write spec.overrides: pods that may be deleted although their budget does not allow it. The admission policy asks for it.",
    },
    engine("", &["nodes"], &["patch"], "Labels and annotations of the interlock, the cordon."),
    engine(
        GROUP,
        &["nodes"],
        &[INTERLOCK],
        "Not served by any API: the admission policy asks for it before an interlock label is written.",
    ),
    engine("", &["pods/eviction"], &["create"], "Move claimants off the device, under their PodDisruptionBudgets."),
    engine(
        "",
        &["pods"],
        &["create", "delete"],
        "Unload pods are made and removed; a loader pod that outlived its label; an overridden claimant.",
    ),
    engine("apps", &["daemonsets"], &["create", "delete"], "One loader and one plugin DaemonSet per version; never edited."),
    engine(GROUP, &["nodehandoffs"], &["create", "patch"], "A label that a person edits becomes a handoff; the finalizer."),
    engine(GROUP, &["nodecomponents"], &["patch"], "The finalizer: a deleted component is unloaded in order."),
    engine(GROUP, &["nodecomponents/status", "nodehandoffs/status"], &["update"], "Phases, blockers, proofs."),
    engine("events.k8s.io", &["events"], &["create", "patch"], "What happened, where people look for it."),
    Rule {
        roles: RECONCILER,
        scope: Scope::Namespace(LEASE.0),
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        why: "The first to come makes the one Lease.",
    },
    Rule {
        roles: RECONCILER,
        scope: Scope::Namespace(LEASE.0),
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[LEASE.1],
        verbs: &["patch"],
        why: "Hold and renew it; admit nodes.",
    },
];

/// The rules of a role.
pub fn rules(role: Role) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(move |rule| rule.roles.contains(&role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_a_wildcard_and_each_has_its_reason() {
        for rule in RULES {
            let words = rule.resources.iter().chain(rule.verbs).chain([&rule.group]);
            assert!(words.clone().all(|word| !word.contains('*')), "{rule:?}");
            assert!(rule.why.ends_with('.') && !rule.roles.is_empty(), "{rule:?}");
        }
    }

    #[test]
    fn a_viewer_writes_nothing_and_nobody_reads_secrets() {
        assert!(rules(Role::Viewer).all(|rule| rule.verbs.iter().all(|verb| READ.contains(verb))));
        assert!(RULES.iter().all(|rule| !rule.resources.contains(&"secrets")));
    }

    #[test]
    fn an_operator_writes_only_lockkeepers_own_objects() {
        let writes: Vec<_> = rules(Role::Operator).filter(|rule| rule.verbs.iter().any(|verb| !READ.contains(verb))).collect();
        assert!(!writes.is_empty());
        assert!(writes.into_iter().all(|rule| rule.group == GROUP && rule.resources.iter().all(|it| !it.contains('/'))));
    }
}

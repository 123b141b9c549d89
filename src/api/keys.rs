//! Label and annotation keys on nodes, typed and parsed exactly, and the values that lockkeeper's annotations hold.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BootId, ComponentKey, GROUP, Version};

/// What a key of ours on a Node says about one component. The namespace is the first segment, the name may contain dots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Label: the version a person or a handoff wants (D).
    Desired,
    /// Label: the version whose loader may run (L).
    Loader,
    /// Label: the version whose plugin may run (P).
    Plugin,
    /// Label: the version is ready for DaemonSet claimants.
    Ready,
    /// Label: the nonce an unload pod must find.
    Nonce,
    /// Annotation: the record of what may be in the kernel (R), a [`Loaded`].
    Loaded,
    /// Annotation: the running handoff's [`Mark`].
    Mark,
}

impl Role {
    pub const ALL: [Self; 7] = [Self::Desired, Self::Loader, Self::Plugin, Self::Ready, Self::Nonce, Self::Loaded, Self::Mark];

    pub fn word(self) -> &'static str {
        match self {
            Self::Desired => "version",
            Self::Loader => "loader",
            Self::Plugin => "plugin",
            Self::Ready => "ready",
            Self::Nonce => "unload",
            Self::Loaded => "loaded",
            Self::Mark => "handoff",
        }
    }

    pub fn is_annotation(self) -> bool {
        matches!(self, Self::Loaded | Self::Mark)
    }

    /// `lockkeeper.dev/<word>.<namespace>.<name>`.
    pub fn key(self, component: &ComponentKey) -> String {
        format!("{GROUP}/{}.{}.{}", self.word(), component.namespace, component.name)
    }

    /// The inverse of [`Role::key`]; None for keys of others and for keys that no component can have.
    pub fn parse(key: &str) -> Option<(Self, ComponentKey)> {
        let (word, rest) = key.strip_prefix(GROUP)?.strip_prefix('/')?.split_once('.')?;
        let (namespace, name) = rest.split_once('.')?;
        let role = Self::ALL.into_iter().find(|role| role.word() == word)?;
        (!namespace.is_empty() && !name.is_empty()).then(|| (role, ComponentKey::new(namespace, name)))
    }
}

/// Annotation on a Node: who cordoned it, a [`CordonOwners`].
pub const CORDON: &str = "lockkeeper.dev/cordon";
/// Label on versioned DaemonSets, their pods and unload pods: the component's name (its namespace is theirs).
pub const COMPONENT: &str = "lockkeeper.dev/component";
/// Label beside it: `loader`, `plugin` or `unload`.
pub const ROLE: &str = "lockkeeper.dev/role";
/// Label beside it: the version.
pub const VERSION: &str = "lockkeeper.dev/version";
/// Annotation on a version's loader DaemonSet: the version's whole `kernelModule` block as JSON.
pub const BLOCK: &str = "lockkeeper.dev/kernel-module";
/// Annotation on versioned DaemonSets: hash of what they were made from; another content is an Anomaly.
pub const CONTENT: &str = "lockkeeper.dev/content";
/// Annotation on an unload pod: the nonce it was made for.
pub const NONCE: &str = "lockkeeper.dev/nonce";
/// Finalizer of a NodeHandoff whose run has touched its node.
pub const FINALIZER: &str = "lockkeeper.dev/restore";
/// Namespace and name of the one Lease.
pub const LEASE: (&str, &str) = ("lockkeeper-system", "lockkeeper");
/// Annotation on the Lease: the admitted nodes, a JSON list of [`Slot`].
pub const SLOTS: &str = "lockkeeper.dev/slots";

/// The longest name, and namespace plus name, that leave room for every key (63 characters after the prefix).
pub const MAX_NAME: usize = 52;
pub const MAX_NAMESPACE_AND_NAME: usize = 54;

/// The record R: what may be in a node's kernel. Set in the patch that adds the loader label; off when the unload is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Loaded {
    pub version: Version,
    /// The boot in which the loader pod was seen gone; another boot ID proves that the module is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_boot: Option<BootId>,
}

/// The running handoff's mark, from its first node write to its last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// UID of the NodeHandoff.
    pub uid: String,
    pub attempt: u32,
    pub epoch: i64,
    /// What the handoff has done to the desired label: who removed or set it decides whose order it is.
    pub desired: DesiredBy,
    /// The boot in which the loader label was set; a loader pod made before `since` proves nothing about another boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<LoaderBoot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderBoot {
    pub id: BootId,
    /// RFC 3339, whole seconds, the API server's time.
    pub since: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DesiredBy {
    /// Not touched yet.
    #[default]
    Kept,
    /// Removed by the handoff, in StoppingPlugin.
    Removed,
    /// Set to the target by the handoff, in Loading.
    Set,
}

/// Who holds lockkeeper's cordon on a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonOwners {
    /// `<namespace>/<component>` of each handoff that wants the node closed.
    pub owners: Vec<String>,
}

/// One admitted node, in the Lease's annotation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    pub node: String,
    pub node_uid: String,
    /// `<namespace>/<component>`.
    pub component: String,
}

/// A value of ours that does not parse: shown as an Anomaly, never acted upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    pub key: String,
    pub value: String,
    pub why: String,
}

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}: {}", self.key, self.value, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g20_names_may_contain_dots_namespaces_may_not() {
        let component = ComponentKey::new("ns", "my.mod");
        for role in Role::ALL {
            assert_eq!(Role::parse(&role.key(&component)), Some((role, component.clone())));
        }
        for key in
            ["lockkeeper.dev/version.ns", "lockkeeper.dev/version..x", "other.dev/version.a.b", "lockkeeper.dev/cordon", "x"]
        {
            assert_eq!(Role::parse(key), None, "{key}");
        }
    }

    #[test]
    fn the_longest_key_fits() {
        let component = ComponentKey::new("n".repeat(2), "m".repeat(MAX_NAMESPACE_AND_NAME - 2));
        for role in Role::ALL {
            assert!(role.key(&component).len() - GROUP.len() - 1 <= 63, "{role:?}");
        }
    }
}

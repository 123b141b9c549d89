//! Slim records of KMM's objects: only the fields that tell where a module stands. How they are decoded is in `decode`.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    api::{BootId, NodeName, ObjectKey, Uid},
    fleet::records::{Labels, Meta, Str},
};

/// API group and version of KMM's objects.
pub const GROUP: &str = "kmm.sigs.x-k8s.io";
pub const VERSION: &str = "v1beta1";

/// `Module`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub deleting: bool,
    /// It loads a module; without this it only runs a plugin or DRA driver.
    pub loads: bool,
    /// `moduleLoader.container.version`; None: no ordered upgrade, every edit reaches all nodes at once.
    pub version: Option<Str>,
    pub image: Option<Str>,
    pub mappings: Vec<Mapping>,
    /// `modprobe.moduleName`.
    pub kernel_module: Option<Str>,
    pub selector: BTreeMap<Str, Str>,
    pub tolerations: Vec<Toleration>,
    pub plugin: bool,
    pub dra: bool,
}

/// One of `kernelMappings`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Mapping {
    pub literal: Option<Str>,
    /// Not anchored.
    pub regexp: Option<Str>,
    #[serde(rename = "containerImage")]
    pub image: Option<Str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    pub key: Str,
    pub operator: Str,
    pub value: Str,
    pub effect: Str,
}

impl ModuleRecord {
    /// The image for a node's kernel, as [`image_for`] finds it.
    #[must_use]
    pub fn image_for(&self, kernel: &str) -> Option<String> {
        image_for(&self.key, self.image.as_ref(), &self.mappings, kernel)
    }

    /// The selector matches; says nothing about taints.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<Str, Str>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// The image for a kernel: the first mapping that fits wins, its own image before the container's. None: no mapping fits, and KMM takes the
/// module off the node.
#[must_use]
pub fn image_for(module: &ObjectKey, image: Option<&Str>, mappings: &[Mapping], kernel: &str) -> Option<String> {
    let kernel = kernel.trim_end_matches('+');
    let mapping = mappings.iter().find(|mapping| {
        mapping.literal.as_ref().is_some_and(|literal| literal.trim_end_matches('+') == kernel)
            || mapping.regexp.as_ref().is_some_and(|pattern| regex::Regex::new(pattern).is_ok_and(|known| known.is_match(kernel)))
    })?;
    let image = mapping.image.as_ref().or(image)?;
    let values = [("KERNEL_FULL_VERSION", kernel), ("MOD_NAME", &*module.name), ("MOD_NAMESPACE", &*module.namespace)];
    let fill = |text: String, (name, value): (&str, &str)| {
        text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    };
    Some(values.into_iter().fold(image.to_string(), fill))
}

/// `NodeModulesConfig`: what KMM means to have on a node, and what its finished worker pods said.
#[derive(Debug, Clone, PartialEq)]
pub struct NmcRecord {
    pub node: NodeName,
    pub meta: Meta,
    pub spec: Vec<Entry>,
    pub status: Vec<Entry>,
    /// The Node's UID, once the owner is set; an empty one has none and outlives its node.
    pub owner: Option<Uid>,
}

/// One Module in a NodeModulesConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub module: ObjectKey,
    pub version: Option<Str>,
    pub image: Str,
    pub kernel: Str,
    /// The whole `config`, without what is empty: equal in spec and status means loaded as wanted.
    pub config: Str,
    pub tolerations: Vec<Toleration>,
    /// Status: the boot in which it was loaded. Empty counts as another boot.
    pub boot_id: BootId,
}

impl NmcRecord {
    #[must_use]
    pub fn wanted(&self, module: &ObjectKey) -> Option<&Entry> {
        self.spec.iter().find(|entry| entry.module == *module)
    }

    #[must_use]
    pub fn recorded(&self, module: &ObjectKey) -> Option<&Entry> {
        self.status.iter().find(|entry| entry.module == *module)
    }
}

/// `ModuleImagesConfig`: which images KMM has found to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub wanted: Vec<Str>,
    /// `Exists`, `DoesNotExist`, `NeedsBuilding`, `NeedsSigning`.
    pub states: BTreeMap<Str, Str>,
}

impl ImagesRecord {
    #[must_use]
    pub fn exists(&self, image: &str) -> bool {
        self.states.get(image).is_some_and(|state| &**state == "Exists")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Load,
    Unload,
}

impl Action {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Load => "Load",
            Self::Unload => "Unload",
        }
    }
}

/// What a pod of KMM's is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Worker {
        action: Action,
        image: Option<Str>,
        version: Option<Str>,
    },
    /// Of a device plugin, or of a DRA driver.
    Plugin {
        dra: bool,
        /// Value of the schedule label that it was made for.
        version: Option<Str>,
    },
    /// Tries an image on some node.
    Pull {
        image: Option<Str>,
    },
    /// Of a build or signing, or of a 1.x loader.
    Other,
}

/// A pod that carries KMM's module label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRecord {
    pub key: ObjectKey,
    pub uid: Uid,
    pub module: ObjectKey,
    /// Where it is bound; DaemonSet pods that are not bound yet name their node too.
    pub node: Option<NodeName>,
    pub part: Part,
    pub phase: Phase,
    pub ready: bool,
    pub deleting: bool,
    pub created: Option<Timestamp>,
    /// Of all containers, init containers included: the most.
    pub restarts: u32,
    /// Why a container waits: `CrashLoopBackOff`, `ImagePullBackOff`, ...
    pub waiting: Option<Str>,
    /// What the kubelet says of that.
    pub waiting_message: Str,
    /// The last container that ended with a failure: exit code and reason.
    pub failed: Option<(i32, Str)>,
    /// What that one said as it ended; mostly nothing.
    pub failed_message: Str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodRecord {
    #[must_use]
    pub fn action(&self) -> Option<Action> {
        match self.part {
            Part::Worker { action, .. } => Some(action),
            _ => None,
        }
    }

    /// Its process fails again and again in place.
    #[must_use]
    pub fn crashing(&self) -> bool {
        !matches!(self.phase, Phase::Succeeded)
            && (self.waiting.as_deref() == Some("CrashLoopBackOff") || self.failed.is_some() || self.restarts > 0)
    }

    /// Why a container waits, with what the kubelet says of it.
    #[must_use]
    pub fn waits(&self) -> Option<Str> {
        let reason = self.waiting.as_ref()?;
        Some(if self.waiting_message.is_empty() { reason.clone() } else { format!("{reason}: {}", self.waiting_message).into() })
    }

    /// Its image cannot be had.
    #[must_use]
    pub fn image_missing(&self) -> bool {
        matches!(self.waiting.as_deref(), Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull"))
    }

    /// It may still run something: there, and neither ended.
    #[must_use]
    pub fn alive(&self) -> bool {
        !matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// A DaemonSet that carries KMM's module label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRecord {
    pub key: ObjectKey,
    pub uid: Uid,
    pub module: ObjectKey,
    pub dra: bool,
    /// None: made for a Module without version.
    pub version: Option<Str>,
    pub desired: i32,
    pub ready: i32,
    pub deleting: bool,
    pub labels: Labels,
}

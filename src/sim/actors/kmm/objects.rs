//! KMM's objects as its operator reads and writes them, and the keys it puts on others.

use super::super::informer::Kind;
use super::super::records::{Map, Meta, Node, Record, Toleration};
use super::super::selectors::untolerated;
use crate::api::ObjectKey;
use crate::fleet::records::Str;
use crate::kmm::keys::{Era, Label};
use crate::kmm::records::{Mapping, image_for};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Marks the NodeModulesConfig that has the module in its spec.
pub const CONFIGURED: &str = "module-configured";
/// The same for spec or status; a Module's end waits for it.
pub const IN_USE: &str = "module-in-use";
pub const MODULE_FINALIZER: &str = "kmm.node.kubernetes.io/module-finalizer";
pub const WORKER_FINALIZER: &str = "kmm.node.kubernetes.io/nodemodulesconfig-reconciler";
pub const PLUGIN_FINALIZER: &str = "kmm.node.kubernetes.io/node-labeler";
pub const MODULE_NAMESPACE: &str = "kmm.node.kubernetes.io/module.namespace";

macro_rules! record {
    ($name:ident, $plural:literal, $namespaced:literal) => {
        impl Record for $name {
            const KIND: Kind = Kind {
                api_version: "kmm.sigs.x-k8s.io/v1beta1",
                kind: stringify!($name),
                plural: $plural,
                namespaced: $namespaced,
            };
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    };
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Module {
    pub metadata: Meta,
    pub spec: ModuleSpec,
}
record!(Module, "modules", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleSpec {
    pub module_loader: Option<Loader>,
    pub device_plugin: Option<Driver>,
    pub dra: Option<Driver>,
    pub selector: Map,
    pub tolerations: Vec<Value>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Loader {
    pub container: LoaderContainer,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LoaderContainer {
    pub version: String,
    pub container_image: Option<Str>,
    pub kernel_mappings: Vec<Mapping>,
    pub modprobe: Value,
}

/// A device plugin, or a DRA driver.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Driver {
    pub container: DriverContainer,
    pub init_container: Option<Value>,
    pub device_classes: Vec<Value>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct DriverContainer {
    pub image: String,
}

impl Module {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.metadata.ns(), self.metadata.name.as_str())
    }

    /// Empty: no version.
    pub fn version(&self) -> &str {
        self.spec.module_loader.as_ref().map_or("", |loader| loader.container.version.as_str())
    }

    pub fn image_for(&self, kernel: &str) -> Option<String> {
        let container = &self.spec.module_loader.as_ref()?.container;
        image_for(&self.key(), container.container_image.as_ref(), &container.kernel_mappings, kernel)
    }

    pub fn selects(&self, node: &Node) -> bool {
        self.spec.selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
    }

    pub fn tolerations(&self) -> Vec<Toleration> {
        parsed(&self.spec.tolerations)
    }

    /// The module's name in the kernel.
    pub fn kernel_module(&self) -> &str {
        let modprobe = self.spec.module_loader.as_ref().map(|loader| &loader.container.modprobe);
        modprobe.and_then(|modprobe| modprobe["moduleName"].as_str()).unwrap_or(&self.metadata.name)
    }

    /// What the Module's annotations `sim.lockkeeper.dev/<part>.<name>` tell pods of this part to do.
    pub fn told(&self, part: &str) -> Vec<(String, Value)> {
        let start = format!("sim.lockkeeper.dev/{part}.");
        let own = self.metadata.annotations.iter();
        let told = own.filter_map(|(key, value)| {
            Some((format!("sim.lockkeeper.dev/{}", key.strip_prefix(&start)?), Value::String(value.clone())))
        });
        told.collect()
    }

    pub fn owner(&self) -> Value {
        owner(&self.metadata, Self::KIND, true)
    }
}

pub fn owner(meta: &Meta, kind: Kind, controller: bool) -> Value {
    json!([{"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid,
        "controller": controller, "blockOwnerDeletion": true}])
}

pub fn parsed(tolerations: &[Value]) -> Vec<Toleration> {
    tolerations.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
}

/// What KMM adds to the Module's tolerations for load and unload.
pub fn with_pressures(tolerations: &[Value]) -> Vec<Value> {
    let pressure =
        |what: &str| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoSchedule"});
    tolerations.iter().cloned().chain(["disk-pressure", "memory-pressure", "pid-pressure"].map(pressure)).collect()
}

pub fn schedulable(node: &Node, tolerations: &[Toleration]) -> bool {
    untolerated(node, tolerations, &["NoSchedule", "NoExecute"]).is_none()
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NodeModulesConfig {
    pub metadata: Meta,
    pub spec: Entries,
    pub status: Entries,
}
record!(NodeModulesConfig, "nodemodulesconfigs", false);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Entries {
    pub modules: Vec<Entry>,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    pub config: Value,
    pub name: String,
    pub namespace: String,
    pub service_account_name: String,
    pub tolerations: Vec<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
}

impl Entry {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_str(), self.name.as_str())
    }

    pub fn is_of(&self, module: &ObjectKey) -> bool {
        *self.namespace == *module.namespace && *self.name == *module.name
    }
}

impl Entries {
    pub fn find(&self, module: &ObjectKey) -> Option<&Entry> {
        self.modules.iter().find(|entry| entry.is_of(module))
    }
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ModuleImagesConfig {
    pub metadata: Meta,
    pub spec: Images,
    pub status: ImageStates,
}
record!(ModuleImagesConfig, "moduleimagesconfigs", true);

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Images {
    pub images: Vec<Image>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageStates {
    pub images_states: Vec<Image>,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    pub image: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

impl ModuleImagesConfig {
    pub fn exists(&self, image: &str) -> bool {
        self.status.images_states.iter().any(|state| state.image == image && state.status == "Exists")
    }
}

/// A label key of the present generation.
pub fn key(label: Label, module: &ObjectKey) -> String {
    label.key(module, Era::Third).unwrap_or_default()
}

/// The label of a NodeModulesConfig about one Module.
pub fn mark(module: &ObjectKey, word: &str) -> String {
    format!("beta.kmm.node.kubernetes.io/{}.{}.{word}", module.namespace, module.name)
}

/// What the toy kernel takes for the version: the image's tag without the kernel.
pub fn bits(image: &str, kernel: &str) -> String {
    let tag = image.rsplit_once(':').map_or(image, |(_, tag)| tag);
    let tag = tag.strip_suffix(kernel).unwrap_or(tag);
    tag.trim_end_matches("${KERNEL_FULL_VERSION}").trim_end_matches('-').to_owned()
}

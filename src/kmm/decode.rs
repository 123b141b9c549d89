//! From the bytes of one object of KMM's, or of a list of them, to slim records. Garbage is an error that names the field, never a panic, and
//! one object that does not decode never hides the others of its list.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    keys::{self, Label},
    records::{Action, Entry, ImagesRecord, Mapping, ModuleRecord, NmcRecord, Part, Phase, PodRecord, SetRecord, Toleration},
};
use crate::{
    api::{BootId, NodeName, ObjectKey, Uid},
    fleet::{
        decode::text::{All, List, Map, Text, timestamp},
        records::{Deletion, Labels, Meta, Str},
    },
};

/// An object that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} of KMM does not decode: {why}; read it with kubectl get -o yaml and compare with KMM's CRD")]
pub struct Undecodable {
    pub kind: &'static str,
    /// `namespace/name`, as far as it could be read.
    pub name: String,
    pub why: String,
}

/// A record that comes from one object's JSON.
pub trait Decoded: Sized {
    const KIND: &'static str;
    /// # Errors
    /// Names the field that is missing or wrong.
    fn decoded(text: &str) -> Result<Self, String>;
}

/// One object.
///
/// # Errors
/// If the bytes are no such object.
pub fn object<R: Decoded>(bytes: &[u8]) -> Result<R, Undecodable> {
    let text = std::str::from_utf8(bytes).map_err(|error| undecodable::<R>("", error.to_string()))?;
    R::decoded(text).map_err(|why| undecodable::<R>(text, why))
}

/// The objects of a list, and what of it does not decode.
///
/// # Errors
/// If the bytes are no list at all.
pub fn list<R: Decoded>(bytes: &[u8]) -> Result<(Vec<R>, Vec<Undecodable>), Undecodable> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let page: Page<'_> = serde_json::from_slice(bytes).map_err(|error| undecodable::<R>("", format!("the list: {error}")))?;
    let (mut records, mut broken) = (Vec::new(), Vec::new());
    for item in page.items {
        match R::decoded(item.get()) {
            Ok(record) => records.push(record),
            Err(why) => broken.push(undecodable::<R>(item.get(), why)),
        }
    }
    Ok((records, broken))
}

fn undecodable<R: Decoded>(text: &str, why: String) -> Undecodable {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        metadata: RawMeta<'a>,
    }
    let named = serde_json::from_str::<Named<'_>>(text).ok();
    let name = named.map_or_else(String::new, |named| match &*named.metadata.namespace {
        "" => named.metadata.name.0.into_owned(),
        namespace => format!("{namespace}/{}", &*named.metadata.name),
    });
    Undecodable { kind: R::KIND, name, why }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    creation_timestamp: Text<'a>,
    #[serde(borrow)]
    deletion_timestamp: Text<'a>,
    #[serde(borrow)]
    labels: Map<'a, All>,
    #[serde(borrow)]
    annotations: Map<'a, All>,
    #[serde(borrow)]
    owner_references: List<RawOwner<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawOwner<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
}

impl RawMeta<'_> {
    fn uid(&self) -> Result<Uid, String> {
        if self.uid.is_empty() { Err("metadata.uid is missing".to_owned()) } else { Ok(Uid::from(&*self.uid)) }
    }

    fn meta(&self) -> Result<Meta, String> {
        Ok(Meta {
            uid: self.uid()?,
            resource_version: Str::from(&*self.resource_version),
            created: timestamp(&self.creation_timestamp),
            // KMM's objects have no grace period.
            deletion: timestamp(&self.deletion_timestamp).map(|at| Deletion { at, grace: 0 }),
        })
    }

    fn key(&self) -> Result<ObjectKey, String> {
        if self.namespace.is_empty() || self.name.is_empty() {
            return Err("metadata.namespace or metadata.name is missing".to_owned());
        }
        Ok(ObjectKey::new(&*self.namespace, &*self.name))
    }

    /// The Module that the object's label names, in its own namespace.
    fn module(&self) -> Result<ObjectKey, String> {
        let name = self.labels.get(keys::MODULE_NAME).or_else(|| self.labels.get(keys::IMAGE_OWNER));
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| format!("label {} is missing", keys::MODULE_NAME))?;
        Ok(ObjectKey::new(&*self.namespace, name))
    }

    /// The version in the schedule label of this Module, of any generation.
    fn scheduled_version(&self, module: &ObjectKey) -> Option<Str> {
        let keys = Label::Schedule.keys(module);
        keys.iter().find_map(|key| self.labels.get(key)).and_then(filled)
    }
}

fn filled(text: &str) -> Option<Str> {
    (!text.is_empty()).then(|| Str::from(text))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawToleration<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    #[serde(borrow)]
    effect: Text<'a>,
}

fn tolerations(raw: &[RawToleration<'_>]) -> Vec<Toleration> {
    let str = |text: &Text<'_>| Str::from(&**text);
    raw.iter()
        .map(|it| Toleration { key: str(&it.key), operator: str(&it.operator), value: str(&it.value), effect: str(&it.effect) })
        .collect()
}

impl Decoded for ModuleRecord {
    const KIND: &'static str = "Module";

    fn decoded(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            metadata: RawMeta<'a>,
            #[serde(borrow, default)]
            spec: Spec<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec<'a> {
            #[serde(borrow)]
            module_loader: Option<Loader<'a>>,
            device_plugin: Option<IgnoredAny>,
            dra: Option<IgnoredAny>,
            #[serde(borrow)]
            selector: Map<'a, All>,
            #[serde(borrow)]
            tolerations: List<RawToleration<'a>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Loader<'a> {
            #[serde(borrow)]
            container: Container<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Container<'a> {
            #[serde(borrow)]
            version: Text<'a>,
            #[serde(borrow)]
            container_image: Text<'a>,
            #[serde(borrow)]
            kernel_mappings: List<RawMapping<'a>>,
            #[serde(borrow)]
            modprobe: Modprobe<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct RawMapping<'a> {
            #[serde(borrow)]
            literal: Text<'a>,
            #[serde(borrow)]
            regexp: Text<'a>,
            #[serde(borrow)]
            container_image: Text<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Modprobe<'a> {
            #[serde(borrow)]
            module_name: Text<'a>,
        }
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let loads = raw.spec.module_loader.is_some();
        let container = raw.spec.module_loader.unwrap_or_default().container;
        Ok(Self {
            key: raw.metadata.key()?,
            meta: raw.metadata.meta()?,
            deleting: !raw.metadata.deletion_timestamp.is_empty(),
            loads,
            version: filled(&container.version),
            image: filled(&container.container_image),
            mappings: container
                .kernel_mappings
                .iter()
                .map(|it| Mapping {
                    literal: filled(&it.literal),
                    regexp: filled(&it.regexp),
                    image: filled(&it.container_image),
                })
                .collect(),
            kernel_module: filled(&container.modprobe.module_name),
            selector: raw.spec.selector.pairs.iter().map(|(key, value)| (Str::from(&**key), Str::from(&**value))).collect(),
            tolerations: tolerations(&raw.spec.tolerations),
            plugin: raw.spec.device_plugin.is_some(),
            dra: raw.spec.dra.is_some(),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawEntry<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    version: Text<'a>,
    #[serde(borrow)]
    boot_id: Text<'a>,
    #[serde(borrow)]
    config: Option<&'a RawValue>,
    #[serde(borrow)]
    tolerations: List<RawToleration<'a>>,
}

/// What two configs are compared by: keys sorted, and nothing that is empty (some writers leave out what others write as empty).
fn canonical(config: &RawValue) -> Result<(serde_json::Value, Str), String> {
    fn pruned(value: serde_json::Value) -> Option<serde_json::Value> {
        use serde_json::Value;
        match value {
            Value::Null | Value::Bool(false) => None,
            Value::String(text) if text.is_empty() => None,
            Value::Array(list) => {
                let list: Vec<Value> = list.into_iter().filter_map(pruned).collect();
                (!list.is_empty()).then_some(Value::Array(list))
            }
            Value::Object(map) => {
                let sorted: BTreeMap<String, Value> =
                    map.into_iter().filter_map(|(key, value)| Some((key, pruned(value)?))).collect();
                (!sorted.is_empty()).then(|| Value::Object(sorted.into_iter().collect()))
            }
            other => Some(other),
        }
    }
    let value: serde_json::Value = serde_json::from_str(config.get()).map_err(|error| format!("config: {error}"))?;
    let value = pruned(value).unwrap_or_default();
    let text = value.to_string();
    Ok((value, Str::from(text)))
}

fn entries(raw: &[RawEntry<'_>]) -> Result<Vec<Entry>, String> {
    let entry = |raw: &RawEntry<'_>| {
        if raw.name.is_empty() || raw.namespace.is_empty() {
            return Err("modules: an entry without name or namespace".to_owned());
        }
        let (value, config) = match raw.config {
            Some(config) => canonical(config)?,
            None => Default::default(),
        };
        let text = |key: &str| Str::from(value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default());
        Ok(Entry {
            module: ObjectKey::new(&*raw.namespace, &*raw.name),
            version: filled(&raw.version),
            image: text("containerImage"),
            kernel: text("kernelVersion"),
            config,
            tolerations: tolerations(&raw.tolerations),
            boot_id: BootId::from(&*raw.boot_id),
        })
    };
    raw.iter().map(entry).collect()
}

impl Decoded for NmcRecord {
    const KIND: &'static str = "NodeModulesConfig";

    fn decoded(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            metadata: RawMeta<'a>,
            #[serde(borrow, default)]
            spec: Modules<'a>,
            #[serde(borrow, default)]
            status: Modules<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Modules<'a> {
            #[serde(borrow)]
            modules: List<RawEntry<'a>>,
        }
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if raw.metadata.name.is_empty() {
            return Err("metadata.name is missing".to_owned());
        }
        let owner = raw.metadata.owner_references.iter().find(|owner| &*owner.kind == "Node");
        Ok(Self {
            node: NodeName::from(&*raw.metadata.name),
            meta: raw.metadata.meta()?,
            spec: entries(&raw.spec.modules).map_err(|why| format!("spec.{why}"))?,
            status: entries(&raw.status.modules).map_err(|why| format!("status.{why}"))?,
            owner: owner.map(|owner| Uid::from(&*owner.uid)),
        })
    }
}

impl Decoded for ImagesRecord {
    const KIND: &'static str = "ModuleImagesConfig";

    fn decoded(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            metadata: RawMeta<'a>,
            #[serde(borrow, default)]
            spec: Spec<'a>,
            #[serde(borrow, default)]
            status: Status<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Spec<'a> {
            #[serde(borrow)]
            images: List<Image<'a>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status<'a> {
            #[serde(borrow)]
            images_states: List<Image<'a>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Image<'a> {
            #[serde(borrow)]
            image: Text<'a>,
            #[serde(borrow)]
            status: Text<'a>,
        }
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self {
            key: raw.metadata.key()?,
            meta: raw.metadata.meta()?,
            wanted: raw.spec.images.iter().map(|it| Str::from(&*it.image)).collect(),
            states: raw.status.images_states.iter().map(|it| (Str::from(&*it.image), Str::from(&*it.status))).collect(),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer<'a> {
    restart_count: Option<u32>,
    #[serde(borrow)]
    state: RawState<'a>,
    #[serde(borrow)]
    last_state: RawState<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawState<'a> {
    #[serde(borrow)]
    waiting: Option<RawReason<'a>>,
    #[serde(borrow)]
    terminated: Option<RawReason<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawReason<'a> {
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    exit_code: Option<i32>,
}

impl Decoded for PodRecord {
    const KIND: &'static str = "Pod";

    fn decoded(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            metadata: RawMeta<'a>,
            #[serde(borrow, default)]
            spec: Spec<'a>,
            #[serde(borrow, default)]
            status: Status<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec<'a> {
            #[serde(borrow)]
            node_name: Text<'a>,
            affinity: Option<serde_json::Value>,
            #[serde(borrow)]
            containers: List<Image<'a>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Image<'a> {
            #[serde(borrow)]
            image: Text<'a>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status<'a> {
            #[serde(borrow)]
            phase: Text<'a>,
            #[serde(borrow)]
            conditions: List<Condition<'a>>,
            #[serde(borrow)]
            container_statuses: List<RawContainer<'a>>,
            #[serde(borrow)]
            init_container_statuses: List<RawContainer<'a>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Condition<'a> {
            #[serde(borrow, rename = "type")]
            kind: Text<'a>,
            #[serde(borrow)]
            status: Text<'a>,
        }
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let module = raw.metadata.module()?;
        let containers = || raw.status.init_container_statuses.iter().chain(raw.status.container_statuses.iter());
        let image = raw.spec.containers.first().and_then(|container| filled(&container.image));
        let telling = |it: &&RawReason<'_>| !matches!(&*it.reason, "" | "ContainerCreating" | "PodInitializing");
        let waiting = containers().filter_map(|it| it.state.waiting.as_ref()).find(telling);
        let failed = containers()
            .flat_map(|it| [&it.state.terminated, &it.last_state.terminated])
            .flatten()
            .find(|it| it.exit_code.is_some_and(|code| code != 0));
        let node = filled(&raw.spec.node_name).or_else(|| raw.spec.affinity.as_ref().and_then(pinned));
        Ok(Self {
            key: raw.metadata.key()?,
            uid: raw.metadata.uid()?,
            part: part(&raw.metadata, &module, image),
            module,
            node: node.map(NodeName::from),
            phase: match &*raw.status.phase {
                "Pending" | "" => Phase::Pending,
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Unknown,
            },
            ready: raw.status.conditions.iter().any(|it| &*it.kind == "Ready" && &*it.status == "True"),
            deleting: !raw.metadata.deletion_timestamp.is_empty(),
            created: timestamp(&raw.metadata.creation_timestamp),
            restarts: containers().filter_map(|it| it.restart_count).max().unwrap_or(0),
            waiting: waiting.map(|it| Str::from(&*it.reason)),
            waiting_message: waiting.map(|it| Str::from(&*it.message)).unwrap_or_default(),
            failed: failed.map(|it| (it.exit_code.unwrap_or_default(), Str::from(&*it.reason))),
            failed_message: failed.map(|it| Str::from(&*it.message)).unwrap_or_default(),
        })
    }
}

/// The node that a DaemonSet's pod is made for.
fn pinned(affinity: &serde_json::Value) -> Option<Str> {
    let terms = affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")?.as_array()?;
    let fields = terms.iter().filter_map(|term| term.get("matchFields")?.as_array()).flatten();
    fields
        .filter(|field| field.get("key").and_then(serde_json::Value::as_str) == Some("metadata.name"))
        .find_map(|field| field.pointer("/values/0")?.as_str())
        .map(Str::from)
}

fn part(meta: &RawMeta<'_>, module: &ObjectKey, image: Option<Str>) -> Part {
    let action = match meta.labels.get(keys::WORKER_ACTION) {
        Some("Load") => Some(Action::Load),
        Some("Unload") => Some(Action::Unload),
        _ => None,
    };
    if let Some(action) = action {
        return Part::Worker {
            action,
            image: meta.annotations.get(keys::WORKER_CONFIG).and_then(worker_image).or(image),
            version: meta.annotations.get(keys::WORKER_VERSION).and_then(filled),
        };
    }
    if meta.labels.get(keys::IMAGE_OWNER).is_some() {
        return Part::Pull { image };
    }
    let owned = meta.owner_references.iter().any(|owner| &*owner.kind == "DaemonSet" && !owner.name.is_empty());
    match meta.labels.get(keys::ROLE) {
        Some("dra") => Part::Plugin { dra: true, version: meta.scheduled_version(module) },
        Some("device-plugin") => Part::Plugin { dra: false, version: meta.scheduled_version(module) },
        // The plugins of 2.0 to 2.6 have no role.
        None if owned => Part::Plugin { dra: false, version: meta.scheduled_version(module) },
        _ => Part::Other,
    }
}

/// The image in a worker pod's config, which is YAML or JSON.
pub(super) fn worker_image(config: &str) -> Option<Str> {
    let text = config.lines().find_map(|line| line.trim().trim_start_matches('"').strip_prefix("containerImage:"));
    if let Some(text) = text {
        return filled(text.trim().trim_matches(['"', '\'', ',']));
    }
    let value: serde_json::Value = serde_json::from_str(config).ok()?;
    value.get("containerImage")?.as_str().and_then(filled)
}

impl Decoded for SetRecord {
    const KIND: &'static str = "DaemonSet";

    fn decoded(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            metadata: RawMeta<'a>,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            desired_number_scheduled: Option<i32>,
            number_ready: Option<i32>,
        }
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let module = raw.metadata.module()?;
        let labels: BTreeMap<Str, Str> =
            raw.metadata.labels.pairs.iter().map(|(key, value)| (Str::from(&**key), Str::from(&**value))).collect();
        Ok(Self {
            key: raw.metadata.key()?,
            uid: raw.metadata.uid()?,
            dra: raw.metadata.labels.get(keys::ROLE) == Some("dra"),
            version: raw.metadata.scheduled_version(&module),
            module,
            desired: raw.status.desired_number_scheduled.unwrap_or(0),
            ready: raw.status.number_ready.unwrap_or(0),
            deleting: !raw.metadata.deletion_timestamp.is_empty(),
            labels: Labels::from(Arc::new(labels)),
        })
    }
}

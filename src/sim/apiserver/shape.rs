//! Which lists are maps, sets or atomic, and by which keys: for field ownership, apply, and strategic merge.
//! Builtin kinds by field name (x-kubernetes-list-type and patchMergeKey of the 1.37 types), custom kinds by their schema.

use serde_json::Value;

use super::resource::Resource;

/// How a list merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A place inside an object, with what is known of its type.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    custom: Option<&'a Value>,
    is_custom: bool,
    field: &'a str,
    service: bool,
    /// A ControllerRevision: its data is opaque.
    revision: bool,
}

const BY_NAME: &[&str] = &[
    "containers",
    "initContainers",
    "ephemeralContainers",
    "volumes",
    "env",
    "imagePullSecrets",
    "resourceClaims",
    "schedulingGates",
    "resourceClaimStatuses",
    "claims",
    "drivers",
    "secrets",
];

fn keys(names: &[&str]) -> ListKind {
    ListKind::Map(names.iter().map(|n| (*n).to_owned()).collect())
}

impl<'a> Shape<'a> {
    /// The root of an object of this resource.
    pub fn root(resource: &'a Resource) -> Self {
        Self {
            custom: resource.custom.as_ref().map(|c| &c.schema),
            is_custom: resource.is_custom(),
            field: "",
            service: resource.kind == "Service",
            revision: resource.kind == "ControllerRevision",
        }
    }

    pub fn field(self, name: &'a str) -> Self {
        let custom = self.custom.and_then(|schema| {
            schema
                .get("properties")
                .and_then(|p| p.get(name))
                .or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()))
        });
        // Object metadata is typed for custom kinds, too.
        let is_custom = self.is_custom && !(self.field.is_empty() && name == "metadata");
        Self { custom, is_custom, field: name, service: self.service, revision: self.revision && self.field.is_empty() }
    }

    /// Is it a field of a struct here, and not a key of a map? Builtin maps hold nothing but plain values, for which that is all the same.
    pub fn has_field(self, name: &str) -> bool {
        let root = self.field.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata");
        !self.is_custom || root || self.custom.and_then(|s| s.get("properties")).is_some_and(|p| p.get(name).is_some())
    }

    pub fn items(self) -> Self {
        Self { custom: self.custom.and_then(|s| s.get("items")), ..self }
    }

    /// Does a list here merge, in the sense of field ownership and apply?
    pub fn list(self) -> ListKind {
        if self.is_custom {
            let text = |key: &str| self.custom.and_then(|s| s.get(key));
            return match text("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListKind::Set,
                Some("map") => ListKind::Map(
                    text("x-kubernetes-list-map-keys")
                        .and_then(Value::as_array)
                        .map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                        .unwrap_or_default(),
                ),
                _ => ListKind::Atomic,
            };
        }
        match self.field {
            "finalizers" | "podCIDRs" | "volumeLifecycleModes" | "validationActions" => ListKind::Set,
            "conditions" | "addresses" => keys(&["type"]),
            "ports" if self.service => keys(&["port", "protocol"]),
            "ports" => keys(&["containerPort", "protocol"]),
            "volumeMounts" => keys(&["mountPath"]),
            "volumeDevices" => keys(&["devicePath"]),
            "hostAliases" | "podIPs" | "hostIPs" => keys(&["ip"]),
            "topologySpreadConstraints" => keys(&["topologyKey", "whenUnsatisfiable"]),
            "ownerReferences" | "reservedFor" => keys(&["uid"]),
            field if BY_NAME.contains(&field) => keys(&["name"]),
            _ => ListKind::Atomic,
        }
    }

    /// The merge key of a strategic merge patch, when lists here merge.
    pub fn strategic(self) -> ListKind {
        match self.field {
            "ports" if self.service => keys(&["port"]),
            "ports" => keys(&["containerPort"]),
            "topologySpreadConstraints" => keys(&["topologyKey"]),
            _ => self.list(),
        }
    }

    /// Is an object here one value for ownership (`x-kubernetes-map-type: atomic`)?
    pub fn is_atomic(self) -> bool {
        if self.is_custom {
            return self.custom.is_some_and(|s| s.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"));
        }
        matches!(
            self.field,
            "roleRef"
                | "involvedObject"
                | "regarding"
                | "matchConstraints"
                | "selector"
                | "labelSelector"
                | "podSelector"
                | "namespaceSelector"
                | "nodeSelectorTerms"
                | "secretRef"
                | "targetRef"
                | "claimRef"
                | "nodeSelector"
                | "ownerReferences"
                | "imagePullSecrets"
                | "secrets"
                | "configMapKeyRef"
                | "secretKeyRef"
                | "fieldRef"
                | "resourceFieldRef"
        ) || (self.revision && self.field == "data")
    }
}

/// The value of an item's keys, for matching; a missing key has its default (`TCP` for protocol) or null.
pub fn item_key(item: &Value, keys: &[String]) -> Vec<Value> {
    keys.iter()
        .map(|key| match item.get(key) {
            Some(value) => value.clone(),
            None if key == "protocol" => Value::from("TCP"),
            None => Value::Null,
        })
        .collect()
}

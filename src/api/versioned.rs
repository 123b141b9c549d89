//! How the objects of a version are named and how its content is told from another: hashes, and the names made from them.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Version, component::KernelModule};

/// Which of a version's two DaemonSets; the value of the `role` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DaemonSetRole {
    Loader,
    Plugin,
}

impl DaemonSetRole {
    pub const ALL: [Self; 2] = [Self::Loader, Self::Plugin];

    pub fn word(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Plugin => "plugin",
        }
    }
}

/// Value of the `role` label on unload pods.
pub const UNLOAD: &str = "unload";

/// `<component>-<role>-<10 hex of the version's hash>`: a version may hold characters that a name may not.
pub fn daemon_set_name(component: &str, role: DaemonSetRole, version: &Version) -> String {
    format!("{component}-{}-{}", role.word(), version_hash(version))
}

/// The first 10 hex digits of the version's SHA-256.
pub fn version_hash(version: &Version) -> String {
    hex(&Sha256::digest(version.as_str().as_bytes()), 10)
}

/// Hash of a version's block: the value of the `content` annotation. The order of keys does not matter.
pub fn content_hash(block: &KernelModule) -> String {
    let mut text = String::new();
    canonical(&serde_json::to_value(block).unwrap_or_default(), &mut text);
    hex(&Sha256::digest(text.as_bytes()), 16)
}

/// Digest of any JSON: equal ones are the same content, whatever the order of keys; what is null counts as left out.
pub fn digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    hex(&Sha256::digest(text.as_bytes()), 16)
}

/// JSON with sorted keys, whatever map serde_json uses.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key).collect();
            keys.sort();
            out.push('{');
            for key in keys {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(map.get(key).unwrap_or(&Value::Null), out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn hex(bytes: &[u8], digits: usize) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(digits).filter_map(|d| char::from_digit(d.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_legal_whatever_the_version() {
        let name = daemon_set_name("gpu", DaemonSetRole::Loader, &Version::from("2.0_RC.1"));
        assert!(name.starts_with("gpu-loader-") && name.len() == "gpu-loader-".len() + 10, "{name}");
        assert_ne!(version_hash(&Version::from("2.0")), version_hash(&Version::from("2.0.")));
    }

    #[test]
    fn the_order_of_keys_is_no_content() {
        let block = |text: &str| serde_json::from_str::<KernelModule>(text).unwrap();
        let one = block(r#"{"daemonSets":{"loader":{"a":1,"b":2},"devicePlugin":{}},"devices":{"resourceNames":["v/g"]}}"#);
        let two = block(r#"{"devices":{"resourceNames":["v/g"]},"daemonSets":{"devicePlugin":{},"loader":{"b":2,"a":1}}}"#);
        let other = block(r#"{"devices":{"resourceNames":["v/g"]},"daemonSets":{"devicePlugin":{},"loader":{"b":2,"a":3}}}"#);
        assert_eq!(content_hash(&one), content_hash(&two));
        assert_ne!(content_hash(&one), content_hash(&other));
    }
}

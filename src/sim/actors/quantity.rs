//! Resource quantities, in thousandths, and sums of them by resource name.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Amounts by resource name, in thousandths of the unit (`500m` CPU is 500, one device is 1000).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// The amount of a resource in thousandths; 0 if it is not named.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn set(&mut self, name: &str, milli: i64) {
        self.0.insert(name.to_owned(), milli);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            *self.0.entry(name.to_owned()).or_insert(0) += amount;
        }
    }

    /// The larger of both, resource by resource.
    pub fn max(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let entry = self.0.entry(name.to_owned()).or_insert(0);
            *entry = (*entry).max(amount);
        }
    }

    /// The extended resources among these that are asked for, with their whole counts.
    pub fn extended(&self) -> impl Iterator<Item = (&str, i64)> {
        self.iter().filter(|(name, amount)| is_extended(name) && *amount > 0).map(|(name, amount)| (name, amount / 1000))
    }
}

/// A resource with a domain that is not Kubernetes' own.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.split('/').next().is_some_and(|domain| domain == "kubernetes.io" || domain.ends_with(".kubernetes.io"))
}

/// Thousandths of a quantity such as `4`, `500m`, `1.5`, `64Gi`; `None` if it is none.
#[must_use]
pub fn milli(text: &str) -> Option<i64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: f64 = match unit {
        "m" => 1.0,
        "" => 1e3,
        "k" => 1e6,
        "M" => 1e9,
        "G" => 1e12,
        "T" => 1e15,
        "Ki" => 1024e3,
        "Mi" => 1024.0 * 1024e3,
        "Gi" => 1024.0 * 1024.0 * 1024e3,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024e3,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    Some((number * factor) as i64)
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Text(String),
            Number(f64),
        }
        let raw = BTreeMap::<String, Raw>::deserialize(deserializer)?;
        Ok(Self(
            raw.into_iter()
                .map(|(name, value)| match value {
                    Raw::Text(text) => (name, milli(&text).unwrap_or(0)),
                    Raw::Number(number) => (name, (number * 1e3) as i64),
                })
                .collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [("4", 4000), ("500m", 500), ("1.5", 1500), ("1Gi", 1_073_741_824_000), ("2k", 2_000_000)] {
            assert_eq!(milli(text), Some(expected), "{text}");
        }
        assert_eq!(milli("x"), None);
        assert!(
            is_extended("vendor.com/gpu")
                && !is_extended("cpu")
                && !is_extended("hugepages-2Mi")
                && !is_extended("node.kubernetes.io/x")
        );
    }
}

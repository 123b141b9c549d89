//! The small pieces of JSON that all kinds share: borrowed texts, filtered maps, quantities, timestamps. Null means "left out".

use std::{borrow::Cow, fmt, marker::PhantomData};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::quantity;
use crate::{api::GROUP, kmm::keys};

/// A text, borrowed from the input where it has no escapes; null is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

struct TextVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
    type Value = Text<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
    fn visit_unit<E: Error>(self) -> Result<Text<'a>, E> {
        Ok(Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(PhantomData))
    }
}

/// A list in which null is empty.
#[derive(Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> std::ops::Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(List(list))
    }
    fn visit_unit<E: Error>(self) -> Result<List<T>, E> {
        Ok(List(Vec::new()))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

/// A map of texts whose entries a [`Filter`] chooses; the others are skipped without being read.
#[derive(Debug)]
pub struct Map<'a, F> {
    pub pairs: Vec<(Text<'a>, Text<'a>)>,
    filter: PhantomData<F>,
}

impl<F> Default for Map<'_, F> {
    fn default() -> Self {
        Self { pairs: Vec::new(), filter: PhantomData }
    }
}

impl<F> Map<'_, F> {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
    }
}

pub trait Filter {
    fn keeps(key: &str) -> bool;
}

/// Every entry.
#[derive(Debug)]
pub struct All;
impl Filter for All {
    fn keeps(_: &str) -> bool {
        true
    }
}

pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// On a PersistentVolume: the CSI driver that serves its in-tree source.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Annotations that are used: ours, KMM's on its worker pods, and three others.
#[derive(Debug)]
pub struct Known;
impl Filter for Known {
    fn keeps(key: &str) -> bool {
        is_ours(key) || key.starts_with(keys::WORKER) || key == MIRROR || key == SELECTED_NODE || key == MIGRATED_TO
    }
}

/// `lockkeeper.dev/...`
pub fn is_ours(key: &str) -> bool {
    key.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'))
}

struct MapVisitor<'a, F>(PhantomData<(&'a (), F)>);

impl<'de: 'a, 'a, F: Filter> Visitor<'de> for MapVisitor<'a, F> {
    type Value = Map<'a, F>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map<'a, F>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            if F::keeps(&key) {
                pairs.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Map { pairs, filter: PhantomData })
    }
    fn visit_unit<E: Error>(self) -> Result<Map<'a, F>, E> {
        Ok(Map::default())
    }
}

impl<'de: 'a, 'a, F: Filter> Deserialize<'de> for Map<'a, F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MapVisitor(PhantomData))
    }
}

/// The extended resources of a resource list, with their quantities. None: a quantity that does not parse.
#[derive(Debug, Default)]
pub struct Extended<'a>(pub Vec<(Text<'a>, Option<i64>)>);

impl Extended<'_> {
    pub fn get(&self, name: &str) -> Option<Option<i64>> {
        self.0.iter().find(|(known, _)| &**known == name).map(|(_, quantity)| *quantity)
    }
}

/// An extended resource: with a domain, and that not Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

struct ExtendedVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for ExtendedVisitor<'a> {
    type Value = Extended<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of quantities")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Extended<'a>, A::Error> {
        let mut found = Vec::new();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            if is_extended(&key) {
                found.push((key, map.next_value::<Quantity>()?.0));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Extended(found))
    }
    fn visit_unit<E: Error>(self) -> Result<Extended<'a>, E> {
        Ok(Extended::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Extended<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtendedVisitor(PhantomData))
    }
}

struct Quantity(Option<i64>);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;
        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(quantity::parse(text)))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(i64::try_from(number).ok()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(Some(number)))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(quantity::parse(&number.to_string())))
            }
            fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
                Ok(Quantity(Some(0)))
            }
        }
        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// An integer or a text, as text (`minAvailable`).
#[derive(Debug)]
pub struct IntOrText(pub String);

impl<'de> Deserialize<'de> for IntOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrTextVisitor;
        impl Visitor<'_> for IntOrTextVisitor {
            type Value = IntOrText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<IntOrText, E> {
                Ok(IntOrText(text.to_owned()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<IntOrText, E> {
                Ok(IntOrText(number.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<IntOrText, E> {
                Ok(IntOrText(number.to_string()))
            }
        }
        deserializer.deserialize_any(IntOrTextVisitor)
    }
}

/// RFC 3339; None for anything else. The form that API servers write, `2026-01-02T03:04:05Z`, takes a short way.
pub fn timestamp(text: &str) -> Option<Timestamp> {
    whole_seconds(text.as_bytes()).or_else(|| if text.is_empty() { None } else { text.parse().ok() })
}

fn whole_seconds(text: &[u8]) -> Option<Timestamp> {
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1, b'Z'] = text else { return None };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(&[y0, y1, y2, y3])?, number(&[m0, m1])?, number(&[d0, d1])?);
    let (hour, minute, second) = (number(&[h0, h1])?, number(&[n0, n1])?, number(&[s0, s1])?);
    // Days 29 to 31 may not exist in a month: the general parser judges those.
    if !(1..=12).contains(&month) || !(1..=28).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days since 1970-01-01, counted in years that begin in March so that the leap day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Timestamp::from_second(days * 86_400 + hour * 3_600 + minute * 60 + second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_and_the_general_parser_agree_on_timestamps() {
        for text in [
            "2026-01-02T03:04:05Z",
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:59:59Z",
            "2024-03-01T00:00:00Z",
            "2100-12-28T12:00:00Z",
        ] {
            assert_eq!(timestamp(text), Some(text.parse().unwrap()), "{text}");
        }
        assert_eq!(timestamp("2026-01-02T03:04:05.123456Z"), Some("2026-01-02T03:04:05.123456Z".parse().unwrap()));
        for text in
            ["", "yesterday", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-02T24:04:05Z", "2o26-01-02T03:04:05Z"]
        {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn extended_resources_have_a_domain_that_is_not_kubernetes_own() {
        for name in ["vendor.com/gpu", "example.org/nic-vf"] {
            assert!(is_extended(name), "{name}");
        }
        for name in ["cpu", "hugepages-2Mi", "kubernetes.io/x", "sub.kubernetes.io/x", "requests.vendor.com/gpu"] {
            assert!(!is_extended(name), "{name}");
        }
    }
}

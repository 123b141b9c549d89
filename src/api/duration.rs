//! A length of time as Kubernetes objects write it: `90s`, `15m`, `1h30m`. Not a point in time.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Whole milliseconds; written in Go's form (`1h30m`, `250ms`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }
    /// For arithmetic with `jiff::Timestamp`.
    pub fn signed(self) -> jiff::SignedDuration {
        jiff::SignedDuration::try_from(self.0).unwrap_or(jiff::SignedDuration::MAX)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration: want numbers with units, like 90s, 15m or 1h30m")]
pub struct NotADuration(String);

impl FromStr for Duration {
    type Err = NotADuration;
    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let no = || NotADuration(text.to_owned());
        if text == "0" {
            return Ok(Self::default());
        }
        let (mut rest, mut millis) = (text, 0u64);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(no)?;
            let number: u64 = rest[..digits].parse().map_err(|_| no())?;
            rest = &rest[digits..];
            let (unit, length) = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
                .into_iter()
                .find(|(unit, _)| rest.starts_with(unit))
                .ok_or_else(no)?;
            rest = &rest[unit.len()..];
            millis = number.checked_mul(length).and_then(|n| millis.checked_add(n)).ok_or_else(no)?;
        }
        if text.is_empty() { Err(no()) } else { Ok(Self(std::time::Duration::from_millis(millis))) }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, length, next) in
            [("h", 3_600_000, u128::MAX), ("m", 60_000, 3_600_000), ("s", 1_000, 60_000), ("ms", 1, 1_000)]
        {
            let count = millis % next / length;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 20, "pattern": "^(0|([0-9]+(ms|s|m|h))+)$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["90s", "1m30s", "15m", "1h30m", "250ms", "0s", "26h"] {
            let read: Duration = text.parse().unwrap();
            assert_eq!(read, read.to_string().parse().unwrap(), "{text}");
        }
        assert_eq!("90s".parse::<Duration>().unwrap().to_string(), "1m30s");
        for text in ["", "5", "m", "1d", "-3s", "1s ", "99999999999999999999h"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }
}

//! Pictures as text, JSON and YAML. Pure: what is shown was decided elsewhere.

pub mod kmm;
pub mod plan;
pub mod progress;
#[cfg(test)]
pub mod sample;
pub mod status;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::{Failure, text};

/// Indented JSON with a line end, harmless on a terminal.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let json =
        serde_json::to_string_pretty(value).map_err(|error| Failure::environment(format!("cannot write JSON: {error}")))?;
    Ok(format!("{}\n", text::plain_json(&json)))
}

/// The same on one line, for streams.
pub fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(|error| Failure::environment(format!("cannot write JSON: {error}")))?;
    Ok(format!("{}\n", text::plain_json(&json)))
}

/// A YAML document, harmless on a terminal.
pub fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let yaml = serde_saphyr::to_string(value).map_err(|error| Failure::environment(format!("cannot write YAML: {error}")))?;
    Ok(text::plain_lines(&yaml).into_owned())
}

//! What a simulated pod does, read from its annotations `sim.lockkeeper.dev/...`. See the table in [`super`].

use super::super::records::Map;
use std::time::Duration;

/// Prefix of all annotations that tell a simulated pod or node what to do.
pub const PREFIX: &str = "sim.lockkeeper.dev/";

/// The part that a pod plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Part {
    /// Runs, and opens whatever its resource requests, claims and volumes give it.
    #[default]
    Plain,
    /// Loads a module when it starts, never unloads it.
    Loader,
    /// Serves an extended resource.
    DevicePlugin,
    /// Serves a DRA driver.
    DraDriver,
    /// Serves a CSI driver.
    CsiNodePlugin,
    /// Unloads a module and exits.
    Unload,
    /// As plain, and opens a module's device directly.
    Claimant,
}

/// A pod's behaviour with its parameters.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    pub part: Part,
    pub module: Option<String>,
    pub version: Option<String>,
    pub resource: Option<String>,
    pub driver: Option<String>,
    pub devices: Option<i64>,
    pub force: bool,
    pub wait_for_module: bool,
    pub crash: bool,
    pub unready: bool,
    pub exit_code: i64,
    pub exit_after: Option<Duration>,
    pub pull: Option<Duration>,
    pub init: Option<Duration>,
    pub start: Option<Duration>,
    pub ready: Option<Duration>,
    pub stop: Option<Duration>,
}

impl Behaviour {
    #[must_use]
    pub fn parse(annotations: &Map) -> Self {
        let get = |name: &str| annotations.get(&format!("{PREFIX}{name}"));
        let seconds = |name: &str| {
            get(name)
                .and_then(|text| text.parse::<f64>().ok())
                .filter(|s| s.is_finite() && *s >= 0.0)
                .map(Duration::from_secs_f64)
        };
        let flag = |name: &str| get(name).is_some_and(|text| text == "true");
        let part = match get("behaviour").map(String::as_str) {
            Some("loader") => Part::Loader,
            Some("device-plugin") => Part::DevicePlugin,
            Some("dra-driver") => Part::DraDriver,
            Some("csi-node-plugin") => Part::CsiNodePlugin,
            Some("unload") => Part::Unload,
            Some("claimant") => Part::Claimant,
            _ => Part::Plain,
        };
        Self {
            part,
            module: get("module").cloned(),
            version: get("version").cloned(),
            resource: get("resource").cloned(),
            driver: get("driver").cloned(),
            devices: get("devices").and_then(|text| text.parse().ok()),
            force: flag("force"),
            wait_for_module: get("init").is_some_and(|text| text == "wait-for-module"),
            crash: flag("crash"),
            unready: flag("unready"),
            exit_code: get("exit-code").and_then(|text| text.parse().ok()).unwrap_or(0),
            exit_after: seconds("exit-after-seconds"),
            pull: seconds("pull-seconds"),
            init: seconds("init-seconds"),
            start: seconds("start-seconds"),
            ready: seconds("ready-seconds"),
            stop: seconds("stop-seconds"),
        }
    }

    /// Module and version, if both are named.
    #[must_use]
    pub fn module_version(&self) -> Option<(String, String)> {
        Some((self.module.clone()?, self.version.clone()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_and_garbage_is_plain() {
        let annotations: Map = [
            ("behaviour", "device-plugin"),
            ("module", "gpu"),
            ("version", "2.0"),
            ("devices", "4"),
            ("init", "wait-for-module"),
            ("stop-seconds", "1.5"),
        ]
        .into_iter()
        .map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()))
        .collect();
        let behaviour = Behaviour::parse(&annotations);
        assert_eq!(behaviour.part, Part::DevicePlugin);
        assert_eq!(behaviour.module_version(), Some(("gpu".into(), "2.0".into())));
        assert_eq!(
            (behaviour.devices, behaviour.wait_for_module, behaviour.stop),
            (Some(4), true, Some(Duration::from_millis(1500)))
        );
        assert_eq!(Behaviour::parse(&[(format!("{PREFIX}behaviour"), "x".into())].into()).part, Part::Plain);
    }
}

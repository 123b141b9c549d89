//! How long things take on the simulated machines. All of it is drawn from the seed.

use super::super::clock::Range;
use std::time::Duration;

/// Timing and defaults of all kubelets of one cluster. The defaults are those of a small, quick, but not ideal cluster.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Node objects that somebody else creates get a machine too.
    pub adopt: bool,
    pub pull: Range,
    pub init: Range,
    pub start: Range,
    pub ready: Range,
    /// From SIGTERM to the end of a process (at most the pod's grace period).
    pub stop: Range,
    /// How long an unload takes.
    pub unload: Range,
    /// From a device plugin's start or end to the change of the node's allocatable.
    pub allocatable_lag: Range,
    /// From a DRA driver's start to its ResourceSlices.
    pub slice_lag: Range,
    /// From a DRA driver's end to the removal of its slices (30 s in a real kubelet).
    pub slice_wipe: Duration,
    /// How long the attacher of a CSI driver takes to attach or detach a volume.
    pub attach: Range,
    /// How late a kubelet sees a change of its Node's labels, when it admits pods.
    pub label_lag: Range,
    /// Before a pod is refused for the node's labels, the API server is asked for them, as kubelets do from 1.35 on (kubernetes#134445).
    pub asks_for_labels: bool,
    pub lease_interval: Duration,
    /// Node status is written on change, and at least this often.
    pub status_interval: Duration,
    pub crash_backoff: Duration,
    pub crash_backoff_max: Duration,
    /// How long a machine is down in a reboot, and how long its node is NotReady after it.
    pub boot: Range,
    pub not_ready: Range,
    /// Devices of a plugin that names no number.
    pub devices: i64,
    /// Extended resources that machines have without a plugin.
    pub static_resources: Vec<String>,
    /// Keys handled at the same time.
    pub workers: usize,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            adopt: true,
            pull: Range::millis(100, 1500),
            init: Range::millis(100, 500),
            start: Range::millis(300, 1500),
            ready: Range::millis(200, 1000),
            stop: Range::millis(300, 2000),
            unload: Range::millis(500, 2500),
            allocatable_lag: Range::millis(500, 10_000),
            slice_lag: Range::millis(500, 3000),
            slice_wipe: Duration::from_secs(30),
            attach: Range::millis(300, 3000),
            label_lag: Range::ZERO,
            asks_for_labels: false,
            lease_interval: Duration::from_secs(10),
            status_interval: Duration::from_secs(300),
            crash_backoff: Duration::from_secs(10),
            crash_backoff_max: Duration::from_secs(300),
            boot: Range::millis(30_000, 60_000),
            not_ready: Range::millis(2000, 8000),
            devices: 8,
            static_resources: Vec::new(),
            workers: 64,
        }
    }
}

impl KubeletOptions {
    /// The machines have this extended resource without a plugin.
    #[must_use]
    pub fn is_static(&self, resource: &str) -> bool {
        self.static_resources.iter().any(|known| known == resource)
    }

    /// For tests that do not care: everything takes a few milliseconds, devices included.
    #[must_use]
    pub fn quick() -> Self {
        let soon = Range::millis(5, 20);
        Self {
            pull: soon,
            init: soon,
            start: soon,
            ready: soon,
            stop: soon,
            unload: soon,
            allocatable_lag: soon,
            slice_lag: soon,
            slice_wipe: Duration::from_secs(1),
            attach: soon,
            boot: Range::millis(1000, 2000),
            not_ready: Range::millis(200, 400),
            ..Self::default()
        }
    }
}

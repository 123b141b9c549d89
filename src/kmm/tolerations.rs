//! The toleration trap: KMM drops a module from every node with a NoSchedule or NoExecute taint that the Module does not tolerate, a
//! cordon's and a silent kubelet's included, and unloads it under whatever runs there.

use super::records::{ModuleRecord, Toleration};
use crate::fleet::records::Taint;

/// Taints that KMM tolerates for load and unload by itself.
const PRESSURE: [&str; 3] =
    ["node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure"];

/// What Kubernetes itself puts on nodes that are cordoned, or whose kubelet is unwell or silent.
const COMMON: [(&str, &str); 5] = [
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
];

/// Whether one toleration covers the taint.
#[must_use]
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "Exists" => true,
            "" | "Equal" => !toleration.key.is_empty() && toleration.value == taint.value,
            _ => false,
        }
}

/// The first taint for which KMM takes the module off the node.
#[must_use]
pub fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        matches!(&*taint.effect, "NoSchedule" | "NoExecute")
            && !(PRESSURE.contains(&&*taint.key) && &*taint.effect == "NoSchedule")
            && !tolerations.iter().any(|toleration| covers(toleration, taint))
    })
}

/// What a Module does not tolerate of what Kubernetes itself may put on any node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trap {
    /// A cordon, and so every drain, makes KMM unload.
    pub cordon: bool,
    /// So does a kubelet that is NotReady or silent for a moment.
    pub not_ready: bool,
    /// `key:effect` of each of these taints that is not tolerated.
    pub taints: Vec<String>,
}

impl Trap {
    /// None: the Module tolerates cordon, NotReady and unreachable.
    #[must_use]
    pub fn of(tolerations: &[Toleration]) -> Option<Self> {
        let taint = |(key, effect): (&str, &str)| Taint { key: key.into(), value: "".into(), effect: effect.into() };
        let open: Vec<Taint> = COMMON
            .into_iter()
            .map(taint)
            .filter(|taint| untolerated(std::slice::from_ref(taint), tolerations).is_some())
            .collect();
        let (cordon, others): (Vec<&Taint>, Vec<&Taint>) = open.iter().partition(|taint| taint.key.ends_with("unschedulable"));
        (!open.is_empty()).then(|| Self {
            cordon: !cordon.is_empty(),
            not_ready: !others.is_empty(),
            taints: open.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect(),
        })
    }

    /// What sets it off.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match (self.cordon, self.not_ready) {
            (true, true) => "a cordon, a drain, or a moment of NotReady",
            (true, false) => "a cordon or a drain",
            _ => "a moment of NotReady",
        }
    }
}

/// The lines to add to the Module's `spec`, as they stand in its YAML. They close the trap for every taint.
pub const LINES: &str = "  tolerations:\n  - operator: Exists";

/// The command that adds them and keeps the tolerations that are there.
#[must_use]
pub fn command(module: &ModuleRecord) -> String {
    let (path, value) = if module.tolerations.is_empty() {
        ("/spec/tolerations", r#"[{"operator":"Exists"}]"#)
    } else {
        ("/spec/tolerations/-", r#"{"operator":"Exists"}"#)
    };
    format!(
        r#"kubectl -n {} patch modules.kmm.sigs.x-k8s.io {} --type=json -p '[{{"op":"add","path":"{path}","value":{value}}}]'"#,
        module.key.namespace, module.key.name
    )
}

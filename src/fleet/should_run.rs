//! Whether the DaemonSet controller would make a pod of a template on a node: `K/pkg/controller/daemon` NodeShouldRunDaemonPod. A cordon
//! (`spec.unschedulable`) is not asked; the taint that comes with it is tolerated by every DaemonSet pod.

use super::records::*;

/// The pod that is deleted there comes back.
///
/// # Errors
/// Why it would not, as a sentence that names label or taint.
pub fn should_run(node: &NodeRecord, template: &TemplateRecord) -> Result<(), String> {
    selected(node, template)?;
    let untolerated = node
        .taints
        .iter()
        .filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"))
        .find(|taint| !is_tolerated(taint, template));
    match untolerated {
        None => Ok(()),
        Some(taint) => {
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            Err(format!("taint {}{value}:{} is not tolerated by its pod template", taint.key, taint.effect))
        }
    }
}

/// The template's node selector and required affinity match, whatever the taints.
///
/// # Errors
/// Which of them does not.
pub fn selected(node: &NodeRecord, template: &TemplateRecord) -> Result<(), String> {
    let unmatched = template.node_selector.iter().find(|(key, value)| node.labels.get(*key) != Some(*value));
    if let Some((key, value)) = unmatched {
        return Err(format!("its pod template selects nodes with the label {key}={value}"));
    }
    if template.terms.is_empty() || template.terms.iter().any(|term| !term.is_empty() && term.iter().all(|it| matches(it, node)))
    {
        Ok(())
    } else {
        Err("the node affinity of its pod template does not match".to_owned())
    }
}

fn matches(requirement: &Requirement, node: &NodeRecord) -> bool {
    let value: Option<&str> = match requirement.field {
        true if &*requirement.key == "metadata.name" => Some(node.name.as_str()),
        true => return false,
        false => node.labels.get(&*requirement.key).map(|value| &**value),
    };
    let among = |value: &str| requirement.values.iter().any(|known| **known == *value);
    let number = |value: &str| value.parse::<i64>().ok();
    let bound = || requirement.values.first().and_then(|value| number(value));
    match &*requirement.operator {
        "In" => value.is_some_and(among),
        "NotIn" => value.is_none_or(|value| !among(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// By the template, or by what the controller adds to every pod that it makes.
fn is_tolerated(taint: &Taint, template: &TemplateRecord) -> bool {
    let added = match (&*taint.key, &*taint.effect) {
        ("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable", "NoExecute")
        | (
            "node.kubernetes.io/disk-pressure"
            | "node.kubernetes.io/memory-pressure"
            | "node.kubernetes.io/pid-pressure"
            | "node.kubernetes.io/unschedulable",
            "NoSchedule",
        ) => true,
        ("node.kubernetes.io/network-unavailable", "NoSchedule") => template.host_network,
        _ => false,
    };
    let tolerates = |toleration: &Toleration| {
        let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
        let key = match &*toleration.operator {
            "Exists" => toleration.key.is_empty() || toleration.key == taint.key,
            _ => toleration.key == taint.key && toleration.value == taint.value,
        };
        effect && key
    };
    added || template.tolerations.iter().any(tolerates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::build::*;

    fn template(change: impl FnOnce(&mut TemplateRecord)) -> TemplateRecord {
        let mut template = TemplateRecord::default();
        change(&mut template);
        template
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration { key: key.into(), operator: operator.into(), value: value.into(), effect: effect.into() }
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
        let values = values.iter().map(|value| (*value).into()).collect();
        Requirement { field: key == "metadata.name", key: key.into(), operator: operator.into(), values }
    }

    #[test]
    fn every_taint_but_those_that_daemon_pods_tolerate_keeps_the_next_pod_away() {
        let node = |key: &str, value: &str, effect: &str| {
            let mut node = node("n1").build();
            node.taints.push(Taint { key: key.into(), value: value.into(), effect: effect.into() });
            node
        };
        let table = [
            (node("node.kubernetes.io/unschedulable", "", "NoSchedule"), template(|_| {}), true),
            (node("node.kubernetes.io/disk-pressure", "", "NoSchedule"), template(|_| {}), true),
            (node("node.kubernetes.io/not-ready", "", "NoExecute"), template(|_| {}), true),
            (node("node.kubernetes.io/not-ready", "", "NoSchedule"), template(|_| {}), false),
            (node("node.kubernetes.io/network-unavailable", "", "NoSchedule"), template(|_| {}), false),
            (node("node.kubernetes.io/network-unavailable", "", "NoSchedule"), template(|it| it.host_network = true), true),
            (node("gpu", "yes", "PreferNoSchedule"), template(|_| {}), true),
            (node("gpu", "yes", "NoSchedule"), template(|_| {}), false),
            (node("gpu", "yes", "NoExecute"), template(|_| {}), false),
            (node("gpu", "yes", "NoSchedule"), template(|it| it.tolerations = vec![toleration("", "Exists", "", "")]), true),
            (node("gpu", "yes", "NoSchedule"), template(|it| it.tolerations = vec![toleration("gpu", "", "yes", "")]), true),
            (node("gpu", "yes", "NoSchedule"), template(|it| it.tolerations = vec![toleration("gpu", "Equal", "no", "")]), false),
            (
                node("gpu", "yes", "NoExecute"),
                template(|it| it.tolerations = vec![toleration("gpu", "Exists", "", "NoSchedule")]),
                false,
            ),
        ];
        for (node, template, wanted) in table {
            let said = should_run(&node, &template);
            assert_eq!(said.is_ok(), wanted, "{:?} {:?}: {said:?}", node.taints, template.tolerations);
        }
    }

    #[test]
    fn selector_and_affinity_choose_by_labels_and_name() {
        let node = node("n1").label("zone", "a").label("cores", "8").build();
        let table = [
            (vec![vec![requirement("metadata.name", "In", &["n1"])]], true),
            (vec![vec![requirement("metadata.name", "In", &["n2"])]], false),
            (vec![vec![requirement("zone", "In", &["b"])], vec![requirement("zone", "Exists", &[])]], true),
            (vec![vec![requirement("zone", "In", &["a"]), requirement("cores", "Gt", &["8"])]], false),
            (vec![vec![requirement("cores", "Lt", &["9"])]], true),
            (vec![vec![requirement("zone", "NotIn", &["a"])]], false),
            (vec![vec![requirement("edge", "DoesNotExist", &[])]], true),
            (vec![vec![]], false),
        ];
        for (terms, wanted) in table {
            assert_eq!(should_run(&node, &template(|it| it.terms = terms.clone())).is_ok(), wanted, "{terms:?}");
        }
        assert!(should_run(&node, &template(|it| _ = it.node_selector.insert("zone".into(), "b".into()))).is_err());
    }
}

//! Matching: label selectors, node affinity, taints and tolerations. Pure.

use super::records::{LabelSelector, Map, Node, NodeSelector, NodeTerm, PodSpec, Requirement, Taint, Toleration};

fn requirement(requirement: &Requirement, value: Option<&String>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| requirement.values.contains(value)),
        "NotIn" => value.is_none_or(|value| !requirement.values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let (Some(have), Some(want)) = (value.and_then(|v| number(v)), requirement.values.first().and_then(|v| number(v)))
            else {
                return false;
            };
            if operator == "Gt" { have > want } else { have < want }
        }
        _ => false,
    }
}

/// A label selector; the empty one matches everything.
#[must_use]
pub fn labels_match(selector: &LabelSelector, labels: &Map) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|r| requirement(r, labels.get(&r.key)))
}

fn term(term: &NodeTerm, node: &Node) -> bool {
    // An empty term matches nothing.
    (!term.match_expressions.is_empty() || !term.match_fields.is_empty())
        && term.match_expressions.iter().all(|r| requirement(r, node.metadata.labels.get(&r.key)))
        && term.match_fields.iter().all(|r| r.key == "metadata.name" && requirement(r, Some(&node.metadata.name)))
}

/// A node selector (required affinity, volume or claim topology): any of its terms.
#[must_use]
pub fn node_selector_matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|t| term(t, node))
}

/// `nodeSelector` and required node affinity of a pod.
#[must_use]
pub fn pod_matches_node(pod: &PodSpec, node: &Node) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        && pod.affinity.node_affinity.required.as_ref().is_none_or(|required| node_selector_matches(required, node))
}

/// Whether one toleration covers the taint.
#[must_use]
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => toleration.value == taint.value && !toleration.key.is_empty(),
            _ => false,
        }
}

#[must_use]
pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| covers(toleration, taint))
}

/// The first taint of one of these effects that is not tolerated.
#[must_use]
pub fn untolerated<'a>(node: &'a Node, tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    node.spec.taints.iter().find(|taint| effects.contains(&taint.effect.as_str()) && !tolerated(tolerations, taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_follow_kubernetes() {
        let taint = Taint { key: "a".into(), value: "x".into(), effect: "NoSchedule".into(), time_added: None };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
            toleration_seconds: None,
        };
        assert!(covers(&toleration("", "Exists", "", ""), &taint));
        assert!(covers(&toleration("a", "", "x", "NoSchedule"), &taint));
        assert!(!covers(&toleration("a", "Equal", "y", ""), &taint));
        assert!(!covers(&toleration("a", "Exists", "", "NoExecute"), &taint));
    }

    #[test]
    fn empty_selector_matches_all_and_empty_term_nothing() {
        assert!(labels_match(&LabelSelector::default(), &Map::new()));
        assert!(!node_selector_matches(&NodeSelector { node_selector_terms: vec![NodeTerm::default()] }, &Node::default()));
    }
}

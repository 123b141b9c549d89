//! Label selectors: does this selector match these labels? Where selectors come from is not its business.

use std::collections::BTreeMap;

use super::records::Str;
use crate::api::component::{LabelOperator, LabelSelector, LabelSelectorRequirement};

/// What a field of type `LabelSelector` selects: left out (null) it selects nothing, empty (`{}`) everything, as in
/// `policy/v1` PodDisruptionBudgets.
pub fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<Str, Str>) -> bool {
    selector.is_some_and(|selector| matches(selector, labels))
}

/// Every label and every expression must hold; an empty selector matches everything, as in Kubernetes.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<Str, Str>) -> bool {
    matches_all(&selector.match_labels, labels) && selector.match_expressions.iter().all(|it| holds(it, labels))
}

/// Every pair is there; no pair at all matches everything.
pub fn matches_all(pairs: &BTreeMap<String, String>, labels: &BTreeMap<Str, Str>) -> bool {
    pairs.iter().all(|(key, value)| labels.get(key.as_str()).is_some_and(|found| **found == **value))
}

/// It has no condition, so it matches everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

/// A missing label satisfies NotIn, as in Kubernetes.
fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<Str, Str>) -> bool {
    let found = labels.get(requirement.key.as_str());
    let listed = || found.is_some_and(|value| requirement.values.iter().any(|wanted| **wanted == **value));
    match requirement.operator {
        LabelOperator::In => listed(),
        LabelOperator::NotIn => !listed(),
        LabelOperator::Exists => found.is_some(),
        LabelOperator::DoesNotExist => found.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<Str, Str> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn by_label(key: &str, value: &str) -> LabelSelector {
        LabelSelector { match_labels: [(key.to_owned(), value.to_owned())].into(), ..LabelSelector::default() }
    }

    #[test]
    fn null_selects_nothing_and_empty_selects_everything() {
        for labels in [labels(&[]), labels(&[("app", "db")])] {
            assert!(!selects(None, &labels));
            assert!(selects(Some(&LabelSelector::default()), &labels));
        }
        assert!(is_empty(&LabelSelector::default()) && !is_empty(&by_label("app", "db")));
    }

    #[test]
    fn an_expression_holds_as_in_kubernetes() {
        let labels = labels(&[("app", "db"), ("tier", "")]);
        let table = [
            ("app", LabelOperator::In, &["db", "web"][..], true),
            ("app", LabelOperator::In, &["web"], false),
            ("app", LabelOperator::NotIn, &["web"], true),
            ("app", LabelOperator::NotIn, &["db"], false),
            ("none", LabelOperator::NotIn, &["db"], true),
            ("none", LabelOperator::In, &["db"], false),
            ("tier", LabelOperator::In, &[""], true),
            ("tier", LabelOperator::Exists, &[], true),
            ("none", LabelOperator::Exists, &[], false),
            ("tier", LabelOperator::DoesNotExist, &[], false),
            ("none", LabelOperator::DoesNotExist, &[], true),
        ];
        for (key, operator, values, expected) in table {
            let requirement =
                LabelSelectorRequirement { key: key.into(), operator, values: values.iter().map(|v| (*v).into()).collect() };
            let selector = LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() };
            assert_eq!(matches(&selector, &labels), expected, "{key} {operator:?} {values:?}");
        }
    }

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let labels = labels(&[("app", "db"), ("tier", "back")]);
        assert!(matches(&by_label("app", "db"), &labels));
        assert!(!matches(&by_label("app", "web"), &labels));
        let mut both = by_label("app", "db");
        both.match_labels.insert("tier".into(), "front".into());
        assert!(!matches(&both, &labels));
        let mut mixed = by_label("app", "db");
        mixed.match_expressions =
            vec![LabelSelectorRequirement { key: "tier".into(), operator: LabelOperator::DoesNotExist, values: Vec::new() }];
        assert!(!matches(&mixed, &labels));
    }
}

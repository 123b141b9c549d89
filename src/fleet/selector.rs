//! Label selectors: does this selector match these labels?

use std::collections::BTreeMap;

use super::records::Str;
use crate::api::component::{LabelOperator, LabelSelector, LabelSelectorRequirement};

/// An empty selector matches everything, as in Kubernetes.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<Str, Str>) -> bool {
    matches_all(&selector.match_labels, labels) && selector.match_expressions.iter().all(|it| expression(it, labels))
}

/// Every pair is there; none matches everything.
pub fn matches_all(pairs: &BTreeMap<String, String>, labels: &BTreeMap<Str, Str>) -> bool {
    pairs.iter().all(|(key, value)| labels.get(key.as_str()).is_some_and(|found| **found == **value))
}

fn expression(requirement: &LabelSelectorRequirement, labels: &BTreeMap<Str, Str>) -> bool {
    let found = labels.get(requirement.key.as_str());
    let listed = found.is_some_and(|value| requirement.values.iter().any(|wanted| **wanted == **value));
    match requirement.operator {
        LabelOperator::In => listed,
        LabelOperator::NotIn => !listed,
        LabelOperator::Exists => found.is_some(),
        LabelOperator::DoesNotExist => found.is_none(),
    }
}

/// It has no condition, so it matches everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let labels: BTreeMap<Str, Str> = [("app".into(), "db".into()), ("tier".into(), "".into())].into();
        let table = [
            ("app", LabelOperator::In, &["db", "web"][..], true),
            ("app", LabelOperator::In, &["web"], false),
            ("app", LabelOperator::NotIn, &["web"], true),
            ("app", LabelOperator::NotIn, &["db"], false),
            ("none", LabelOperator::NotIn, &["db"], true),
            ("none", LabelOperator::In, &["db"], false),
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
        let by_label = |value: &str| LabelSelector { match_labels: [("app".into(), value.into())].into(), ..Default::default() };
        assert!(matches(&by_label("db"), &labels));
        assert!(!matches(&by_label("web"), &labels));
        assert!(matches(&LabelSelector::default(), &labels));
    }
}

//! Which budgets may select a pod, without asking each of its namespace: by one label that a budget's selector demands.

use std::collections::BTreeMap;

use super::records::{BudgetRecord, Labels, Str};
use crate::api::ObjectKey;

#[derive(Debug, Default)]
pub(super) struct BudgetIndex {
    /// By namespace.
    namespaces: BTreeMap<Str, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// By key and value of the first label that the selector demands.
    by_label: BTreeMap<Str, BTreeMap<Str, Vec<ObjectKey>>>,
    /// Those whose selector demands no exact label.
    others: Vec<ObjectKey>,
}

impl BudgetIndex {
    pub fn put(&mut self, budget: &BudgetRecord) {
        let Some(selector) = &budget.selector else { return };
        let namespace = self.namespaces.entry(budget.key.namespace.clone()).or_default();
        match selector.match_labels.first_key_value() {
            Some((key, value)) => {
                let values = namespace.by_label.entry(key.as_str().into()).or_default();
                values.entry(value.as_str().into()).or_default().push(budget.key.clone());
            }
            None => namespace.others.push(budget.key.clone()),
        }
    }

    pub fn take(&mut self, budget: &BudgetRecord) {
        let Some(selector) = &budget.selector else { return };
        let Some(namespace) = self.namespaces.get_mut(&budget.key.namespace) else { return };
        match selector.match_labels.first_key_value() {
            Some((key, value)) => {
                if let Some(values) = namespace.by_label.get_mut(key.as_str()) {
                    if let Some(budgets) = values.get_mut(value.as_str()) {
                        budgets.retain(|known| *known != budget.key);
                        if budgets.is_empty() {
                            values.remove(value.as_str());
                        }
                    }
                    if values.is_empty() {
                        namespace.by_label.remove(key.as_str());
                    }
                }
            }
            None => namespace.others.retain(|known| *known != budget.key),
        }
    }

    /// Budgets that may select pods of this namespace with these labels; all that do are among them.
    pub fn candidates<'i>(&'i self, namespace: &str, labels: &'i Labels) -> impl Iterator<Item = &'i ObjectKey> {
        let namespace = self.namespaces.get(namespace);
        let by_label = namespace.into_iter().flat_map(|namespace| &namespace.by_label);
        let by_label = by_label.filter_map(|(key, values)| values.get(labels.get(key)?)).flatten();
        by_label.chain(namespace.into_iter().flat_map(|namespace| &namespace.others))
    }
}

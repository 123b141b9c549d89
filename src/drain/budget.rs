//! What PodDisruptionBudgets say about a pod before anybody asks the server: which select it, their arithmetic, whether it may be
//! evicted now, later or never. Not the eviction's answer (`eviction`), and no sentence about a handoff (`blockers`).
//!
//! Rules from `pkg/registry/core/pod/storage/eviction.go` and `pkg/controller/disruption` of Kubernetes.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    api::{ObjectKey, Uid},
    fleet::{
        records::{BudgetRecord, Owner, PodPhase, PodRecord, Str},
        selector,
        view::{BudgetView, Unhealthy},
    },
    handoff::verdict::BlockerKind,
};

/// Budgets of a cluster, as a FleetView has them.
pub type Budgets = BTreeMap<ObjectKey, Arc<BudgetView>>;

/// What the server would do with an eviction, as far as the budgets tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// No budget selects the pod.
    Unbudgeted,
    /// The server asks no budget: the pod is Pending, has ended, or is being deleted.
    Skipped,
    /// The budget allows this many disruptions now.
    Allowed {
        budget: Arc<BudgetView>,
        disruptions: i32,
    },
    /// The pod is not Ready, and the budget lets such pods go without being spent.
    UnhealthyAllowed {
        budget: Arc<BudgetView>,
    },
    Blocked(Block),
}

/// Why an eviction is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub class: BudgetClass,
    /// One, or for [`BudgetClass::TwoBudgets`] all that select the pod. Never empty.
    pub budgets: Vec<Arc<BudgetView>>,
}

/// A sync that failed is no more than lag for so long. The disruption controller looks for the owners of a budget's pods in caches of its
/// own: a ReplicaSet that is not in them yet fails the sync, and one of the next clears that. An owner without a scale fails every one.
pub const SYNC_LAG: Duration = Duration::from_secs(60);

/// Whether waiting helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetClass {
    /// It cannot allow a disruption as it is written, however healthy its pods become.
    Permanent,
    /// It allows one as soon as enough of its pods are Ready.
    Waiting,
    /// The disruption controller has not computed it (again) yet.
    ControllerLag,
    /// The disruption controller could not compute it, less than [`SYNC_LAG`] ago: it passes, or turns out to be permanent.
    SyncFailing,
    /// More than one selects the pod: the server refuses that always.
    TwoBudgets,
}

impl BudgetClass {
    pub fn blocker(self) -> BlockerKind {
        match self {
            Self::Permanent | Self::TwoBudgets => BlockerKind::DisruptionBudgetNever,
            Self::Waiting => BlockerKind::DisruptionBudget,
            Self::ControllerLag | Self::SyncFailing => BlockerKind::DisruptionBudgetLag,
        }
    }

    /// Only a person can change it.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::Permanent | Self::TwoBudgets)
    }
}

/// The budgets that select a pod: those of its namespace whose selector matches its labels.
pub fn of<'a>(pod: &'a PodRecord, budgets: &'a Budgets) -> impl Iterator<Item = &'a Arc<BudgetView>> {
    let first = ObjectKey { namespace: pod.key.namespace.clone(), name: Str::default() };
    budgets
        .range(first..)
        .take_while(|(key, _)| key.namespace == pod.key.namespace)
        .map(|(_, view)| view)
        .filter(|view| selector::selects(view.record.selector.as_ref(), &pod.labels))
}

/// Whether the pod may be evicted as things stand: the prediction that a plan shows before any write, and what the drain acts on.
/// The server stays the judge; this is what keeps us from asking it in vain.
pub fn standing(pod: &PodRecord, budgets: &Budgets, now: Timestamp) -> Standing {
    // Such a pod is deleted straight away, whatever its budgets say.
    if pod.phase == PodPhase::Pending || pod.phase.is_terminal() || pod.meta.deletion.is_some() {
        return Standing::Skipped;
    }
    let found: Vec<_> = of(pod, budgets).cloned().collect();
    let budget = match found.as_slice() {
        [] => return Standing::Unbudgeted,
        [budget] => budget.clone(),
        _ => return Standing::Blocked(Block { class: BudgetClass::TwoBudgets, budgets: found }),
    };
    let record = &budget.record;
    let within_budget = record.desired_healthy > 0 && record.current_healthy >= record.desired_healthy;
    // Looked at before the generation and before what is allowed, as the server does.
    if !pod.ready.is_true() && (record.always_allow_unhealthy || within_budget) {
        return Standing::UnhealthyAllowed { budget };
    }
    match class(&budget, now) {
        None => Standing::Allowed { disruptions: record.disruptions_allowed, budget },
        Some(class) => Standing::Blocked(Block { class, budgets: found }),
    }
}

/// None: it allows a disruption of a healthy pod now.
pub fn class(budget: &BudgetView, now: Timestamp) -> Option<BudgetClass> {
    let record = &budget.record;
    // A sync that fails leaves the numbers and the generation that it observed as they were: only its age tells it from lag.
    if record.sync_failed.is_some() {
        let passes = lasts_from(record).is_some_and(|from| now < from);
        return Some(if passes { BudgetClass::SyncFailing } else { BudgetClass::Permanent });
    }
    // A negative allowance is a status in the making: the server refuses it with 403.
    if record.observed_generation < record.generation || record.disruptions_allowed < 0 {
        return Some(BudgetClass::ControllerLag);
    }
    if record.disruptions_allowed > 0 {
        return None;
    }
    let expected = expected(budget);
    let never = expected > 0 && record.desired_healthy >= expected;
    Some(if never { BudgetClass::Permanent } else { BudgetClass::Waiting })
}

/// From when on a sync that failed counts as one that always will. None: the last one did not fail, or nothing says when.
pub fn lasts_from(record: &BudgetRecord) -> Option<Timestamp> {
    let since = record.sync_failed.as_ref()?.since?;
    since.checked_add(SYNC_LAG).ok()
}

/// How many pods there should be. With an integer `minAvailable` the server's `expectedPods` counts only the pods that exist now, so
/// that a missing one would look like a block for ever: there the owners' replicas count, when they are known.
pub fn expected(budget: &BudgetView) -> i32 {
    let record = &budget.record;
    let by_number = record.min_available.as_ref().is_some_and(|text| text.parse::<i64>().is_ok());
    match budget.wanted {
        Some(wanted) if by_number => wanted.max(record.expected_pods),
        _ => record.expected_pods,
    }
}

/// `needs 2 healthy of 3, has 2, allows 0`.
pub fn arithmetic(budget: &BudgetView) -> String {
    let record = &budget.record;
    format!(
        "needs {} healthy of {}, has {}, allows {}",
        record.desired_healthy,
        expected(budget),
        record.current_healthy,
        record.disruptions_allowed
    )
}

/// Who holds the missing health: `shop/db-1 on n2 is not Ready`; or what else is missing. Empty when nothing is.
pub fn culprits(budget: &BudgetView) -> String {
    const NAMED: usize = 4;
    let mut text = String::new();
    for one in budget.unhealthy.iter().take(NAMED) {
        let at = one.node.as_ref().map_or_else(|| " (no node)".to_owned(), |node| format!(" on {node}"));
        let state = if one.terminating { "is being deleted" } else { "is not Ready" };
        let _ = write!(text, "{}{}{at} {state}", if text.is_empty() { "" } else { ", " }, one.pod);
    }
    if let Some(more) = budget.unhealthy.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let _ = write!(text, ", {more} more are not healthy");
    }
    let missing = budget.wanted.map_or(0, |wanted| i64::from(wanted) - i64::from(budget.selected));
    if missing > 0 {
        let _ = write!(
            text,
            "{}{missing} of {} replicas do not exist",
            if text.is_empty() { "" } else { ", " },
            budget.wanted.unwrap_or(0)
        );
    }
    text
}

impl Block {
    /// The whole story, with what to do: `PodDisruptionBudget shop/db needs 2 healthy of 3, has 2, allows 0; shop/db-1 on n2 is not
    /// Ready. ...`
    pub fn sentence(&self) -> String {
        let Some(budget) = self.budgets.first() else { return "a PodDisruptionBudget does not allow it".to_owned() };
        let (record, name) = (&budget.record, &budget.record.key);
        match self.class {
            BudgetClass::TwoBudgets => {
                let names: Vec<_> = self.budgets.iter().map(|it| it.record.key.to_string()).collect();
                format!(
                    "PodDisruptionBudgets {} all select it, and the server refuses evictions under more than one: change a selector, or \
                     delete one of them",
                    names.join(" and ")
                )
            }
            BudgetClass::ControllerLag => format!(
                "PodDisruptionBudget {name} is not computed yet (generation {}, observed {}, allows {}): this passes by itself in \
                 seconds; if not, look at kube-controller-manager",
                record.generation, record.observed_generation, record.disruptions_allowed
            ),
            BudgetClass::SyncFailing => {
                let why = record.sync_failed.as_ref().map(|it| &*it.message).unwrap_or_default();
                format!(
                    "PodDisruptionBudget {name} could not be computed a moment ago: SyncFailed, {why}. This passes by itself in seconds, \
                     unless its pods' owner has no scale"
                )
            }
            BudgetClass::Permanent => match record.sync_failed.as_ref().map(|it| &it.message) {
                Some(why) => format!(
                    "PodDisruptionBudget {name} can never allow it: SyncFailed, {why}. Its pods' owner has no scale: give the budget an \
                     integer minAvailable, or a selector without those pods"
                ),
                None => format!(
                    "PodDisruptionBudget {name} can never allow it: {}{}. Raise the replicas, change {}, or add an override for the pod",
                    arithmetic(budget),
                    limit(record).map_or_else(String::new, |text| format!(" ({text})")),
                    if record.max_unavailable.is_some() { "maxUnavailable" } else { "minAvailable" },
                ),
            },
            BudgetClass::Waiting => {
                let why = match culprits(budget) {
                    text if !text.is_empty() => text,
                    _ if record.current_healthy > record.desired_healthy => {
                        "the last disruption is still being counted".to_owned()
                    }
                    _ => "it waits for another of its pods to be Ready".to_owned(),
                };
                let hint = if budget.unhealthy.iter().any(|one| !one.terminating) && !record.always_allow_unhealthy {
                    ". Repair those pods; unhealthyPodEvictionPolicy: AlwaysAllow lets pods that are not Ready go"
                } else {
                    ""
                };
                format!("PodDisruptionBudget {name} {}; {why}{hint}", arithmetic(budget))
            }
        }
    }
}

fn limit(record: &BudgetRecord) -> Option<String> {
    match (&record.min_available, &record.max_unavailable) {
        (Some(text), _) => Some(format!("minAvailable: {text}")),
        (None, Some(text)) => Some(format!("maxUnavailable: {text}")),
        (None, None) => None,
    }
}

/// A budget with the pods that it selects: how a BudgetView is made. `pods` are those of its namespace (others are left out);
/// `replicas` gives `spec.replicas` of the ReplicaSet or StatefulSet that is a pod's owner, None when it is not known.
pub fn observe<'a>(
    record: Arc<BudgetRecord>,
    pods: impl IntoIterator<Item = &'a PodRecord>,
    replicas: impl Fn(&ObjectKey, &Owner) -> Option<i32>,
) -> BudgetView {
    let (mut selected, mut unhealthy) = (0u32, Vec::new());
    // By the owner's UID: its replicas count once.
    let mut owners: BTreeMap<Uid, Option<i32>> = BTreeMap::new();
    let mut unowned = false;
    for pod in pods {
        let counts = pod.key.namespace == record.key.namespace
            && !pod.phase.is_terminal()
            && selector::selects(record.selector.as_ref(), &pod.labels);
        if !counts {
            continue;
        }
        selected = selected.saturating_add(1);
        let terminating = pod.meta.deletion.is_some();
        if terminating || !pod.ready.is_true() {
            unhealthy.push(Unhealthy { pod: pod.key.clone(), node: pod.node.clone(), terminating });
        }
        match &pod.owner {
            None => unowned = true,
            Some(owner) => {
                owners.entry(owner.uid.clone()).or_insert_with(|| {
                    replicas(&ObjectKey { namespace: pod.key.namespace.clone(), name: owner.name.clone() }, owner)
                });
            }
        }
    }
    unhealthy.sort_by(|a, b| a.pod.cmp(&b.pod));
    let sum = owners.values().try_fold(0i32, |sum, replicas| replicas.map(|n| sum.saturating_add(n)));
    BudgetView { record, selected, unhealthy, wanted: sum.filter(|_| !unowned) }
}

/// Budgets with room for at most one disruption, and how many of these pods each holds.
pub fn tight<'p>(pods: impl Iterator<Item = &'p PodRecord>, budgets: &Budgets) -> BTreeMap<ObjectKey, usize> {
    let mut tight = BTreeMap::new();
    let of = pods.flat_map(|pod| of(pod, budgets)).filter(|budget| budget.record.disruptions_allowed <= 1);
    of.for_each(|budget| *tight.entry(budget.record.key.clone()).or_default() += 1);
    tight
}

/// Tight budgets over which two nodes that drain at the same time may wait for each other for ever, since what has left finds no place while
/// both are closed: two of them, one for each to be spent by; or one that holds more than one pod of a node.
pub fn contended(one: &BTreeMap<ObjectKey, usize>, other: &BTreeMap<ObjectKey, usize>) -> Vec<ObjectKey> {
    let both = one.iter().filter_map(|(key, own)| Some((key, *own, *other.get(key)?)));
    let shared: Vec<(&ObjectKey, bool)> = both.map(|(key, own, others)| (key, own.max(others) > 1)).collect();
    let mutual = shared.len() > 1 || shared.iter().any(|(_, several)| *several);
    if mutual { shared.into_iter().map(|(key, _)| key.clone()).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests;

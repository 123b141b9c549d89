//! The three version labels of a Module on a node, and KMM's table of what it does with them: 13 combinations, of which it leaves five
//! alone for ever. Which generation wrote them is kept.

use std::collections::BTreeMap;

use super::keys::{Era, Label};
use crate::{api::ObjectKey, fleet::records::Str};

/// What the labels say. An empty value is a missing label to KMM, and so it is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Triple {
    pub desired: Option<Str>,
    pub loader: Option<Str>,
    pub schedule: Option<Str>,
    /// Labels of a generation that the newest one does not read any more.
    pub outdated: Vec<String>,
    /// `.ready` and `.version.ready`, as KMM set them.
    pub ready: bool,
    pub version_ready: Option<Str>,
    pub target: bool,
    pub plugin_ready: bool,
}

impl Triple {
    #[must_use]
    pub fn of(labels: &BTreeMap<Str, Str>, module: &ObjectKey) -> Self {
        let get = |label: Label| {
            let keys = label.keys(module);
            let newest = label.key(module, Era::Third);
            let found: Vec<(String, Str)> =
                keys.into_iter().filter_map(|key| labels.get(&*key).map(|value| (key, value.clone()))).collect();
            let outdated: Vec<String> =
                found.iter().map(|(key, _)| key.clone()).filter(|key| newest.as_ref() != Some(key)).collect();
            (found.into_iter().next().map(|(_, value)| value), outdated)
        };
        let filled = |value: Option<Str>| value.filter(|value| !value.is_empty());
        let ((desired, _), (loader, old_loader), (schedule, old_schedule)) =
            (get(Label::Desired), get(Label::Loader), get(Label::Schedule));
        Self {
            desired: filled(desired),
            loader: filled(loader),
            schedule: filled(schedule),
            outdated: old_loader.into_iter().chain(old_schedule).collect(),
            ready: get(Label::Ready).0.is_some(),
            version_ready: filled(get(Label::VersionReady).0),
            target: get(Label::Target).0.is_some(),
            plugin_ready: get(Label::PluginReady).0.is_some() || get(Label::DraReady).0.is_some(),
        }
    }

    fn against(&self, value: Option<&Str>) -> Held {
        match (value, &self.desired) {
            (None, _) => Held::Missing,
            (Some(value), Some(desired)) if value != desired => Held::Different,
            (Some(_), _) => Held::Present,
        }
    }

    /// The row of KMM's table.
    #[must_use]
    pub fn row(&self) -> Row {
        let (loader, schedule) = (self.against(self.loader.as_ref()), self.against(self.schedule.as_ref()));
        Row::of(self.desired.is_some(), loader, schedule)
    }
}

/// A label of KMM's beside the desired one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    Missing,
    /// Equal to the desired one, or that one is missing.
    Present,
    Different,
}

/// KMM's next move with the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Nothing,
    RemoveSchedule,
    /// Once no pod of the plugin or DRA driver is on the node.
    RemoveLoader,
    /// Once `.ready` is gone.
    AddLoader,
    AddSchedule,
    /// Nothing, for ever: the table has no such row.
    Stuck,
}

/// A combination of the three labels, numbered as in KMM's table with its gaps (9 to 13 are the gaps).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row(pub u8);

impl Row {
    /// Total: combinations that cannot be (a copy that differs from a desired label that is missing) count as present.
    #[must_use]
    pub fn of(desired: bool, loader: Held, schedule: Held) -> Self {
        use Held::{Different, Missing, Present};
        Self(match (desired, loader, schedule) {
            (false, Missing, Missing) => 1,
            (false, Present | Different, Present | Different) => 2,
            (false, Present | Different, Missing) => 3,
            (true, Missing, Missing) => 4,
            (true, Present, Missing) => 5,
            (true, Present, Present) => 6,
            (true, Different, Different) => 7,
            (true, Different, Missing) => 8,
            (false, Missing, Present | Different) => 9,
            (true, Missing, Present) => 10,
            (true, Missing, Different) => 11,
            (true, Present, Different) => 12,
            (true, Different, Present) => 13,
        })
    }

    #[must_use]
    pub fn moves(self) -> Move {
        match self.0 {
            1 | 6 => Move::Nothing,
            2 | 7 => Move::RemoveSchedule,
            3 | 8 => Move::RemoveLoader,
            4 => Move::AddLoader,
            5 => Move::AddSchedule,
            _ => Move::Stuck,
        }
    }

    #[must_use]
    pub fn stuck(self) -> bool {
        self.moves() == Move::Stuck
    }
}

//! Which rows the fleet list has and in which order. Rebuilt when the picture, the filter or the order changes, never per frame.

use std::cmp::Ordering;

use indexmap::IndexMap;

use super::{
    facts::{Facts, Progress, RowKey, Standing, row_key},
    filter::Filter,
    format,
};
use crate::{
    api::{ComponentKey, NodeName},
    engine::picture::Picture,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A component and what it has; counts do not follow the filter.
    Group(ComponentKey),
    Row(RowKey),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// As the queue goes: what runs, what failed, the queue, what is behind, what is done.
    #[default]
    Upgrade,
    Name,
    Version,
    /// Longest in its phase first.
    Age,
}

impl Order {
    pub fn next(self) -> Self {
        match self {
            Self::Upgrade => Self::Name,
            Self::Name => Self::Version,
            Self::Version => Self::Age,
            Self::Age => Self::Upgrade,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade order",
            Self::Name => "name",
            Self::Version => "version",
            Self::Age => "age",
        }
    }
}

/// The list: groups and rows in order, with what each component has.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub filter: Filter,
    pub order: Order,
    /// Only this component.
    pub only: Option<ComponentKey>,
    items: Vec<Item>,
    progress: IndexMap<ComponentKey, Progress>,
    shown: usize,
    total: usize,
    /// Cells of the longest node name and of the longest version listed.
    widest: (usize, usize),
    built: Option<(u64, u64)>,
    changes: u64,
}

struct Sorted<'a> {
    standing: Standing,
    position: usize,
    name: Vec<u8>,
    facts: Facts<'a>,
}

/// What is gathered of a component while the nodes are gone through.
struct Group<'a> {
    key: &'a ComponentKey,
    progress: Progress,
    rows: Vec<Sorted<'a>>,
}

/// The component's group; components that are gone and left something on a node get one, too.
fn group<'g, 'a>(groups: &'g mut Vec<Group<'a>>, key: &'a ComponentKey) -> &'g mut Group<'a> {
    let at = groups.binary_search_by(|group| group.key.cmp(key)).unwrap_or_else(|at| {
        groups.insert(at, Group { key, progress: Progress::default(), rows: Vec::new() });
        at
    });
    &mut groups[at]
}

impl Rows {
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Rows shown and rows there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.shown, self.total)
    }

    /// Cells of the longest node name and of the longest version listed.
    pub fn widest(&self) -> (usize, usize) {
        self.widest
    }

    pub fn progress(&self) -> &IndexMap<ComponentKey, Progress> {
        &self.progress
    }

    /// The filter, the order or the component was changed.
    pub fn touch(&mut self) {
        self.changes += 1;
    }

    pub fn index_of(&self, key: &RowKey) -> Option<usize> {
        self.items.iter().position(|item| matches!(item, Item::Row(row) if row == key))
    }

    pub fn row(&self, at: usize) -> Option<&RowKey> {
        match self.items.get(at)? {
            Item::Row(key) => Some(key),
            Item::Group(_) => None,
        }
    }

    /// The row `by` rows from `at`, not wrapping: the last one reached when there are fewer.
    pub fn step(&self, at: usize, by: isize) -> Option<usize> {
        let mut found = None;
        let mut left = by.unsigned_abs();
        let mut here = at;
        while left > 0 {
            let Some(next) = here.checked_add_signed(by.signum()).filter(|next| *next < self.items.len()) else { break };
            here = next;
            if self.row(here).is_some() {
                found = Some(here);
                left -= 1;
            }
        }
        found.or_else(|| self.row(at).map(|_| at))
    }

    pub fn first(&self) -> Option<usize> {
        self.items.iter().position(|item| matches!(item, Item::Row(_)))
    }

    pub fn last(&self) -> Option<usize> {
        self.items.iter().rposition(|item| matches!(item, Item::Row(_)))
    }

    /// Builds the list anew if something it rests on has changed.
    pub fn refresh(&mut self, picture: &Picture, epoch: u64) {
        let wanted = Some((epoch, self.changes));
        if self.built == wanted {
            return;
        }
        self.built = wanted;
        (self.shown, self.total, self.widest) = (0, 0, (0, 0));
        let mut groups = Vec::new();
        for key in picture.fleet.components.keys() {
            group(&mut groups, key);
        }
        let places = places(picture);
        for node in picture.fleet.nodes.iter() {
            for (key, occupancy) in &node.components {
                if !occupancy.selected && occupancy.handoff.is_none() && occupancy.labels == Default::default() {
                    continue;
                }
                let facts = Facts::new(picture, node, key, occupancy);
                let standing = facts.standing();
                let group = group(&mut groups, key);
                count(&mut group.progress, &facts, standing);
                self.total += 1;
                if self.only.as_ref().is_some_and(|only| only != key) || !self.filter.accepts(&facts) {
                    continue;
                }
                let version = facts.version().map_or(0, |version| format::width(version.as_str()));
                let target = facts.target().map_or(0, format::width);
                self.widest.0 = self.widest.0.max(format::width(node.name.as_str()));
                self.widest.1 = self.widest.1.max(version).max(target);
                let position = match standing {
                    Standing::Queued => places.get(&(key, &node.name)).copied().unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                let name = format::natural_key(node.name.as_str());
                group.rows.push(Sorted { standing, position, name, facts });
            }
        }
        self.progress = groups.iter().map(|group| (group.key.clone(), group.progress)).collect();
        self.items.clear();
        for Group { key, mut rows, .. } in groups {
            if self.only.as_ref().is_some_and(|only| only != key) {
                continue;
            }
            rows.sort_by(|a, b| compare(self.order, a, b));
            self.shown += rows.len();
            if !rows.is_empty() || self.filter.is_empty() {
                self.items.push(Item::Group(key.clone()));
            }
            self.items.extend(rows.iter().map(|row| Item::Row(row_key(key, row.facts.node))));
        }
    }
}

type Places<'a> = std::collections::BTreeMap<(&'a ComponentKey, &'a NodeName), usize>;

fn places(picture: &Picture) -> Places<'_> {
    picture.queues.iter().flat_map(|(key, nodes)| nodes.iter().enumerate().map(move |(at, node)| ((key, node), at))).collect()
}

fn count(progress: &mut Progress, facts: &Facts<'_>, standing: Standing) {
    if facts.occupancy.selected || facts.occupancy.handoff.is_some() {
        progress.total += 1;
    }
    if facts.aim().is_some_and(|aim| facts.is_current(aim)) {
        progress.current += 1;
    }
    match standing {
        Standing::Running => progress.running += 1,
        Standing::Queued => progress.queued += 1,
        Standing::Ended => progress.ended += 1,
        Standing::Behind | Standing::Current => {}
    }
    if standing == Standing::Running && facts.is_stuck() {
        progress.blocked += 1;
    }
}

fn compare(order: Order, a: &Sorted<'_>, b: &Sorted<'_>) -> Ordering {
    let name = || a.name.cmp(&b.name).then_with(|| a.facts.node.name.cmp(&b.facts.node.name));
    match order {
        Order::Upgrade => a.standing.cmp(&b.standing).then(a.position.cmp(&b.position)).then_with(name),
        Order::Name => name(),
        Order::Version => a.facts.version().cmp(&b.facts.version()).then_with(name),
        Order::Age => {
            let since = |row: &Sorted<'_>| row.facts.since().map_or(i64::MAX, |since| since.as_second());
            since(a).cmp(&since(b)).then_with(name)
        }
    }
}

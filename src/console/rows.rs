//! Which rows the fleet list has and in which order. Built when the filter or the order changes; a new picture costs what is different in
//! it; a frame costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    facts::{Facts, Progress, RowKey, Standing, row_key},
    filter::Filter,
    format,
};
use crate::{
    api::{ComponentKey, NodeName, Phase, Version},
    engine::picture::{Picture, Queues, Rank, Verdicts},
    fleet::{
        sorted::{Entry, Sorted},
        view::{FleetView, NodeList, NodeView, changed_nodes},
    },
    handoff::{action::Subject, decide::Decisions, verdict::Verdict},
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
    groups: BTreeMap<ComponentKey, Group>,
    known: BTreeMap<(NodeName, ComponentKey), Known>,
    /// Rows shown of handoffs that run or have ended badly, as the upgrade goes.
    busy: BTreeMap<(ComponentKey, Place), RowKey>,
    shown: usize,
    progress: BTreeMap<ComponentKey, Progress>,
    seen: Option<Seen>,
    built: Option<(u64, u64)>,
    changes: u64,
}

/// What the rows were made of.
#[derive(Debug, Clone)]
struct Seen {
    changes: u64,
    nodes: Arc<NodeList>,
    verdicts: Verdicts,
    queues: Queues,
    aims: Vec<(ComponentKey, Option<String>)>,
    /// Another process acts: what it has written down counts.
    elsewhere: bool,
}

/// A component's rows, and a line above them.
#[derive(Debug, Clone, Default)]
struct Group {
    rows: Sorted<Arc<Shown>>,
}

/// Where a row stands: by what the list is ordered by, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    first: First,
    name: Vec<u8>,
    node: NodeName,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum First {
    /// Those without a place in the queue come after those with one.
    Upgrade(Standing, bool, Option<Rank>),
    Name,
    Version(Option<Version>),
    Age(i64),
}

#[derive(Debug)]
struct Shown {
    place: Place,
    key: RowKey,
    /// Cells of the node's name, and of its longer version.
    wide: (usize, usize),
}

impl Entry for Arc<Shown> {
    type Key = Place;
    type Sum = (usize, usize);

    fn key(&self) -> &Place {
        &self.place
    }

    fn sum(entries: &[Self]) -> (usize, usize) {
        entries.iter().fold((0, 0), |sum, row| (sum.0.max(row.wide.0), sum.1.max(row.wide.1)))
    }
}

/// A row, shown or not.
#[derive(Debug, Clone)]
struct Known {
    progress: Progress,
    shown: Option<Arc<Shown>>,
    busy: Option<Place>,
}

impl Rows {
    /// Lines of the list.
    pub fn len(&self) -> usize {
        self.groups.values().map(|group| self.lines(group)).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A group that shows nothing is named only where nothing is filtered out.
    fn lines(&self, group: &Group) -> usize {
        group.rows.len() + usize::from(!group.rows.is_empty() || self.filter.is_empty())
    }

    /// Every line.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.groups.iter().filter(|(_, group)| self.lines(group) > 0).flat_map(|(key, group)| {
            let rows = group.rows.iter().map(|row| Item::Row(row.key.clone()));
            std::iter::once(Item::Group(key.clone())).chain(rows)
        })
    }

    /// The line at this place.
    pub fn get(&self, mut at: usize) -> Option<Item> {
        for (key, group) in &self.groups {
            match at.checked_sub(self.lines(group)) {
                Some(rest) => at = rest,
                None if at == 0 => return Some(Item::Group(key.clone())),
                None => return group.rows.at(at - 1).map(|row| Item::Row(row.key.clone())),
            }
        }
        None
    }

    /// Rows shown and rows there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.shown, self.known.len())
    }

    /// Cells of the longest node name and of the longest version listed.
    pub fn widest(&self) -> (usize, usize) {
        let sums = self.groups.values().flat_map(|group| group.rows.leaves()).map(|leaf| *leaf.sum());
        sums.fold((0, 0), |widest, sum| (widest.0.max(sum.0), widest.1.max(sum.1)))
    }

    pub fn progress(&self) -> &BTreeMap<ComponentKey, Progress> {
        &self.progress
    }

    /// Rows shown of handoffs that run or have ended badly, those of a component as the upgrade goes.
    pub fn busy(&self) -> impl Iterator<Item = &RowKey> {
        self.busy.values()
    }

    /// The filter, the order or the component was changed.
    pub fn touch(&mut self) {
        self.changes += 1;
    }

    pub fn index_of(&self, key: &RowKey) -> Option<usize> {
        let known = self.known.get(&(key.node.clone(), key.component.clone()))?.shown.as_ref().filter(|row| row.key == *key)?;
        let mut before = 0;
        for (component, group) in &self.groups {
            if *component == key.component {
                return Some(before + 1 + group.rows.place(&known.place)?);
            }
            before += self.lines(group);
        }
        None
    }

    /// Where this line is now.
    pub fn find(&self, item: &Item) -> Option<usize> {
        match item {
            Item::Row(key) => self.index_of(key),
            Item::Group(key) => {
                let group = self.groups.get(key)?;
                let before = self.groups.range(..key.clone()).map(|(_, group)| self.lines(group)).sum();
                (self.lines(group) > 0).then_some(before)
            }
        }
    }

    pub fn row(&self, at: usize) -> Option<RowKey> {
        match self.get(at)? {
            Item::Row(key) => Some(key),
            Item::Group(_) => None,
        }
    }

    /// The row `by` rows from `at`, not wrapping: the last one reached when there are fewer.
    pub fn step(&self, at: usize, by: isize) -> Option<usize> {
        let mut found = None;
        let mut left = by.unsigned_abs();
        let mut here = at;
        let lines = self.len();
        while left > 0 {
            let Some(next) = here.checked_add_signed(by.signum()).filter(|next| *next < lines) else { break };
            here = next;
            if self.row(here).is_some() {
                found = Some(here);
                left -= 1;
            }
        }
        found.or_else(|| self.row(at).map(|_| at))
    }

    pub fn first(&self) -> Option<usize> {
        let mut before = 0;
        for group in self.groups.values() {
            if !group.rows.is_empty() {
                return Some(before + 1);
            }
            before += self.lines(group);
        }
        None
    }

    pub fn last(&self) -> Option<usize> {
        let mut left = self.len();
        for group in self.groups.values().rev() {
            if !group.rows.is_empty() {
                return left.checked_sub(1);
            }
            left = left.saturating_sub(self.lines(group));
        }
        None
    }

    /// Brings the list up to date if something it rests on has changed: the nodes that are different are taken out and put in again.
    pub fn refresh(&mut self, picture: &Picture, epoch: u64) {
        let wanted = Some((epoch, self.changes));
        if self.built == wanted {
            return;
        }
        self.built = wanted;
        let seen = Seen {
            changes: self.changes,
            nodes: picture.fleet.nodes.clone(),
            verdicts: picture.verdicts.clone(),
            queues: picture.queues.clone(),
            aims: aims(&picture.fleet),
            elsewhere: picture.leadership.is_elsewhere(),
        };
        let names = self.seen.as_ref().and_then(|before| changed(before, &seen));
        match names {
            Some(names) => self.patch(picture, &names),
            None => self.build(picture),
        }
        self.seen = Some(seen);
    }

    fn build(&mut self, picture: &Picture) {
        (self.shown, self.known, self.busy) = (0, BTreeMap::new(), BTreeMap::new());
        self.progress = picture.fleet.components.keys().map(|key| (key.clone(), Progress::default())).collect();
        let mut rows: BTreeMap<ComponentKey, Vec<Arc<Shown>>> = BTreeMap::new();
        for node in picture.fleet.nodes.iter() {
            for (key, shown) in self.put(picture, node) {
                rows.entry(key).or_default().push(shown);
            }
        }
        self.groups = self.progress.keys().filter(|key| self.is_listed(key)).map(|key| (key.clone(), Group::default())).collect();
        for (key, mut rows) in rows {
            rows.sort_by(|a, b| a.place.cmp(&b.place));
            self.groups.insert(key, Group { rows: Sorted::from_sorted(rows) });
        }
    }

    fn patch(&mut self, picture: &Picture, names: &BTreeSet<NodeName>) {
        let mut edits: BTreeMap<ComponentKey, BTreeMap<Place, Option<Arc<Shown>>>> = BTreeMap::new();
        let first = |name: &NodeName| (name.clone(), ComponentKey::new("", ""));
        for name in names {
            let keys = self.known.range(first(name)..).take_while(|((node, _), _)| node == name);
            let keys: Vec<(NodeName, ComponentKey)> = keys.map(|(key, _)| key.clone()).collect();
            for key in keys {
                let Some(known) = self.known.remove(&key) else { continue };
                let component = key.1;
                if let Some(progress) = self.progress.get_mut(&component) {
                    progress.take(&known.progress);
                }
                if let Some(place) = known.busy {
                    self.busy.remove(&(component.clone(), place));
                }
                if let Some(shown) = known.shown {
                    self.shown -= 1;
                    edits.entry(component).or_default().insert(shown.place.clone(), None);
                }
            }
            if let Some(node) = picture.fleet.node(name) {
                for (component, shown) in self.put(picture, node) {
                    edits.entry(component).or_default().insert(shown.place.clone(), Some(shown));
                }
            }
        }
        for (component, edits) in edits {
            self.groups.entry(component).or_default().rows.edit(edits);
        }
        // A component that is gone has a group as long as something of it is on a node.
        let is_there = |key: &ComponentKey, progress: &Progress| picture.fleet.components.contains_key(key) || progress.rows > 0;
        self.progress.retain(|key, progress| is_there(key, progress));
        for key in self.progress.keys() {
            if self.only.as_ref().is_none_or(|only| only == key) && !self.groups.contains_key(key) {
                self.groups.insert(key.clone(), Group::default());
            }
        }
        let progress = &self.progress;
        self.groups.retain(|key, _| progress.contains_key(key));
    }

    fn is_listed(&self, component: &ComponentKey) -> bool {
        self.only.as_ref().is_none_or(|only| only == component)
    }

    /// Counts a node's rows; returns those that are shown.
    fn put(&mut self, picture: &Picture, node: &NodeView) -> Vec<(ComponentKey, Arc<Shown>)> {
        let mut rows = Vec::new();
        for (key, occupancy) in &node.components {
            if !occupancy.selected && occupancy.handoff.is_none() && occupancy.labels == Default::default() {
                continue;
            }
            let facts = Facts::new(picture, node, key, occupancy);
            let standing = facts.standing();
            let mut known = Known { progress: progress(&facts, standing), shown: None, busy: None };
            self.progress.entry(key.clone()).or_default().add(&known.progress);
            if self.is_listed(key) && self.filter.accepts(&facts) {
                let version = facts.version().map_or(0, |version| format::width(version.as_str()));
                let target = facts.target().map_or(0, format::width);
                let shown = Arc::new(Shown {
                    place: place(self.order, &facts, standing),
                    key: row_key(key, node),
                    wide: (format::width(node.name.as_str()), version.max(target)),
                });
                if matches!(standing, Standing::Running | Standing::Ended) {
                    let place = place(Order::Upgrade, &facts, standing);
                    self.busy.insert((key.clone(), place.clone()), shown.key.clone());
                    known.busy = Some(place);
                }
                self.shown += 1;
                known.shown = Some(shown.clone());
                rows.push((key.clone(), shown));
            }
            self.known.insert((node.name.clone(), key.clone()), known);
        }
        rows
    }
}

/// The nodes whose rows may be others; None: all of them.
fn changed(before: &Seen, now: &Seen) -> Option<BTreeSet<NodeName>> {
    if before.changes != now.changes || before.aims != now.aims || before.elsewhere != now.elsewhere {
        return None;
    }
    let mut names: BTreeSet<NodeName> = changed_nodes(&before.nodes, &now.nodes).into_iter().collect();
    // With most of it different, putting every node in its place one by one would cost more.
    if names.len() > now.nodes.len() / 4 + 1 {
        return None;
    }
    match (&before.verdicts, &now.verdicts) {
        (Verdicts::Decided(old), Verdicts::Decided(new)) => names.extend(decided_otherwise(old, new)),
        (Verdicts::Listed(old), Verdicts::Listed(new)) => names.extend(listed_otherwise(old, new)),
        _ => return None,
    }
    match (&before.queues, &now.queues) {
        // Where a node is in the queue is decided with it.
        (Queues::Decided(_), Queues::Decided(_)) => Some(names),
        (Queues::Listed(old), Queues::Listed(new)) => (Arc::ptr_eq(old, new) || old == new).then_some(names),
        _ => None,
    }
}

fn decided_otherwise(old: &Decisions, new: &Decisions) -> Vec<NodeName> {
    let differences = Sorted::differences(&old.nodes, &new.nodes, Arc::ptr_eq);
    differences.into_iter().filter_map(|(old, new)| new.or(old)).map(|node| node.node.clone()).collect()
}

type Listed = Arc<BTreeMap<Subject, Verdict>>;

fn listed_otherwise(old: &Listed, new: &Listed) -> Vec<NodeName> {
    if Arc::ptr_eq(old, new) {
        return Vec::new();
    }
    let subjects: BTreeSet<&Subject> = old.keys().chain(new.keys()).collect();
    let other = subjects.into_iter().filter(|subject| old.get(*subject) != new.get(*subject));
    let node = |subject: &Subject| match subject {
        Subject::Occupancy { node, .. } => Some(node.clone()),
        _ => None,
    };
    other.filter_map(node).collect()
}

/// What every row of a component is measured by.
fn aims(fleet: &FleetView) -> Vec<(ComponentKey, Option<String>)> {
    let aim = |component: &crate::fleet::view::ComponentView| component.aim().map(|aim| aim.to_string());
    fleet.components.iter().map(|(key, component)| (key.clone(), aim(component))).collect()
}

fn progress(facts: &Facts<'_>, standing: Standing) -> Progress {
    let is = usize::from;
    // As the NodeComponent's status counts: a handoff of a node that does not exist makes no node.
    let counts = facts.occupancy.selected && facts.node.record.is_some();
    let failed = standing == Standing::Ended && facts.phase() == Some(Phase::Failed);
    Progress {
        rows: 1,
        total: is(counts),
        current: is(counts && standing == Standing::Current),
        running: is(standing == Standing::Running),
        queued: is(standing == Standing::Queued),
        failed: is(failed),
        aborted: is(standing == Standing::Ended && !failed),
        blocked: is(facts.is_stuck()),
    }
}

fn place(order: Order, facts: &Facts<'_>, standing: Standing) -> Place {
    let first = match order {
        Order::Upgrade => {
            let rank = (standing == Standing::Queued).then(|| facts.picture.queues.rank(facts.key, &facts.node.name)).flatten();
            First::Upgrade(standing, rank.is_none(), rank)
        }
        Order::Name => First::Name,
        Order::Version => First::Version(facts.version().cloned()),
        Order::Age => First::Age(facts.since().map_or(i64::MAX, |since| since.as_second())),
    };
    Place { first, name: format::natural_key(facts.node.name.as_str()), node: facts.node.name.clone() }
}

#[cfg(test)]
mod tests;

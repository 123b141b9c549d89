//! One kind's records, kept in step with an API server: pages, events, re-lists. It knows nothing of what the records mean.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use super::{
    event::{Event, Record, RecordKey, Undecodable},
    keyed::Keyed,
    records::Str,
};
use crate::api::ObjectKey;

/// After this many complete lists in a row that are older than what was seen, the server is believed: its storage was restored
/// from a backup, and the next list replaces everything.
pub const STALE_LISTS: u32 = 3;

#[derive(Debug)]
struct Entry<T> {
    record: Arc<T>,
    /// The list generation that named it last.
    seen: u32,
    /// The server's storage went back in time: its next word counts, however old.
    outdated: bool,
}

/// One kind's records by key.
#[derive(Debug)]
pub struct Store<T> {
    entries: BTreeMap<ObjectKey, Entry<T>>,
    /// Rises with every list that begins. Marks on entries tell which list named them, so a re-list needs no second map.
    generation: u32,
    listing: bool,
    /// The newest resourceVersion seen on a list, an event or a bookmark.
    newest: u64,
    stale_lists: u32,
    synced: bool,
    undecodable: BTreeMap<ObjectKey, (u32, String)>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            generation: 0,
            listing: false,
            newest: 0,
            stale_lists: 0,
            synced: false,
            undecodable: BTreeMap::new(),
        }
    }
}

/// The record before and after; never both None.
pub(super) type Change<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// Resource versions are numbers that rise with every write of a kind; 0: this one is no such number, and proves nothing.
fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

impl<T: Keyed> Store<T> {
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.entries.get(key).map(|entry| &entry.record)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// Those of one namespace, by name.
    pub fn in_namespace(&self, namespace: &Str) -> impl Iterator<Item = &Arc<T>> {
        let first = ObjectKey { namespace: namespace.clone(), name: Str::default() };
        let range = self.entries.range(first..);
        let namespace = namespace.clone();
        range.take_while(move |(key, _)| key.namespace == namespace).map(|(_, entry)| &entry.record)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A list has been complete once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    pub fn undecodable(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.undecodable.iter().map(|(key, (_, reason))| (key, reason.as_str()))
    }

    /// The newest resourceVersion seen on a list, an event or a bookmark.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Applies an event; `changed` hears of each record that is different now. `pick` takes this kind's record out of a [`Record`].
    pub(super) fn apply(&mut self, event: Event, pick: impl Fn(Record) -> Option<T>, mut changed: impl FnMut(Change<T>)) {
        match event {
            Event::Init => {
                self.generation = self.generation.wrapping_add(1);
                self.listing = true;
            }
            Event::Page { records, undecodable } => {
                for record in records {
                    self.put_if_news(record, Some(self.generation), &pick, &mut changed);
                }
                for object in undecodable {
                    self.set_aside(object);
                }
            }
            Event::InitDone { resource_version } => self.init_done(number(&resource_version), changed),
            Event::Apply(record) => {
                let version = number(&record.meta().resource_version);
                // A watch that began further back tells again what is known, the ends of objects included.
                if version == 0 || version > self.newest {
                    self.newest = version;
                    self.put(record, Some(self.generation), &pick, &mut changed);
                }
            }
            // Not marked as seen: that a list under way names it is for the list to show.
            Event::Observed(record) => self.put_if_news(record, None, &pick, &mut changed),
            Event::Delete(gone) => self.delete(&gone, changed),
            Event::Bookmark { resource_version } => self.newest = self.newest.max(number(&resource_version)),
            Event::Undecodable(object) => self.set_aside(object),
        }
    }

    /// An object that is not known and not newer than what was seen is one whose end was seen: it does not come back.
    fn put_if_news(
        &mut self,
        record: Record,
        seen: Option<u32>,
        pick: &impl Fn(Record) -> Option<T>,
        changed: &mut impl FnMut(Change<T>),
    ) {
        let version = number(&record.meta().resource_version);
        if version == 0 || version > self.newest || self.entries.contains_key(&record.key()) {
            self.put(record, seen, pick, changed);
        }
    }

    /// It is there, whatever it is: what is known of it stays.
    fn set_aside(&mut self, Undecodable { key, why }: Undecodable) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.seen = self.generation;
        }
        self.undecodable.insert(key, (self.generation, why));
    }

    fn init_done(&mut self, listed: u64, mut changed: impl FnMut(Change<T>)) {
        if !std::mem::replace(&mut self.listing, false) {
            return;
        }
        self.synced = true;
        let stale = listed != 0 && listed < self.newest;
        if stale {
            self.stale_lists += 1;
            if self.stale_lists >= STALE_LISTS {
                (self.newest, self.stale_lists) = (0, 0);
                self.forget_versions();
            }
        } else {
            self.stale_lists = 0;
            self.newest = self.newest.max(listed);
        }
        let generation = self.generation;
        let mut gone = Vec::new();
        self.entries.retain(|_, entry| {
            // A list that is older than a record says nothing about it.
            let newer = listed != 0 && number(&entry.record.meta().resource_version) > listed;
            let kept = entry.seen == generation || newer;
            if !kept {
                gone.push(entry.record.clone());
            }
            kept
        });
        self.undecodable.retain(|_, (seen, _)| *seen == generation);
        gone.into_iter().for_each(|record| changed((Some(record), None)));
    }

    /// From here on every record gives way to whatever the server tells.
    fn forget_versions(&mut self) {
        for entry in self.entries.values_mut() {
            entry.outdated = true;
        }
    }

    /// `seen`: the list generation that names it; None leaves that as it was.
    fn put(
        &mut self,
        record: Record,
        seen: Option<u32>,
        pick: &impl Fn(Record) -> Option<T>,
        changed: &mut impl FnMut(Change<T>),
    ) {
        let Some(record) = pick(record) else { return };
        let key = record.key();
        if !self.undecodable.is_empty() {
            self.undecodable.remove(&key);
        }
        match self.entries.entry(key) {
            btree_map::Entry::Vacant(entry) => {
                let record = Arc::new(record);
                let seen = seen.unwrap_or(self.generation.wrapping_sub(1));
                entry.insert(Entry { record: record.clone(), seen, outdated: false });
                changed((None, Some(record)));
            }
            btree_map::Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                entry.seen = seen.unwrap_or(entry.seen);
                let (known, new) = (entry.record.meta(), record.meta());
                let (known_number, new_number) = (number(&known.resource_version), number(&new.resource_version));
                let same = known.uid == new.uid && known.resource_version == new.resource_version;
                // Older, or a namesake from before: versions rise from one object of a name to the next.
                if !entry.outdated && (same || (new_number != 0 && new_number < known_number)) {
                    return;
                }
                let record = Arc::new(record);
                entry.outdated = false;
                let old = std::mem::replace(&mut entry.record, record.clone());
                changed((Some(old), Some(record)));
            }
        }
    }

    /// The end of an object. Another one under the same name, with another UID, stays.
    fn delete(&mut self, gone: &RecordKey, mut changed: impl FnMut(Change<T>)) {
        self.undecodable.remove(&gone.key);
        let known = self.entries.get(&gone.key).map(|entry| &entry.record.meta().uid);
        if known.is_some_and(|uid| gone.uid.as_str().is_empty() || *uid == gone.uid)
            && let Some(entry) = self.entries.remove(&gone.key)
        {
            changed((Some(entry.record), None));
        }
    }
}

#[cfg(test)]
mod tests;

//! A sorted list that is cheap to copy and cheap to change: its entries lie in leaves, copies share every leaf that is the same in them, and
//! each leaf knows a sum of its entries, so that what concerns a whole fleet need not be gathered from every node. It does not know what
//! the entries are.

use std::{collections::BTreeMap, sync::Arc};

/// What leaves are filled to. In tests small fleets have many leaves, too.
const FULL: usize = if cfg!(test) { 4 } else { 64 };
/// A leaf with more entries is divided.
const MOST: usize = FULL + FULL / 2;
/// A leaf with fewer entries joins the one before it.
const LEAST: usize = FULL / 4 + 1;

pub trait Entry: Clone {
    type Key: Ord;
    type Sum: std::fmt::Debug;
    fn key(&self) -> &Self::Key;
    /// A pure function of the entries.
    fn sum(entries: &[Self]) -> Self::Sum;
}

#[derive(Debug)]
pub struct Leaf<T: Entry> {
    entries: Vec<T>,
    sum: T::Sum,
}

impl<T: Entry> Leaf<T> {
    fn new(entries: Vec<T>) -> Arc<Self> {
        Arc::new(Self { sum: T::sum(&entries), entries })
    }

    /// Never empty.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    pub fn sum(&self) -> &T::Sum {
        &self.sum
    }

    fn starts_at(&self) -> Option<&T::Key> {
        self.entries.first().map(Entry::key)
    }
}

#[derive(Debug)]
pub struct Sorted<T: Entry> {
    leaves: Arc<Vec<Arc<Leaf<T>>>>,
    len: usize,
}

impl<T: Entry> Clone for Sorted<T> {
    fn clone(&self) -> Self {
        Self { leaves: self.leaves.clone(), len: self.len }
    }
}

impl<T: Entry> Default for Sorted<T> {
    fn default() -> Self {
        Self { leaves: Arc::default(), len: 0 }
    }
}

impl<T: Entry> Sorted<T> {
    /// The entries must be sorted by key, each key once.
    pub fn from_sorted(entries: Vec<T>) -> Self {
        let (len, mut leaves) = (entries.len(), Vec::new());
        fill(&mut leaves, entries);
        Self { leaves: Arc::new(leaves), len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.leaves.iter().flat_map(|leaf| &leaf.entries)
    }

    pub fn leaves(&self) -> impl DoubleEndedIterator<Item = &Arc<Leaf<T>>> {
        self.leaves.iter()
    }

    pub fn get(&self, key: &T::Key) -> Option<&T> {
        let after = self.leaves.partition_point(|leaf| leaf.starts_at().is_some_and(|first| first <= key));
        let leaf = self.leaves.get(after.checked_sub(1)?)?;
        leaf.entries.binary_search_by(|entry| entry.key().cmp(key)).ok().and_then(|at| leaf.entries.get(at))
    }

    /// The entry at this place, from 0.
    pub fn at(&self, mut place: usize) -> Option<&T> {
        for leaf in self.leaves.iter() {
            match place.checked_sub(leaf.entries.len()) {
                Some(rest) => place = rest,
                None => return leaf.entries.get(place),
            }
        }
        None
    }

    /// The place of the entry with this key, from 0.
    pub fn place(&self, key: &T::Key) -> Option<usize> {
        let leaf = self.leaves.partition_point(|leaf| leaf.starts_at().is_some_and(|first| first <= key)).checked_sub(1)?;
        let at = self.leaves.get(leaf)?.entries.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
        Some(self.leaves.iter().take(leaf).map(|leaf| leaf.entries.len()).sum::<usize>() + at)
    }

    /// Puts entries under their keys, or takes them away.
    pub fn edit(&mut self, changes: BTreeMap<T::Key, Option<T>>) {
        if changes.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.leaves);
        let mut changes = changes.into_iter().peekable();
        let mut leaves = Vec::with_capacity(old.len() + 1);
        for (at, leaf) in old.iter().enumerate() {
            let end = old.get(at + 1).and_then(|next| next.starts_at());
            let mut own = Vec::new();
            while let Some(change) = changes.next_if(|(key, _)| end.is_none_or(|end| key < end)) {
                own.push(change);
            }
            if own.is_empty() {
                leaves.push(leaf.clone());
                continue;
            }
            let before = leaf.entries.len();
            let entries = merged(&leaf.entries, own);
            self.len = self.len + entries.len() - before;
            match leaves.last() {
                Some(last) if entries.len() < LEAST && last.entries.len() + entries.len() <= MOST => {
                    let joined = last.entries.iter().cloned().chain(entries).collect();
                    leaves.pop();
                    leaves.push(Leaf::new(joined));
                }
                _ => fill(&mut leaves, entries),
            }
        }
        // Of an empty list.
        let rest: Vec<T> = changes.filter_map(|(_, entry)| entry).collect();
        self.len += rest.len();
        fill(&mut leaves, rest);
        self.leaves = Arc::new(leaves);
    }

    /// Gives every leaf other entries under the same keys; None: they stay.
    pub fn rewrite(&mut self, mut with: impl FnMut(&Leaf<T>) -> Option<Vec<T>>) {
        let mut leaves: Option<Vec<Arc<Leaf<T>>>> = None;
        for (at, leaf) in self.leaves.iter().enumerate() {
            if let Some(entries) = with(leaf)
                && let Some(place) = leaves.get_or_insert_with(|| self.leaves.to_vec()).get_mut(at)
            {
                *place = Leaf::new(entries);
            }
        }
        if let Some(leaves) = leaves {
            self.leaves = Arc::new(leaves);
        }
    }

    /// Entries of `new` that are not, by `same`, what `old` has under their keys, and keys that only `old` has.
    pub fn differences<'a>(old: &'a Self, new: &'a Self, same: impl Fn(&T, &T) -> bool) -> Vec<(Option<&'a T>, Option<&'a T>)> {
        if Arc::ptr_eq(&old.leaves, &new.leaves) {
            return Vec::new();
        }
        let mut differences = Vec::new();
        let (mut before, mut after) = (Walk::new(&old.leaves), Walk::new(&new.leaves));
        loop {
            if let (Some(a), Some(b)) = (before.whole(), after.whole())
                && Arc::ptr_eq(a, b)
            {
                before.next_leaf();
                after.next_leaf();
                continue;
            }
            match (before.entry(), after.entry()) {
                (Some(a), Some(b)) => match a.key().cmp(b.key()) {
                    std::cmp::Ordering::Equal => {
                        if !same(a, b) {
                            differences.push((Some(a), Some(b)));
                        }
                        before.next();
                        after.next();
                    }
                    std::cmp::Ordering::Less => {
                        differences.push((Some(a), None));
                        before.next();
                    }
                    std::cmp::Ordering::Greater => {
                        differences.push((None, Some(b)));
                        after.next();
                    }
                },
                (Some(a), None) => {
                    differences.push((Some(a), None));
                    before.next();
                }
                (None, Some(b)) => {
                    differences.push((None, Some(b)));
                    after.next();
                }
                (None, None) => return differences,
            }
        }
    }
}

/// A place in a list of leaves.
struct Walk<'a, T: Entry> {
    leaves: &'a [Arc<Leaf<T>>],
    leaf: usize,
    at: usize,
}

impl<'a, T: Entry> Walk<'a, T> {
    fn new(leaves: &'a [Arc<Leaf<T>>]) -> Self {
        Self { leaves, leaf: 0, at: 0 }
    }

    /// The leaf, if nothing of it has been passed.
    fn whole(&self) -> Option<&'a Arc<Leaf<T>>> {
        self.leaves.get(self.leaf).filter(|_| self.at == 0)
    }

    fn entry(&self) -> Option<&'a T> {
        self.leaves.get(self.leaf)?.entries.get(self.at)
    }

    fn next(&mut self) {
        self.at += 1;
        if self.leaves.get(self.leaf).is_some_and(|leaf| self.at >= leaf.entries.len()) {
            self.next_leaf();
        }
    }

    fn next_leaf(&mut self) {
        (self.leaf, self.at) = (self.leaf + 1, 0);
    }
}

/// New leaves after the others.
fn fill<T: Entry>(leaves: &mut Vec<Arc<Leaf<T>>>, entries: Vec<T>) {
    if entries.is_empty() {
        return;
    }
    if entries.len() <= MOST {
        leaves.push(Leaf::new(entries));
        return;
    }
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        leaves.push(Leaf::new(entries.by_ref().take(FULL).collect()));
    }
}

fn merged<T: Entry>(entries: &[T], changes: Vec<(T::Key, Option<T>)>) -> Vec<T> {
    let mut merged = Vec::with_capacity(entries.len() + changes.len());
    let mut old = entries.iter().peekable();
    for (key, new) in changes {
        while let Some(kept) = old.next_if(|entry| *entry.key() < key) {
            merged.push(kept.clone());
        }
        old.next_if(|entry| *entry.key() == key);
        merged.extend(new);
    }
    merged.extend(old.cloned());
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Pair(u16, u32);

    impl Entry for Pair {
        type Key = u16;
        type Sum = u64;
        fn key(&self) -> &u16 {
            &self.0
        }
        fn sum(entries: &[Self]) -> u64 {
            entries.iter().map(|pair| u64::from(pair.1)).sum()
        }
    }

    type Map = BTreeMap<u16, u32>;

    fn check(list: &Sorted<Pair>, map: &Map) {
        assert_eq!(list.iter().map(|pair| (pair.0, pair.1)).collect::<Vec<_>>(), map.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(list.len(), map.len());
        assert!(list.leaves().all(|leaf| (1..=MOST).contains(&leaf.entries().len())));
        for (at, key) in map.keys().enumerate() {
            assert_eq!(list.at(at).map(|pair| pair.0), Some(*key));
            assert_eq!(list.place(key), Some(at));
        }
        assert_eq!(list.at(map.len()), None);
        let sums: u64 = list.leaves().map(|leaf| *leaf.sum()).sum();
        assert_eq!(sums, map.values().copied().map(u64::from).sum::<u64>());
    }

    proptest! {
        #[test]
        fn any_edits_leave_it_as_a_map_would_be_and_older_copies_as_they_were(
            first in proptest::collection::btree_map(0u16..600, any::<u32>(), 0..500),
            edits in proptest::collection::vec(proptest::collection::btree_map(0u16..700, proptest::option::of(any::<u32>()), 0..60), 1..12),
        ) {
            let mut map = first.clone();
            let mut list = Sorted::from_sorted(first.iter().map(|(key, value)| Pair(*key, *value)).collect());
            check(&list, &map);
            for edit in edits {
                let (before, known) = (list.clone(), map.clone());
                list.edit(edit.iter().map(|(key, value)| (*key, value.map(|value| Pair(*key, value)))).collect());
                for (key, value) in &edit {
                    match value {
                        Some(value) => map.insert(*key, *value),
                        None => map.remove(key),
                    };
                }
                check(&list, &map);
                check(&before, &known);
                for key in 0..700 {
                    prop_assert_eq!(list.get(&key).map(|pair| pair.1), map.get(&key).copied());
                }
                let expected: Vec<u16> = (0..700).filter(|key| known.get(key) != map.get(key)).collect();
                let found = Sorted::differences(&before, &list, |a, b| a == b);
                let found: Vec<u16> = found.iter().filter_map(|(a, b)| a.or(*b)).map(|pair| pair.0).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn one_change_makes_one_leaf_anew() {
        let list = Sorted::from_sorted((0..5000).map(|key| Pair(key, 1)).collect());
        assert!(list.leaves().count() > 20);
        let mut other = list.clone();
        other.edit([(2500, Some(Pair(2500, 2)))].into());
        let kept = list.leaves().zip(other.leaves()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(kept, list.leaves().count() - 1);
        other.rewrite(|leaf| {
            leaf.entries().iter().any(|pair| pair.0 == 7).then(|| leaf.entries().iter().map(|it| Pair(it.0, 9)).collect())
        });
        assert_eq!(other.get(&7), Some(&Pair(7, 9)));
        assert_eq!(list.get(&7), Some(&Pair(7, 1)));
    }
}

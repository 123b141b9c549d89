//! Large collections of which every picture holds one, though hardly anything differs from picture to picture. Copying 5,000 entries for
//! one change would cost more than everything else, so the copy of the picture before the last is brought up to date instead, once
//! nobody holds it any more.

use std::{collections::BTreeMap, sync::Arc};

use super::view::{NodeList, NodeView};
use crate::api::ObjectKey;

/// What is known to be different, and how to make it so.
pub(super) trait Patch: Clone {
    type Delta: Clone;
    fn patch(&mut self, delta: &Self::Delta);
    fn size(&self) -> usize;
}

#[derive(Debug)]
pub(super) struct Shared<M: Patch> {
    current: Arc<M>,
    /// An older state, and what it lacks.
    spare: Option<Arc<M>>,
    lacks: Vec<M::Delta>,
}

impl<M: Patch + Default> Default for Shared<M> {
    fn default() -> Self {
        Self { current: Arc::default(), spare: None, lacks: Vec::new() }
    }
}

impl<M: Patch> Shared<M> {
    pub fn get(&self) -> &Arc<M> {
        &self.current
    }

    /// Everything is another.
    pub fn replace(&mut self, with: M) -> Arc<M> {
        self.spare = None;
        self.lacks.clear();
        std::mem::replace(&mut self.current, Arc::new(with))
    }

    pub fn patch(&mut self, deltas: Vec<M::Delta>) {
        if deltas.is_empty() {
            return;
        }
        if let Some(current) = Arc::get_mut(&mut self.current) {
            deltas.iter().for_each(|delta| current.patch(delta));
            self.lacks.extend(deltas);
        } else {
            let mut next = self.spare.take().unwrap_or_else(|| self.current.clone());
            match Arc::get_mut(&mut next) {
                Some(spare) => self.lacks.iter().chain(&deltas).for_each(|delta| spare.patch(delta)),
                None => {
                    let mut copy = M::clone(&self.current);
                    deltas.iter().for_each(|delta| copy.patch(delta));
                    next = Arc::new(copy);
                }
            }
            self.spare = Some(std::mem::replace(&mut self.current, next));
            self.lacks = deltas;
        }
        // An old state keeps old entries alive: not worth it when it lacks much.
        if self.lacks.len() > self.current.size() / 8 {
            self.spare = None;
            self.lacks.clear();
        }
    }
}

impl Patch for NodeList {
    /// The node is in the list already.
    type Delta = Arc<NodeView>;

    fn patch(&mut self, delta: &Arc<NodeView>) {
        if let Ok(at) = self.binary_search_by(|node| node.name.cmp(&delta.name))
            && let Some(node) = self.get_mut(at)
        {
            *node = delta.clone();
        }
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl<V: Clone> Patch for BTreeMap<ObjectKey, V> {
    type Delta = (ObjectKey, Option<V>);

    fn patch(&mut self, (key, value): &Self::Delta) {
        match value {
            Some(value) => self.insert(key.clone(), value.clone()),
            None => self.remove(key),
        };
    }

    fn size(&self) -> usize {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Map = BTreeMap<ObjectKey, u32>;

    fn key(number: u32) -> ObjectKey {
        ObjectKey::new("ns", format!("k{number:04}"))
    }

    #[test]
    fn older_pictures_never_change_and_the_newest_is_always_right() {
        let mut shared = Shared::<Map>::default();
        shared.replace((0..1000).map(|number| (key(number), 0)).collect());
        let mut expected = Map::clone(shared.get());
        // Pictures are held for a while, as a console that is slow holds them.
        let mut held: Vec<(Arc<Map>, Map)> = Vec::new();
        for step in 1..500u32 {
            let deltas: Vec<_> = (0..step % 4)
                .map(|at| {
                    let number = (step * 7 + at * 13) % 1100;
                    (key(number), (step % 5 != 0).then_some(step))
                })
                .collect();
            deltas.iter().for_each(|delta| expected.patch(delta));
            shared.patch(deltas);
            assert_eq!(**shared.get(), expected, "step {step}");
            held.push((shared.get().clone(), expected.clone()));
            if step % 3 == 0 {
                held.drain(..held.len().min(2));
            }
            assert!(held.iter().all(|(picture, then)| **picture == *then), "step {step}");
        }
    }

    #[test]
    fn two_states_take_turns_when_only_the_last_picture_is_held() {
        let mut shared = Shared::<Map>::default();
        shared.replace((0..1000).map(|number| (key(number), 0)).collect());
        let mut addresses = Vec::new();
        let mut last = shared.get().clone();
        for step in 1..10 {
            shared.patch(vec![(key(step), Some(step))]);
            addresses.push(Arc::as_ptr(shared.get()));
            last = shared.get().clone();
        }
        assert_eq!(last.len(), 1000);
        addresses.sort();
        addresses.dedup();
        assert!(addresses.len() <= 3, "{addresses:?}");
    }
}

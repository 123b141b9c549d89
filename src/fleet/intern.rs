//! Interning: one allocation for each text and each label map, however many objects repeat it. Forgets what nobody holds any more.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use indexmap::{Equivalent, IndexSet};

use super::records::{Labels, Str};

/// Below this size a sweep is not worth its time.
const SMALL: usize = 4096;

/// Repeated texts and label maps. One per decoder; not shared between threads.
#[derive(Debug, Default)]
pub struct Interner {
    texts: IndexSet<Str>,
    labels: IndexSet<Entry>,
    sweep_texts_at: usize,
    sweep_labels_at: usize,
}

impl Interner {
    /// The one copy of this text.
    pub fn text(&mut self, text: &str) -> Str {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_texts_at.max(SMALL) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_texts_at = self.texts.len() * 2;
        }
        let text = Str::from(text);
        self.texts.insert(text.clone());
        text
    }

    /// The one copy of this label map. The pairs are sorted here, as an API server sends them sorted already.
    pub fn labels<T: AsRef<str>>(&mut self, pairs: &mut [(T, T)]) -> Labels {
        if !pairs.is_sorted_by(|a, b| a.0.as_ref() < b.0.as_ref()) {
            pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        }
        if let Some(known) = self.labels.get(&Pairs(pairs)) {
            return known.0.clone();
        }
        if self.labels.len() >= self.sweep_labels_at.max(SMALL) {
            self.labels.retain(|entry| Arc::strong_count(&entry.0) > 1);
            self.sweep_labels_at = self.labels.len() * 2;
        }
        let map = pairs.iter().map(|(key, value)| (self.text(key.as_ref()), self.text(value.as_ref()))).collect();
        let map = Labels::new(map);
        self.labels.insert(Entry(map.clone()));
        map
    }

    /// Texts and label maps that are kept now.
    pub fn len(&self) -> (usize, usize) {
        (self.texts.len(), self.labels.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Entry(Labels);

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_pairs(self.0.iter().map(|(key, value)| (&**key, &**value)), state);
    }
}

struct Pairs<'p, T>(&'p [(T, T)]);

impl<T: AsRef<str>> Hash for Pairs<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_pairs(self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref())), state);
    }
}

impl<T: AsRef<str>> Equivalent<Entry> for Pairs<'_, T> {
    fn equivalent(&self, entry: &Entry) -> bool {
        self.0.len() == entry.0.len()
            && self
                .0
                .iter()
                .zip(entry.0.iter())
                .all(|(pair, (key, value))| pair.0.as_ref() == &**key && pair.1.as_ref() == &**value)
    }
}

fn hash_pairs<'t, H: Hasher>(pairs: impl Iterator<Item = (&'t str, &'t str)>, state: &mut H) {
    for (key, value) in pairs {
        key.hash(state);
        value.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_and_equal_label_maps_share_one_allocation() {
        let mut interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.text("a"), &interner.text("a")));
        let one = interner.labels(&mut [("b", "2"), ("a", "1")]);
        let two = interner.labels(&mut [("a", "1"), ("b", "2")]);
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &interner.labels(&mut [("a", "1")])));
        assert!(!Arc::ptr_eq(&one, &interner.labels(&mut [("a", "1"), ("b", "3")])));
    }

    #[test]
    fn texts_of_objects_that_are_gone_are_forgotten() {
        let mut interner = Interner::default();
        let kept = interner.text("kept");
        for number in 0..100_000 {
            drop(interner.labels(&mut [("pod".to_owned(), number.to_string())]));
        }
        assert!(interner.len().0 <= 4 * SMALL, "{:?}", interner.len());
        assert!(interner.len().1 <= 2 * SMALL, "{:?}", interner.len());
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
    }
}

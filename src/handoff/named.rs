//! Of many things the first by name, and how many the others are.

use std::{collections::BTreeMap, fmt::Display};

use crate::api::NodeName;

/// So many are named.
pub const NAMED: usize = 5;

/// `n1, n2 and 3 more`: the first of `all`, and how many more there are.
pub fn named(first: impl IntoIterator<Item = impl Display>, all: usize, between: &str) -> String {
    let names: Vec<String> = first.into_iter().map(|name| name.to_string()).collect();
    match all.saturating_sub(names.len()) {
        0 => names.join(between),
        more if names.is_empty() => format!("{more} more"),
        more => format!("{} and {more} more", names.join(between)),
    }
}

/// Nodes of a kind, and what is said of the first of them by name.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstOf<T> {
    pub nodes: u32,
    pub first: BTreeMap<NodeName, T>,
}

impl<T> Default for FirstOf<T> {
    fn default() -> Self {
        Self { nodes: 0, first: BTreeMap::new() }
    }
}

impl<T: Clone> FirstOf<T> {
    pub(super) fn merge<'a>(&mut self, nodes: u32, first: impl IntoIterator<Item = (&'a NodeName, &'a T)>)
    where
        T: 'a,
    {
        self.nodes += nodes;
        for (node, told) in first {
            self.first.insert(node.clone(), told.clone());
        }
        while self.first.len() > NAMED {
            self.first.pop_last();
        }
    }

    /// The others, when this node is one of them.
    #[must_use]
    pub fn without(&self, node: &NodeName) -> Self {
        let mut others = self.clone();
        others.nodes = others.nodes.saturating_sub(1);
        others.first.remove(node);
        others
    }

    /// Each with what is said of it.
    pub fn named(&self, tell: impl Fn(&NodeName, &T) -> String, between: &str) -> String {
        named(self.first.iter().map(|(node, it)| tell(node, it)), usize::try_from(self.nodes).unwrap_or(usize::MAX), between)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_named_and_the_others_counted() {
        assert_eq!(named(["n1", "n2"], 2, "; "), "n1; n2");
        assert_eq!(named(["n1", "n2"], 9, ", "), "n1, n2 and 7 more");
        assert_eq!(named(Vec::<String>::new(), 3, ", "), "3 more");
        let mut all = FirstOf::default();
        for at in (0..8).rev() {
            all.merge(1, [(&NodeName::from(format!("n{at}").as_str()), &at)]);
        }
        assert_eq!(all.named(|node, at| format!("{node}={at}"), ", "), "n0=0, n1=1, n2=2, n3=3, n4=4 and 3 more");
        assert_eq!(all.without(&"n1".into()).named(|node, _| node.to_string(), ", "), "n0, n2, n3, n4 and 3 more");
        assert_eq!(all.without(&"n7".into()).nodes, 7, "one that is not named is one of them all the same");
    }
}

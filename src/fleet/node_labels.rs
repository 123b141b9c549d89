//! What a Node's labels and annotations say about components: typed keys, parsed exactly; garbage is kept aside with its reason.

use std::{collections::BTreeMap, ops::Bound};

use serde::de::DeserializeOwned;

use super::{
    records::{NodeRecord, Str},
    view::NodeLabels,
};
use crate::api::{
    ComponentKey, GROUP, Version,
    keys::{self, CordonOwners, Garbage, Role},
};

/// By component, for every component that the node says anything about.
pub fn parse(node: &NodeRecord) -> BTreeMap<ComponentKey, NodeLabels> {
    let mut found = BTreeMap::new();
    ours(&node.labels).for_each(|(key, value)| label(&mut found, key, value));
    ours(&node.annotations).for_each(|(key, value)| annotation(&mut found, key, value));
    found
}

/// Who holds our cordon, if the annotation is there.
pub fn cordon(node: &NodeRecord) -> Option<Result<CordonOwners, Garbage>> {
    node.annotations.get(keys::CORDON).map(|text| json(keys::CORDON, text))
}

fn ours(map: &BTreeMap<Str, Str>) -> impl Iterator<Item = (&Str, &Str)> {
    map.range::<str, _>((Bound::Included(GROUP), Bound::Unbounded)).take_while(|(key, _)| key.starts_with(GROUP))
}

fn label(found: &mut BTreeMap<ComponentKey, NodeLabels>, key: &str, value: &Str) {
    let Some((role, component)) = Role::parse(key) else { return misspelt(found, key, value) };
    let labels = found.entry(component).or_default();
    if role.is_annotation() {
        return labels.garbage.push(garbage(
            key,
            value,
            "this is an annotation of lockkeeper, as a label it says nothing: remove it",
        ));
    }
    // An empty desired version is an order that nobody can follow, and is judged by the interlock; the others are ours alone.
    if value.is_empty() && role != Role::Desired {
        return labels.garbage.push(garbage(key, value, "the value is empty: remove the label"));
    }
    let version = || Some(Version::from(value.clone()));
    match role {
        Role::Desired => labels.desired = version(),
        Role::Loader => labels.loader = version(),
        Role::Plugin => labels.plugin = version(),
        Role::Ready => labels.ready = version(),
        Role::Nonce => labels.nonce = Some(value.clone()),
        Role::Loaded | Role::Mark => {}
    }
}

fn annotation(found: &mut BTreeMap<ComponentKey, NodeLabels>, key: &str, value: &Str) {
    let Some((role, component)) = Role::parse(key) else { return misspelt(found, key, value) };
    let labels = found.entry(component).or_default();
    match role {
        Role::Loaded => keep(json(key, value), &mut labels.loaded, &mut labels.garbage),
        Role::Mark => keep(json(key, value), &mut labels.mark, &mut labels.garbage),
        _ => {
            labels.garbage.push(garbage(key, value, "this is a label of lockkeeper, as an annotation it says nothing: remove it"))
        }
    }
}

fn keep<T>(read: Result<T, Garbage>, into: &mut Option<T>, aside: &mut Vec<Garbage>) {
    match read {
        Ok(value) => *into = Some(value),
        Err(garbage) => aside.push(garbage),
    }
}

/// `lockkeeper.dev/versio.ns.gpu`: of our domain and shape, but no word of ours. Said where the component is known.
fn misspelt(found: &mut BTreeMap<ComponentKey, NodeLabels>, key: &str, value: &Str) {
    let rest = key.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    let mut parts = rest.splitn(3, '.');
    if let (Some(word), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next())
        && !namespace.is_empty()
        && !name.is_empty()
    {
        let words: Vec<_> = Role::ALL.into_iter().map(Role::word).collect();
        let why = format!("lockkeeper has no key {word:?} (it has {}): remove it", words.join(", "));
        found.entry(ComponentKey::new(namespace, name)).or_default().garbage.push(garbage(key, value, &why));
    }
}

fn json<T: DeserializeOwned>(key: &str, text: &str) -> Result<T, Garbage> {
    serde_json::from_str(text).map_err(|error| garbage(key, text, &error.to_string()))
}

fn garbage(key: &str, value: &str, why: &str) -> Garbage {
    Garbage { key: key.to_owned(), value: value.to_owned(), why: why.to_owned() }
}

//! Typed keys on nodes, and garbage in them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    api::{
        ComponentKey,
        keys::{CORDON, Role},
    },
    fleet::{build::*, node_labels, view::NodeLabels},
};

fn parse(node: NodeBuilder) -> BTreeMap<ComponentKey, NodeLabels> {
    node_labels::parse(&node.build())
}

#[test]
fn g20_names_with_dots_belong_to_the_namespace_before_the_first() {
    let found = parse(node("n1").runs("ns/my.mod", "2"));
    assert_eq!(found.keys().map(|key| key.to_string()).collect::<Vec<_>>(), ["ns/my.mod"]);
    let labels = &found[&key("ns/my.mod")];
    let version = Some("2".into());
    assert_eq!((&labels.desired, &labels.loader, &labels.plugin, &labels.ready), (&version, &version, &version, &version));
    assert_eq!(labels.loaded.as_ref().map(|loaded| loaded.version.as_str()), Some("2"));
    assert!(labels.garbage.is_empty());
}

#[test]
fn garbage_is_kept_aside_and_never_guessed_at() {
    let said = |node: NodeBuilder| {
        let found = parse(node);
        let labels = found.get(&key("ns/gpu")).cloned().unwrap_or_default();
        (labels.garbage.iter().map(|garbage| garbage.why.split(':').next().unwrap().to_owned()).collect::<Vec<_>>(), labels)
    };
    let (garbage, labels) = said(node("n1").desired("ns/gpu", ""));
    assert_eq!(
        (garbage.len(), labels.desired.as_ref().map(|version| version.as_str())),
        (0, Some("")),
        "an order, though an empty one"
    );
    let (garbage, labels) = said(node("n1").loader("ns/gpu", ""));
    assert_eq!((garbage.as_slice(), labels.loader), (&["the value is empty".to_owned()][..], None));
    let (garbage, labels) = said(node("n1").annotation(&Role::Loaded.key(&key("ns/gpu")), "{\"version\":"));
    assert_eq!((garbage.len(), labels.loaded), (1, None));
    let (garbage, _) = said(node("n1").annotation(&Role::Loaded.key(&key("ns/gpu")), r#"{"version":"1","extra":1}"#));
    assert!(garbage[0].starts_with("unknown field"), "{garbage:?}");
    let (garbage, _) = said(node("n1").label(&Role::Loaded.key(&key("ns/gpu")), "1"));
    assert!(garbage[0].starts_with("this is an annotation"), "{garbage:?}");
    let (garbage, _) = said(node("n1").annotation(&Role::Loader.key(&key("ns/gpu")), "1"));
    assert!(garbage[0].starts_with("this is a label"), "{garbage:?}");
    let (garbage, _) = said(node("n1").label("lockkeeper.dev/versio.ns.gpu", "1"));
    assert!(garbage[0].starts_with("lockkeeper has no key \"versio\""), "{garbage:?}");
    let (garbage, _) = said(node("n1").label("lockkeeper.development/version.ns.gpu", "1").label("lockkeeper.dev/x", "1"));
    assert!(garbage.is_empty(), "{garbage:?}");
}

#[test]
fn a_cordon_annotation_that_does_not_parse_is_garbage_not_absence() {
    assert!(node_labels::cordon(&node("n1").build()).is_none());
    assert!(node_labels::cordon(&node("n1").annotation(CORDON, "me").build()).unwrap().is_err());
    assert!(node_labels::cordon(&node("n1").cordoned_for("ns/gpu").build()).unwrap().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_label_garbage_never_panics(
        entries in prop::collection::vec(("(lockkeeper.dev/)?(version|loader|plugin|ready|unload|loaded|handoff|cordon|.{0,5})?[.]?.{0,6}[.]?.{0,6}", ".{0,20}"), 0..8),
        as_annotation in any::<bool>(),
    ) {
        let mut builder = node("n1");
        for (name, value) in &entries {
            builder = if as_annotation { builder.annotation(name, value) } else { builder.label(name, value) };
        }
        let view = fleet().with(component("ns/gpu")).with(builder).project(at(0));
        prop_assert_eq!(view.nodes.len(), 1);
    }
}

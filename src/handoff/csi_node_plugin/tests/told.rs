//! What the component's status, its waits and its plan tell of a nodeplugin, in words and columns.

use super::*;
use crate::handoff::tests::printed;

#[test]
fn kubectls_version_column_shows_the_current_revision_or_the_remount() {
    let shown = |mut fleet: FleetBuilder| {
        let view = fleet.project(at(NOW));
        let component = &view.components[&key(KEY)];
        let status = crate::handoff::component::status(component, &Default::default(), at(NOW));
        printed(&status, "Version")
    };
    assert_eq!(shown(story()).as_deref(), Some("new"));
    let remount = csi_component(|_| {})
        .spec(|spec| spec.csi_node_plugin = Some(CsiNodePlugin { remount: Some("keys-1".into()), ..plugin() }));
    assert_eq!(shown(story().with(remount)).as_deref(), Some("keys-1"));
}

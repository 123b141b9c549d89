//! Whole stories on the pure functions: a toy cluster, the interlock's mutants by name, tables, and properties.

mod asked;
mod found;
mod held_back;
pub(crate) mod incremental;
mod mutants;
mod notes;
mod props;
mod stories;
mod survivors;
mod tables;
mod world;

/// What `kubectl get nodecomponents` shows of a status in one of its columns.
pub(crate) fn printed(status: &crate::api::NodeComponentStatus, column: &str) -> Option<String> {
    let [crd, _] = crate::api::crds();
    let columns = crd.spec.versions[0].additional_printer_columns.clone().unwrap_or_default();
    let path = columns.into_iter().find(|it| it.name == column)?.json_path;
    let object = serde_json::json!({"spec": {}, "status": status});
    object.pointer(&path.replace('.', "/"))?.as_str().map(str::to_owned)
}

//! Custom resources: CRDs that are posted (or installed) start to be served, with pruning, defaults, types and CEL rules of their schema.

use std::sync::Arc;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use super::call::{Call, Identity, Query, Verb};
use super::convert::Form;
use super::refusal::{Cause, Refusal};
use super::resource::{Resource, Switches};
use super::schema;
use super::state::State;
use super::store::Table;
use super::write::meta_str;

/// What one version of a CRD says beyond names.
pub struct CustomSchema {
    pub schema: Value,
    compiled: Option<CompiledSchema>,
    /// All rules look at `spec` alone.
    rules_in_spec: bool,
    pub storage_version: String,
    pub selectable_fields: Vec<String>,
    /// JSON paths of spec and status replicas.
    pub scale: Option<(String, String)>,
    /// JSON path of the selector that a scale shows.
    pub scale_selector: String,
    pub columns: Vec<Column>,
}

/// One of `additionalPrinterColumns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `date`, ...
    pub kind: String,
    pub path: String,
    pub priority: i64,
}

impl std::fmt::Debug for CustomSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CustomSchema({})", self.storage_version)
    }
}

thread_local! {
    static VALIDATOR: Validator = Validator::new();
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("x-kubernetes-validations") || fields.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// The rule library gives an absent optional `oldSelf` as null and a present one as it is: the calls of an optional are told so.
fn with_plain_old_self(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            let optional = fields.get("optionalOldSelf") == Some(&json!(true));
            for name in ["rule", "messageExpression"] {
                if let (true, Some(Value::String(rule))) = (optional, fields.get_mut(name)) {
                    *rule = rule.replace("oldSelf.hasValue()", "(oldSelf != null)").replace("oldSelf.value()", "oldSelf");
                }
            }
            for field in fields.values_mut() {
                *field = with_plain_old_self(std::mem::take(field));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|i| *i = with_plain_old_self(std::mem::take(i))),
        _ => {}
    }
    schema
}

/// Rules of the whole object may look at names and at `spec`, both of which a write of the status leaves alone.
fn rules_in_spec_only(schema: &Value) -> bool {
    let text = |rule: &Value, field: &str| rule.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let whole = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let of_status = |rule: &Value| text(rule, "rule").contains("status") || text(rule, "messageExpression").contains("status");
    let parts = schema.get("properties").and_then(Value::as_object);
    let elsewhere = parts.into_iter().flatten().filter(|(name, _)| *name != "spec").any(|(_, part)| has_rules(part));
    !elsewhere && !whole.into_iter().flatten().any(of_status)
}

impl CustomSchema {
    fn new(version: &Value, storage_version: &str) -> Self {
        let schema = version.get("schema").and_then(|s| s.get("openAPIV3Schema")).cloned().unwrap_or_else(|| json!({}));
        let compiled = has_rules(&schema).then(|| compile_schema(&with_plain_old_self(schema.clone())));
        let list = |field: &str| version.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |v: &Value, f: &str| v.get(f).and_then(Value::as_str).unwrap_or_default().to_owned();
        let trimmed = |path: String| path.trim_start_matches('.').to_owned();
        let scale = version.get("subresources").and_then(|s| s.get("scale"));
        Self {
            compiled,
            rules_in_spec: rules_in_spec_only(&schema),
            storage_version: storage_version.to_owned(),
            selectable_fields: list("selectableFields").iter().map(|f| trimmed(text(f, "jsonPath"))).collect(),
            scale: scale.map(|s| (text(s, "specReplicasPath"), text(s, "statusReplicasPath"))),
            scale_selector: scale.map(|s| text(s, "labelSelectorPath")).unwrap_or_default(),
            columns: list("additionalPrinterColumns")
                .iter()
                .map(|c| Column {
                    name: text(c, "name"),
                    kind: text(c, "type"),
                    path: trimmed(text(c, "jsonPath")),
                    priority: c.get("priority").and_then(Value::as_i64).unwrap_or(0),
                })
                .collect(),
            schema,
        }
    }

    /// Why a rule of the CRD does not compile, if one does not.
    fn problems(&self) -> Vec<String> {
        self.compiled.as_ref().map(|c| c.compilation_errors().iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    /// Valid, or refused. With it come warnings.
    pub fn admit(&self, resource: &Resource, value: &Value, old: Option<&Value>, call: &Call) -> Result<Vec<String>, Refusal> {
        let mut warnings = Vec::new();
        if old.is_none_or(|o| super::write::meta(o, "finalizers") != super::write::meta(value, "finalizers")) {
            warnings.extend(super::validate::finalizer_warnings(value));
        }
        let mut causes = Vec::new();
        schema::check(&self.schema, value, "", true, &mut causes);
        if let Some(compiled) = &self.compiled {
            if causes.iter().any(schema::blocks_rules) {
                causes.push(Cause {
                    reason: "FieldValueInvalid",
                    message: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".into(),
                    field: "<nil>".into(),
                });
            } else if self.rules_in_spec && old.is_some_and(|old| old.get("spec") == value.get("spec")) {
                // A real server does not hold rules against what a write leaves as it was; most writes are to the status.
            } else if let Err(errors) = VALIDATOR.with(|v| v.validate_compiled(compiled, value, old)) {
                causes.extend(errors.into_vec().into_iter().map(|e| rule_cause(e, value)));
            }
        }
        if call.sub == "status" {
            // There the status is looked at alone.
            for cause in &mut causes {
                cause.message = cause.message.replacen(": status.", ": ", 1);
            }
        }
        if causes.is_empty() { Ok(warnings) } else { Err(Refusal::invalid(resource, meta_str(value, "name"), &causes)) }
    }
}

/// A refused rule; that of a plain value shows the value.
fn rule_cause(error: kube::core::cel::ValidationError, object: &Value) -> Cause {
    let (reason, lead) = match error.reason.as_deref() {
        Some("FieldValueForbidden") => ("FieldValueForbidden", "Forbidden: "),
        Some("FieldValueRequired") => ("FieldValueRequired", "Required value: "),
        Some("FieldValueDuplicate") => ("FieldValueDuplicate", "Duplicate value: "),
        _ => ("FieldValueInvalid", "Invalid value: "),
    };
    let at = error.field_path.split('.').filter(|s| !s.is_empty()).try_fold(object, |v, step| v.get(step));
    let shown = match at {
        Some(plain @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) if reason == "FieldValueInvalid" => {
            format!("{plain}: ")
        }
        _ => String::new(),
    };
    let lead = format!("{lead}{shown}");
    let field = if error.field_path.is_empty() { "<nil>".into() } else { error.field_path };
    Cause { reason, message: format!("{lead}{}", error.message), field }
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    path.split('.').try_fold(value, |v, step| v.get(step)).and_then(Value::as_str).unwrap_or_default()
}

fn versions(crd: &Value) -> Vec<Value> {
    crd.get("spec").and_then(|s| s.get("versions")).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn storage_version(crd: &Value) -> String {
    let all = versions(crd);
    let stored = all.iter().find(|v| v.get("storage") == Some(&json!(true)));
    stored.map(|v| text(v, "name").to_owned()).unwrap_or_default()
}

/// Names and conversion that a CRD leaves out.
pub fn defaults(crd: &mut Value) {
    let kind = text(crd, "spec.names.kind").to_owned();
    let names = &mut crd["spec"]["names"];
    if text(names, "singular").is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if text(names, "listKind").is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if crd["spec"].get("conversion").is_none() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// Checks and completes a CRD, and accepts its names at once.
pub fn establish(state: &State, crd: &mut Value) -> Result<(), Refusal> {
    let resource = state.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned();
    let resource = resource.ok_or_else(Refusal::no_such_path)?;
    let name = meta_str(crd, "name").to_owned();
    let expected = format!("{}.{}", text(crd, "spec.names.plural"), text(crd, "spec.group"));
    let mut causes = Vec::new();
    if name != expected {
        causes.push(Cause::invalid(
            "metadata.name",
            format!("Invalid value: {name:?}: must be spec.names.plural+\".\"+spec.group"),
        ));
    }
    let storage = storage_version(crd);
    for (n, version) in versions(crd).iter().enumerate() {
        if version.get("schema").and_then(|s| s.get("openAPIV3Schema")).is_none() {
            let field = format!("spec.versions[{n}].schema.openAPIV3Schema");
            causes.push(Cause { reason: "FieldValueRequired", message: "Required value".into(), field });
        }
    }
    if storage.is_empty() {
        causes.push(Cause::invalid("spec.versions", "Invalid value: must have exactly one version marked as storage version"));
    }
    for (n, version) in versions(crd).iter().enumerate() {
        for problem in CustomSchema::new(version, &storage).problems() {
            let field = format!("spec.versions[{n}].schema.openAPIV3Schema");
            causes.push(Cause::invalid(field, format!("Invalid value: compilation failed: {problem}")));
        }
    }
    if !causes.is_empty() {
        return Err(Refusal::invalid(&resource, &name, &causes));
    }
    let names = crd["spec"]["names"].clone();
    let accepted = crd.get("status").and_then(|s| s.get("acceptedNames")) == Some(&names);
    let stored = crd.get("status").and_then(|s| s.get("storedVersions")) == Some(&json!([storage]));
    if accepted && stored {
        return Ok(());
    }
    let now = state.now_text();
    crd["status"] = json!({
        "acceptedNames": names, "storedVersions": [storage],
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": now},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted", "lastTransitionTime": now},
        ],
    });
    Ok(())
}

/// Follows a committed CRD: its versions are served, or no longer.
pub fn serve(state: &mut State, old: Option<&Value>, new: Option<&Value>) {
    let Some(crd) = new.or(old) else { return };
    let (group, plural) = (text(crd, "spec.group").to_owned(), text(crd, "spec.names.plural").to_owned());
    let table = state.registry.tables.iter().position(|r| r.group == group && r.plural == plural);
    if new.is_none() {
        if let Some(table) = table {
            drop_objects(state, table);
        }
        state.registry.remove(&group, &plural);
        return;
    }
    let table = table.unwrap_or(state.registry.tables.len());
    let storage = storage_version(crd);
    state.registry.remove(&group, &plural);
    let strings = |path: &str| -> Vec<String> {
        let list = crd.get("spec").and_then(|s| s.get("names")).and_then(|n| n.get(path)).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for version in versions(crd).iter().filter(|v| v.get("served") == Some(&json!(true))) {
        state.registry.add(Resource {
            group: group.clone(),
            version: text(version, "name").to_owned(),
            plural: plural.clone(),
            singular: text(crd, "spec.names.singular").to_owned(),
            kind: text(crd, "spec.names.kind").to_owned(),
            short_names: strings("shortNames"),
            categories: strings("categories"),
            namespaced: text(crd, "spec.scope") == "Namespaced",
            table,
            has: Switches {
                status: version.get("subresources").is_some_and(|s| s.get("status").is_some()),
                generation: true,
                ..Switches::default()
            },
            custom: Some(Arc::new(CustomSchema::new(version, &storage))),
        });
    }
    while state.tables.len() < state.registry.tables.len() {
        let floor = state.rv;
        state.tables.push(Table { floor, ..Table::default() });
    }
}

/// A CRD takes its objects with it.
fn drop_objects(state: &mut State, table: usize) {
    let Some(resource) = state.registry.tables.get(table).cloned() else {
        return;
    };
    let keys: Vec<_> = state.table(&resource).objects.keys().cloned().collect();
    let call = Call {
        verb: Verb::Delete,
        resource: resource.clone(),
        namespace: String::new(),
        name: String::new(),
        sub: String::new(),
        query: Query::default(),
        form: Form::Plain,
        patch: None,
        who: Identity::new("kube-apiserver"),
        manager: "kube-apiserver".into(),
        body: bytes::Bytes::new(),
        yaml: false,
        came: state.clock.now(),
    };
    for key in keys {
        state.commit(&call, &resource, key, None);
    }
}

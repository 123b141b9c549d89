//! Pod templates of other people's DaemonSets and their ControllerRevisions: what tells which driver they serve and whether a node's pod is
//! of the current revision. These are few, so they are read whole.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{Context, Slim, meta::RawMeta};
use crate::{
    api::versioned::digest,
    fleet::{
        csi::REVISION_HASH,
        event::Record,
        records::{DeployedBy, Requirement, RevisionRecord, Str, TemplateRecord, Toleration},
    },
};

pub(super) fn record(spec: &RawValue, meta: &RawMeta<'_>, context: &mut Context) -> TemplateRecord {
    let spec: Value = serde_json::from_str(spec.get()).unwrap_or_default();
    let Some(template) = spec.get("template") else { return TemplateRecord::default() };
    let pod = template.get("spec").unwrap_or(&Value::Null);
    let containers: Vec<&Value> = list(pod, "containers").chain(list(pod, "initContainers")).collect();
    let args: Vec<&str> = containers
        .iter()
        .flat_map(|container| list(container, "args").chain(list(container, "command")))
        .filter_map(Value::as_str)
        .collect();
    let flag = |name: &str| args.iter().find_map(|arg| arg.trim_start_matches('-').strip_prefix(name)?.strip_prefix('='));
    let host_paths: Vec<&str> =
        list(pod, "volumes").filter_map(|volume| volume.pointer("/hostPath/path")?.as_str()).map(trimmed).collect();
    let texts = |at: &Value, key: &str, context: &mut Context| -> Vec<Str> {
        list(at, key).filter_map(Value::as_str).map(|text| context.text(text)).collect()
    };
    let mut drivers: Vec<Str> = flag("drivername").into_iter().map(|name| context.text(name)).collect();
    let sockets = flag("kubelet-registration-path").into_iter().chain(host_paths.iter().copied());
    drivers.extend(sockets.filter_map(driver_of_path).map(|name| context.text(name)));
    drivers.sort();
    drivers.dedup();
    let selector = pod.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(required).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let terms = terms.iter().map(|term| {
        let of = |key: &str, field: bool, context: &mut Context| -> Vec<Requirement> {
            list(term, key)
                .map(|it| Requirement {
                    field,
                    key: context.text(text(it, "key")),
                    operator: context.text(text(it, "operator")),
                    values: texts(it, "values", context),
                })
                .collect()
        };
        [of("matchFields", true, context), of("matchExpressions", false, context)].concat()
    });
    let terms = terms.collect();
    TemplateRecord {
        digest: digest_of(template),
        host_network: pod.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false),
        registers: host_paths.iter().any(|path| path.ends_with("/plugins_registry")),
        driver_type: flag("type").map(|kind| context.text(kind)),
        forces_kernel_client: flag("forcecephkernelclient") == Some("true"),
        node_selector: selector
            .map(|(key, value)| (context.text(key), context.text(value.as_str().unwrap_or_default())))
            .collect(),
        tolerations: list(pod, "tolerations")
            .map(|it| Toleration {
                key: context.text(text(it, "key")),
                operator: context.text(text(it, "operator")),
                value: context.text(text(it, "value")),
                effect: context.text(text(it, "effect")),
            })
            .collect(),
        min_ready_seconds: spec.get("minReadySeconds").and_then(Value::as_i64).unwrap_or(0),
        images: containers.iter().filter_map(|container| container.get("image")?.as_str()).map(|it| context.text(it)).collect(),
        strategy: context.text(spec.pointer("/updateStrategy/type").and_then(Value::as_str).unwrap_or("RollingUpdate")),
        deployed_by: deployed_by(meta, context),
        drivers,
        terms,
    }
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn trimmed(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// `/var/lib/kubelet/plugins/<driver>/csi.sock`, or the folder of it. The folder of all drivers and the old `kubernetes.io` one name none.
fn driver_of_path(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/plugins/")?;
    let driver = rest.split('/').next()?;
    (!driver.is_empty() && driver != "kubernetes.io" && driver.contains('.')).then_some(driver)
}

fn deployed_by(meta: &RawMeta<'_>, context: &mut Context) -> DeployedBy {
    let helm = [meta.label("app.kubernetes.io/managed-by"), meta.label("heritage")].contains(&Some("Helm"));
    let owner = meta.owner(context);
    match owner {
        Some(owner) if &*owner.kind == "Driver" => DeployedBy::CsiOperator { driver: owner.name },
        Some(owner) if &*owner.kind == "Deployment" && owner.name.contains("rook") => DeployedBy::Rook,
        _ if helm => {
            let release = [meta.label("app.kubernetes.io/instance"), meta.label("release")].into_iter().flatten().next();
            DeployedBy::Helm { release: context.text(release.unwrap_or_default()) }
        }
        _ => DeployedBy::Manifest,
    }
}

/// The revision's data is the template as a patch: with `$patch`, and with nulls where an older server wrote them.
fn digest_of(template: &Value) -> Str {
    let mut template = template.clone();
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
    }
    digest(&template).into()
}

pub(super) struct Revision;

#[derive(Deserialize)]
pub(super) struct RawRevision<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    revision: Option<i64>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl Slim for Revision {
    type Raw<'a> = RawRevision<'a>;

    fn record(raw: RawRevision<'_>, context: &mut Context) -> Result<Record, String> {
        let owner = raw.metadata.owner(context).filter(super::super::records::Owner::is_daemon_set).map(|owner| owner.uid);
        // Those of StatefulSets say nothing here: their data is not read.
        let data: Option<Value> = owner.as_ref().and(raw.data).and_then(|data| serde_json::from_str(data.get()).ok());
        let template = data.as_ref().and_then(|data| data.pointer("/spec/template"));
        Ok(Record::Revision(RevisionRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            owner,
            revision: raw.revision.unwrap_or(0),
            hash: context.text(raw.metadata.label(REVISION_HASH).unwrap_or_default()),
            digest: template.map(digest_of).unwrap_or_default(),
        }))
    }
}

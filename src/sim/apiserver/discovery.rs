//! Discovery, version and health: what a client asks before it asks for objects.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Value, json};

use super::handler::Reply;
use super::openapi;
use super::refusal::Refusal;
use super::resource::{Registry, Resource};

fn verbs(resource: &Resource) -> Value {
    if resource.has.create_only {
        return json!(["create"]);
    }
    json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
}

fn subresources(resource: &Resource) -> Vec<(&'static str, Value, Value)> {
    let own = json!({"group": "", "version": "", "kind": resource.kind});
    let mut out = Vec::new();
    if resource.has.status {
        out.push(("status", own, json!(["get", "patch", "update"])));
    }
    if resource.has.scale || resource.custom.as_ref().is_some_and(|c| c.scale.is_some()) {
        out.push(("scale", json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}), json!(["get", "patch", "update"])));
    }
    if resource.is_pod() {
        out.push(("eviction", json!({"group": "policy", "version": "v1", "kind": "Eviction"}), json!(["create"])));
        out.push(("binding", json!({"group": "", "version": "", "kind": "Binding"}), json!(["create"])));
    }
    out
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut out = Vec::new();
    for resource in registry.all().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        out.push(entry);
        for (name, kind, verbs) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": kind["kind"], "verbs": verbs,
            });
            if kind["group"] != "" {
                entry["group"] = kind["group"].clone();
                entry["version"] = kind["version"].clone();
            }
            out.push(entry);
        }
    }
    if out.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": out});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// Groups with their served versions, the builtin ones first.
fn groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in registry.all() {
        let versions = out.entry(resource.group.clone()).or_default();
        if !versions.contains(&resource.version) {
            versions.push(resource.version.clone());
        }
    }
    for versions in out.values_mut() {
        versions.sort_by_key(|v| (v.contains("alpha"), v.contains("beta"), v.clone()));
    }
    out
}

fn group_entry(group: &str, versions: &[String]) -> Value {
    let list: Vec<Value> = versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
    json!({"name": group, "versions": list, "preferredVersion": list.first()})
}

fn aggregated(registry: &Registry, core: bool) -> Value {
    let items: Vec<Value> = groups(registry)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let of_version = |r: &&std::sync::Arc<Resource>| r.group == group && r.version == *version;
                    let resources: Vec<Value> = registry
                        .all()
                        .filter(of_version)
                        .map(|r| {
                            let subs: Vec<Value> = subresources(r)
                                .into_iter()
                                .map(|(name, kind, verbs)| json!({"subresource": name, "responseKind": kind, "verbs": verbs}))
                                .collect();
                            let mut entry = json!({
                                "resource": r.plural, "responseKind": {"group": r.group, "version": r.version, "kind": r.kind},
                                "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
                                "singularResource": r.singular, "verbs": verbs(r),
                            });
                            if !r.short_names.is_empty() {
                                entry["shortNames"] = json!(r.short_names);
                            }
                            if !r.categories.is_empty() {
                                entry["categories"] = json!(r.categories);
                            }
                            if !subs.is_empty() {
                                entry["subresources"] = json!(subs);
                            }
                            entry
                        })
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata =
                if core { json!({"creationTimestamp": null}) } else { json!({"name": group, "creationTimestamp": null}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// Answers a path that names no resource.
pub fn answer(registry: &Registry, path: &str, headers: &HeaderMap) -> Result<Reply, Refusal> {
    let accept = headers.get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let wants_aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2;");
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let value = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => {
            return Ok(Reply::json(200, bytes::Bytes::from_static(b"ok")));
        }
        ["version"] => json!({
            "major": "1", "minor": "37", "gitVersion": "v1.37.2+lockkeeper-sim", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        }),
        ["openapi", "v2"] if accept.contains("protobuf") => {
            return Ok(Reply::json(200, bytes::Bytes::new()));
        }
        ["openapi", "v2"] => openapi::v2(),
        ["openapi", "v3"] => openapi::index(registry),
        ["openapi", "v3", root @ ..] => openapi::document(registry, &root.join("/")).ok_or_else(Refusal::no_such_group)?,
        ["api"] if wants_aggregated => aggregated(registry, true),
        ["apis"] if wants_aggregated => aggregated(registry, false),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            let list: Vec<Value> =
                groups(registry).iter().filter(|(g, _)| !g.is_empty()).map(|(g, v)| group_entry(g, v)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
        }
        ["api", version] => resource_list(registry, "", version).ok_or_else(Refusal::no_such_path)?,
        ["apis", group] => {
            let all = groups(registry);
            let versions = all.get(*group).ok_or_else(Refusal::no_such_group)?;
            let mut entry = group_entry(group, versions);
            entry["kind"] = "APIGroup".into();
            entry["apiVersion"] = "v1".into();
            entry
        }
        ["apis", group, version] => resource_list(registry, group, version).ok_or_else(Refusal::no_such_group)?,
        _ => return Err(Refusal::no_such_group()),
    };
    Ok(Reply::value(200, &value))
}

/// The media type of an answer that is not plain JSON.
pub fn content_type(headers: &HeaderMap, path: &str) -> Option<&'static str> {
    let accept = headers.get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
    if path.starts_with("/healthz") || path.starts_with("/livez") || path.starts_with("/readyz") {
        return Some("text/plain; charset=utf-8");
    }
    if path.trim_end_matches('/') == "/openapi/v2" && accept.contains("protobuf") {
        return Some(openapi::V2_PROTOBUF);
    }
    let wanted = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2;");
    (wanted && matches!(path.trim_end_matches('/'), "/api" | "/apis"))
        .then_some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
}

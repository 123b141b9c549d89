//! Custom resources: served after their CRD, pruned, defaulted, validated by schema and rules; apply.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::*;

fn crd() -> Value {
    let spec = json!({
        "type": "object", "required": ["size"],
        "x-kubernetes-validations": [{"rule": "self.size == oldSelf.size", "message": "size is fixed"}],
        "properties": {"size": {"type": "integer"}, "mode": {"type": "string", "default": "auto"}},
    });
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"phase": {"type": "string"}}}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('w')", "message": "names start with w"}],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.x.example"},
        "spec": {
            "group": "x.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
    })
}

fn widgets(api: &ApiServer) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "x.example".into(),
        version: "v1".into(),
        api_version: "x.example/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    Api::default_namespaced_with(api.client(&Identity::new("t")), &resource)
}

fn widget(name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_crd_makes_its_objects_served() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    let widgets = widgets(&api);
    assert!(widgets.get("w").await.is_err());
    let (code, _) =
        raw(&client, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", &crd()).await;
    assert_eq!(code, 201);
    let made = widgets.create(&PostParams::default(), &widget("w", json!({"size": 1, "extra": 2}))).await.unwrap();
    assert_eq!(made.data["spec"], json!({"size": 1, "mode": "auto"}));
    assert_eq!(made.metadata.generation, Some(1));
    let pp = PatchParams::default();
    let after =
        widgets.patch_status("w", &pp, &Patch::Merge(json!({"status": {"phase": "ok"}, "spec": {"size": 9}}))).await.unwrap();
    assert_eq!((after.data["status"]["phase"].as_str(), after.metadata.generation), (Some("ok"), Some(1)));
    let changed =
        widgets.patch("w", &pp, &Patch::Merge(json!({"spec": {"mode": "x"}, "status": {"phase": "no"}}))).await.unwrap();
    assert_eq!((changed.data["status"]["phase"].as_str(), changed.metadata.generation), (Some("ok"), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn schema_and_rules_refuse_with_422() {
    let api = server();
    api.install(crd()).unwrap();
    let widgets = widgets(&api);
    let create =
        async |name: &str, spec: Value| refused(widgets.create(&PostParams::default(), &widget(name, spec)).await.unwrap_err()).2;
    assert!(create("w", json!({"size": "x"})).await.contains("spec.size in body must be of type integer"));
    assert!(create("w", json!({})).await.contains("spec.size: Required value"));
    assert!(create("v", json!({"size": 1})).await.contains("names start with w"));
    widgets.create(&PostParams::default(), &widget("w", json!({"size": 1}))).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    let (code, _, message) = refused(widgets.patch("w", &PatchParams::default(), &patch).await.unwrap_err());
    assert_eq!((code, message.contains("size is fixed")), (422, true), "{message}");
    assert_eq!(refused(widgets.patch("w", &PatchParams::default(), &Patch::Strategic(json!({}))).await.unwrap_err()).0, 415);
}

#[tokio::test(start_paused = true)]
async fn our_own_definitions_are_served() {
    let api = server();
    for crd in crate::api::crds() {
        api.install(serde_json::to_value(crd).unwrap()).unwrap();
    }
    assert_eq!(api.list("customresourcedefinitions.apiextensions.k8s.io").len(), 2);
    let client = api.client(&Identity::new("t"));
    let (code, list) = raw(&client, "GET", "/apis/lockkeeper.dev/v1alpha1/nodehandoffs", "", &Value::Null).await;
    assert_eq!((code, list["kind"].as_str()), (200, Some("NodeHandoffList")));
}

#[tokio::test(start_paused = true)]
async fn apply_merges_conflicts_and_removes() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    let apply = async |manager: &str, force: bool, data: Value| {
        let path = format!("/api/v1/namespaces/default/configmaps/c?fieldManager={manager}&force={force}");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
        raw(&client, "PATCH", &path, "application/apply-patch+yaml", &body).await
    };
    assert_eq!(apply("a", false, json!({"x": "1", "y": "2"})).await.0, 201);
    let (code, refusal) = apply("b", false, json!({"x": "2"})).await;
    assert_eq!(code, 409);
    assert_eq!(refusal["message"], "Apply failed with 1 conflict: conflict with \"a\": .data.x");
    assert_eq!(apply("b", true, json!({"x": "2"})).await.1["data"], json!({"x": "2", "y": "2"}));
    assert_eq!(apply("a", false, json!({})).await.1["data"], json!({"x": "2"}));
    let before = api.revision();
    assert_eq!(apply("b", false, json!({"x": "2"})).await.0, 200);
    assert_eq!(api.revision(), before);
}

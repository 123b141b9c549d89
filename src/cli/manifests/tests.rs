//! What is printed is what `assets/` holds; documents are whole; the admission policies' expressions run.

use std::{collections::BTreeSet, fs, path::Path};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::core::cel::{AdmissionRequest, VapEvaluator, VapExpression};
use serde_json::{Value, json};

use super::*;

fn parts() -> [(&'static str, Manifests); 4] {
    let none = Manifests { image: concat!("lockkeeper:", env!("CARGO_PKG_VERSION")).into(), ..Manifests::default() };
    [
        ("crds.yaml", Manifests { crds: true, ..none.clone() }),
        ("rbac.yaml", Manifests { role: vec![RoleName::All], ..none.clone() }),
        ("admission.yaml", Manifests { admission: true, ..none.clone() }),
        ("deployment.yaml", Manifests { deployment: true, ..none }),
    ]
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn assets_hold_what_is_printed() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for (file, wanted) in parts() {
        let printed = render(&wanted, None).unwrap();
        let path = assets.join(file);
        if std::env::var_os("LOCKKEEPER_UPDATE_ASSETS").is_some() {
            fs::write(&path, &printed).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == printed,
            "assets/{file} is not what `lockkeeper manifests` prints: run this test with LOCKKEEPER_UPDATE_ASSETS=1"
        );
    }
}

#[test]
fn every_document_is_an_object_and_all_parts_are_the_whole() {
    let named = |documents: &[Value]| -> BTreeSet<String> {
        documents.iter().map(|it| format!("{} {} {}", it["kind"], it["metadata"]["namespace"], it["metadata"]["name"])).collect()
    };
    let all = documents(&render(&Manifests { image: "i".into(), ..Manifests::default() }, None).unwrap());
    let apart: BTreeSet<_> = parts().iter().flat_map(|(_, wanted)| named(&documents(&render(wanted, None).unwrap()))).collect();
    assert_eq!(named(&all), apart);
    assert_eq!(all.len(), apart.len(), "nothing twice");
    for document in &all {
        assert!(document["apiVersion"].is_string() && document["metadata"]["name"].is_string(), "{document}");
        assert!(document["metadata"]["labels"].get("rbac.authorization.k8s.io/aggregate-to-admin").is_none());
    }
}

#[test]
fn another_namespace_moves_the_deployment_and_not_the_lease() {
    let wanted = Manifests { deployment: true, image: "registry.example/l@sha256:0".into(), ..Manifests::default() };
    let text = render(&wanted, Some("tools")).unwrap();
    let documents = documents(&text);
    let kinds = |kind: &str| documents.iter().filter(|it| it["kind"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(kinds("Deployment")[0]["metadata"]["namespace"], "tools");
    assert_eq!(kinds("Namespace").len(), 2);
    assert!(kinds("RoleBinding").iter().any(|it| it["metadata"]["namespace"] == "lockkeeper-system"));
    assert!(kinds("RoleBinding").iter().all(|it| it["subjects"][0]["namespace"] == "tools"));
    assert_eq!(kinds("Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example/l@sha256:0");
}

#[test]
fn a_role_is_bound_to_people_in_each_of_its_places() {
    let wanted = Manifests { role: vec![RoleName::Viewer], to_group: vec!["sre: \"night\"".into()], ..Manifests::default() };
    let documents = documents(&render(&wanted, None).unwrap());
    let bound: Vec<_> = documents.iter().filter(|it| it["kind"].as_str().unwrap().ends_with("Binding")).collect();
    assert_eq!(bound.len(), 3, "the cluster, kube-node-lease, lockkeeper-system");
    for binding in bound {
        assert_eq!(binding["subjects"][0]["name"], "sre: \"night\"");
        assert_eq!(binding["metadata"]["name"], "lockkeeper-viewer-group-sre---night");
        assert_eq!(binding["roleRef"]["name"], "lockkeeper-viewer");
    }
}

/// The policies' expressions that need no authorizer, evaluated as a server would.
fn policy(name: &str) -> ValidatingAdmissionPolicy {
    documents(include_str!("admission.yaml"))
        .into_iter()
        .find(|it| it["kind"] == "ValidatingAdmissionPolicy" && it["metadata"]["name"] == name)
        .map(|it| serde_json::from_value(it).unwrap())
        .unwrap()
}

#[test]
fn g20_namespace_and_name_together_fit_a_label_key() {
    let spec = policy("lockkeeper-components").spec.unwrap();
    let rule = spec.validations.unwrap().swap_remove(0);
    for (length, passes) in [(54, true), (55, false)] {
        let result = VapEvaluator::builder()
            .object(json!({"metadata": {"name": "n".repeat(length - 2)}}))
            .request(AdmissionRequest { operation: "CREATE".into(), namespace: "ns".into(), ..Default::default() })
            .build()
            .evaluate(&[VapExpression {
                expression: rule.expression.clone(),
                message: None,
                message_expression: rule.message_expression.clone(),
            }]);
        assert_eq!(result[0].passed, passes, "{result:?}");
    }
}

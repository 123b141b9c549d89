//! The shared control plane with everything that `lockkeeper manifests` prints, and its roles bound to the users of the tests.

use std::{sync::OnceLock, time::Duration};

use lockkeeper::cli::manifests::{Manifests, render};
use serde_json::{Value, json};

use crate::support::controlplane::{ControlPlane, User};

/// [`ControlPlane::shared`], once it has taken the manifests. `None` as there.
pub fn installed() -> Option<&'static ControlPlane> {
    static INSTALLED: OnceLock<Option<&'static ControlPlane>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let plane = ControlPlane::shared()?;
        install(plane);
        Some(plane)
    })
}

/// Applies the manifests in one go, as the docs say, binds the roles, and waits until all of it is in force.
pub fn install(plane: &ControlPlane) {
    let wanted = Manifests { image: "lockkeeper:test".into(), ..Manifests::default() };
    let manifests = render(&wanted, None).expect("manifests");
    let said = plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &manifests);
    // A warning says that the server does not understand a part of what it took.
    assert_eq!(said.stderr, "", "{}", said.stdout);
    said.expect_ok();
    plane
        .kubectl(["wait", "--for=condition=Established", "crd/nodecomponents.lockkeeper.dev", "crd/nodehandoffs.lockkeeper.dev"])
        .expect_ok();
    for user in [User::Operator, User::Reconciler, User::Viewer] {
        bind(plane, user);
    }
    await_policies(plane);
}

/// Binds a user's ClusterRole everywhere, and its Roles where they are.
fn bind(plane: &ControlPlane, user: User) {
    let role = format!("lockkeeper-{}", user.name());
    let group = "rbac.authorization.k8s.io";
    let binding = |kind: &str, metadata: Value| {
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user.name()}],
        });
        plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &binding.to_string()).expect_ok();
    };
    let name = format!("test-{role}");
    binding("ClusterRole", json!({"name": name}));
    let template = "{range .items[*]}{.metadata.namespace} {.metadata.name}{\"\\n\"}{end}";
    let roles = plane.kubectl(["get", "roles", "--all-namespaces", "-o", &format!("jsonpath={template}")]).expect_ok();
    for (namespace, _) in roles.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| *name == role) {
        binding("Role", json!({"name": name, "namespace": namespace}));
    }
}

/// A server takes up a new policy within a second or so, and lets everything through until then.
fn await_policies(plane: &ControlPlane) {
    let node =
        r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe", "labels": {"lockkeeper.dev/loader.a.b": "1"}}}"#;
    let set = r#"{"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "probe", "namespace": "default", "labels": {"lockkeeper.dev/component": "b"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "main", "image": "none"}]}}}}"#;
    for object in [node, set] {
        for _ in 0..300 {
            if !plane.kubectl_as(User::Admin, ["create", "--dry-run=server", "-f", "-"], object).ok {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

//! The shared control plane with everything that `lockkeeper manifests` prints, and its roles bound to the users of the tests.

use std::{sync::OnceLock, time::Duration};

use lockkeeper::cli::manifests::{Manifests, RoleName, render};

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

/// Applies the manifests in one go, as the docs say, with the roles bound to their users, and waits until all of it is in force.
pub fn install(plane: &ControlPlane) {
    let printed = |wanted: &Manifests| render(wanted, None).expect("manifests");
    let mut manifests = printed(&Manifests { image: "lockkeeper:test".into(), ..Manifests::default() });
    for (role, user) in
        [(RoleName::Operator, User::Operator), (RoleName::Reconciler, User::Reconciler), (RoleName::Viewer, User::Viewer)]
    {
        let bound = Manifests { role: vec![role], to_user: vec![user.name().into()], ..Manifests::default() };
        manifests.push_str(&printed(&bound));
    }
    let said = plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &manifests);
    // A warning says that the server does not understand a part of what it took.
    assert_eq!(said.stderr, "", "{}", said.stdout);
    said.expect_ok();
    plane
        .kubectl(["wait", "--for=condition=Established", "crd/nodecomponents.lockkeeper.dev", "crd/nodehandoffs.lockkeeper.dev"])
        .expect_ok();
    await_policies(plane);
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

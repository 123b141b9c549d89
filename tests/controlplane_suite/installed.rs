//! The shared control plane with lockkeeper's CRDs.

use std::sync::OnceLock;

use lockkeeper::api::crds;

use crate::support::controlplane::{ControlPlane, User};

/// [`ControlPlane::shared`], once it serves lockkeeper's objects. `None` as there.
pub fn installed() -> Option<&'static ControlPlane> {
    static INSTALLED: OnceLock<Option<&'static ControlPlane>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let plane = ControlPlane::shared()?;
        install(plane);
        Some(plane)
    })
}

/// Applies the CRDs and waits until they are served.
pub fn install(plane: &ControlPlane) {
    for crd in crds() {
        let said = plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &serde_json::to_string(&crd).expect("JSON"));
        // A warning says that the server does not understand a part of the schema.
        assert_eq!(said.stderr, "");
        said.expect_ok();
    }
    plane
        .kubectl(["wait", "--for=condition=Established", "crd/nodecomponents.lockkeeper.dev", "crd/nodehandoffs.lockkeeper.dev"])
        .expect_ok();
}

//! The shared control plane with everything that `lockkeeper manifests` prints, and its roles bound to the users of the tests.

use std::sync::OnceLock;

use lockkeeper::cli::manifests::{Manifests, RoleName, render};

use serde_json::json;

use crate::{
    apply::{Caller, Stay},
    policy::allow,
    samples,
    site::block_on,
    support::controlplane::{ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

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
    // A warning says that the server does not understand a part of what it took. Of its own log kubectl tells that it had to wait.
    let logged = |line: &&str| line.starts_with('I') && line.get(1..5).is_some_and(|day| day.parse::<u32>().is_ok());
    let warned: Vec<&str> = said.stderr.lines().filter(|line| !logged(line)).collect();
    assert_eq!(warned, [""; 0], "{}", said.stdout);
    said.expect_ok();
    // A thread of its own: whoever calls may be in a runtime already.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(in_force(plane)));
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// What a server takes up in its own time: the kinds of a CRD some time after it has established it, roles, bindings and admission policies
/// by watches.
async fn in_force(plane: &ControlPlane) {
    let admin = Caller::new(plane, User::Admin).await;
    for plural in ["nodecomponents", "nodehandoffs"] {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/{plural}?limit=1");
        eventually(plural, CONTROLLER, || async { admin.get(&path).await.map(Some) }).await;
    }
    for (user, verb, resource) in [
        (User::Operator, "create", "nodehandoffs.lockkeeper.dev"),
        (User::Viewer, "list", "nodehandoffs.lockkeeper.dev"),
        (User::Reconciler, "patch", "nodes"),
        (User::Reconciler, "create", "lockkeeper-system:leases.coordination.k8s.io"),
    ] {
        await_right(plane, user, verb, resource).await;
    }
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe", "labels": {"lockkeeper.dev/loader.a.b": "1"}}});
    let template = samples::template("main", "none");
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "probe", "namespace": "default", "labels": {"lockkeeper.dev/component": "b"}},
        "spec": {"selector": {"matchLabels": {"app": "main"}}, "template": template}});
    let component = samples::component("default", &"n".repeat(52), "1.0");
    let mut handoff = samples::handoff("default", "probe", "n1", "1.0");
    handoff["spec"]["overrides"] = json!([{"podUid": "u", "reason": "r", "until": "2030-01-01T00:00:00Z"}]);
    // Nobody whose requests a test looks at.
    let rules = json!([{"apiGroups": ["lockkeeper.dev"], "resources": ["nodehandoffs"], "verbs": ["create"]}]);
    allow(&admin, "policy-probe", rules).await;
    let other = Caller::named(plane, "policy-probe").await;
    for (who, object) in [(&admin, node), (&admin, set), (&admin, component), (&other, handoff)] {
        eventually("an admission policy", CONTROLLER, || async {
            match who.create(&object, Stay::No).await {
                Err(refused) if refused.says(&["ValidatingAdmissionPolicy"]) => Ok(Some(())),
                Err(refused) => Err(refused.to_string()),
                Ok(_) => Err(format!("it lets through {object}")),
            }
        })
        .await;
    }
}

/// Waits until the server lets a user do this, in the words of [`Caller::may`].
pub async fn await_right(plane: &ControlPlane, user: User, verb: &str, resource: &str) {
    let caller = Caller::new(plane, user).await;
    eventually(&format!("{} to be allowed to {verb} {resource}", user.name()), CONTROLLER, || async {
        Ok::<_, String>(caller.may(verb, resource).await.then_some(()))
    })
    .await;
}

//! What the admission policy refuses on the real server, to whom, and what it lets through.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use lockkeeper::api::keys::{self, Role};
use lockkeeper::api::{ComponentKey, MANAGER};
use serde_json::{Value, json};

use crate::{
    apply::{Caller, Refused, Stay, edit, path},
    by_hand::{HandMadeNode, namespace},
    installed::installed,
    samples::{component, handoff, template},
    support::controlplane::{ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

/// Binds a role with these rules to a user of this name, everywhere.
pub async fn allow(admin: &Caller, user: &str, rules: Value) {
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    admin.apply(&role, Stay::Yes).await.expect("a role");
    admin.apply(&binding, Stay::Yes).await.expect("a binding");
}

/// Somebody with every right on these resources but none of lockkeeper's own verbs.
async fn with_rights_on(plane: &ControlPlane, user: &'static str, resources: &[(&str, &str)]) -> Caller {
    let admin = Caller::new(plane, User::Admin).await;
    let verbs = json!(["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]);
    let rules = resources.iter().map(|(group, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}));
    allow(&admin, user, rules.collect()).await;
    let caller = Caller::named(plane, user).await;
    for (group, resource) in resources {
        let word = match (*group, resource.split_once('/')) {
            ("", _) => (*resource).to_owned(),
            (group, Some((plural, sub))) => format!("{plural}.{group}/{sub}"),
            (group, None) => format!("{resource}.{group}"),
        };
        in_force(&caller, "patch", &word).await;
    }
    caller
}

/// The server learns of roles and bindings by watches of its own.
async fn in_force(caller: &Caller, verb: &str, resource: &str) {
    eventually(&format!("the right to {verb} {resource}"), CONTROLLER, || async {
        Ok::<_, String>(caller.may(verb, resource).await.then_some(()))
    })
    .await;
}

/// The reconciler, who calls himself what lockkeeper calls itself.
async fn reconciler(plane: &ControlPlane) -> Caller {
    Caller::new(plane, User::Reconciler).await.manager(MANAGER)
}

/// Asserts that the policy refused, not RBAC, and that it named the object.
#[track_caller]
fn refused_by_policy(answer: Result<Value, Refused>, what: &str, words: &[&str]) {
    match answer {
        Ok(_) => panic!("{what}: accepted"),
        Err(refused) => assert!(
            matches!(refused.code, 403 | 422) && refused.says(&["ValidatingAdmissionPolicy"]) && refused.says(words),
            "{what}: {refused}; wanted {words:?}"
        ),
    }
}

#[track_caller]
fn accepted(answer: Result<Value, Refused>, what: &str) {
    if let Err(refused) = answer {
        panic!("{what}: {refused}");
    }
}

/// Every key on a Node that is lockkeeper's alone, as `/metadata/...` pointers.
fn own_keys(component: &ComponentKey) -> Vec<String> {
    Role::ALL
        .into_iter()
        .filter(|role| *role != Role::Desired)
        .map(|role| (if role.is_annotation() { "annotations" } else { "labels" }, role.key(component)))
        .chain([("annotations", keys::CORDON.to_owned())])
        .map(|(kind, key)| format!("/metadata/{kind}/{}", key.replace('/', "~1")))
        .collect()
}

/// A merge patch that sets one thing.
fn patch(pointer: &str, value: Value) -> Value {
    let mut patch = json!({});
    edit(&mut patch, pointer, json!("placeholder"));
    *patch.pointer_mut(pointer).expect("just set") = value;
    patch
}

#[tokio::test]
async fn nobody_but_lockkeeper_writes_its_labels_and_annotations_on_nodes() {
    let Some(plane) = installed() else { return };
    let client = plane.client(User::Admin).await;
    let reconciler = reconciler(plane).await;
    let strangers = [
        ("admin", Caller::new(plane, User::Admin).await),
        ("a node admin", with_rights_on(plane, "policy-node-admin", &[("", "nodes"), ("", "nodes/status")]).await),
        ("a node admin with lockkeeper's manager", Caller::named(plane, "policy-node-admin").await.manager(MANAGER)),
        ("the reconciler under another name", Caller::new(plane, User::Reconciler).await),
    ];
    let bare = HandMadeNode::ready(&client, "policy-bare", &[]).await;
    let full = HandMadeNode::ready(&client, "policy-full", &[]).await;
    let (bare_path, full_path) = (format!("/api/v1/nodes/{}", bare.name), format!("/api/v1/nodes/{}", full.name));

    for pointer in own_keys(&ComponentKey::new("storage", "my.gpu")) {
        accepted(reconciler.merge(&full_path, &patch(&pointer, json!("old")), Stay::Yes).await, &pointer);
        for (who, stranger) in &strangers {
            for (what, path, value) in [
                ("add", &bare_path, json!("new")),
                ("change", &full_path, json!("new")),
                ("empty", &full_path, json!("")),
                ("remove", &full_path, Value::Null),
            ] {
                let answer = stranger.merge(path, &patch(&pointer, value.clone()), Stay::No).await;
                refused_by_policy(answer, &format!("{who}: {what} {pointer}"), &["policy-"]);
            }
        }
        // Labels can be written through the status as well.
        let answer = strangers[1].1.merge(&format!("{full_path}/status"), &patch(&pointer, json!("new")), Stay::No).await;
        refused_by_policy(answer, &format!("through the status: {pointer}"), &["policy-full"]);
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "policy-born"}});
        edit(&mut node, &pointer, json!("new"));
        let answer = strangers[1].1.create(&node, Stay::No).await;
        refused_by_policy(answer, &format!("a node born with {pointer}"), &["policy-born"]);
        accepted(reconciler.merge(&full_path, &patch(&pointer, json!("new")), Stay::No).await, "the reconciler changes it");
        accepted(reconciler.merge(&full_path, &patch(&pointer, Value::Null), Stay::No).await, "the reconciler removes it");
    }
    bare.delete().await;
    full.delete().await;
}

#[tokio::test]
async fn everything_else_on_a_node_is_free() {
    let Some(plane) = installed() else { return };
    let node_admin = with_rights_on(plane, "policy-free-admin", &[("", "nodes"), ("", "nodes/status")]).await;
    let node = HandMadeNode::ready(&plane.client(User::Admin).await, "policy-free", &[]).await;
    let path = format!("/api/v1/nodes/{}", node.name);
    let component = ComponentKey::new("storage", "gpu");
    let own = own_keys(&component).remove(0);
    accepted(reconciler(plane).await.merge(&path, &patch(&own, json!("1.0")), Stay::Yes).await, "a label of lockkeeper's");

    let desired = format!("/metadata/labels/{}", Role::Desired.key(&component).replace('/', "~1"));
    for (pointer, value) in [
        (desired.as_str(), json!("2.0")),
        (desired.as_str(), Value::Null),
        ("/metadata/labels/gpu", json!("yes")),
        ("/metadata/labels/other.dev~1loader.storage.gpu", json!("yes")),
        ("/metadata/annotations/lockkeeper.dev~1note", json!("mine")),
        ("/spec/unschedulable", json!(true)),
        ("/spec/unschedulable", Value::Null),
        ("/spec/taints", json!([{"key": "a", "effect": "NoSchedule"}])),
    ] {
        accepted(node_admin.merge(&path, &patch(pointer, value), Stay::Yes).await, pointer);
    }
    let status = patch("/status/nodeInfo/bootID", json!("another"));
    accepted(node_admin.merge(&format!("{path}/status"), &status, Stay::Yes).await, "a kubelet's status");
    accepted(node_admin.delete(&path, json!({}), Stay::Yes).await, "a Node that is deleted takes its labels with it");
}

/// A versioned DaemonSet as the engine makes it, as far as the policy looks.
fn versioned(namespace: &str, name: &str) -> Value {
    let mut template = template("loader", "loader:1.0");
    edit(&mut template, "/spec/nodeSelector", json!({"nobody": "here"}));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": namespace, "name": name, "labels": {(keys::COMPONENT): "gpu", (keys::ROLE): "loader", (keys::VERSION): "1.0"}},
        "spec": {"selector": {"matchLabels": {"app": "loader"}}, "updateStrategy": {"type": "OnDelete"}, "template": template},
    })
}

#[tokio::test]
async fn versioned_daemon_sets_are_made_and_deleted_by_lockkeeper_alone() {
    let Some(plane) = installed() else { return };
    namespace(&plane.client(User::Admin).await, "policy-sets").await;
    let reconciler = reconciler(plane).await;
    let set = versioned("policy-sets", "gpu-loader-0123456789");
    let path = path(&set);
    let made = reconciler.create(&set, Stay::Yes).await.expect("the reconciler makes a versioned DaemonSet");
    let uid = made.pointer("/metadata/uid").cloned().expect("uid");

    // Kubernetes' own controllers go on working with it: they write its status and its pods.
    let sets: Api<DaemonSet> = Api::namespaced(plane.client(User::Admin).await, "policy-sets");
    eventually("the DaemonSet controller to take it up", CONTROLLER, || async {
        let set = sets.get("gpu-loader-0123456789").await?;
        Ok::<_, kube::Error>(set.status.and_then(|status| status.observed_generation))
    })
    .await;

    let strangers = [
        ("admin", Caller::new(plane, User::Admin).await),
        ("an app admin", with_rights_on(plane, "policy-app-admin", &[("apps", "daemonsets")]).await),
    ];
    for (who, stranger) in &strangers {
        let name = &["gpu-loader-0123456789"];
        refused_by_policy(stranger.delete(&path, json!({}), Stay::No).await, &format!("{who}: delete"), name);
        let orphan = json!({"propagationPolicy": "Orphan"});
        refused_by_policy(stranger.delete(&path, orphan, Stay::No).await, &format!("{who}: delete, orphaning"), name);
        let collection = "/apis/apps/v1/namespaces/policy-sets/daemonsets";
        refused_by_policy(stranger.delete(collection, json!({}), Stay::No).await, &format!("{who}: delete all"), name);
        let image = patch("/spec/template/spec/nodeSelector/nobody", json!("there"));
        refused_by_policy(stranger.merge(&path, &image, Stay::No).await, &format!("{who}: edit"), name);
        let unmark = patch(&format!("/metadata/labels/{}", keys::COMPONENT.replace('/', "~1")), Value::Null);
        refused_by_policy(stranger.merge(&path, &unmark, Stay::No).await, &format!("{who}: take the mark off"), name);
        let other = versioned("policy-sets", "forged");
        refused_by_policy(stranger.create(&other, Stay::No).await, &format!("{who}: forge one"), &["forged"]);
        let mut plain = versioned("policy-sets", "plain");
        edit(&mut plain, "/metadata/labels", Value::Null);
        accepted(stranger.create(&plain, Stay::No).await, "a DaemonSet of somebody else");
    }
    let pinned = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
    accepted(reconciler.delete(&path, pinned, Stay::Yes).await, "the reconciler collects it, pinned to its UID");
}

#[tokio::test]
async fn a_component_is_made_only_by_who_may_make_daemon_sets_there() {
    let Some(plane) = installed() else { return };
    namespace(&plane.client(User::Admin).await, "policy-authors").await;
    let components = ("lockkeeper.dev", "nodecomponents");
    let author = with_rights_on(plane, "policy-author", &[components]).await;
    let root = with_rights_on(plane, "policy-root", &[components, ("apps", "daemonsets")]).await;
    let object = component("policy-authors", "gpu", "1.0");

    let words = ["policy-author", "DaemonSets"];
    refused_by_policy(author.apply(&object, Stay::No).await, "create", &words);
    accepted(root.apply(&object, Stay::Yes).await, "create by one who may");
    let new_version = component("policy-authors", "gpu", "2.0");
    refused_by_policy(author.apply(&new_version, Stay::No).await, "change", &words);
    accepted(root.apply(&new_version, Stay::Yes).await, "change by one who may");
    let label = patch("/metadata/labels/team", json!("storage"));
    accepted(author.merge(&path(&object), &label, Stay::No).await, "a label runs nothing");
    accepted(author.delete(&path(&object), json!({}), Stay::Yes).await, "to take out of service runs nothing new");
}

#[tokio::test]
async fn a_name_too_long_together_with_its_namespace_is_refused() {
    let Some(plane) = installed() else { return };
    let (long, longer) = ("n".repeat(keys::MAX_NAMESPACE_AND_NAME - "policy-names".len()), "policy-names");
    namespace(&plane.client(User::Admin).await, longer).await;
    let admin = Caller::new(plane, User::Admin).await;
    accepted(admin.apply(&component(longer, &long, "1.0"), Stay::No).await, "54 characters");
    refused_by_policy(
        admin.apply(&component(longer, &format!("{long}n"), "1.0"), Stay::No).await,
        "55 characters",
        &["54", "policy-names"],
    );
}

#[tokio::test]
async fn an_override_needs_a_verb_of_its_own() {
    let Some(plane) = installed() else { return };
    namespace(&plane.client(User::Admin).await, "policy-overrides").await;
    let handoffs = ("lockkeeper.dev", "nodehandoffs");
    let plain = with_rights_on(plane, "policy-plain", &[handoffs]).await;
    let trusted = with_rights_on(plane, "policy-trusted", &[handoffs]).await;
    let admin = Caller::new(plane, User::Admin).await;
    let rules = json!([
        {"apiGroups": ["lockkeeper.dev"], "resources": ["nodehandoffs"], "verbs": ["get", "list", "create", "update", "patch", "override"]},
    ]);
    allow(&admin, "policy-trusted", rules).await;
    in_force(&trusted, "override", "nodehandoffs.lockkeeper.dev").await;

    let object = handoff("policy-overrides", "gpu", "n1", "2.0");
    let overrides = |uids: &[&str]| -> Value {
        uids.iter().map(|uid| json!({"podUid": uid, "reason": "stuck", "until": "2030-01-01T00:00:00Z"})).collect()
    };
    let mut overridden = object.clone();
    edit(&mut overridden, "/spec/overrides", overrides(&["a"]));
    refused_by_policy(plain.apply(&overridden, Stay::No).await, "born with an override", &["override", "policy-plain"]);
    accepted(plain.apply(&object, Stay::Yes).await, "without");
    let first = patch("/spec/overrides", overrides(&["a"]));
    refused_by_policy(plain.merge(&path(&object), &first, Stay::No).await, "add one", &["override", "policy-plain"]);
    accepted(trusted.merge(&path(&object), &first, Stay::Yes).await, "add one by one who may");
    let second = patch("/spec/overrides", overrides(&["a", "b"]));
    refused_by_policy(plain.merge(&path(&object), &second, Stay::No).await, "add another", &["override", "policy-plain"]);
    accepted(plain.merge(&path(&object), &patch("/spec/action", json!("Hold")), Stay::Yes).await, "leave it and hold");
    accepted(plain.merge(&path(&object), &patch("/spec/overrides", json!([])), Stay::Yes).await, "take it back");
}

#[tokio::test]
async fn only_lockkeeper_says_that_a_label_asks() {
    let Some(plane) = installed() else { return };
    namespace(&plane.client(User::Admin).await, "policy-labels").await;
    let person = with_rights_on(plane, "policy-labeller", &[("lockkeeper.dev", "nodehandoffs")]).await;
    let engine = reconciler(plane).await;
    let mut object = handoff("policy-labels", "gpu", "n1", "2.0");
    edit(&mut object, "/spec/requestedBy", json!("label"));
    let words = ["policy-labeller", "requestedBy"];
    refused_by_policy(person.apply(&object, Stay::No).await, "made up by a person", &words);
    accepted(engine.apply(&object, Stay::Yes).await, "made by lockkeeper");
    let at = path(&object);
    refused_by_policy(person.merge(&at, &patch("/spec/version", json!("3.0")), Stay::No).await, "another version", &words);
    accepted(person.merge(&at, &patch("/spec/attempt", json!(2)), Stay::Yes).await, "once more");
    accepted(person.merge(&at, &patch("/spec/action", json!("Abort")), Stay::Yes).await, "stop it");
    let asks = json!({"spec": {"version": "3.0", "requestedBy": "policy-labeller"}});
    accepted(person.merge(&at, &asks, Stay::Yes).await, "another version, and who asks");
    refused_by_policy(
        person.merge(&at, &patch("/spec/requestedBy", json!("label")), Stay::No).await,
        "back to the label",
        &words,
    );
}

#[tokio::test]
async fn a_namespace_that_holds_a_version_is_not_deleted() {
    let Some(plane) = installed() else { return };
    let client = plane.client(User::Admin).await;
    namespace(&client, "policy-home").await;
    namespace(&client, "policy-empty").await;
    let (admin, reconciler) = (Caller::new(plane, User::Admin).await, reconciler(plane).await);
    let set = versioned("policy-home", "gpu-loader-0123456789");
    let made = reconciler.create(&set, Stay::Yes).await.expect("a versioned DaemonSet");

    // The server learns of DaemonSets by a watch of its own.
    eventually("the policy to know the DaemonSet", CONTROLLER, || async {
        let answer = admin.delete("/api/v1/namespaces/policy-home", json!({}), Stay::No).await;
        Ok::<_, Refused>(answer.err().filter(|refused| refused.says(&["ValidatingAdmissionPolicy", "policy-home", "gpu-loader"])))
    })
    .await;
    accepted(admin.delete("/api/v1/namespaces/policy-empty", json!({}), Stay::Yes).await, "a namespace without one");
    let pinned = json!({"preconditions": {"uid": made.pointer("/metadata/uid")}, "propagationPolicy": "Background"});
    accepted(reconciler.delete(&path(&set), pinned, Stay::Yes).await, "the DaemonSet is collected");
    eventually("the namespace to be free", CONTROLLER, || async {
        admin.delete("/api/v1/namespaces/policy-home", json!({}), Stay::Yes).await.map(Some)
    })
    .await;
}

//! Objects that make no sense: each is an anomaly or a refusal that names the object and what to do; nothing is written because of it,
//! nothing is lost, and what is sound goes on.

use lockkeeper::{
    api::keys::{CORDON, Role},
    handoff::verdict::BlockerKind,
    sim::scenarios::{
        kernel_module::{self as scenario, NAME, NAMESPACE},
        objects,
    },
};
use serde_json::{Value, json};

use crate::{
    pods::{bare, device_user},
    stage::{Stage, component_path, play},
    trace::Trace,
};

async fn annotate(stage: &Stage, node: &str, key: &str, value: Option<&str>) {
    stage.hands.merge(&format!("/api/v1/nodes/{node}"), &json!({"metadata": {"annotations": {key: value}}})).await.unwrap();
}

/// The versioned DaemonSet of a role, as its path.
fn set_path(stage: &Stage, role: &str, version: &str) -> String {
    let sets = stage.world.api.list("daemonsets.apps");
    let is = |set: &Value| {
        let labels = &set["metadata"]["labels"];
        labels["lockkeeper.dev/role"] == role && labels["lockkeeper.dev/version"] == version
    };
    let set = sets.iter().find(|set| is(set)).unwrap_or_else(|| panic!("no {role} DaemonSet of {version}"));
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{}", set["metadata"]["name"].as_str().unwrap())
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[test]
fn garbage_in_labels_and_annotations_stops_that_node_by_name_and_no_other() {
    let key = scenario::key();
    let cases = [
        (Role::Loader.key(&key), "", true, "the value is empty"),
        (Role::Loaded.key(&key), "1.0", false, "annotation"),
        (Role::Loaded.key(&key), "{\"version\": 7}", false, ""),
        (Role::Mark.key(&key), "[]", false, ""),
        (Role::Loaded.key(&key), "label", true, "as a label it says nothing"),
        (Role::Plugin.key(&key), "annotation", false, "as an annotation it says nothing"),
        (format!("lockkeeper.dev/versio.{NAMESPACE}.{NAME}"), "2.0", true, "lockkeeper has no key \"versio\""),
    ];
    for (at, (garbage, value, is_label, words)) in cases.into_iter().enumerate() {
        play(|| async {
            let stage = Stage::new(200 + at as u64, 2).installed().await;
            let before = stage.node("gpu-01");
            let map = if is_label { "labels" } else { "annotations" };
            let old = before["metadata"][map][&garbage].as_str().map(str::to_owned);
            let put = |value: Option<String>| {
                let (hands, garbage) = (stage.hands.clone(), garbage.clone());
                async move {
                    hands.merge("/api/v1/nodes/gpu-01", &json!({"metadata": {map: {garbage: value}}})).await.unwrap();
                }
            };
            put(Some(value.to_owned())).await;
            let (engine, trace) = (stage.engine(), Trace::of(&stage));
            stage.spec(json!({"rollout": {"blocked": "Skip"}})).await;
            stage.release().await;
            stage.ask(&stage.nodes).await;
            let told = stage.waits(&engine, NAME, "gpu-01", BlockerKind::LabelGarbage, &[&garbage]).await;
            assert_eq!(told.object.to_string(), "Node gpu-01");
            let fits = words == "annotation" || told.message.contains(words);
            assert!(fits && (told.message.contains("correct") || told.message.contains("remove")), "{garbage}: {}", told.message);
            stage.until("the other one goes on", || stage.is_done("gpu-02", "2.0")).await;
            stage.pass(120).await;
            let touched = |line: &String| line.contains("gpu-01") && !line.starts_with("phase ");
            assert!(!trace.lines().iter().any(touched), "{garbage}: {}", trace.lines().join("\n"));
            assert_eq!(stage.loaded("gpu-01").as_deref(), Some("1.0"), "{garbage}");
            assert_eq!(stage.condition("Anomaly").0, "True", "{garbage}");
            put(old).await;
            stage.until("corrected, it goes on", || stage.is_done("gpu-01", "2.0")).await;
            stage.clean();
            engine.stop().await;
        });
    }
}

#[test]
fn a_cordon_annotation_that_makes_no_sense_refuses_the_handoff_by_name() {
    play(|| async {
        let stage = Stage::new(210, 1).installed().await;
        annotate(&stage, "gpu-01", CORDON, Some("mine")).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.waits(&engine, NAME, "gpu-01", BlockerKind::LabelGarbage, &[CORDON, "mine"]).await;
        stage.pass(120).await;
        assert!(trace.all("cordon ").is_empty() && trace.all("slot ").is_empty());
        annotate(&stage, "gpu-01", CORDON, None).await;
        stage.until("it goes on", || stage.is_done("gpu-01", "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_daemon_set_edited_by_hand_is_an_anomaly_with_its_repair_and_refuses_new_nodes() {
    play(|| async {
        let stage = Stage::new(211, 2).installed().await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.until("2.0 has its DaemonSets", || stage.world.api.list("daemonsets.apps").len() == 4).await;
        let path = set_path(&stage, "plugin", "2.0");
        let image = |image: &str| json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
        stage.hands.send(http::Method::PATCH, &path, "application/json-patch+json", Some(&image("debug:1"))).await.unwrap();
        stage.until("it is told", || stage.condition("Anomaly").0 == "True").await;
        let (_, told) = stage.condition("Anomaly");
        for word in [
            &name_of(&path)[..],
            "plugin of version 2.0",
            "was edited",
            "spec.template.spec.containers[0].image",
            "kubectl rollout undo daemonset/",
            "-n gpu-system",
        ] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        stage.ask(&stage.nodes[..1]).await;
        stage.pass(300).await;
        // Whatever it says, it is never rolled out behind the operator's back, and nothing is written over it.
        assert!(
            trace.all("slot ").is_empty() && stage.runs("gpu-01", "1.0"),
            "{:?}\n{}",
            stage.blockers("gpu-01"),
            trace.lines().join("\n")
        );
        assert!(
            stage.blockers("gpu-01").iter().any(|(_, message)| message.contains(&name_of(&path))),
            "{:?}",
            stage.blockers("gpu-01")
        );
        let edited = stage.hands.get(&path).await.unwrap();
        assert_eq!(edited.pointer("/spec/template/spec/containers/0/image"), Some(&json!("debug:1")), "an edit was undone");
        stage
            .hands
            .send(http::Method::PATCH, &path, "application/json-patch+json", Some(&image("gpu-device-plugin:2.0")))
            .await
            .unwrap();
        stage.until("put back, it goes on", || stage.is_done("gpu-01", "2.0")).await;
        stage.until("nothing is told any more", || stage.condition("Anomaly").0 == "False").await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_daemon_set_deleted_by_hand_comes_back_and_the_loss_of_a_record_is_named() {
    play(|| async {
        let stage = Stage::new(212, 1).installed().await;
        let (engine, node) = (stage.engine(), "gpu-01");
        // The plugin's: made again from the version's record.
        let plugin = set_path(&stage, "plugin", "1.0");
        stage.hands.delete(&plugin).await.unwrap();
        stage
            .until("the plugin comes back", || stage.runs(node, "1.0") && stage.world.api.list("daemonsets.apps").len() == 2)
            .await;
        assert_eq!(name_of(&set_path(&stage, "plugin", "1.0")), name_of(&plugin));
        // The loader's of the version that is still the aim: made again from the spec.
        let loader = set_path(&stage, "loader", "1.0");
        stage.hands.delete(&loader).await.unwrap();
        stage.until("the loader comes back", || stage.world.api.list("daemonsets.apps").len() == 2).await;
        stage.until("it is in service", || stage.runs(node, "1.0")).await;
        // The loader's of a version that is no longer the aim: nothing says any more how to unload it.
        stage.release().await;
        stage.until("2.0 has its DaemonSets", || stage.world.api.list("daemonsets.apps").len() == 4).await;
        let old = stage.hands.get(&loader).await.unwrap();
        stage.hands.delete(&loader).await.unwrap();
        stage.until("it is told", || stage.condition("Anomaly").0 == "True").await;
        let (_, told) = stage.condition("Anomaly");
        assert!(told.contains(&name_of(&loader)) && told.contains("1.0"), "{told}");
        let trace = Trace::of(&stage);
        stage.ask(&stage.nodes).await;
        stage.names(node, "Anomaly", node, &["1.0 may be in its kernel", "DaemonSets are gone", "Restore them"]).await;
        assert!(trace.all("slot ").is_empty() && stage.loaded(node).as_deref() == Some("1.0"));
        // Restored from a backup: the same content under the same name.
        let mut body = old;
        for gone in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            body["metadata"].as_object_mut().unwrap().remove(gone);
        }
        body.as_object_mut().unwrap().remove("status");
        stage.hands.send(http::Method::POST, loader.rsplit_once('/').unwrap().0, "application/json", Some(&body)).await.unwrap();
        stage.until("it goes on", || stage.is_done(node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn another_content_under_a_version_that_was_there_is_refused_and_said() {
    play(|| async {
        let stage = Stage::new(213, 2).installed().await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        // At once: the API server does.
        let mut other = scenario::kernel_module("1.0");
        other["daemonSets"]["loader"]["spec"]["containers"][0]["image"] = json!("gpu-loader:hotfix");
        let no = stage.hands.merge(&component_path(), &json!({"spec": {"kernelModule": other}})).await.unwrap_err();
        assert!(
            no.code == 422 && no.why.contains("what a version contains never changes: give the new content a new version"),
            "{no}"
        );
        // By way of another version: the engine does.
        stage.release().await;
        stage.until("2.0 has its DaemonSets", || stage.world.api.list("daemonsets.apps").len() == 4).await;
        stage.ask(&stage.nodes[..1]).await;
        stage.until("one node runs 2.0", || stage.is_done("gpu-01", "2.0")).await;
        stage.spec(json!({"version": "1.0", "kernelModule": other})).await;
        stage.until("it is told", || stage.condition("SpecChangedWithoutVersion").0 == "True").await;
        assert!(
            stage
                .condition("SpecChangedWithoutVersion")
                .1
                .contains("give the new content a new version, or take the change back")
        );
        let before = trace.lines();
        stage.edit("gpu-01", json!({"version": "1.0", "requestedBy": "operator"}), true).await;
        stage
            .names("gpu-01", "ComponentRefused", "NodeComponent gpu-system/gpu", &["SpecChangedWithoutVersion", "new version"])
            .await;
        assert_eq!(trace.all("slot "), before.iter().filter(|line| line.starts_with("slot ")).cloned().collect::<Vec<_>>());
        assert!(stage.runs("gpu-01", "2.0") && stage.runs("gpu-02", "1.0"));
        let loader = stage.hands.get(&set_path(&stage, "loader", "1.0")).await.unwrap();
        assert_eq!(loader.pointer("/spec/template/spec/containers/0/image"), Some(&json!("gpu-loader:1.0")), "it was rolled out");
        // The change is taken back by way of the other version, too.
        stage.release().await;
        stage.spec(json!({"version": "1.0", "kernelModule": scenario::kernel_module("1.0")})).await;
        stage.until("taken back, it goes on", || stage.is_done("gpu-01", "1.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn components_that_no_server_should_have_let_in_are_refused_by_name_and_hold_nobody_up() {
    play(|| async {
        let stage = Stage::new(214, 1).installed().await;
        let refuse = |spec: Value, words: &'static str| (spec, words);
        // What the schema and its rules refuse.
        let with = |pointer: &str, value: Value| {
            let mut spec = scenario::component_spec("1.0");
            let (parent, last) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[last] = value;
            spec
        };
        let refused = [
            refuse(with("/version", json!("")), "spec.version"),
            refuse(with("/kernelModule/devices", json!({})), "devices names none"),
            refuse(
                with("/kernelModule/devices", json!({"podSelector": {}, "podNamespaces": ["ml"]})),
                "an empty podSelector means every pod",
            ),
            refuse(
                with("/kernelModule/devices", json!({"podSelector": {"matchLabels": {"a": "b"}}})),
                "podSelector and podNamespaces need one another",
            ),
            refuse(with("/kernelModule/devices", json!({"resourceNames": ["cpu"]})), "extended resources only"),
            refuse(with("/kernelModule/daemonSets", json!({"devicePlugin": {}})), "loader"),
            refuse(json!({}), "spec"),
        ];
        for (spec, words) in refused {
            let no = stage.hands.create(&objects::component(NAMESPACE, "bad", spec)).await.err();
            assert!(no.as_ref().is_some_and(|no| no.code == 422 && no.why.contains(words)), "no {words:?} in {no:?}");
        }
        let long = "a".repeat(53);
        let no = stage.hands.create(&objects::component(NAMESPACE, &long, scenario::component_spec("1.0"))).await.unwrap_err();
        assert!(no.why.contains("at most 52 characters"), "{no}");
        // What only the engine can see: namespace and name together.
        stage.apply(&[objects::namespace("a-namespace-with-quite-a-long-name")]).await;
        let mut spec = scenario::component_spec("1.0");
        spec["kernelModule"]["devices"] = json!({"resourceNames": ["vendor.example/long"]});
        stage.apply(&[objects::component("a-namespace-with-quite-a-long-name", "and-a-long-name-itself", spec)]).await;
        // A server that does not look at patterns lets this in.
        let mut spec = with("/version", json!("2.0+rc 1"));
        spec["kernelModule"]["devices"] = json!({"resourceNames": ["vendor.example/odd"]});
        stage.apply(&[objects::component(NAMESPACE, "odd", spec)]).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        let told = || {
            let it = stage.world.api.get(
                "nodecomponents.lockkeeper.dev",
                "a-namespace-with-quite-a-long-name",
                "and-a-long-name-itself",
            );
            it.map(|it| it["status"]["conditions"].to_string()).unwrap_or_default()
        };
        stage.until("the long names are told", || told().contains("56 characters together, at most 54")).await;
        let odd = || {
            stage
                .world
                .api
                .get("nodecomponents.lockkeeper.dev", NAMESPACE, "odd")
                .map(|it| it["status"]["conditions"].to_string())
        };
        stage
            .until("the odd version is told", || {
                odd().is_some_and(|told| told.contains("spec.version") && told.contains("label value"))
            })
            .await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the sound one goes on", || stage.is_done("gpu-01", "2.0")).await;
        assert!(trace.lines().iter().all(|line| !line.contains("and-a-long-name-itself")), "{}", trace.lines().join("\n"));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn objects_with_missing_fields_break_nothing_and_the_fleet_goes_on() {
    play(|| async {
        let stage = Stage::new(215, 2).installed().await;
        // As an older server, another writer or a broken restore may leave them: past all validation.
        let odd = [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare-node", "annotations": {"sim.lockkeeper.dev/no-kubelet": "true"}}}),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "odd-node", "labels": {"pool": "gpu"}, "annotations": {"sim.lockkeeper.dev/no-kubelet": "true"}},
                "status": {"conditions": [{"type": "Ready"}], "allocatable": {"vendor.example/gpu": "many"}}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "no-spec", "namespace": "ml"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "no-containers", "namespace": "ml"}, "spec": {"nodeName": "bare-node"}}),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "empty", "namespace": "ml"}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "empty", "namespace": "ml"}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "empty"}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "empty", "namespace": "ml"}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "empty", "namespace": "ml"}}),
        ];
        let mut installed = 0;
        for object in odd {
            installed += usize::from(stage.world.api.install(object).is_ok());
        }
        assert!(installed >= 6, "the simulated server takes {installed} of them");
        stage.apply(&[bare("ml", "ordinary", device_user("ordinary"))]).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.spec(json!({"drain": {"evictUnmanaged": true}})).await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("both are handed over", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        assert!(
            trace.lines().iter().all(|line| !line.contains("odd-node") && !line.contains("bare-node")),
            "{}",
            trace.lines().join("\n")
        );
        let picture = engine.until(|picture| picture.fleet.synced).await.unwrap();
        assert!(picture.fleet.nodes.iter().any(|node| node.name == *"odd-node"), "a node was lost");
        stage.clean();
        engine.stop().await;
    });
}

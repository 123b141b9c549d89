use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{api::Uid, fleet::records::*};

fn decode(kind: Kind, object: &Value) -> Record {
    Decoder::new(kind).object(object.to_string().as_bytes()).unwrap()
}

fn pod(mut object: Value) -> PodRecord {
    let meta = json!({"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "7"});
    let given = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut merged = meta;
    merged.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
    object["metadata"] = merged;
    match decode(Kind::Pod, &object) {
        Record::Pod(pod) => pod,
        other => panic!("{other:?}"),
    }
}

fn resources(pod: &PodRecord) -> Vec<(String, i64)> {
    pod.extra.iter().flat_map(|extra| &extra.resources).map(|(name, quantity)| (name.to_string(), *quantity)).collect()
}

#[test]
fn effective_requests_follow_containers_sidecars_and_init_containers() {
    let gpu = |quantity: &str| json!({"resources": {"requests": {"v.com/gpu": quantity, "cpu": "1"}}});
    let limit = |quantity: i64| json!({"resources": {"limits": {"v.com/gpu": quantity}}});
    let sidecar = |quantity: &str| json!({"restartPolicy": "Always", "resources": {"limits": {"v.com/gpu": quantity}}});
    let none = json!({"resources": {}});
    let table = [
        ("two containers add up", json!({"containers": [gpu("1"), gpu("2")]}), 3),
        ("limits alone count", json!({"containers": [limit(2)]}), 2),
        ("zero is no claim", json!({"containers": [gpu("0")]}), 0),
        ("an init container alone", json!({"containers": [none], "initContainers": [gpu("4")]}), 4),
        ("the larger of init and containers", json!({"containers": [gpu("1")], "initContainers": [gpu("4")]}), 4),
        ("a sidecar adds to the containers", json!({"containers": [gpu("1")], "initContainers": [sidecar("2")]}), 3),
        ("a sidecar before an init step", json!({"containers": [none], "initContainers": [sidecar("2"), gpu("3")]}), 5),
        ("a quantity that is none claims one", json!({"containers": [gpu("x")]}), 1),
        ("suffixes", json!({"containers": [gpu("1k")]}), 1000),
        ("overhead", json!({"containers": [gpu("1")], "overhead": {"v.com/gpu": "1"}}), 2),
        ("nothing", json!({"containers": [none]}), 0),
    ];
    for (rule, spec, expected) in table {
        let expected: Vec<_> = (expected > 0).then(|| ("v.com/gpu".to_owned(), expected)).into_iter().collect();
        assert_eq!(resources(&pod(json!({"spec": spec}))), expected, "{rule}");
    }
}

#[test]
fn claims_are_found_in_every_form() {
    let object = json!({
        "spec": {"resourceClaims": [
            {"name": "shared", "resourceClaimName": "one"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "waiting", "resourceClaimTemplateName": "t"},
            {"name": "unneeded", "resourceClaimTemplateName": "t"},
        ]},
        "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "unneeded"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-y", "requestMappings": []},
        },
    });
    let extra = pod(object).extra.unwrap();
    assert_eq!(extra.claims, ["one".into(), "p-made-x".into(), "p-extended-resources-y".into()] as [Str; 3]);
    assert_eq!(extra.unresolved_claims, ["waiting".into()] as [Str; 1]);
}

#[test]
fn a_pod_without_anything_special_has_no_extra_part() {
    let object = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"a.example/b": "c"}, "managedFields": [{"manager": "x"}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "nodeSelector": {"a": "b"}, "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z", "containerStatuses": [{"name": "c", "ready": true}]},
    });
    let pod = pod(object);
    assert_eq!((pod.extra, pod.phase, pod.node.as_ref().map(|n| n.as_str())), (None, PodPhase::Running, Some("n1")));
}

#[test]
fn flags_tell_what_a_drain_must_know() {
    let toleration = |toleration: Value| pod(json!({"spec": {"tolerations": [toleration]}})).flags;
    assert!(toleration(json!({"operator": "Exists"})).tolerates_all);
    assert!(toleration(json!({"operator": "Exists", "effect": "NoSchedule"})).tolerates_cordon);
    assert!(!toleration(json!({"operator": "Exists", "effect": "NoExecute"})).tolerates_cordon);
    assert!(toleration(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})).tolerates_cordon);
    assert!(!toleration(json!({"key": "other", "operator": "Exists"})).tolerates_cordon);
    assert!(pod(json!({"metadata": {"annotations": {MIRROR: "x"}}})).flags.mirror);
    assert!(pod(json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}})).flags.empty_dir);
    assert!(!pod(json!({"spec": {"volumes": [{"name": "v", "hostPath": {}}]}})).flags.empty_dir);
}

#[test]
fn our_pods_keep_their_containers_results() {
    let object = json!({
        "metadata": {"labels": {"lockkeeper.dev/component": "gpu"}, "annotations": {"lockkeeper.dev/nonce": "n"}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Failed", "reason": "Evicted", "message": "why", "containerStatuses": [
            {"name": "unload", "restartCount": 2, "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "in use"}}},
            {"name": "odd", "state": {"terminated": {}}},
        ]},
    });
    let pod = pod(object);
    let extra = pod.extra.unwrap();
    assert!(pod.flags.ours);
    assert_eq!(&*extra.reason, "Evicted");
    let codes: Vec<_> = extra.containers.iter().map(|container| &container.state).collect();
    assert!(matches!(codes[0], ContainerState::Terminated { exit_code: 1, message, .. } if &**message == "in use"));
    assert!(matches!(codes[1], ContainerState::Terminated { exit_code: -1, .. }));
}

#[test]
fn managed_fields_tell_who_closed_a_node() {
    let object = |unschedulable: bool| {
        json!({
            "metadata": {"name": "n1", "uid": "u", "managedFields": [
                {"manager": "kubelet", "fieldsV1": {"f:status": {}}},
                {"manager": "lockkeeper", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
                {"manager": "odd"},
            ]},
            "spec": {"unschedulable": unschedulable},
            "status": {
                "allocatable": {"cpu": "4", "v.com/gpu": "2"},
                "nodeInfo": {"bootID": "b1"},
                "images": [{"names": ["r.example/a@sha256:0", "r.example/a:1"], "sizeBytes": 5}, {"names": null}],
            },
        })
    };
    let Record::Node(node) = decode(Kind::Node, &object(true)) else { panic!() };
    assert_eq!(node.unschedulable_managers, ["lockkeeper".into()] as [Str; 1]);
    assert_eq!(node.allocatable, [("v.com/gpu".into(), 2)].into());
    assert_eq!(node.images, ["r.example/a@sha256:0".into(), "r.example/a:1".into()] as [Str; 2]);
    let Record::Node(node) = decode(Kind::Node, &object(false)) else { panic!() };
    assert!(node.unschedulable_managers.is_empty());
}

#[test]
fn a_failed_sync_of_a_budget_dates_from_the_last_write_of_its_status() {
    let since = |reason: &str, changed: Value, written: Value| {
        let object = json!({
            "metadata": {"name": "db", "namespace": "shop", "uid": "u", "generation": 1, "managedFields": [
                {"manager": "kubectl", "operation": "Update", "time": "2026-01-02T09:00:00Z", "fieldsV1": {}},
                {"manager": "controllers", "operation": "Update", "subresource": "status", "time": written, "fieldsV1": {}}]},
            "status": {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no owner",
                "lastTransitionTime": changed}]},
        });
        let Record::Budget(budget) = decode(Kind::Budget, &object) else { panic!() };
        budget.sync_failed.map(|it| (it.message.to_string(), it.since.map(|at| at.to_string())))
    };
    let (early, late) = (json!("2026-01-02T03:04:05Z"), json!("2026-01-02T04:00:00Z"));
    let at = |text: &Value| Some(("no owner".to_owned(), text.as_str().map(str::to_owned)));
    assert_eq!(since("SyncFailed", early.clone(), late.clone()), at(&late), "it had no room before, and keeps that time");
    assert_eq!(since("SyncFailed", late.clone(), early.clone()), at(&late));
    assert_eq!(since("SyncFailed", early.clone(), Value::Null), at(&early));
    assert_eq!(since("SyncFailed", Value::Null, Value::Null), at(&Value::Null));
    assert_eq!(since("InsufficientPods", early, late), None);
}

#[test]
fn a_daemon_set_requires_a_label_only_if_every_alternative_does() {
    let ready = "lockkeeper.dev/ready.ns.gpu";
    let term = |keys: &[&str]| json!({"matchExpressions": keys.iter().map(|k| json!({"key": k, "operator": "Exists"})).collect::<Vec<_>>()});
    let requires = |spec: Value| {
        let object = json!({"metadata": {"name": "d", "namespace": "ns", "uid": "u"}, "spec": {"template": {"spec": spec}}});
        let Record::DaemonSet(set) = decode(Kind::DaemonSet, &object) else { panic!() };
        set.requires_labels.iter().map(|label| label.to_string()).collect::<Vec<_>>()
    };
    let affinity = |terms: Vec<Value>| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    assert_eq!(requires(json!({"nodeSelector": {ready: "2", "x": "y"}})), [ready]);
    assert_eq!(requires(affinity(vec![term(&[ready, "x"])])), [ready]);
    assert_eq!(requires(affinity(vec![term(&[ready]), term(&["x", ready])])), [ready]);
    assert!(requires(affinity(vec![term(&[ready]), term(&["x"])])).is_empty());
    assert!(requires(json!({})).is_empty());
}

#[test]
fn a_claim_for_one_node_only_names_it() {
    let only = |terms: Value| {
        let object = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "status": {
                "allocation": {
                    "devices": {"results": [{"driver": "gpu.v.com", "pool": "n1", "device": "gpu-0"}]},
                    "nodeSelector": {"nodeSelectorTerms": terms},
                },
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}, {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}],
            },
        });
        let Record::Claim(claim) = decode(Kind::Claim, &object) else { panic!() };
        assert_eq!(
            claim.reserved.iter().map(|r| r.resource.to_string()).collect::<Vec<_>>(),
            ["pods", "podgroups.scheduling.k8s.io"]
        );
        claim.only_node.map(|node| node.to_string())
    };
    let field = |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    assert_eq!(only(json!([field("n1")])).as_deref(), Some("n1"));
    assert_eq!(only(json!([field("n1"), field("n1")])).as_deref(), Some("n1"));
    assert_eq!(only(json!([field("n1"), field("n2")])), None);
    assert_eq!(only(json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}])), None);
    assert_eq!(only(json!([])), None);
}

#[test]
fn one_bad_object_never_stops_a_page() {
    let good = |name: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": name}});
    let list = json!({
        "kind": "PodList",
        "metadata": {"resourceVersion": "100", "continue": "next", "remainingItemCount": 5},
        "items": [
            good("a"),
            {"metadata": {"name": "b", "namespace": "ns", "uid": "b", "labels": 7}},
            {"metadata": {"name": "c", "namespace": "ns"}},
            "not an object",
            good("d"),
        ],
    });
    let page = Decoder::new(Kind::Pod).list(list.to_string().as_bytes()).unwrap();
    let names: Vec<_> = page.records.iter().map(|record| record.key().to_string()).collect();
    assert_eq!(names, ["ns/a", "ns/d"]);
    assert_eq!((&*page.resource_version, page.next.as_deref()), ("100", Some("next")));
    let aside: Vec<_> = page.undecodable.iter().map(|it| format!("{}: {}", it.key, it.why)).collect();
    assert_eq!(aside[0], "ns/b: invalid type: integer `7`, expected a map of strings");
    assert_eq!(aside[1], "ns/c: metadata.uid is missing");
    assert!(aside[2].starts_with("/item 3 of the page: "), "{}", aside[2]);
}

#[test]
fn an_answer_that_is_no_list_is_an_error_that_says_so() {
    for body in ["", "<html>", "{}", "[]", "{\"items\": 3}", "{\"items\": [{\"metadata\":"] {
        let error = Decoder::new(Kind::Pod).list(body.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("the answer for pods is no list page: "), "{error}");
    }
    assert!(Decoder::new(Kind::Pod).list(br#"{"metadata":{},"items":null}"#).unwrap().records.is_empty());
    assert!(Decoder::new(Kind::Pod).list(b"{\"items\": [\xff]}").is_err());
}

#[test]
fn watch_lines_of_every_type() {
    let mut decoder = Decoder::new(Kind::Pod);
    let mut line = |text: &str| decoder.line(text.as_bytes()).unwrap();
    let object = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"9"}}"#;
    assert!(matches!(line(&format!(r#"{{"type":"ADDED","object":{object}}}"#)), WatchLine::Apply { added: true, .. }));
    assert!(matches!(line(&format!(r#"{{"object":{object},"type":"MODIFIED"}}"#)), WatchLine::Apply { added: false, .. }));
    assert!(matches!(line(&format!(r#"{{"type":"DELETED","object":{object}}}"#)),
        WatchLine::Delete { key, resource_version } if key.uid == "u" && &*resource_version == "9"));
    assert!(matches!(line(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#),
        WatchLine::Bookmark { resource_version } if &*resource_version == "12"));
    assert!(matches!(
        line(r#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}"#),
        WatchLine::Error { code: 410, .. }
    ));
    assert!(matches!(line(r#"{"type":"ADDED","object":{"metadata":{"name":"p"}}}"#),
        WatchLine::Undecodable { object, .. } if &*object.key.name == "p"));
    assert!(Decoder::new(Kind::Pod).line(b"{\"type\":\"ODD\",\"object\":{}}").is_err());
}

#[test]
fn a_handoff_whose_status_does_not_decode_is_not_taken_for_a_new_one() {
    let object = json!({
        "metadata": {"name": "gpu.n1", "namespace": "ns", "uid": "u"},
        "spec": {"component": "gpu", "node": "n1", "version": "2"},
        "status": {"phase": "Singing"},
    });
    let Record::Handoff(handoff) = decode(Kind::Handoff, &object) else { panic!() };
    assert!(handoff.spec.unwrap_err().starts_with("status: unknown variant `Singing`"));
    let Record::Component(component) =
        decode(Kind::Component, &json!({"metadata": object["metadata"], "spec": {"csiNodePlugin": {}}}))
    else {
        panic!()
    };
    assert_eq!(component.spec.unwrap_err(), "spec: missing field `driver`");
}

#[test]
fn slots_that_are_garbage_are_said_so() {
    let lease = |slots: &str| {
        let object = json!({
            "metadata": {"name": "lockkeeper", "namespace": "lockkeeper-system", "uid": "u", "annotations": {"lockkeeper.dev/slots": slots}},
            "spec": {"holderIdentity": "me", "leaseTransitions": 3, "renewTime": "2026-01-02T03:04:05.000000Z"},
        });
        let Record::Lease(lease) = decode(Kind::Lease, &object) else { panic!() };
        lease
    };
    let good = lease(r#"[{"node":"n1","nodeUid":"u1","component":"ns/gpu"}]"#);
    assert_eq!((good.slots.len(), good.slots_garbage, good.epoch), (1, None, 3));
    assert!(lease("[{]").slots_garbage.is_some());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        ".{0,8}",
        proptest::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "namespace",
            "uid",
            "labels",
            "annotations",
            "containers",
            "resources",
            "requests",
            "limits",
            "v.com/gpu",
            "conditions",
            "type",
            "object",
            "items",
            "nodeName",
            "volumes",
            "tolerations",
            "template",
            "managedFields",
            "ownerReferences",
            "allocation",
            "devices",
            "results",
            "reservedFor",
            "selector",
            "minAvailable",
            "matchLabels",
            "resourceClaims",
            "taints",
            "allocatable",
            "affinity",
            "nodeAffinity",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_never_panics(value in any_json(), kind in proptest::sample::select(Kind::ALL.to_vec())) {
        let mut decoder = Decoder::new(kind);
        let mut named = value.clone();
        if let Some(object) = named.as_object_mut() {
            object.insert("metadata".into(), json!({"name": "x", "namespace": "y", "uid": "z", "labels": value.clone()}));
        }
        for text in [value.to_string(), named.to_string()] {
            let _ = decoder.object(text.as_bytes());
            let _ = decoder.line(format!("{{\"type\":\"ADDED\",\"object\":{text}}}").as_bytes());
            let _ = decoder.line(format!("{{\"type\":\"DELETED\",\"object\":{text}}}").as_bytes());
            let _ = decoder.list(format!("{{\"items\":[{text}]}}").as_bytes());
            let _ = decoder.list(text.as_bytes());
        }
    }

    #[test]
    fn any_text_as_a_quantity_never_panics(text in ".{0,24}") {
        let _ = quantity::parse(&text);
    }
}

#[test]
fn a_pods_volumes_are_followed_from_every_source_and_who_mounts_them() {
    let object = json!({
        "metadata": {"name": "app", "namespace": "shop", "uid": "u"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "volumeMounts": [{"name": "claimed"}, {"name": "eph"}], "volumeDevices": [{"name": "raw"}]}],
            "initContainers": [{"name": "i", "volumeMounts": [{"name": "inline"}]}],
            "volumes": [
                {"name": "claimed", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "eph", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "inline", "csi": {"driver": "d.example", "volumeAttributes": {"mounter": "fuse"}}},
                {"name": "raw", "persistentVolumeClaim": {"claimName": "block"}},
                {"name": "disk", "awsElasticBlockStore": {"volumeID": "v"}},
                {"name": "cfg", "configMap": {"name": "x"}},
                {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry/"}},
            ],
        },
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2, "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}],
        },
    });
    let Record::Pod(pod) = decode(Kind::Pod, &object) else { panic!() };
    assert!(pod.flags.registers);
    let extra = pod.extra.unwrap();
    let told: Vec<(&str, bool)> = extra.volumes.iter().map(|volume| (&*volume.name, volume.used)).collect();
    assert_eq!(told, [("claimed", true), ("eph", true), ("inline", true), ("raw", true), ("disk", false)]);
    assert_eq!(extra.volume_claims().map(|name| &**name).collect::<Vec<_>>(), ["data", "app-eph", "block"]);
    assert_eq!(extra.mounted.unwrap().to_string(), "2026-01-01T00:00:05Z", "later than the kubelet's first look");
    assert_eq!(extra.containers[0].restarts, 2);
}

#[test]
fn a_revisions_data_and_its_daemon_sets_template_have_one_digest() {
    let template = json!({"metadata": {"labels": {"app": "csi"}}, "spec": {
        "hostNetwork": true,
        "containers": [{"name": "p", "image": "i", "args": ["--type=cephfs", "--drivername=rook.cephfs.csi.ceph.com", "--forcecephkernelclient=true"]},
            {"name": "r", "args": ["--kubelet-registration-path=/var/lib/kubelet/plugins/rook.cephfs.csi.ceph.com/csi.sock"]}],
        "volumes": [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry/"}}],
        "tolerations": [{"operator": "Exists"}]}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "csi", "uid": "set", "controller": true}]);
    let set = json!({
        "metadata": {"name": "csi", "namespace": "ceph", "uid": "set", "generation": 2,
            "labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "store"}},
        "spec": {"updateStrategy": {"type": "RollingUpdate"}, "template": template},
    });
    let Record::DaemonSet(set) = decode(Kind::DaemonSet, &set) else { panic!() };
    let facts = set.template.unwrap();
    assert!(facts.host_network && facts.registers && facts.forces_kernel_client);
    assert_eq!(facts.drivers.iter().map(|it| &**it).collect::<Vec<_>>(), ["rook.cephfs.csi.ceph.com"]);
    assert_eq!(facts.driver_type.as_deref(), Some("cephfs"));
    assert_eq!((&*facts.strategy, &facts.deployed_by), ("RollingUpdate", &DeployedBy::Helm { release: "store".into() }));
    // As an older server wrote it: a patch, with nulls, keys in another order.
    let mut patch = template.clone();
    patch["$patch"] = json!("replace");
    patch["metadata"] = json!({"creationTimestamp": null, "labels": {"app": "csi"}});
    let revision = |template: &Value| {
        let object = json!({"metadata": {"name": "csi-abc", "namespace": "ceph", "uid": "r", "labels": {"controller-revision-hash": "abc"},
            "ownerReferences": owner}, "revision": 3, "data": {"spec": {"template": template}}});
        let Record::Revision(revision) = decode(Kind::Revision, &object) else { panic!() };
        revision
    };
    let same = revision(&patch);
    assert_eq!((&same.digest, &*same.hash, same.revision), (&facts.digest, "abc", 3));
    patch["spec"]["containers"][0]["image"] = json!("j");
    assert_ne!(revision(&patch).digest, facts.digest);
}

#[test]
fn what_csi_volumes_are_made_of_is_read_with_the_servers_defaults() {
    let pv = |spec: Value, annotations: Value| {
        let object = json!({"metadata": {"name": "pv", "uid": "u", "annotations": annotations}, "spec": spec, "status": {"phase": "Bound"}});
        let Record::Volume(volume) = decode(Kind::Volume, &object) else { panic!() };
        volume
    };
    let csi = json!({"csi": {"driver": "d", "volumeHandle": "h^1", "volumeAttributes": {"mounter": "fuse"}},
        "claimRef": {"namespace": "shop", "name": "data", "uid": "c"}});
    let volume = pv(csi, json!({}));
    assert_eq!(volume.csi.unwrap().attributes["mounter"], "fuse".into());
    assert_eq!(volume.claim.unwrap().1, Uid::from("c"));
    assert_eq!(&*pv(json!({"awsElasticBlockStore": {}}), json!({})).csi.unwrap().driver, "ebs.csi.aws.com");
    let migrated = pv(json!({"rbd": {}}), json!({"pv.kubernetes.io/migrated-to": "rbd.csi.ceph.com"}));
    assert_eq!(&*migrated.csi.unwrap().driver, "rbd.csi.ceph.com");
    assert!(pv(json!({"hostPath": {"path": "/x"}}), json!({})).csi.is_none());

    let driver = json!({"metadata": {"name": "d", "uid": "u"}, "spec": {}});
    assert!(matches!(decode(Kind::CsiDriver, &driver), Record::CsiDriver(CsiDriverRecord { attach_required: true, .. })));
    let attachment = json!({"metadata": {"name": "csi-1", "uid": "u"}, "spec": {"attacher": "d", "nodeName": "n1",
        "source": {"persistentVolumeName": "pv"}}, "status": {"attached": false, "detachError": {"message": "busy"}}});
    let Record::Attachment(attachment) = decode(Kind::Attachment, &attachment) else { panic!() };
    assert_eq!(
        (attachment.volume.as_deref(), attachment.attached, attachment.detach_error.as_deref()),
        (Some("pv"), false, Some("busy"))
    );
    let node = json!({"metadata": {"name": "n1", "uid": "u"}, "spec": {}, "status": {
        "volumesInUse": ["kubernetes.io/csi/d^h^1", "kubernetes.io/nfs/x"], "volumesAttached": [{"name": "kubernetes.io/csi/d^h^2"}]}});
    let Record::Node(node) = decode(Kind::Node, &node) else { panic!() };
    let seen: Vec<(&str, &str)> = node.csi_volumes.iter().map(|(driver, handle)| (&**driver, &**handle)).collect();
    assert_eq!(seen, [("d", "h^1"), ("d", "h^2")]);
}

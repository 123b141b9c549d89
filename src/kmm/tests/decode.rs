//! Objects of KMM as they were seen, and garbage in every field.

use serde_json::{Value, json};

use crate::{
    api::ObjectKey,
    kmm::{
        decode::{self, Decoded},
        keys,
        records::{Action, ImagesRecord, ModuleRecord, NmcRecord, Part, Phase, PodRecord, SetRecord},
    },
};

fn read<R: Decoded>(value: &Value) -> Result<R, decode::Undecodable> {
    decode::object(value.to_string().as_bytes())
}

fn module() -> Value {
    json!({"metadata": {"name": "mod", "namespace": "drv", "uid": "u", "resourceVersion": "7"}, "spec": {
        "moduleLoader": {"container": {"version": "1.0", "containerImage": "mod:1.0-${KERNEL_FULL_VERSION}", "modprobe": {"moduleName": "mod"},
            "kernelMappings": [{"literal": "5.14.0+", "containerImage": "special:5"}, {"regexp": "^6\\."}]}},
        "devicePlugin": {"container": {"image": "plugin:1.0"}}, "selector": {"pool": "dev"},
        "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "tolerationSeconds": 3}]}})
}

fn config() -> Value {
    let entry = |boot: Option<&str>| {
        let mut entry = json!({"name": "mod", "namespace": "drv", "version": "1.0", "serviceAccountName": "default",
            "config": {"containerImage": "mod:1.0-6.1", "kernelVersion": "6.1", "imagePullPolicy": "", "insecurePull": false,
                "modprobe": {"dirName": "/opt", "moduleName": "mod"}}});
        if let Some(boot) = boot {
            entry["bootId"] = json!(boot);
            // Another writer leaves out what is empty, and orders as it likes.
            entry["config"] = json!({"modprobe": {"moduleName": "mod", "dirName": "/opt"}, "kernelVersion": "6.1", "containerImage": "mod:1.0-6.1"});
        }
        entry
    };
    json!({"metadata": {"name": "node-a", "uid": "u", "ownerReferences": [{"kind": "Node", "name": "node-a", "uid": "n"}]},
        "spec": {"modules": [entry(None)]}, "status": {"modules": [entry(Some("b"))]}})
}

fn worker() -> Value {
    json!({"metadata": {"name": "kmm-worker-node-a-mod", "namespace": "drv", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {keys::MODULE_NAME: "mod", keys::WORKER_ACTION: "Load"},
        "annotations": {keys::WORKER_CONFIG: "containerImage: mod:1.0-6.1\nmodprobe:\n  dirName: /opt\n", keys::WORKER_VERSION: "1.0"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "worker", "image": "worker:1"}]},
        "status": {"phase": "Running", "containerStatuses": [{"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}})
}

fn plugin() -> Value {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-b"]}]}]}}});
    json!({"metadata": {"name": "mod-device-plugin-x", "namespace": "drv", "uid": "u", "deletionTimestamp": "2026-01-02T03:04:05Z",
        "labels": {keys::MODULE_NAME: "mod", keys::ROLE: "device-plugin", "beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod": "1.0"}},
        "spec": {"affinity": affinity}, "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]}})
}

#[test]
fn a_module_is_read_with_the_image_for_each_kernel() {
    let module: ModuleRecord = read(&module()).unwrap();
    assert_eq!(
        (module.key.clone(), module.version.as_deref(), module.plugin, module.dra),
        (ObjectKey::new("drv", "mod"), Some("1.0"), true, false)
    );
    assert_eq!(module.image_for("5.14.0").as_deref(), Some("special:5"));
    assert_eq!(module.image_for("6.1.0-test+").as_deref(), Some("mod:1.0-6.1.0-test"));
    assert_eq!(module.image_for("4.18"), None);
    assert_eq!(&*module.tolerations[0].key, "node.kubernetes.io/unschedulable");
}

#[test]
fn entries_are_equal_whoever_wrote_them() {
    let config: NmcRecord = read(&config()).unwrap();
    let key = ObjectKey::new("drv", "mod");
    let (wanted, recorded) = (config.wanted(&key).unwrap(), config.recorded(&key).unwrap());
    assert_eq!(wanted.config, recorded.config);
    assert_eq!((&*recorded.image, &*recorded.kernel, recorded.boot_id.as_str()), ("mod:1.0-6.1", "6.1", "b"));
    assert_eq!(config.owner.as_ref().map(|uid| uid.as_str()), Some("n"));
    assert_eq!(config.wanted(&ObjectKey::new("other", "mod")), None, "the namespace counts");
}

#[test]
fn pods_are_told_apart_by_their_labels() {
    let pod: PodRecord = read(&worker()).unwrap();
    let part = Part::Worker { action: Action::Load, image: Some("mod:1.0-6.1".into()), version: Some("1.0".into()) };
    assert_eq!((pod.part.clone(), pod.restarts, pod.crashing(), pod.phase), (part, 2, true, Phase::Running));
    let pod: PodRecord = read(&plugin()).unwrap();
    assert_eq!(pod.part, Part::Plugin { dra: false, version: Some("1.0".into()) });
    assert_eq!((pod.node.as_ref().map(|node| node.as_str()), pod.ready, pod.deleting), (Some("node-b"), true, true));
    let mut old = plugin();
    let labels = old["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(keys::ROLE);
    labels.remove("beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod");
    labels.insert("beta.kmm.node.kubernetes.io/version-device-plugin.drv.mod".into(), json!("0.9"));
    assert_eq!(read::<PodRecord>(&old).unwrap().part, Part::Other);
    old["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "name": "x", "uid": "d"}]);
    assert_eq!(
        read::<PodRecord>(&old).unwrap().part,
        Part::Plugin { dra: false, version: Some("0.9".into()) },
        "2.0 to 2.6 set no role"
    );
    let pull = json!({"metadata": {"name": "p", "namespace": "drv", "uid": "u", "labels": {keys::IMAGE_OWNER: "mod"}},
        "spec": {"containers": [{"image": "mod:2.0"}]}, "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}});
    let pull: PodRecord = read(&pull).unwrap();
    assert_eq!((pull.part.clone(), pull.image_missing()), (Part::Pull { image: Some("mod:2.0".into()) }, true));
}

#[test]
fn images_and_daemon_sets_are_read() {
    let images = json!({"metadata": {"name": "mod", "namespace": "drv", "uid": "u"}, "spec": {"images": [{"image": "a"}, {"image": "b"}]},
        "status": {"imagesStates": [{"image": "a", "status": "Exists"}, {"image": "b", "status": "DoesNotExist"}]}});
    let images: ImagesRecord = read(&images).unwrap();
    assert!(images.exists("a") && !images.exists("b") && !images.exists("c"));
    let mut set = plugin();
    set["status"] = json!({"desiredNumberScheduled": 3, "numberReady": 2});
    let set: SetRecord = read(&set).unwrap();
    assert_eq!((set.version.as_deref(), set.desired, set.ready, set.dra), (Some("1.0"), 3, 2, false));
}

/// Every field of every object, one after the other, replaced by everything that JSON has.
#[test]
fn garbage_is_an_error_or_less_information_never_a_panic() {
    fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        match value {
            Value::Object(map) => map
                .iter()
                .for_each(|(key, value)| paths(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found)),
            Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| paths(value, &format!("{path}/{n}"), found)),
            _ => {}
        }
    }
    let junk = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{1}\"x"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"x": null}),
    ];
    let mut tried = 0;
    for object in [module(), config(), worker(), plugin()] {
        let mut all = Vec::new();
        paths(&object, "", &mut all);
        for path in all {
            for junk in &junk {
                let mut broken = object.clone();
                *broken.pointer_mut(&path).unwrap() = junk.clone();
                let module = read::<ModuleRecord>(&broken).is_ok();
                let config = read::<NmcRecord>(&broken).is_ok();
                let pod = read::<PodRecord>(&broken);
                let _ = (read::<ImagesRecord>(&broken), read::<SetRecord>(&broken));
                if path.is_empty() {
                    assert!(!module && !config && pod.is_err(), "{junk}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn one_broken_object_does_not_hide_the_others_of_its_list() {
    let mut broken = module();
    broken["spec"]["moduleLoader"] = json!(7);
    broken["metadata"]["name"] = json!("bad");
    let (good, bad) = decode::list::<ModuleRecord>(json!({"items": [broken, module()]}).to_string().as_bytes()).unwrap();
    assert_eq!((good.len(), bad.len()), (1, 1));
    assert_eq!(bad[0].name, "drv/bad");
    assert!(bad[0].to_string().starts_with("Module \"drv/bad\" of KMM does not decode:"), "{}", bad[0]);
    assert!(decode::list::<ModuleRecord>(b"<html>").is_err());
}

//! CSI volumes: attach, mount, lose, unmount.

use super::*;

const DRIVER: &str = "rook-ceph.cephfs.csi.ceph.com";

fn volume(world: &World, name: &str, mounter: &str) {
    world.install(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "csi": {"driver": DRIVER, "volumeHandle": format!("handle-{name}"), "volumeAttributes": {"mounter": mounter}},
        "claimRef": {"namespace": "default", "name": name}}}));
    world.install(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name, "storageClassName": ""},
        "status": {"phase": "Bound"}}));
}

fn mounting(name: &str) -> Value {
    deployment(
        name,
        1,
        json!({}),
        json!({
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        }),
    )
}

async fn storage(attach: bool) -> World {
    let world = world(1);
    world.install(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"attachRequired": attach}}));
    let plugin = sim(&[("behaviour", "csi-node-plugin"), ("driver", DRIVER)]);
    world.install(daemon_set("nodeplugin", plugin, json!({"hostNetwork": true, "tolerations": [{"operator": "Exists"}]})));
    for (name, mounter) in [("fuse", "fuse"), ("kernel", "kernel")] {
        volume(&world, name, mounter);
        world.install(mounting(name));
    }
    pass(60).await;
    world
}

#[tokio::test(start_paused = true)]
async fn volumes_are_attached_mounted_and_detached_after_the_pod() {
    let world = storage(true).await;
    assert_eq!((world.ready("nodeplugin"), world.ready("fuse"), world.ready("kernel")), (1, 1, 1));
    let node = world.api.get("csinodes.storage.k8s.io", "", "n1").unwrap();
    assert_eq!(node["spec"]["drivers"][0]["name"], DRIVER);
    let attachments = world.api.list("volumeattachments.storage.k8s.io");
    assert_eq!(attachments.iter().filter(|va| va["status"]["attached"] == true).count(), 2);
    let in_use = world.api.get("nodes", "", "n1").unwrap()["status"]["volumesInUse"].clone();
    assert_eq!(
        in_use,
        json!([format!("kubernetes.io/csi/{DRIVER}^handle-fuse"), format!("kubernetes.io/csi/{DRIVER}^handle-kernel")])
    );
    world.patch("/apis/apps/v1/namespaces/default/deployments/fuse", json!({"spec": {"replicas": 0}})).await;
    pass(30).await;
    assert_eq!(world.api.list("volumeattachments.storage.k8s.io").len(), 1);
    assert!(causes(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn g26_only_a_mount_that_lives_in_the_plugin_dies_with_it() {
    let world = storage(false).await;
    assert!(world.api.list("volumeattachments.storage.k8s.io").is_empty());
    let plugin = name(&world.pods("nodeplugin")[0]);
    world.delete(&format!("/api/v1/namespaces/default/pods/{plugin}"), json!({})).await;
    pass(30).await;
    assert_eq!(world.ready("nodeplugin"), 1);
    let hit: Vec<String> = world.kubelets.disruptions().iter().map(|d| d.pod.name.clone()).collect();
    assert_eq!(hit.len(), 1);
    assert!(hit[0].starts_with("fuse-"));
    assert_eq!(causes(&world), [Cause::MountLost]);
}

#[tokio::test(start_paused = true)]
async fn g27_without_its_driver_a_pod_stays_terminating_and_leaves_when_it_is_back() {
    let world = storage(false).await;
    world
        .patch(
            "/apis/apps/v1/namespaces/default/daemonsets/nodeplugin",
            json!({"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}}),
        )
        .await;
    pass(20).await;
    assert!(world.pods("nodeplugin").is_empty());
    world.patch("/apis/apps/v1/namespaces/default/deployments/kernel", json!({"spec": {"replicas": 0}})).await;
    pass(60).await;
    assert_eq!(world.pods("kernel").len(), 1, "cannot be unmounted");
    world
        .patch(
            "/apis/apps/v1/namespaces/default/daemonsets/nodeplugin",
            json!({"spec": {"template": {"spec": {"nodeSelector": null}}}}),
        )
        .await;
    pass(30).await;
    assert!(world.pods("kernel").is_empty());
}

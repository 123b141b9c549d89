//! The ModuleImagesConfig controller: a pull pod for each image that is not known to exist. Its success is kept for good; nothing is said of
//! one that never ends.

use super::super::informer::raced;
use super::super::records::Record;
use super::Operator;
use super::objects::{Image, ModuleImagesConfig, owner};
use crate::kmm::keys;
use serde_json::json;
use std::time::Duration;

impl Operator {
    pub(super) async fn sync_images(&self, name: String) -> kube::Result<Option<Duration>> {
        let Some(images) = self.images.get(&name).filter(|images| !images.metadata.deleting()) else { return Ok(None) };
        let (namespace, module) = (images.metadata.ns(), &images.metadata.name);
        let own = |pod: &&std::sync::Arc<super::super::records::Pod>| pod.metadata.labels.get(keys::IMAGE_OWNER) == Some(module);
        let pods: Vec<_> = self.caches.pods.in_namespace(namespace).into_iter().filter(|pod| own(&pod)).collect();
        let mut states = images.status.images_states.clone();
        for Image { image, .. } in images.spec.images.iter().filter(|image| !images.exists(&image.image)) {
            let pod = pods.iter().find(|pod| pod.spec.containers.first().is_some_and(|container| container.image == *image));
            match pod {
                Some(pod) if pod.status.phase == "Succeeded" => {
                    states.retain(|state| state.image != *image);
                    states.push(Image { image: image.clone(), kernel_version: String::new(), status: "Exists".to_owned() });
                }
                Some(_) => {}
                None => self.pull(&images, image).await?,
            }
        }
        if states != images.status.images_states {
            raced(self.images.merge(&name, "status", &json!({"status": {"imagesStates": states}})).await)?;
        }
        Ok(None)
    }

    async fn pull(&self, images: &ModuleImagesConfig, image: &str) -> kube::Result<()> {
        let (namespace, name) = (images.metadata.ns(), &images.metadata.name);
        let module = self.modules.get(&images.metadata.key());
        let mut annotations = json!({"sim.lockkeeper.dev/exit-after-seconds": "0"});
        for (key, value) in module.iter().flat_map(|module| module.told("pull")) {
            annotations[key] = value;
        }
        let labels = json!({keys::IMAGE_OWNER: name, "kmm.node.kubernetes.io/pull-pod-type": "until-success"});
        let meta = json!({
            "generateName": format!("{name}-pull-pod-"), "namespace": namespace, "labels": labels, "annotations": annotations,
            "ownerReferences": owner(&images.metadata, ModuleImagesConfig::KIND, true),
        });
        let tolerations = module.as_ref().map(|module| module.spec.tolerations.clone()).unwrap_or_default();
        let container = json!({"name": "puller", "image": image, "command": ["/bin/sh", "-c", "exit 0"]});
        let spec = json!({"restartPolicy": "OnFailure", "containers": [container], "tolerations": tolerations});
        raced(self.caches.pods.create(Some(namespace), json!({"metadata": meta, "spec": spec})).await)?;
        Ok(())
    }
}

//! The Module controller: which nodes shall have the module, and so each node's NodeModulesConfig; which images must exist; the Module's end.

use super::super::informer::raced;
use super::super::records::{Node, Record};
use super::Operator;
use super::objects::{
    CONFIGURED, Entry, IN_USE, Image, MODULE_FINALIZER, Module, NodeModulesConfig, key, mark, owner, parsed, schedulable,
    with_pressures,
};
use crate::kmm::keys::Label;
use serde_json::{Value, json};
use std::time::Duration;

/// What becomes of the module's entry in a node's NodeModulesConfig.
enum Wish {
    Write(Box<Entry>),
    Drop,
    Leave,
}

impl Operator {
    pub(super) async fn sync_module(&self, name: String) -> kube::Result<Option<Duration>> {
        let Some(module) = self.modules.get(&name) else { return Ok(None) };
        if module.metadata.deleting() {
            return self.finalize(&module).await;
        }
        if module.spec.module_loader.is_none() {
            return Ok(None);
        }
        if !module.metadata.finalizers.iter().any(|finalizer| finalizer == MODULE_FINALIZER) {
            let mut finalizers = module.metadata.finalizers.clone();
            finalizers.push(MODULE_FINALIZER.to_owned());
            self.modules.merge(&name, "", &json!({"metadata": {"finalizers": finalizers}})).await?;
        }
        let tolerations = parsed(&with_pressures(&module.spec.tolerations));
        let nodes = self.caches.nodes.all();
        let targeted = |node: &Node| module.selects(node) && schedulable(node, &tolerations);
        self.want_images(&module, nodes.iter().filter(|node| targeted(node)).map(|node| &node.status.node_info.kernel_version))
            .await?;
        for node in &nodes {
            let wish = if targeted(node) { self.wish(&module, node) } else { Wish::Drop };
            self.configure(&module, node, wish, targeted(node)).await?;
        }
        Ok(None)
    }

    fn wish(&self, module: &Module, node: &Node) -> Wish {
        let kernel = &node.status.node_info.kernel_version;
        let Some(image) = module.image_for(kernel) else { return Wish::Drop };
        let loader = node.metadata.labels.get(&key(Label::Loader, &module.key())).filter(|value| !value.is_empty());
        match loader {
            None if !module.version().is_empty() => return Wish::Drop,
            Some(version) if !module.version().is_empty() && version != module.version() => return Wish::Leave,
            _ => {}
        }
        let known = self.images.get(&module.metadata.key());
        if !known.is_some_and(|images| images.exists(&image)) {
            return Wish::Leave;
        }
        let modprobe = json!({"dirName": "/opt", "moduleName": module.kernel_module()});
        let config = json!({"containerImage": image, "imagePullPolicy": "", "insecurePull": false, "kernelVersion": kernel, "modprobe": modprobe});
        Wish::Write(Box::new(Entry {
            config,
            name: module.metadata.name.clone(),
            namespace: module.metadata.ns().to_owned(),
            service_account_name: "default".to_owned(),
            tolerations: with_pressures(&module.spec.tolerations),
            version: module.version().to_owned(),
            boot_id: String::new(),
        }))
    }

    async fn configure(&self, module: &Module, node: &Node, wish: Wish, targeted: bool) -> kube::Result<()> {
        let (id, name) = (module.key(), &node.metadata.name);
        let Some(config) = self.configs.get(name) else {
            let (entries, labels, owners) = match wish {
                Wish::Write(entry) => {
                    let labels = json!({mark(&id, CONFIGURED): "", mark(&id, IN_USE): ""});
                    (vec![*entry], labels, owner(&node.metadata, Node::KIND, false))
                }
                // An empty one without owner, which outlives its node.
                Wish::Drop if targeted => (Vec::new(), json!({}), json!([])),
                _ => return Ok(()),
            };
            let body =
                json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}, "spec": {"modules": entries}});
            raced(self.configs.create(None, body).await)?;
            return Ok(());
        };
        let had = config.spec.find(&id);
        let mut entries = config.spec.modules.clone();
        let mut labels = json!({});
        match wish {
            Wish::Leave => return Ok(()),
            Wish::Drop if had.is_none() => return Ok(()),
            Wish::Drop => {
                entries.retain(|entry| !entry.is_of(&id));
                labels[mark(&id, CONFIGURED)] = Value::Null;
            }
            Wish::Write(entry) if had == Some(&*entry) => return Ok(()),
            Wish::Write(entry) => {
                for word in [CONFIGURED, IN_USE] {
                    labels[mark(&id, word)] = json!("");
                }
                match entries.iter_mut().find(|entry| entry.is_of(&id)) {
                    Some(known) => *known = *entry,
                    None => entries.push(*entry),
                }
            }
        }
        let mut patch = json!({"metadata": {"labels": labels}, "spec": {"modules": entries}});
        if config.metadata.owner_references.is_empty() && !entries.is_empty() {
            patch["metadata"]["ownerReferences"] = owner(&node.metadata, Node::KIND, false);
        }
        raced(self.configs.merge(name, "", &patch).await)?;
        Ok(())
    }

    /// Every image that a targeted node's kernel needs, kept for good.
    async fn want_images(&self, module: &Module, kernels: impl Iterator<Item = &String>) -> kube::Result<()> {
        let name = module.metadata.key();
        let known = self.images.get(&name);
        let mut images = known.as_ref().map(|known| known.spec.images.clone()).unwrap_or_default();
        let before = images.len();
        for kernel in kernels {
            if let Some(image) = module.image_for(kernel)
                && !images.iter().any(|known| known.image == image)
            {
                images.push(Image { image, kernel_version: kernel.clone(), status: String::new() });
            }
        }
        if known.is_none() {
            let meta =
                json!({"name": module.metadata.name, "namespace": module.metadata.ns(), "ownerReferences": module.owner()});
            raced(self.images.create(Some(module.metadata.ns()), json!({"metadata": meta, "spec": {"images": images}})).await)?;
        } else if images.len() != before {
            raced(self.images.merge(&name, "", &json!({"spec": {"images": images}})).await)?;
        }
        Ok(())
    }

    async fn finalize(&self, module: &Module) -> kube::Result<Option<Duration>> {
        if !module.metadata.finalizers.iter().any(|finalizer| finalizer == MODULE_FINALIZER) {
            return Ok(None);
        }
        let id = module.key();
        for node in self.caches.nodes.all() {
            self.configure(module, &node, Wish::Drop, false).await?;
        }
        let in_use = mark(&id, IN_USE);
        let used = |config: &NodeModulesConfig| config.metadata.labels.contains_key(&in_use);
        if self.configs.all().iter().any(|config| used(config)) {
            return Ok(None);
        }
        let rest: Vec<&String> = module.metadata.finalizers.iter().filter(|finalizer| *finalizer != MODULE_FINALIZER).collect();
        raced(self.modules.merge(&module.metadata.key(), "", &json!({"metadata": {"finalizers": rest}})).await)?;
        Ok(None)
    }
}

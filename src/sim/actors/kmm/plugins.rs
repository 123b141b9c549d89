//! Device plugins and DRA drivers: a DaemonSet for each version, collected when no node wants it; target labels; the labels and finalizers
//! that follow their pods.

use super::super::informer::raced;
use super::super::records::{DaemonSet, Pod};
use super::Operator;
use super::objects::{Driver, MODULE_NAMESPACE, Module, PLUGIN_FINALIZER, bits, key, schedulable};
use crate::api::ObjectKey;
use crate::kmm::keys::{self, Label};
use serde_json::{Map as Object, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The two kinds of drivers, which differ in little.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Plugin,
    Dra,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Plugin => "device-plugin",
            Self::Dra => "dra",
        }
    }

    fn label(self) -> Label {
        match self {
            Self::Plugin => Label::PluginReady,
            Self::Dra => Label::DraReady,
        }
    }

    fn driver(self, module: &Module) -> Option<&Driver> {
        match self {
            Self::Plugin => module.spec.device_plugin.as_ref(),
            Self::Dra => module.spec.dra.as_ref(),
        }
    }
}

fn version_of<'a>(set: &'a DaemonSet, id: &ObjectKey) -> &'a str {
    set.metadata.labels.get(&key(Label::Schedule, id)).map(String::as_str).unwrap_or_default()
}

impl Operator {
    pub(super) async fn sync_plugins(&self, name: String) -> kube::Result<Option<Duration>> {
        let Some(module) = self.modules.get(&name) else { return self.clean_up(&name).await };
        self.target(&module).await?;
        for role in [Role::Plugin, Role::Dra] {
            self.sync_sets(&module, role).await?;
        }
        self.sync_classes(&module).await?;
        Ok(None)
    }

    /// What a Module that nothing held back has left: DeviceClasses and labels. Its DaemonSets are the garbage collector's.
    async fn clean_up(&self, name: &str) -> kube::Result<Option<Duration>> {
        let Some((namespace, name)) = name.split_once('/') else { return Ok(None) };
        for class in self.caches.device_classes.all() {
            let label = |key: &str| class.metadata.labels.get(key).map(String::as_str);
            if label(keys::MODULE_NAME) == Some(name) && label(MODULE_NAMESPACE) == Some(namespace) {
                self.caches.device_classes.delete(&class.metadata, None).await?;
            }
        }
        let target = key(Label::Target, &ObjectKey::new(namespace, name));
        for node in self.caches.nodes.all().iter().filter(|node| node.metadata.labels.contains_key(&target)) {
            let patch = json!({"metadata": {"labels": {target.clone(): Value::Null}}});
            raced(self.caches.nodes.merge(&node.metadata.name, "", &patch).await)?;
        }
        Ok(None)
    }

    /// The target label: on with the selector and without untolerated taint, off with the taint, never off with the selector.
    async fn target(&self, module: &Module) -> kube::Result<()> {
        let label = key(Label::Target, &module.key());
        let wanted = module.spec.device_plugin.is_some() && !module.metadata.deleting();
        let tolerations = module.tolerations();
        for node in self.caches.nodes.all() {
            let (there, open) = (node.metadata.labels.contains_key(&label), schedulable(&node, &tolerations));
            let value = match there {
                false if wanted && open && module.selects(&node) => json!(""),
                true if !wanted || !open => Value::Null,
                _ => continue,
            };
            raced(
                self.caches.nodes.merge(&node.metadata.name, "", &json!({"metadata": {"labels": {label.clone(): value}}})).await,
            )?;
        }
        Ok(())
    }

    async fn sync_sets(&self, module: &Module, role: Role) -> kube::Result<()> {
        let id = module.key();
        let own = |set: &&Arc<DaemonSet>| {
            let label = |key: &str| set.metadata.labels.get(key).map(String::as_str);
            label(keys::MODULE_NAME) == Some(&id.name) && label(keys::ROLE) == Some(role.word()) && !set.metadata.deleting()
        };
        let sets: Vec<Arc<DaemonSet>> =
            self.caches.daemon_sets.in_namespace(module.metadata.ns()).into_iter().filter(|set| own(&set)).collect();
        let Some(driver) = role.driver(module).filter(|_| !module.metadata.deleting()) else {
            for set in &sets {
                self.caches.daemon_sets.delete(&set.metadata, None).await?;
            }
            return Ok(());
        };
        let template = self.template(module, driver, role);
        match sets.iter().find(|set| version_of(set, &id) == module.version()) {
            None => self.make_set(module, role, &template).await?,
            Some(set) => {
                let image = |template: &Value| template["spec"]["containers"][0]["image"].clone();
                let same = image(&set.spec.template) == image(&template)
                    && set.spec.template["spec"].get("tolerations").unwrap_or(&json!([])) == &template["spec"]["tolerations"];
                if !same {
                    raced(
                        self.caches.daemon_sets.merge(&set.metadata.key(), "", &json!({"spec": {"template": template}})).await,
                    )?;
                }
            }
        }
        if module.spec.module_loader.is_none() {
            return Ok(());
        }
        for set in sets.iter().filter(|set| version_of(set, &id) != module.version()) {
            // No look at whether a node still wants that version.
            if set.status["desiredNumberScheduled"].as_i64().unwrap_or(0) == 0 {
                self.caches.daemon_sets.delete(&set.metadata, None).await?;
            }
        }
        Ok(())
    }

    fn labels(&self, module: &Module, role: Role) -> Value {
        let mut labels = json!({keys::MODULE_NAME: module.metadata.name, keys::ROLE: role.word()});
        if !module.version().is_empty() {
            labels[key(Label::Schedule, &module.key())] = json!(module.version());
        }
        labels
    }

    fn template(&self, module: &Module, driver: &Driver, role: Role) -> Value {
        let id = module.key();
        let mut selector = json!({});
        if module.spec.module_loader.is_none() {
            selector = json!(module.spec.selector);
        } else {
            selector[key(Label::Ready, &id)] = json!("");
            if role == Role::Plugin {
                selector[key(Label::Target, &id)] = json!("");
            }
            if !module.version().is_empty() {
                selector[key(Label::Schedule, &id)] = json!(module.version());
            }
        }
        let image = module.spec.module_loader.as_ref().and_then(|loader| loader.container.container_image.clone());
        let mut annotations = json!({
            "sim.lockkeeper.dev/behaviour": if role == Role::Dra { "dra-driver" } else { "device-plugin" },
            "sim.lockkeeper.dev/version": bits(image.as_deref().unwrap_or_default(), ""),
        });
        for (key, value) in module.told("plugin") {
            annotations[key] = value;
        }
        let mut spec = json!({
            "nodeSelector": selector, "tolerations": module.spec.tolerations, "priorityClassName": "system-node-critical",
            "containers": [{"name": role.word(), "image": driver.container.image}],
        });
        if let Some(init) = &driver.init_container {
            let mut init = init.clone();
            init["name"] = json!(format!("{}-init", role.word()));
            spec["initContainers"] = json!([init]);
        }
        json!({
            "metadata": {"labels": self.labels(module, role), "annotations": annotations, "finalizers": [PLUGIN_FINALIZER]},
            "spec": spec,
        })
    }

    async fn make_set(&self, module: &Module, role: Role, template: &Value) -> kube::Result<()> {
        let labels = self.labels(module, role);
        let meta = json!({
            "generateName": format!("{}-{}-", module.metadata.name, role.word()), "namespace": module.metadata.ns(), "labels": labels,
            "ownerReferences": module.owner(),
        });
        let body = json!({"metadata": meta, "spec": {"selector": {"matchLabels": labels}, "template": template}});
        raced(self.caches.daemon_sets.create(Some(module.metadata.ns()), body).await)?;
        Ok(())
    }

    /// DeviceClasses by name; one of that name which is not KMM's is taken over.
    async fn sync_classes(&self, module: &Module) -> kube::Result<()> {
        let labels = json!({keys::MODULE_NAME: module.metadata.name, MODULE_NAMESPACE: module.metadata.ns()});
        let wanted: Vec<&Value> =
            module.spec.dra.iter().filter(|_| !module.metadata.deleting()).flat_map(|dra| &dra.device_classes).collect();
        for class in &wanted {
            let Some(name) = class["name"].as_str() else { continue };
            if self.caches.device_classes.get(name).is_none() {
                let body = json!({"metadata": {"name": name, "labels": labels}, "spec": class.get("spec").cloned().unwrap_or_else(|| json!({}))});
                raced(self.caches.device_classes.create(None, body).await)?;
            }
        }
        for class in self.caches.device_classes.all() {
            let label = |key: &str| class.metadata.labels.get(key).map(String::as_str);
            let ours =
                label(keys::MODULE_NAME) == Some(&module.metadata.name) && label(MODULE_NAMESPACE) == Some(module.metadata.ns());
            if ours && !wanted.iter().any(|wanted| wanted["name"].as_str() == Some(&class.metadata.name)) {
                self.caches.device_classes.delete(&class.metadata, None).await?;
            }
        }
        Ok(())
    }

    /// A plugin's pod: the node's label follows its readiness, and its finalizer goes right after the deletion mark.
    pub(super) async fn sync_plugin_pod(&self, (node, name): (String, String)) -> kube::Result<Option<Duration>> {
        let pod = self.caches.pods.get(&name);
        let namespace = name.split('/').next().unwrap_or_default();
        for role in [Role::Plugin, Role::Dra] {
            self.label_node(&node, namespace, role).await?;
        }
        if let Some(pod) =
            pod.filter(|pod| pod.metadata.deleting() && pod.metadata.finalizers.iter().any(|it| it == PLUGIN_FINALIZER))
        {
            let rest: Vec<&String> = pod.metadata.finalizers.iter().filter(|it| *it != PLUGIN_FINALIZER).collect();
            raced(self.caches.pods.merge(&name, "", &json!({"metadata": {"uid": pod.metadata.uid, "finalizers": rest}})).await)?;
        }
        Ok(None)
    }

    async fn label_node(&self, name: &str, namespace: &str, role: Role) -> kube::Result<()> {
        let Some(node) = self.caches.nodes.get(name) else { return Ok(()) };
        let pods = self.caches.pods.indexed(super::super::caches::BY_NODE, name);
        let ready = |id: &ObjectKey| {
            pods.iter().any(|pod| {
                let label = |key: &str| pod.metadata.labels.get(key).map(String::as_str);
                label(keys::ROLE) == Some(role.word())
                    && label(keys::MODULE_NAME) == Some(&id.name)
                    && pod.ready()
                    && !pod.metadata.deleting()
            })
        };
        let here = pods.iter().filter(|pod| pod.metadata.labels.get(keys::ROLE).is_some_and(|found| found == role.word()));
        let of_pods = here.filter(|pod| pod.metadata.ns() == namespace).filter_map(|pod: &Arc<Pod>| {
            Some(ObjectKey::new(pod.metadata.ns(), pod.metadata.labels.get(keys::MODULE_NAME)?.as_str()))
        });
        let parsed = node.metadata.labels.keys().filter_map(|key| keys::parse(key)).filter(|parsed| parsed.label == role.label());
        let labelled = parsed.map(|parsed| parsed.module).filter(|id| &*id.namespace == namespace);
        let mut ids: Vec<ObjectKey> = of_pods.chain(labelled).collect();
        ids.sort();
        ids.dedup();
        let mut patch = Object::new();
        for id in ids {
            let label = key(role.label(), &id);
            match (ready(&id), node.metadata.labels.contains_key(&label)) {
                (true, false) => _ = patch.insert(label, json!("")),
                (false, true) => _ = patch.insert(label, Value::Null),
                _ => {}
            }
        }
        if !patch.is_empty() {
            raced(self.caches.nodes.merge(name, "", &json!({"metadata": {"labels": patch}})).await)?;
        }
        Ok(())
    }
}

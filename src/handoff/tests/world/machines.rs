//! What controllers and kubelets of the toy world do between two looks of the engine.

use super::*;

impl World {
    /// DaemonSet controller, kubelet and device manager, each one step.
    pub(super) fn controllers(&mut self) {
        let now = at(self.now);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        // Pods that were asked to go, go.
        let leaving: Vec<ObjectKey> = self
            .pods
            .values()
            .filter(|pod| pod.meta.deletion.is_some() && !self.stuck.contains(&pod.key))
            .map(|pod| pod.key.clone())
            .collect();
        for key in leaving {
            let pod = self.pods.get_mut(&key).unwrap();
            if pod.phase.is_terminal() {
                self.pods.remove(&key);
            } else {
                pod.phase = PodPhase::Succeeded;
                pod.ready.status = ReadyStatus::False;
            }
        }
        for name in &names {
            if !self.nodes[name].ready.is_true() {
                continue;
            }
            for (role, word) in [(Role::Loader, "loader"), (Role::Plugin, "plugin")] {
                let wanted = self.label(name, role);
                let pods = self.role_pods(name, word);
                for pod in &pods {
                    let version = pod.labels.get(keys::VERSION).map(|it| it.to_string());
                    if version != wanted && pod.meta.deletion.is_none() {
                        self.delete(&pod.key);
                    }
                }
                if let Some(version) = wanted.filter(|_| pods.is_empty()) {
                    self.made += 1;
                    let builder =
                        if word == "loader" { loader_pod(GPU, &version, name) } else { plugin_pod(GPU, &version, name) };
                    self.put_pod(builder.uid(&format!("{word}-{}", self.made)).created(now).not_ready().build());
                }
            }
            self.kubelet(name, now);
        }
    }

    pub(super) fn kubelet(&mut self, name: &str, now: Timestamp) {
        let on: Vec<ObjectKey> = self
            .pods
            .values()
            .filter(|pod| pod.node.as_ref().is_some_and(|it| it.as_str() == name) && pod.meta.deletion.is_none())
            .map(|pod| pod.key.clone())
            .collect();
        for key in on {
            let pod = self.pods[&key].clone();
            let version = pod.labels.get(keys::VERSION).map(|it| it.to_string());
            match pod.labels.get(keys::ROLE).map(|it| it.to_string()).as_deref() {
                Some("loader") if !self.broken_loader => {
                    let kernel = self.kernel[name].clone();
                    assert!(
                        kernel.is_none() || kernel == version,
                        "I2: loader {version:?} met {kernel:?} in the kernel of {name}"
                    );
                    let record = self.annotation(name, Role::Loaded);
                    assert!(record.is_some(), "I11: loaded without a record");
                    self.kernel.insert(name.to_owned(), version);
                    self.pods.get_mut(&key).unwrap().ready.status = ReadyStatus::True;
                }
                Some("plugin") => {
                    let fits = self.kernel[name] == version && !self.broken_plugin;
                    self.pods.get_mut(&key).unwrap().ready.status = if fits { ReadyStatus::True } else { ReadyStatus::False };
                }
                Some("unload") if !pod.phase.is_terminal() => self.run_unload(name, &key, now),
                _ => {}
            }
        }
        let devices = self.devices;
        let serves = self.role_pods(name, "plugin").iter().any(|pod| pod.ready.is_true());
        self.node(name).allocatable.insert(RESOURCE.into(), if serves { devices } else { 0 });
    }

    fn run_unload(&mut self, name: &str, key: &ObjectKey, now: Timestamp) {
        let pod = self.pods[key].clone();
        let nonce = pod.extra.as_ref().unwrap().annotations[keys::NONCE].to_string();
        if self.stuck_unload {
            return;
        }
        if pod.phase == PodPhase::Pending {
            // The kubelet's admission: the node label must be there.
            let admitted = self.label(name, Role::Nonce).as_deref() == Some(&*nonce);
            let pod = self.pods.get_mut(key).unwrap();
            pod.phase = if admitted { PodPhase::Running } else { PodPhase::Failed };
            pod.extra.as_mut().unwrap().reason = if admitted { "".into() } else { "NodeAffinity".into() };
            return;
        }
        if self.slow_unload {
            return;
        }
        let exit = if self.exits.is_empty() { 0 } else { self.exits.remove(0) };
        if exit == 0 {
            assert!(self.live_claimants(name).is_empty(), "I1: unloaded under a claimant");
            self.kernel.insert(name.to_owned(), None);
        }
        let version = pod.labels[keys::VERSION].to_string();
        let mut ended = unload_pod(GPU, &version, name, &nonce).exited(exit, "module is in use", now).build();
        ended.key = key.clone();
        ended.meta = pod.meta.clone();
        self.put_pod(ended);
    }
}

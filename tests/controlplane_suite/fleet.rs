//! The component of one test on a site, with nodes, a namespace, a module and a resource of its own; and what can be said of them.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, api::ListParams};
use lockkeeper::{
    api::{
        ComponentKey, NodeHandoff, NodeHandoffStatus, Phase,
        keys::{CORDON, Loaded, Role, SLOTS, Slot},
    },
    engine::{
        Engine,
        intent::{Intent, IntentOutcome, NodeTarget},
        picture::Picture,
        request,
    },
    handoff::{
        action::Subject,
        verdict::{Blocker, BlockerKind, Verdict},
    },
    sim::{
        actors::MachineSpec,
        kernel::What,
        people::hands::Hands,
        scenarios::objects::{self, Object},
    },
};
use serde_json::{Value, json};

use crate::{site::Site, support::controlplane::User, wait::eventually};

/// The longest that anything here takes, on a busy machine.
pub const LONG: Duration = Duration::from_secs(300);

/// Devices of a node.
pub const DEVICES: u32 = 4;

pub struct Fleet<'a> {
    pub site: &'a Site,
    /// Namespace of the component, and beginning of all other names.
    pub name: &'static str,
    pub nodes: Vec<String>,
    pub admin: Hands,
    pub operator: Hands,
    client: Client,
}

/// The labels of the interlock on a node.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels([Option<String>; 4]);

impl Labels {
    pub fn of(node: &Node, key: &ComponentKey) -> Labels {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        Labels([Role::Desired, Role::Loader, Role::Plugin, Role::Ready].map(|role| labels.get(&role.key(key)).cloned()))
    }
}

/// Desired, loader, plugin, ready; `-` is none.
impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.each_ref().map(|label| label.as_deref().unwrap_or("-")).join(" "))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl<'a> Fleet<'a> {
    /// Nodes `NAME-1` and so on, on all of which an engine has installed version 1.0. `tune` edits the component's spec before that.
    pub async fn start(site: &'a Site, name: &'static str, nodes: usize, tune: impl FnOnce(&mut Value)) -> Fleet<'a> {
        let client = site.plane.client(User::Admin).await;
        let fleet = Fleet {
            site,
            name,
            nodes: (1..=nodes).map(|number| format!("{name}-{number}")).collect(),
            admin: site.hands(User::Admin).await,
            operator: site.hands(User::Operator).await,
            client,
        };
        for node in &fleet.nodes {
            site.kubelets.add_machine(MachineSpec::new(node).label("pool", name));
        }
        let may_make_daemon_sets = |kind: &'static str, plural: &'static str, rest: Value| {
            let mut body =
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "daemonsets"}});
            body.as_object_mut().expect("object").extend(rest.as_object().cloned().unwrap_or_default());
            Object { api_version: "rbac.authorization.k8s.io/v1", kind, plural, namespace: Some(name.to_owned()), body }
        };
        fleet
            .apply(&[
                objects::namespace(name),
                objects::namespace(&fleet.apps()),
                // The admission policy asks this of whoever writes a NodeComponent.
                may_make_daemon_sets(
                    "Role",
                    "roles",
                    json!({"rules": [{"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["create"]}]}),
                ),
                may_make_daemon_sets(
                    "RoleBinding",
                    "rolebindings",
                    json!({
                        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "daemonsets"},
                        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}],
                    }),
                ),
            ])
            .await;
        let mut spec = fleet.spec("1.0");
        tune(&mut spec);
        eventually("the operator's rights", LONG, || async {
            fleet.operator.create(&objects::component(name, "gpu", spec.clone())).await.map(Some)
        })
        .await;
        for node in &fleet.nodes {
            fleet.runs(node, "1.0").await;
            // A node is open, and its slot free, a moment before its handoff says that it is done.
            eventually(&format!("the end of the install on {node}"), LONG, || async {
                let status = fleet.handoff(node).await.map(|handoff| handoff.status.unwrap_or_default());
                let over = status.as_ref().is_none_or(|status| status.phase == Phase::Done);
                if over { Ok(Some(())) } else { Err(format!("{status:?}")) }
            })
            .await;
        }
        fleet
    }

    pub fn key(&self) -> ComponentKey {
        ComponentKey::new(self.name, "gpu")
    }

    /// The namespace of the workloads.
    pub fn apps(&self) -> String {
        format!("{}-apps", self.name)
    }

    pub fn resource(&self) -> String {
        format!("{}.example.com/gpu", self.name)
    }

    fn spec(&self, version: &str) -> Value {
        json!({
            "version": version,
            "nodeSelector": {"pool": self.name},
            "rollout": {"soak": "500ms", "maxFailures": 100},
            "verify": {"stableFor": "1s"},
            "kernelModule": self.module(version),
        })
    }

    /// `spec.kernelModule` of a version.
    pub fn module(&self, version: &str) -> Value {
        let part = |name: &str, annotations: Value, mut spec: Value| {
            let mut all = json!({
                "sim.lockkeeper.dev/behaviour": name, "sim.lockkeeper.dev/module": self.name, "sim.lockkeeper.dev/version": version,
            });
            all.as_object_mut().expect("object").extend(annotations.as_object().cloned().unwrap_or_default());
            spec["containers"] = json!([{"name": name, "image": format!("{name}:{version}")}]);
            json!({"metadata": {"labels": {"app": name}, "annotations": all}, "spec": spec})
        };
        let plugin = json!({
            "sim.lockkeeper.dev/resource": self.resource(), "sim.lockkeeper.dev/devices": DEVICES.to_string(),
            "sim.lockkeeper.dev/init": "wait-for-module",
        });
        let wait =
            json!({"terminationGracePeriodSeconds": 5, "initContainers": [{"name": "wait-for-module", "image": "wait:1"}]});
        json!({
            "daemonSets": {
                "loader": part("loader", json!({}), json!({"terminationGracePeriodSeconds": 5})),
                "devicePlugin": part("device-plugin", plugin, wait),
                "unload": part("unload", json!({}), json!({"restartPolicy": "Never"})),
            },
            "devices": {"resourceNames": [self.resource()]},
        })
    }

    /// Creates objects as the cluster's administrator.
    pub async fn apply(&self, objects: &[Object]) {
        for object in objects {
            eventually(object.kind, LONG, || async { self.admin.create(object).await.map(Some) }).await;
        }
    }

    /// A Deployment whose pods use one device each.
    pub fn claimants(&self, app: &str, replicas: u32) -> Object {
        objects::deployment(&self.apps(), app, replicas, self.claimant(app))
    }

    /// The same, no two of them on one node.
    pub fn claimants_apart(&self, app: &str, replicas: u32) -> Object {
        let mut template = self.claimant(app);
        template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]}});
        objects::deployment(&self.apps(), app, replicas, template)
    }

    /// A pod template with one device.
    pub fn claimant(&self, app: &str) -> Value {
        objects::template(app, Some((&self.resource(), 1)), 5)
    }

    /// A Deployment on the fleet's nodes whose pods use no device.
    pub fn bystanders(&self, app: &str, replicas: u32) -> Object {
        let mut template = objects::template(app, None, 5);
        template["spec"]["nodeSelector"] = json!({"pool": self.name});
        objects::deployment(&self.apps(), app, replicas, template)
    }

    /// The pods of an app.
    pub async fn pods(&self, app: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.apps());
        let list = || async { pods.list(&ListParams::default().labels(&format!("app={app}"))).await.map(Some) };
        eventually("a list of pods", LONG, list).await.items
    }

    /// Waits until so many pods of an app run, and there are no others.
    pub async fn running(&self, app: &str, replicas: usize) -> Vec<Pod> {
        eventually(&format!("{replicas} running pods of {app}"), LONG, || async {
            let pods = self.pods(app).await;
            let well = |pod: &&Pod| phase_of(pod) == "Running" && pod.metadata.deletion_timestamp.is_none();
            let running = pods.iter().filter(well).count();
            let said: Vec<String> = pods.iter().map(|pod| format!("{} {}", name_of(pod), phase_of(pod))).collect();
            if running == replicas && pods.len() == replicas { Ok(Some(pods)) } else { Err(said.join(", ")) }
        })
        .await
    }

    /// The operator gives the component its next version.
    pub async fn release(&self, version: &str, module: Value) {
        self.edit_component(json!({"version": version, "kernelModule": module})).await;
    }

    pub async fn edit_component(&self, spec: Value) {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodecomponents/gpu", self.name);
        self.operator.merge(&path, &json!({"spec": spec})).await.expect("the operator may edit a NodeComponent");
    }

    /// The operator asks for a handoff. Returns its attempt: the first install was one already.
    pub async fn hand_over(&self, node: &str, version: &str, position: i32) -> u32 {
        let Some(known) = self.handoff(node).await else {
            let handoff = objects::handoff(self.name, "gpu", node, version, position);
            self.operator.create(&handoff).await.expect("the operator may make a NodeHandoff");
            return 1;
        };
        let attempt = known.spec.attempt + 1;
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/gpu.{node}", self.name);
        let spec = json!({"version": version, "attempt": attempt, "position": position, "requestedBy": "operator"});
        self.operator.merge(&path, &json!({"spec": spec})).await.expect("the operator may edit a NodeHandoff");
        attempt
    }

    /// What a person asks for with the operator's rights, planned on the engine's picture; repeated until the picture allows it.
    pub async fn ask(&self, engine: &Engine, intent: Intent) -> String {
        let cluster = self.site.cluster(User::Operator, false).await;
        eventually(&format!("{intent:?}"), LONG, || async {
            let fleet = engine.pictures().borrow().fleet.clone();
            match request::carry_out(&cluster, &fleet, &intent).await.0 {
                IntentOutcome::Done { message } => Ok(Some(message)),
                IntentOutcome::Refused { message } => Err(message),
            }
        })
        .await
    }

    /// The intent to hand one node over.
    pub fn to(&self, node: &str, version: &str) -> Intent {
        Intent::HandOver {
            component: self.key(),
            nodes: vec![NodeTarget { node: node.into(), uid: None }],
            to: version.into(),
            pause_after: Vec::new(),
            reason: String::new(),
        }
    }

    pub fn handoffs(&self) -> Api<NodeHandoff> {
        Api::namespaced(self.client.clone(), self.name)
    }

    pub async fn handoff(&self, node: &str) -> Option<NodeHandoff> {
        let name = format!("gpu.{node}");
        eventually("an answer", LONG, || async { self.handoffs().get_opt(&name).await.map(Some) }).await
    }

    /// Waits until the handoffs of all these nodes stand in the queue.
    pub async fn queued(&self, nodes: &[String]) {
        for node in nodes {
            eventually(&format!("{node} to be queued"), LONG, || async {
                let Some(handoff) = self.handoff(node).await else { return Err("there is no NodeHandoff".to_owned()) };
                let status = handoff.status.unwrap_or_default();
                if status.phase == Phase::Queued { Ok(Some(())) } else { Err(format!("{:?}: {status:?}", handoff.spec)) }
            })
            .await;
        }
    }

    /// Waits until the node's handoff has ended so, in this attempt.
    pub async fn ended(&self, node: &str, attempt: u32, phase: Phase) -> NodeHandoffStatus {
        eventually(&format!("the {phase} of attempt {attempt} on {node}"), LONG, || async {
            let Some(handoff) = self.handoff(node).await else { return Err("there is no NodeHandoff".to_owned()) };
            let status = handoff.status.unwrap_or_default();
            let there = status.run.as_ref().is_some_and(|run| run.attempt == attempt) && status.phase == phase;
            if there { Ok(Some(status)) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    pub async fn node(&self, name: &str) -> Node {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually("a node", LONG, || async { nodes.get(name).await.map(Some) }).await
    }

    /// Waits until a node runs a version: all four labels say it, the kernel has it, the node is open, and nothing of a handoff is left on it.
    pub async fn runs(&self, name: &str, version: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let key = self.key();
        eventually(&format!("{name} to run {version}"), LONG, || async {
            let Some(node) = nodes.get_opt(name).await? else { return Ok(None) };
            let found = Found::of(&node, &key);
            let loaded = self.site.kubelets.kernel(name).and_then(|kernel| kernel.modules.get(self.name).cloned());
            let wanted = Found::running(version);
            let there = found == wanted && loaded.as_deref() == Some(version);
            let slots = self.slots().await?;
            if there && !slots.iter().any(|slot| slot.node == name) {
                return Ok(Some(()));
            }
            Err::<_, Box<dyn std::error::Error>>(format!("{found:?}; in its kernel: {loaded:?}; slots: {slots:?}").into())
        })
        .await;
    }

    /// The admitted nodes on the Lease.
    pub async fn slots(&self) -> kube::Result<Vec<Slot>> {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(self.client.clone(), "lockkeeper-system");
        let lease = leases.get("lockkeeper").await?;
        let slots = lease.metadata.annotations.unwrap_or_default().remove(SLOTS);
        Ok(slots.map(|text| serde_json::from_str(&text).expect("slots")).unwrap_or_default())
    }

    fn subject(&self, node: &str) -> Subject {
        Subject::Occupancy { component: self.key(), node: node.into() }
    }

    /// Waits until the engine's picture names a blocker of this kind for a node.
    pub async fn blocker(&self, engine: &Engine, node: &str, kind: BlockerKind) -> Blocker {
        self.blocker_saying(engine, node, kind, "").await
    }

    /// Waits until it has these words too: what a controller counts, or a kubelet tells, may come after the blocker.
    pub async fn blocker_saying(&self, engine: &Engine, node: &str, kind: BlockerKind, words: &str) -> Blocker {
        let subject = self.subject(node);
        let is = |blocker: &&Blocker| blocker.kind == kind && blocker.message.contains(words);
        let find = |picture: &Picture| match picture.verdicts.get(&subject) {
            Some(Verdict::Wait(wait)) => wait.blockers.iter().find(is).cloned(),
            _ => None,
        };
        match tokio::time::timeout(LONG, engine.until(|picture| find(picture).is_some())).await {
            Ok(picture) => picture.as_ref().and_then(find).expect("the engine runs"),
            Err(_) => panic!("no {kind:?} {words:?} for {node}: {:?}", engine.pictures().borrow().verdicts.get(&subject)),
        }
    }

    /// Waits until the node's NodeHandoff names a blocker of this kind.
    pub async fn recorded(&self, node: &str, kind: BlockerKind) -> lockkeeper::api::handoff::BlockerRecord {
        self.recorded_saying(node, kind, "").await
    }

    /// Waits until it has these words too.
    pub async fn recorded_saying(&self, node: &str, kind: BlockerKind, words: &str) -> lockkeeper::api::handoff::BlockerRecord {
        eventually(&format!("{kind:?} {words:?} on the NodeHandoff of {node}"), LONG, || async {
            let status = self.handoff(node).await.and_then(|handoff| handoff.status).unwrap_or_default();
            let found = status.blockers.iter().find(|blocker| blocker.kind == kind.word() && blocker.message.contains(words));
            found.cloned().map(Some).ok_or_else(|| format!("{status:?}"))
        })
        .await
    }

    /// What happened to the module in a node's kernel, in order: `+1.0`, `-1.0`. Panics when anything happened that never may.
    pub fn story(&self, node: &str) -> String {
        let mut story = Vec::new();
        for event in self.site.kubelets.events(0).into_iter().filter(|event| event.node == node) {
            match &event.what {
                What::ModuleLoaded { version, .. } => story.push(format!("+{version}")),
                What::ModuleUnloaded { version, forced: false, .. } => story.push(format!("-{version}")),
                What::ModuleUnloaded { forced: true, .. }
                | What::LoadRefused { .. }
                | What::ProviderWithoutModule { .. }
                | What::UnloadRefused { .. }
                | What::Disrupted { .. } => panic!("on {node}: {event:?}"),
                _ => {}
            }
        }
        story.join(" ")
    }

    /// No workload of the fleet has lost its device.
    pub fn undisturbed(&self) {
        let lost: Vec<_> = self.site.kubelets.disruptions().into_iter().filter(|it| self.nodes.contains(&it.node)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// The pods that the engine has evicted, in order.
    pub fn evicted(&self) -> Vec<String> {
        let asked = self.site.asked(User::Reconciler);
        let evictions =
            asked.into_iter().filter(|it| it.resource == "pods/eviction" && it.namespace == self.apps() && it.wrote());
        evictions.map(|it| it.name).collect()
    }
}

/// What a node says of a component.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    labels: Labels,
    closed: bool,
    record: Option<String>,
    /// Our annotations and labels of a handoff under way.
    left: BTreeMap<String, String>,
}

impl Found {
    fn of(node: &Node, key: &ComponentKey) -> Found {
        let mut left = node.metadata.annotations.clone().unwrap_or_default();
        let record = left.remove(&Role::Loaded.key(key));
        left.extend(node.metadata.labels.clone().unwrap_or_default());
        left.retain(|known, _| [Role::Mark.key(key), Role::Nonce.key(key), CORDON.to_owned()].contains(known));
        let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        Found { labels: Labels::of(node, key), closed, record, left }
    }

    fn running(version: &str) -> Found {
        let record = Loaded { version: version.into(), stopped_boot: None };
        Found {
            labels: Labels([(); 4].map(|()| Some(version.to_owned()))),
            closed: false,
            record: serde_json::to_string(&record).ok(),
            left: BTreeMap::new(),
        }
    }
}

pub fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub fn uid_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn version_of(pod: &Pod) -> &str {
    pod.metadata.resource_version.as_deref().unwrap_or_default()
}

pub fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

//! Modules that Kernel Module Management loads, handed over node by node: the queue's order, stops and crashes on the way, the way back,
//! and what is refused with nothing written.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkeeper::{
    api::ComponentKey,
    engine::{
        Engine, EngineOptions,
        intent::{Intent, IntentOutcome, NodeTarget},
        picture::Mode,
    },
    sim::{
        actors::KubeletOptions,
        demo::{DemoOptions, Scenario, kmm},
        people::{hands::Hands, kmm as people},
        scenarios::kmm::{self as scenario, GPU, NAMESPACE, NEW, NPU, OLD, Part},
        world::{ENGINE, Profile, World, WorldOptions},
    },
};
use serde_json::{Value, json};

use crate::stage::play;

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Of a node's handoff.
fn name(node: &str) -> String {
    format!("{}.{node}", Part::of_node(node).name)
}

struct Drivers {
    world: Arc<World>,
    hands: Hands,
    /// Those of the Module with a device plugin.
    nodes: Vec<String>,
    count: usize,
    lives: std::cell::Cell<u32>,
}

impl Drivers {
    /// KMM has the old version on every node, pods hold its devices, and a component follows the Module.
    async fn open(seed: u64, count: usize) -> Self {
        let options = DemoOptions {
            scenario: Scenario::Kmm,
            seed,
            faults: Profile::None,
            baseline: None,
            nodes: count,
            pods_per_node: 1,
            keep_log: false,
            tell: false,
        };
        let mut world_options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
        kmm::furnish(&mut world_options);
        let world = Arc::new(World::start(&world_options, &scenario::cluster(count)));
        let hands = world.hands("operator");
        kmm::set_up(&world, &hands, &options).await.unwrap();
        hands.create(&GPU.component(1)).await.unwrap();
        Self { world, hands, nodes: GPU.node_names(count), count, lives: std::cell::Cell::new(0) }
    }

    fn engine(&self) -> Engine {
        self.lives.set(self.lives.get() + 1);
        let identity = format!("{ENGINE}#{}", self.lives.get());
        let options = EngineOptions { mode: Mode::Engine, identity, ..EngineOptions::default() };
        Engine::start(self.world.cluster(ENGINE, false), options)
    }

    async fn release(&self, version: &str) {
        people::release(&self.hands, self.count, version).await.unwrap();
    }

    async fn ask(&self, node: &str, spec: Value) {
        let mut body = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
            "metadata": {"name": name(node), "namespace": NAMESPACE},
            "spec": {"component": Part::of_node(node).name, "node": node, "requestedBy": "operator"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            body["spec"][key] = value.clone();
        }
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs");
        self.hands.send(http::Method::POST, &path, "application/json", Some(&body)).await.unwrap();
    }

    async fn change(&self, node: &str, spec: Value) {
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{}", name(node));
        self.hands.merge(&path, &json!({ "spec": spec })).await.unwrap();
    }

    fn handoff(&self, node: &str) -> Value {
        let object = self.world.api.get("nodehandoffs.lockkeeper.dev", NAMESPACE, &name(node));
        object.map(|it| (*it).clone()).unwrap_or_default()
    }

    fn phase(&self, node: &str) -> String {
        text(&self.handoff(node), "/status/phase").to_owned()
    }

    fn runs(&self, node: &str, version: &str) -> bool {
        let module = Part::of_node(node).name;
        self.world.kubelets.kernel(node).is_some_and(|kernel| kernel.modules.get(module).is_some_and(|it| it == version))
    }

    fn is_open(&self, node: &str) -> bool {
        let node = self.world.api.get("nodes", "", node).unwrap();
        node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true)
    }

    fn component(&self) -> Value {
        self.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, "gpu").map(|it| (*it).clone()).unwrap_or_default()
    }

    fn condition(&self, kind: &str) -> Value {
        let component = self.component();
        let all = component.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
    }

    /// Kind and message of what the handoff waits for, as it is written down.
    fn blocked(&self, node: &str, kind: &str, words: &str) -> bool {
        let handoff = self.handoff(node);
        let all = handoff.pointer("/status/blockers").and_then(Value::as_array).cloned().unwrap_or_default();
        all.iter().any(|it| it["kind"] == kind && text(it, "/message").contains(words))
    }

    async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
        while !holds() {
            if tokio::time::Instant::now() >= deadline {
                let handoffs = self.world.api.list("nodehandoffs.lockkeeper.dev");
                let told: Vec<String> =
                    handoffs.iter().map(|it| format!("{} {}", text(it, "/metadata/name"), it["status"])).collect();
                panic!("never: {what}\n{}\n{:#?}", told.join("\n"), self.world.report().violations);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn done(&self, node: &str, version: &str) {
        let is = || self.phase(node) == "Done" && self.runs(node, version) && self.is_open(node);
        self.until(&format!("{node} runs {version}"), is).await;
    }

    fn clean(&self) {
        let report = self.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, 0);
    }
}

#[test]
fn five_nodes_get_the_modules_version_in_the_queues_order_one_at_a_time() {
    play(|| async {
        let drivers = Drivers::open(11, 6).await;
        let order = [2, 0, 4, 1, 3].map(|at| drivers.nodes[at].clone());
        let begun: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = begun.clone();
        drivers.world.api.log().observe(move |record| {
            let phase = record.new.as_ref().map(|new| text(new, "/status/phase").to_owned()).unwrap_or_default();
            let node = record.new.as_ref().map(|new| text(new, "/spec/node").to_owned()).unwrap_or_default();
            let mut seen = seen.lock().unwrap();
            if phase == "Cordoning" && !seen.contains(&node) {
                seen.push(node);
            }
        });
        let engine = drivers.engine();
        drivers.release(NEW).await;
        for (position, node) in (1..).zip(&order) {
            drivers.ask(node, json!({"position": position})).await;
        }
        for node in &order {
            drivers.done(node, NEW).await;
        }
        engine.stop().await;
        assert_eq!(*begun.lock().unwrap(), order);
        drivers.clean();
        // What is left on a node is KMM's alone.
        for node in &order {
            let node = drivers.world.api.get("nodes", "", node).unwrap();
            let annotations = node.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
            let ours: Vec<&String> = annotations.keys().filter(|key| key.starts_with("lockkeeper.dev/")).collect();
            assert!(ours.is_empty(), "{ours:?}");
        }
    });
}

/// Every write of the engine's, by what it changes.
#[test]
fn of_kmms_things_only_the_version_label_is_ever_written() {
    play(|| async {
        let drivers = Drivers::open(12, 2).await;
        let (node, wrong, moved) = (drivers.nodes[0].clone(), Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (found, counted, key) = (wrong.clone(), moved.clone(), GPU.desired_key());
        drivers.world.api.log().observe(move |record| {
            if &*record.user != ENGINE {
                return;
            }
            let map = |object: &Option<Arc<Value>>, pointer: &str| {
                object.as_ref().and_then(|it| it.pointer(pointer)).and_then(Value::as_object).cloned().unwrap_or_default()
            };
            let resource = record.resource.to_string();
            if resource != "nodes" {
                let own = ["nodehandoffs.lockkeeper.dev", "nodecomponents.lockkeeper.dev", "leases.coordination.k8s.io"];
                let rest = ["pods", "poddisruptionbudgets.policy/eviction", "events.events.k8s.io"];
                if !own.iter().chain(&rest).any(|known| resource.starts_with(known)) {
                    found.lock().unwrap().push(format!("a write of {resource}"));
                }
                return;
            }
            for (pointer, ours) in [("/metadata/labels", &key[..]), ("/metadata/annotations", "lockkeeper.dev/")] {
                let (old, new) = (map(&record.old, pointer), map(&record.new, pointer));
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for changed in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
                    if changed == ours {
                        *counted.lock().unwrap() += 1;
                    } else if !(pointer == "/metadata/annotations" && changed.starts_with(ours)) {
                        found.lock().unwrap().push(format!("{pointer} {changed}"));
                    }
                }
            }
        });
        let engine = drivers.engine();
        drivers.release(NEW).await;
        drivers.ask(&node, json!({})).await;
        drivers.done(&node, NEW).await;
        engine.stop().await;
        assert_eq!(*wrong.lock().unwrap(), Vec::<String>::new());
        assert!((1..=2).contains(&*moved.lock().unwrap()), "{}", moved.lock().unwrap());
        drivers.clean();
    });
}

#[test]
fn the_way_back_leads_through_the_module() {
    play(|| async {
        let drivers = Drivers::open(13, 2).await;
        let node = drivers.nodes[0].clone();
        let engine = drivers.engine();
        drivers.release(NEW).await;
        drivers.ask(&node, json!({})).await;
        drivers.done(&node, NEW).await;
        // The Module is at the new version still: KMM would leave the node empty.
        let back = Intent::RollBack { component: ComponentKey::new(NAMESPACE, "gpu"), node: node.as_str().into() };
        match engine.ask(back.clone()).await {
            IntentOutcome::Refused { message } => {
                let way =
                    format!("First put {OLD} and its image back into it, in one edit (spec.moduleLoader.container: version");
                assert!(message.contains(&way) && message.contains(&format!("{NAMESPACE}/gpu is at {NEW}")), "{message}");
            }
            other => panic!("it was not refused: {other:?}"),
        }
        drivers.change(&node, json!({"version": OLD, "attempt": 2})).await;
        drivers.until("it is refused", || drivers.blocked(&node, "KmmVersion", "once it is in the Module again")).await;
        assert!(drivers.runs(&node, NEW) && drivers.is_open(&node));
        drivers.release(OLD).await;
        drivers.done(&node, OLD).await;
        engine.stop().await;
        drivers.clean();
    });
}

#[test]
fn held_between_unload_and_load_a_reboot_changes_nothing() {
    play(|| async {
        let drivers = Drivers::open(14, 2).await;
        let node = drivers.nodes[0].clone();
        let engine = drivers.engine();
        drivers.release(NEW).await;
        drivers.ask(&node, json!({"pauseAfter": ["Unloading"]})).await;
        drivers.until("it is held", || drivers.phase(&node) == "Held").await;
        assert!(!drivers.runs(&node, OLD) && !drivers.runs(&node, NEW) && !drivers.is_open(&node));
        drivers.world.kubelets.reboot(&node);
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(drivers.phase(&node), "Held");
        assert!(!drivers.runs(&node, OLD) && !drivers.runs(&node, NEW), "nobody has asked for a load");
        drivers.change(&node, json!({"pauseAfter": []})).await;
        drivers.done(&node, NEW).await;
        engine.stop().await;
        drivers.clean();
    });
}

#[test]
fn a_crash_in_any_phase_and_kmms_operator_away_are_survived() {
    for phase in ["Cordoning", "Draining", "StoppingPlugin", "Unloading", "Loading", "StartingPlugin", "Verifying", "Uncordoning"]
    {
        play(|| async {
            let drivers = Drivers::open(15, 2).await;
            let node = drivers.nodes[0].clone();
            let first = drivers.engine();
            drivers.release(NEW).await;
            drivers.ask(&node, json!({})).await;
            let deadline = tokio::time::Instant::now() + Duration::from_secs(1800);
            while drivers.phase(&node) != phase {
                assert!(tokio::time::Instant::now() < deadline, "{phase} was never seen");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            first.abort();
            drivers.world.kill_kmm();
            tokio::time::sleep(Duration::from_secs(60)).await;
            drivers.world.start_kmm();
            let second = drivers.engine();
            drivers.done(&node, NEW).await;
            second.stop().await;
            drivers.clean();
        });
    }
}

#[test]
fn a_module_that_tolerates_no_cordon_is_refused_with_the_lines_and_nothing_is_written() {
    play(|| async {
        let drivers = Drivers::open(16, 2).await;
        let node = drivers.nodes[0].clone();
        drivers.hands.merge(&GPU.module_path(), &json!({"spec": {"tolerations": null}})).await.unwrap();
        let before = drivers.world.api.get("nodes", "", &node).unwrap()["metadata"]["labels"].clone();
        let engine = drivers.engine();
        drivers.release(NEW).await;
        drivers.ask(&node, json!({})).await;
        drivers.until("it is refused", || drivers.blocked(&node, "KmmTolerations", "tolerations:\n  - operator: Exists")).await;
        assert_eq!(drivers.world.api.get("nodes", "", &node).unwrap()["metadata"]["labels"], before);
        assert!(drivers.runs(&node, OLD) && drivers.is_open(&node));
        drivers.until("it is told", || drivers.condition("Exposed")["status"] == "True").await;
        drivers.hands.merge(&GPU.module_path(), &json!({"spec": {"tolerations": [{"operator": "Exists"}]}})).await.unwrap();
        drivers.done(&node, NEW).await;
        engine.stop().await;
        drivers.clean();
    });
}

#[test]
fn a_taint_that_kmm_does_not_tolerate_on_many_nodes_is_said_loudly() {
    play(|| async {
        let drivers = Drivers::open(17, 4).await;
        let engine = drivers.engine();
        drivers.hands.merge(&GPU.module_path(), &json!({"spec": {"tolerations": null}})).await.unwrap();
        drivers.until("nothing is lost", || drivers.condition("Disturbed")["status"] == "False").await;
        for node in &drivers.nodes {
            let taint = json!({"spec": {"taints": [{"key": "example.com/hot", "effect": "NoSchedule"}]}});
            drivers.hands.merge(&format!("/api/v1/nodes/{node}"), &taint).await.unwrap();
        }
        let said = || {
            let condition = drivers.condition("Disturbed");
            condition["status"] == "True" && text(&condition, "/message").contains("3 of 3 nodes")
        };
        drivers.until("it is said", said).await;
        engine.stop().await;
    });
}

#[test]
fn a_label_moved_by_hand_is_observed_counted_and_not_steered() {
    play(|| async {
        let drivers = Drivers::open(18, 2).await;
        let node = drivers.nodes[0].clone();
        let engine = drivers.engine();
        drivers.release(NEW).await;
        people::label(&drivers.hands, GPU, &node, Some(NEW)).await.unwrap();
        let by = || text(&drivers.handoff(&node), "/spec/requestedBy") == "label";
        drivers.until("it is seen", by).await;
        let step = "evict it yourself (kubectl -n ml delete pod ";
        drivers.until("who holds the device is named, with what works now", || drivers.blocked(&node, "Claimant", step)).await;
        assert!(!drivers.blocked(&node, "Claimant", "lockkeeper handoff"), "that is refused while this one runs");
        let again = Intent::HandOver {
            component: ComponentKey::new(NAMESPACE, "gpu"),
            nodes: vec![NodeTarget { node: node.as_str().into(), uid: None }],
            to: NEW.into(),
            pause_after: Vec::new(),
            reason: String::new(),
        };
        assert!(matches!(engine.ask(again).await, IntentOutcome::Refused { .. }));
        // KMM goes on under them, and its unload fails again and again: what it said, and what ends that.
        for words in ["saying: ", "end what holds the module", "reboot the node"] {
            drivers.until(&format!("{words} is said"), || drivers.blocked(&node, "WorkerFailed", words)).await;
        }
        assert!(drivers.is_open(&node), "no node is closed for it");
        // The person makes room at last.
        drivers.hands.merge(&format!("/api/v1/nodes/{node}"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
        for pod in drivers.world.api.list("pods").iter().filter(|pod| text(pod, "/spec/nodeName") == node) {
            if text(pod, "/metadata/namespace") == "ml" {
                let path = format!("/api/v1/namespaces/ml/pods/{}", text(pod, "/metadata/name"));
                drivers.hands.send(http::Method::DELETE, &path, "application/json", None).await.unwrap();
            }
        }
        drivers.until("it has ended", || drivers.phase(&node) == "Done" && drivers.runs(&node, NEW)).await;
        assert!(!drivers.is_open(&node), "the cordon is the person's");
        engine.stop().await;
        let report = drivers.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.claimants_evicted, 0, "nobody is evicted for it");
    });
}

/// Only the driver can take a ResourceClaim back, and KMM, which has unloaded for a label that was taken off for a while, lets it return only
/// with the version that the Module has now.
#[test]
fn pods_whose_driver_a_label_changed_by_hand_has_taken_away_hold_nothing_up() {
    play(|| async {
        let drivers = Drivers::open(19, 4).await;
        drivers.hands.create(&NPU.component(1)).await.unwrap();
        let node = NPU.node_names(4)[0].clone();
        let on_node = || {
            let pods = drivers.world.api.list("pods").into_iter();
            let here = pods.filter(|pod| text(pod, "/spec/nodeName") == node);
            here.map(|pod| (text(&pod, "/metadata/namespace").to_owned(), text(&pod, "/metadata/name").to_owned()))
                .collect::<Vec<_>>()
        };
        let of =
            |namespace: &str| on_node().into_iter().filter(|(of, _)| of == namespace).map(|(_, name)| name).collect::<Vec<_>>();
        let holders = of("ml");
        assert!(!holders.is_empty(), "somebody holds a device of {node}");
        drivers.release(NEW).await;
        people::label(&drivers.hands, NPU, &node, None).await.unwrap();
        drivers.until("KMM has taken the driver away", || !of(NAMESPACE).iter().any(|name| name.contains("dra"))).await;
        people::label(&drivers.hands, NPU, &node, Some(OLD)).await.unwrap();
        let engine = drivers.engine();
        drivers.ask(&node, json!({})).await;
        drivers.done(&node, NEW).await;
        let proofs = drivers.handoff(&node)["status"]["proofs"].to_string();
        assert!(proofs.contains("which only the driver of the next version can release"), "{proofs}");
        let left: Vec<String> = of("ml").into_iter().filter(|name| holders.contains(name)).collect();
        drivers.until("the new driver has freed them", || !of("ml").iter().any(|name| left.contains(name))).await;
        engine.stop().await;
        drivers.clean();
    });
}

//! Two reconcilers on one real cluster, and the Lease moves between them: whoever leads is stopped for longer than the Lease lasts and goes on, or
//! is killed, at random. Judged by the toy kernels, by what is seen of nodes and pods, and by the API server's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use lockkeeper::{
    api::{Phase, keys},
    sim::scenarios::objects,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fleet::{Fleet, LONG, name_of, node_of, phase_of},
    installed::await_right,
    reconciler::Process,
    site::{Site, block_on},
    support::controlplane::User,
    wait::eventually,
};

const NODES: usize = 5;

/// What is seen of the cluster by a watch, in its order.
#[derive(Debug, Default)]
struct Seen {
    closed: BTreeSet<String>,
    most_closed: usize,
    /// Loader pods by node: name and version.
    loaders: BTreeMap<String, BTreeMap<String, String>>,
    wrong: Vec<String>,
}

impl Seen {
    fn node(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let ours = node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::CORDON));
        let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        if closed && ours {
            self.closed.insert(name)
        } else {
            self.closed.remove(&name)
        };
        self.most_closed = self.most_closed.max(self.closed.len());
        if self.closed.len() > 1 {
            self.wrong.push(format!("closed at once: {:?}", self.closed));
        }
    }

    fn pod(&mut self, pod: &Pod, gone: bool) {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        if labels.get(keys::ROLE).map(String::as_str) != Some("loader") || node_of(pod).is_empty() {
            return;
        }
        let on_node = self.loaders.entry(node_of(pod).to_owned()).or_default();
        if gone || matches!(phase_of(pod), "Succeeded" | "Failed") {
            on_node.remove(name_of(pod));
        } else {
            on_node.insert(name_of(pod).to_owned(), labels.get(keys::VERSION).cloned().unwrap_or_default());
        }
        if on_node.values().collect::<BTreeSet<_>>().len() > 1 {
            self.wrong.push(format!("loaders on {}: {on_node:?}", node_of(pod)));
        }
    }
}

/// A request in the audit log, with the time at which it came.
struct Request {
    at: String,
    user: String,
    what: String,
    name: String,
    wrote: bool,
}

fn requests(site: &Site) -> Vec<Request> {
    let log = fs::read(site.plane.dir().join("audit.log")).expect("audit log");
    let log = String::from_utf8_lossy(&log);
    let text = |line: &Value, pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut all: Vec<Request> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|line| {
            let (resource, sub) = (text(&line, "/objectRef/resource"), text(&line, "/objectRef/subresource"));
            let code = line.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
            let verb = text(&line, "/verb");
            let wrote = !matches!(verb.as_str(), "get" | "list" | "watch") && !resource.starts_with("selfsubject");
            Request {
                at: text(&line, "/requestReceivedTimestamp"),
                user: text(&line, "/user/username"),
                what: if sub.is_empty() { resource } else { format!("{resource}/{sub}") },
                name: text(&line, "/objectRef/name"),
                wrote: wrote && (200..300).contains(&code),
            }
        })
        .collect();
    all.sort_by(|one, two| one.at.cmp(&two.at));
    all
}

#[test]
fn two_reconcilers_whose_leader_is_stopped_and_killed_at_random() {
    let Some(site) = Site::own() else { return };
    site.kubelets.set_options(|options| {
        let while_ = lockkeeper::sim::actors::Range::millis(300, 900);
        (options.stop, options.unload, options.start, options.ready, options.allocatable_lag) =
            (while_, while_, while_, while_, while_);
    });
    // The audit log tells them apart by their users.
    let powers = ["create", "clusterrolebinding", "second-reconciler", "--clusterrole=cluster-admin", "--user=viewer"];
    site.plane.kubectl(powers).expect_ok();
    block_on(await_right(&site.plane, User::Viewer, "patch", "nodes"));
    let users = [User::Reconciler, User::Viewer];
    let mut lives = [1, 1];
    let mut engines = users.map(|user| Process::reconcile(&site, user, &format!("{}-1", user.name())));
    let seed =
        std::env::var("DUEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed} (DUEL_SEED={seed} to draw the same)");
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    block_on(async {
        let fleet = Fleet::start(&site, "duel", NODES, |_| {}).await;
        fleet
            .apply(&[fleet.claimants("training", 8), objects::budget(&fleet.apps(), "training", "maxUnavailable", json!(2))])
            .await;
        fleet.running("training", 8).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let client = site.plane.client(User::Admin).await;
        let watching = {
            let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::all(client));
            let (for_nodes, for_pods) = (seen.clone(), seen.clone());
            let lock =
                |seen: &Mutex<Seen>, see: &dyn Fn(&mut Seen)| see(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
            let nodes = async move {
                let mut events = watcher(nodes, watcher::Config::default()).applied_objects().boxed();
                while let Some(event) = events.next().await {
                    event.iter().for_each(|node| lock(&for_nodes, &|seen| seen.node(node)));
                }
            };
            let pods = async move {
                let mut events = watcher(pods, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                            lock(&for_pods, &|seen| seen.pod(&pod, false))
                        }
                        Ok(watcher::Event::Delete(pod)) => lock(&for_pods, &|seen| seen.pod(&pod, true)),
                        _ => {}
                    }
                }
            };
            tokio::spawn(async move { tokio::join!(nodes, pods) })
        };
        let mut queue = (1..).zip(&fleet.nodes);
        for (position, node) in queue.by_ref().take(NODES - 1) {
            fleet.hand_over(node, "2.0", position).await;
        }
        let (mut stopped, mut killed) = (0, 0);
        let done = async || {
            let mut done = 0;
            for node in &fleet.nodes {
                let status = fleet.handoff(node).await.and_then(|handoff| handoff.status).unwrap_or_default();
                assert!(!matches!(status.phase, Phase::Failed | Phase::Aborted), "{node}: {status:?}");
                let run = status.run.as_ref().is_some_and(|run| run.target.as_deref() == Some("2.0"));
                done += usize::from(run && status.phase == Phase::Done);
            }
            done
        };
        let end = Instant::now() + LONG * 3;
        loop {
            sleep(Duration::from_millis(dice.random_range(500..5000))).await;
            if done().await == NODES {
                break;
            }
            // On a quick machine too there is something to do until enough was tried.
            if stopped >= 2
                && let Some((position, node)) = queue.next()
            {
                fleet.hand_over(node, "2.0", position).await;
            }
            assert!(
                Instant::now() < end,
                "not all done: {:#?}",
                engines.iter().filter_map(Process::diagnostics).collect::<Vec<_>>()
            );
            let leads = |engine: &Process| engine.diagnostics().is_some_and(|it| it["lease"]["ours"] == true);
            let Some(leader) = engines.iter().position(leads) else { continue };
            if stopped + killed >= 7 {
                continue;
            }
            // Somewhere in the next second, which is where decisions and their writes are.
            sleep(Duration::from_micros(dice.random_range(0..1_000_000))).await;
            if stopped <= killed * 2 {
                stopped += 1;
                engines[leader].stop();
                sleep(Duration::from_millis(dice.random_range(16_000..22_000))).await;
                if stopped <= 2 {
                    let other = &engines[1 - leader];
                    let there = || async { Ok::<_, String>(leads(other).then_some(())) };
                    eventually("the other one to lead", LONG, there).await;
                }
                engines[leader].go_on();
            } else {
                killed += 1;
                engines[leader].kill();
                lives[leader] += 1;
                let user = users[leader];
                engines[leader] = Process::reconcile(&site, user, &format!("{}-{}", user.name(), lives[leader]));
            }
        }
        // What would come late has come.
        sleep(Duration::from_secs(3)).await;
        watching.abort();
        for node in &fleet.nodes {
            let status = fleet.ended(node, 2, Phase::Done).await;
            assert_eq!(status.history.len(), 2, "{:?}", status.history);
            fleet.runs(node, "2.0").await;
            assert_eq!(fleet.story(node), "+1.0 -1.0 +2.0", "{node}");
        }
        fleet.undisturbed();
        fleet.running("training", 8).await;
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(seen.wrong.is_empty() && seen.most_closed == 1, "{seen:?}");
        drop(seen);

        // The Lease's holder is whoever last wrote it; nobody else may have written anything.
        let (mut holder, mut moves, mut writes, mut stale) = (String::new(), 0, 0, Vec::new());
        let mut evicted = BTreeMap::<String, u32>::new();
        for request in
            requests(&site).iter().filter(|request| users.iter().any(|user| user.name() == request.user) && request.wrote)
        {
            if request.what == "leases" {
                moves += i32::from(holder != request.user);
                holder.clone_from(&request.user);
                continue;
            }
            if request.what == "events" {
                continue;
            }
            writes += 1;
            if request.user != holder {
                stale.push(format!("{} {} {} by {} while {holder} leads", request.at, request.what, request.name, request.user));
            }
            if request.what == "pods/eviction" {
                *evicted.entry(request.name.clone()).or_default() += 1;
            }
        }
        println!(
            "leader stopped {stopped} times, killed {killed} times; the Lease moved {moves} times; {writes} writes, {} of a former leader; \
             {} evictions",
            stale.len(),
            evicted.len()
        );
        assert!(stale.is_empty(), "{stale:#?}");
        assert!(evicted.values().all(|times| *times == 1), "{evicted:?}");
        assert!(stopped >= 2 && moves >= 2, "nothing was tried");
    });
}

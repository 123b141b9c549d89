//! The pod half of a kubelet: admits, starts, watches and ends the pods of all machines, and writes their status.

use super::super::informer::raced;
use super::super::queue::{instant, lock};
use super::super::recorder;
use super::super::records::{Node, Pod, Record};
use super::super::selectors::pod_matches_node;
use super::machine::{Machine, Power, wait};
use super::needs::needs;
use super::run::{Needs, Run, Stage};
use super::status::pod_status;
use super::{Cluster, PodKey};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What is to be written for one pod, decided under the lock and done outside of it.
struct Plan {
    status: Option<(String, Value)>,
    /// Reason and message of a warning to be left with the pod.
    warning: Option<(&'static str, String)>,
    delete: bool,
    wake: Option<Duration>,
}

impl Cluster {
    pub(super) async fn sync_pod(&self, key: PodKey) -> kube::Result<Option<Duration>> {
        let (node, name) = &key;
        let pod = self.caches.pods.get(name).filter(|pod| pod.spec.node_name == *node);
        if let Some(pod) = &pod {
            self.ask_for_labels(node, pod).await?;
        }
        let Some(plan) = self.plan(node, name, pod.as_ref()) else { return Ok(None) };
        let Some(pod) = pod else { return Ok(plan.wake) };
        let uid = &pod.metadata.uid;
        if let Some((_, status)) = plan.status {
            let patch = json!({"metadata": {"uid": uid}, "status": status});
            let written = raced(self.caches.pods.strategic(name, "status", &patch).await)?;
            if written.is_some()
                && let Some(run) = lock(&self.machines).get_mut(node).and_then(|machine| machine.runs.get_mut(uid))
            {
                run.reported = Some(status);
            }
        }
        if let Some((reason, message)) = plan.warning {
            recorder::warn(&self.caches, Pod::KIND, &pod.metadata, "kubelet", reason, &message).await;
        }
        if plan.delete {
            // Only now: a crash in between leaves the object, and the next look deletes it.
            self.caches.pods.delete(&pod.metadata, Some(0)).await?;
            if let Some(machine) = lock(&self.machines).get_mut(node) {
                machine.runs.remove(uid);
            }
        }
        Ok(plan.wake)
    }

    /// What was bound by labels that the watch of Nodes has not told yet fits all the same.
    async fn ask_for_labels(&self, node: &str, pod: &Pod) -> kube::Result<()> {
        let stale = || {
            let object = self.caches.nodes.get(node)?;
            let mut machines = lock(&self.machines);
            let machine = machines.get_mut(node).filter(|machine| !machine.runs.contains_key(&pod.metadata.uid))?;
            let mut known = Node::clone(&object);
            known.metadata.labels.clone_from(machine.labels(instant()));
            (!pod_matches_node(&pod.spec, &known)).then_some(())
        };
        if !self.options().asks_for_labels || stale().is_none() {
            return Ok(());
        }
        let fresh = self.caches.nodes.read(node).await?.and_then(|node| serde_json::from_value::<Node>(node).ok());
        if let (Some(fresh), Some(machine)) = (fresh, lock(&self.machines).get_mut(node)) {
            machine.labels_read(fresh.metadata.labels);
        }
        Ok(())
    }

    fn plan(&self, node: &str, name: &str, pod: Option<&Arc<Pod>>) -> Option<Plan> {
        let (at, now) = (instant(), self.caches.clock.now());
        let object = self.caches.nodes.get(node);
        let mut machines = lock(&self.machines);
        let machine = machines.get_mut(node)?;
        if machine.power != Power::On {
            return None;
        }
        let mut wakes = Vec::new();
        // Runs whose object is gone: forced out of the API, their processes end by their own grace.
        let uid = pod.map(|pod| pod.metadata.uid.clone());
        let orphans: Vec<String> = machine
            .runs
            .values()
            .filter(|run| run.key() == name && Some(&run.pod.uid) != uid.as_ref())
            .map(|run| run.pod.uid.clone())
            .collect();
        for orphan in orphans {
            if let Some((run, mut context)) = machine.with_run(&orphan, &self.options(), self.caches.dice, at, now) {
                run.stop(&context);
                wakes.extend(run.step(&mut context, &Needs::default()));
                if run.stage == Stage::Ended {
                    machine.runs.remove(&orphan);
                }
            }
        }
        let mut plan = Plan { status: None, warning: None, delete: false, wake: None };
        if let Some(pod) = pod
            && let Some(wake) = self.plan_pod(machine, pod, object.as_deref(), &mut plan)
        {
            wakes.push(wake);
        }
        plan.wake = wakes.into_iter().min().map(|until| wait(at, until));
        self.kernel_changed(machine);
        Some(plan)
    }

    fn plan_pod(&self, machine: &mut Machine, pod: &Pod, object: Option<&Node>, plan: &mut Plan) -> Option<tokio::time::Instant> {
        let (at, now) = (instant(), self.caches.clock.now());
        let (uid, deleting) = (&pod.metadata.uid, pod.metadata.deleting());
        if !machine.runs.contains_key(uid) {
            if pod.terminal() && !deleting {
                return None;
            }
            if deleting {
                // Never started here (or the kubelet forgot it with its machine): nothing to wait for.
                plan.delete = true;
                return None;
            }
            let object = object?;
            machine.runs.insert(uid.clone(), Run::new(pod, now));
            self.admit(machine, pod, object);
        } else if machine
            .runs
            .get(uid)
            .is_some_and(|run| run.stage == Stage::Preparing && run.restarts > 0 && run.reported.is_none() && !deleting)
        {
            // Started again after a reboot: a kubelet admits every pod anew.
            self.admit(machine, pod, object?);
        }
        let resolved = needs(&self.caches, pod, &machine.kernel);
        let address = machine.address(self.caches.dice);
        let node_well = machine.ready_at <= at && object.is_some_and(|node| node.ready() == "True");
        let options = self.options();
        let (run, mut context) = machine.with_run(uid, &options, self.caches.dice, at, now)?;
        if deleting {
            if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
                run.grace = Duration::from_secs(seconds.max(0) as u64);
            }
            run.stop(&context);
        }
        let wake = run.step(&mut context, &resolved);
        let blocked = run.prepared.iter().find(|service| context.kernel.provider(service).is_none()).cloned();
        if run.stage == Stage::Ended && !deleting && blocked.is_none() {
            // A finished pod is unmounted and unprepared at once.
            run.prepared.clear();
        }
        run.stalled = deleting && blocked.is_some();
        let status = pod_status(run, pod, &address, at, now);
        // The node controller marks pods of an unwell node; once the node is well, its kubelet says again what it sees.
        let contradicted = node_well && run.reported.is_some() && !deleting && pod.ready() != run.is_ready(at);
        if contradicted || run.reported.as_ref() != Some(&status) {
            plan.warning = warning(run);
            plan.status = Some((uid.clone(), status));
        }
        if deleting && run.stage == Stage::Ended {
            match blocked {
                None => plan.delete = true,
                Some(service) => tracing::debug!(pod = run.key(), ?service, "stays Terminating: its driver is away"),
            }
        }
        wake
    }

    /// The kubelet's own admission: the node must match, and devices must be there.
    fn admit(&self, machine: &mut Machine, pod: &Pod, object: &Node) {
        let (at, now) = (instant(), self.caches.clock.now());
        let mut known = object.clone();
        known.metadata.labels.clone_from(machine.labels(at));
        let refusal = if pod_matches_node(&pod.spec, &known) {
            // Its own run is counted among the active ones already.
            let short = pod
                .requests()
                .extended()
                .find(|(name, _)| !self.options().is_static(name) && machine.free(name) < 0)
                .map(|(name, count)| (name.to_owned(), count));
            short.map(|(name, count)| {
                let message = format!("Allocate failed due to requested number of devices unavailable for {name}. Requested: {count}, which is unexpected");
                ("UnexpectedAdmissionError", message)
            })
        } else {
            Some(("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned()))
        };
        if let Some((reason, message)) = refusal
            && let Some((run, mut context)) = machine.with_run(&pod.metadata.uid, &self.options(), self.caches.dice, at, now)
        {
            run.fail(reason, &message, &mut context);
        }
    }

    /// After each step: events go to the common list, and who may go on because of them is looked at again.
    pub(super) fn kernel_changed(&self, machine: &mut Machine) {
        let events = machine.kernel.drain_events();
        if events.is_empty() {
            return;
        }
        let stirs = events.iter().any(|event| {
            use crate::sim::kernel::What;
            !matches!(
                event.what,
                What::ProcessStarted { .. }
                    | What::ProcessEnded { .. }
                    | What::LoadRefused { .. }
                    | What::UnloadRefused { .. }
                    | What::Disrupted { .. }
            )
        });
        lock(&self.events).extend(events);
        if !stirs {
            return;
        }
        self.nodes.add(machine.spec.name.clone());
        for run in machine.runs.values() {
            if matches!(run.stage, Stage::Preparing | Stage::WaitingForModule) || (run.ending && run.stage == Stage::Ended) {
                self.pods.add((machine.spec.name.clone(), run.key()));
            }
        }
    }
}

/// What a kubelet warns of when a pod comes into this state.
fn warning(run: &Run) -> Option<(&'static str, String)> {
    if let Some((reason, message)) = &run.failed {
        let reason = match reason.as_str() {
            "Evicted" => "Evicted",
            "NodeAffinity" => "NodeAffinity",
            _ => "UnexpectedAdmissionError",
        };
        return Some((reason, message.clone()));
    }
    match (&run.stage, &run.missing, &run.last_exit) {
        (Stage::BackOff(_), _, Some(exit)) => {
            Some(("BackOff", format!("Back-off restarting failed container: {}", exit.message)))
        }
        (Stage::Preparing, Some(missing), _) => Some(("FailedMount", missing.clone())),
        _ => None,
    }
}

//! The printed roles against whole upgrades on a real API server, which says in its audit log what was asked for: nothing of it is refused,
//! and no permission of a role is there that nobody uses, but for those that are listed here with their reason.

use std::{collections::BTreeSet, process::Command, time::Duration};

use lockkeeper::{
    api::{Phase, keys::Role as Label},
    cli::manifests::{Manifests, RoleName, render},
    engine::{
        Engine, EngineOptions,
        intent::{Intent, IntentOutcome, NodeTarget},
        picture::Mode,
    },
    handoff::verdict::BlockerKind,
    sim::{actors::MachineSpec, scenarios::objects},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fleet::{Fleet, LONG},
    reconciler::Process,
    site::{Asked, Site, block_on},
    support::controlplane::User,
    wait::eventually,
};

/// One verb on one resource, as a printed role grants it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    verb: String,
    group: String,
    resource: String,
    /// Empty: all.
    names: Vec<String>,
    /// None: in the whole cluster.
    namespace: Option<String>,
}

impl Grant {
    fn covers(&self, asked: &Asked) -> bool {
        self.verb == asked.verb
            && self.group == asked.group
            && self.resource == asked.resource
            && (self.names.is_empty() || self.names.contains(&asked.name))
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == asked.namespace)
    }

    /// `create pods/eviction`, `patch leases.coordination.k8s.io`.
    fn word(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let (plural, sub) = self.resource.split_once('/').map_or((&*self.resource, String::new()), |(a, b)| (a, format!("/{b}")));
        format!("{} {plural}{group}{sub}", self.verb)
    }
}

/// What `lockkeeper manifests --role` prints.
fn granted(role: RoleName) -> Vec<Grant> {
    let text = render(&Manifests { role: vec![role], ..Manifests::default() }, None).expect("manifests");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let words = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().cloned().unwrap_or_default();
        list.into_iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
    };
    let mut grants = Vec::new();
    for role in documents.iter().filter(|it| it["kind"] == "ClusterRole" || it["kind"] == "Role") {
        let namespace = role.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        for rule in role["rules"].as_array().expect("rules") {
            for group in words(rule, "apiGroups") {
                for resource in words(rule, "resources") {
                    for verb in words(rule, "verbs") {
                        let (group, resource, names) = (group.clone(), resource.clone(), words(rule, "resourceNames"));
                        grants.push(Grant { verb, group, resource, names, namespace: namespace.clone() });
                    }
                }
            }
        }
    }
    grants
}

/// Permissions that nothing here makes use of, and why they are there all the same.
const IDLE: &[(RoleName, &str, &str)] = &[
    (RoleName::Reconciler, "interlock nodes.lockkeeper.dev", NOT_SERVED),
    (RoleName::Reconciler, "patch events.events.k8s.io", TOLD_AGAIN),
    (RoleName::Operator, "update nodehandoffs.lockkeeper.dev", REPLACED),
    (RoleName::Operator, "update nodecomponents.lockkeeper.dev", REPLACED),
];
const NOT_SERVED: &str = "no API serves it: the admission policy asks for it, which is tried in `policy`";
const TOLD_AGAIN: &str =
    "an Event that is told again is counted on the first one, which a smooth upgrade need not bring about; `rim` tries it";
const REPLACED: &str = "people replace whole objects with kubectl; what lockkeeper sends for them are patches";

/// Read only where a csiNodePlugin component is (`csi` upgrades one), or one that follows a Module of KMM. A kernel module of its own has
/// no use for them.
const ASKED_FOR: [&str; 8] = [
    "persistentvolumes",
    "volumeattachments",
    "csinodes",
    "csidrivers",
    "controllerrevisions",
    "modules",
    "nodemodulesconfigs",
    "moduleimagesconfigs",
];

/// A read of one object by its name gives nothing that a list does not, and whoever reads a kind at all reads one of them with kubectl.
fn is_a_smaller_read(grant: &Grant, used: &BTreeSet<Grant>) -> bool {
    grant.verb == "get" && used.contains(&Grant { verb: "list".to_owned(), ..grant.clone() })
}

/// Grants of a role that a user has not used, and what was refused to that user.
fn judged(site: &Site, role: RoleName, user: User) -> (Vec<String>, Vec<Asked>) {
    let asked = site.asked(user);
    let used: BTreeSet<Grant> =
        granted(role).into_iter().filter(|grant| asked.iter().any(|it| it.code != 403 && grant.covers(it))).collect();
    let idle = granted(role).into_iter().filter(|grant| !used.contains(grant) && !is_a_smaller_read(grant, &used));
    let idle = idle.filter(|grant| !ASKED_FOR.contains(&&*grant.resource));
    let listed: Vec<&str> = IDLE.iter().filter(|(of, ..)| *of == role).map(|(_, what, _)| *what).collect();
    let mut wrong: Vec<String> =
        idle.map(|it| it.word()).filter(|it| !listed.contains(&&**it)).map(|it| format!("{it}: nobody uses it")).collect();
    let never = |what: &str| IDLE.iter().any(|(of, listed, why)| *of == role && *listed == what && *why != TOLD_AGAIN);
    for stale in listed.iter().filter(|what| never(what) && used.iter().any(|grant| grant.word() == **what)) {
        wrong.push(format!("{stale}: it is used, and listed as idle"));
    }
    (wrong, asked.into_iter().filter(|it| it.code == 403).collect())
}

/// What a console does, with the rights of its user.
struct Console {
    engine: Engine,
}

impl Console {
    async fn start(site: &Site, user: User, mode: Mode) -> Self {
        let cluster = site.cluster(user, mode == Mode::ReadOnly).await;
        Self { engine: Engine::start(cluster, EngineOptions { mode, identity: user.name().into(), ..EngineOptions::default() }) }
    }

    /// Repeated until its picture allows it.
    async fn asks(&self, intent: Intent) {
        eventually(&format!("{intent:?}"), LONG, || async {
            match self.engine.ask(intent.clone()).await {
                IntentOutcome::Done { .. } => Ok(Some(())),
                IntentOutcome::Refused { message } => Err(message),
            }
        })
        .await;
    }
}

fn by_reboot(mut module: Value) -> Value {
    module["unloadBy"] = json!("Reboot");
    // In a merge patch: take it out.
    module["daemonSets"]["unload"] = Value::Null;
    module
}

/// Waits until the last thing that a node's handoff was asked for is over.
async fn done(fleet: &Fleet<'_>, node: &str, version: &str) {
    eventually(&format!("{node} to be done with {version}"), LONG, || async {
        let Some(handoff) = fleet.handoff(node).await else { return Err("there is no NodeHandoff".to_owned()) };
        let status = handoff.status.unwrap_or_default();
        let run = status.run.as_ref().is_some_and(|run| run.attempt == handoff.spec.attempt);
        let there = run && status.phase == Phase::Done && handoff.spec.version.as_deref() == Some(version);
        if there { Ok(Some(())) } else { Err(format!("{status:?}")) }
    })
    .await;
    fleet.runs(node, version).await;
}

fn command(site: &Site, user: User, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(args)
        .arg("--kubeconfig")
        .arg(site.plane.kubeconfig(user))
        .output()
        .expect("run lockkeeper");
    (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn the_printed_roles_are_enough_for_whole_upgrades_and_none_of_their_rules_is_idle() {
    let Some(site) = Site::own() else { return };
    let mut reconciler = Process::reconcile(&site, User::Reconciler, "rights");
    block_on(async {
        // By label: a person says which nodes get the first version.
        let admin = site.hands(User::Admin).await;
        let key = Label::Desired.key(&lockkeeper::api::ComponentKey::new("rights", "gpu"));
        let labels = async {
            for node in ["rights-1", "rights-2"] {
                eventually("a label", LONG, || async { admin.label_node(node, &key, Some("1.0")).await.map(Some) }).await;
            }
        };
        let manual = |spec: &mut Value| spec["rollout"]["install"] = json!("Manual");
        let (mut fleet, ()) = tokio::join!(Fleet::start(&site, "rights", 2, manual), labels);
        let operator = Console::start(&site, User::Operator, Mode::Intents).await;
        let viewer = Console::start(&site, User::Viewer, Mode::ReadOnly).await;

        // By policy: a node that joins.
        fleet.edit_component(json!({"rollout": {"install": "Auto", "keepVersions": 1}})).await;
        site.kubelets.add_machine(MachineSpec::new("rights-3").label("pool", "rights"));
        fleet.nodes.push("rights-3".to_owned());
        fleet.runs("rights-3", "1.0").await;

        // A whole fleet, with evictions, one of which is refused for a while.
        let mut pinned = fleet.claimants("pinned", 1);
        pinned.body["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "rights-1"});
        fleet.apply(&[fleet.claimants("training", 6), pinned]).await;
        fleet.running("training", 6).await;
        fleet.running("pinned", 1).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        let pause = |paused| Intent::Pause { component: fleet.key(), paused };
        operator.asks(pause(true)).await;
        let nodes = || fleet.nodes.iter().map(|node| NodeTarget { node: node.as_str().into(), uid: None }).collect();
        let to = |version: &str| Intent::HandOver {
            component: fleet.key(),
            nodes: nodes(),
            to: version.into(),
            pause_after: Vec::new(),
            reason: "rights".into(),
        };
        operator.asks(to("2.0")).await;
        fleet.queued(&fleet.nodes).await;
        let order = ["rights-2", "rights-1", "rights-3"].map(Into::into).to_vec();
        operator.asks(Intent::Reorder { component: fleet.key(), nodes: order }).await;
        operator.asks(Intent::Withdraw { component: fleet.key(), node: "rights-3".into() }).await;
        operator.asks(pause(false)).await;
        done(&fleet, "rights-2", "2.0").await;
        done(&fleet, "rights-1", "2.0").await;
        assert!(!fleet.evicted().is_empty(), "nobody was evicted");

        // To the next version, and one node back; the first version's DaemonSets are collected.
        fleet.release("3.0", fleet.module("3.0")).await;
        operator.asks(to("3.0")).await;
        for node in &fleet.nodes {
            done(&fleet, node, "3.0").await;
        }
        operator.asks(Intent::RollBack { component: fleet.key(), node: "rights-1".into() }).await;
        done(&fleet, "rights-1", "2.0").await;

        // A budget that allows nothing is told of; once it is gone the handoff goes on.
        fleet.running("pinned", 1).await;
        let mut budget = objects::budget(&fleet.apps(), "pinned", "maxUnavailable", json!(0));
        budget.body["spec"]["selector"] = json!({"matchLabels": {"app": "pinned"}});
        fleet.apply(&[budget]).await;
        let one = |node: &str, version: &str| fleet.to(node, version);
        operator.asks(one("rights-1", "3.0")).await;
        fleet.blocker(&viewer.engine, "rights-1", BlockerKind::DisruptionBudgetNever).await;
        operator.asks(Intent::Hold { component: fleet.key(), node: "rights-1".into() }).await;
        operator.asks(Intent::Continue { component: fleet.key(), node: "rights-1".into() }).await;
        admin
            .delete(&format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/pinned", fleet.apps()))
            .await
            .expect("delete a budget");
        done(&fleet, "rights-1", "3.0").await;

        // Only a boot takes the module out; everything drainable leaves before it.
        fleet.release("4.0", by_reboot(fleet.module("4.0"))).await;
        operator.asks(one("rights-2", "4.0")).await;
        done(&fleet, "rights-2", "4.0").await;
        operator.asks(Intent::RollBack { component: fleet.key(), node: "rights-2".into() }).await;
        fleet.blocker(&viewer.engine, "rights-2", BlockerKind::RebootRequired).await;
        site.kubelets.reboot("rights-2");
        done(&fleet, "rights-2", "3.0").await;

        // What people do with commands.
        for (user, args, wanted) in [
            (User::Operator, &["handoff", "rights/gpu", "rights-3", "--to", "4.0", "--wait"][..], Some(0)),
            (User::Operator, &["doctor"], None),
            (User::Viewer, &["--read-only", "status", "-o", "wide"], None),
            (User::Viewer, &["--read-only", "plan", "rights/gpu", "rights-1", "--to", "4.0"], None),
            (User::Viewer, &["--read-only", "doctor"], None),
        ] {
            let end = Instant::now() + LONG;
            let (code, said) = loop {
                let (code, said) = command(&site, user, args);
                // What it saw late it refuses, and is asked again.
                if wanted.is_none_or(|wanted| code == Some(wanted)) || Instant::now() > end {
                    break (code, said);
                }
                println!("{args:?} ended with {code:?}: {said}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            };
            assert!(wanted.is_none_or(|wanted| code == Some(wanted)), "{args:?} ended with {code:?}: {said}");
            // What doctor finds missing are the engine's rights.
            let refused = said.contains("forbidden") || said.contains("may not");
            assert!(!refused || args.contains(&"doctor"), "{args:?}: {said}");
        }

        // A person deletes one handoff, and in the end the component: it is unloaded in order, and nothing of it stays.
        let ours = |kind: &str, name: &str| format!("/apis/lockkeeper.dev/v1alpha1/namespaces/rights/{kind}/{name}");
        fleet.operator.delete(&ours("nodehandoffs", "gpu.rights-1")).await.expect("the operator may delete a NodeHandoff");
        for app in ["training", "pinned"] {
            let path = format!("/apis/apps/v1/namespaces/{}/deployments/{app}", fleet.apps());
            admin.merge(&path, &json!({"spec": {"replicas": 0}})).await.expect("scale down");
            fleet.running(app, 0).await;
        }
        fleet.operator.delete(&ours("nodecomponents", "gpu")).await.expect("the operator may delete a NodeComponent");
        let rebooted = std::sync::Mutex::new(BTreeSet::new());
        eventually("all of the removal", LONG + LONG, || async {
            for node in &fleet.nodes {
                let waits =
                    fleet.handoff(node).await.and_then(|it| it.status).is_some_and(|it| it.phase == Phase::AwaitingReboot);
                if waits && rebooted.lock().expect("no panic").insert(node.clone()) {
                    site.kubelets.reboot(node);
                }
            }
            let left: Option<Value> = admin.find(&ours("nodecomponents", "gpu")).await.map_err(|no| no.why)?;
            let sets: Vec<Value> = admin.items("/apis/apps/v1/namespaces/rights/daemonsets").await.map_err(|no| no.why)?;
            if left.is_none() && sets.is_empty() { Ok(Some(())) } else { Err(format!("{left:?}, {} DaemonSets", sets.len())) }
        })
        .await;
        for node in &fleet.nodes {
            let loaded = site.kubelets.kernel(node).and_then(|kernel| kernel.modules.get("rights").cloned());
            assert_eq!(loaded, None, "{node}");
        }
        fleet.undisturbed();
        operator.engine.stop().await;
        viewer.engine.stop().await;
    });
    assert!(reconciler.end().success(), "{}", reconciler.said());
    // Watches are in the audit log once they have ended, and that once the server has written it.
    let all = [(RoleName::Reconciler, User::Reconciler), (RoleName::Operator, User::Operator), (RoleName::Viewer, User::Viewer)];
    for _ in 0..600 {
        let idle = |(role, user)| judged(&site, role, user).0;
        if !all.into_iter().flat_map(idle).any(|it| it.starts_with("watch ")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }

    let mut wrong = Vec::new();
    for (role, user) in all {
        // An operator's role is given to people with the right to DaemonSets, which comes into force a moment later here.
        let early = |asked: &Asked| user == User::Operator && asked.verb == "create" && asked.resource == "nodecomponents";
        // Doctor says of it that it may not be seen; nothing else asks.
        let by_doctor = |asked: &Asked| asked.resource == "validatingadmissionpolicybindings";
        let (idle, refused) = judged(&site, role, user);
        wrong.extend(idle.into_iter().map(|it| format!("{}: {it}", user.name())));
        wrong.extend(
            refused.into_iter().filter(|it| !early(it) && !by_doctor(it)).map(|it| format!("{}: refused {it:?}", user.name())),
        );
    }
    let written: Vec<Asked> = site.asked(User::Viewer).into_iter().filter(Asked::writes).collect();
    assert!(written.is_empty(), "a viewer writes: {written:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! A real server and simulated ones side by side: runs a sequence on both, tells what is unlike, and makes a drawn one small.

use std::collections::BTreeMap;

use futures::StreamExt;
use kube::Client;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;

use super::answer::{Request, send};
use super::compare::{self, Difference, Known};
use super::drawn::{Op, State, census};
use super::run::{self, Seen, Side};
use super::sequence::{self, Sequence, Step};
use crate::{
    support::controlplane::{Component, ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

/// The real server, with what all sequences need.
pub struct Both {
    clients: BTreeMap<String, Client>,
    // Dropped last.
    _plane: ControlPlane,
}

/// What a set of sequences came to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub sequences: usize,
    pub requests: BTreeMap<String, usize>,
    pub unlike: Vec<String>,
    /// Differences that another run did not show: a watch or a cache that was late.
    pub not_repeated: Vec<String>,
}

/// Several sequences at once: most of the time one waits for the other process, or for a watch to be quiet.
const AT_ONCE: usize = 32;

/// A server of which so many sequences are unlike needs no more of them.
const ENOUGH: usize = 25;

/// Requests of one drawn sequence.
const LENGTH: std::ops::RangeInclusive<usize> = 5..=15;

/// A failing sequence is run this often to make it smaller.
const SHRINKS: usize = 150;

type Unlike = Vec<(usize, Difference)>;

impl Both {
    /// A control plane of which only the API server runs: nobody else may write.
    pub async fn start() -> Option<Self> {
        // A real server forgets old revisions each five minutes; sequences about that cannot wait so long.
        let flags = [
            (Component::ApiServer, "--etcd-compaction-interval=10s"),
            // Nothing that writes, in the moment that it lives.
            (Component::ControllerManager, "--controllers=bootstrap-signer-controller"),
        ];
        let plane = ControlPlane::own(&flags)?;
        plane.kill(Component::ControllerManager);
        plane.kill(Component::Scheduler);
        let mut clients = BTreeMap::new();
        for user in [User::Admin, User::Operator, User::Reconciler, User::Viewer] {
            clients.insert(user.name().to_owned(), plane.client(user).await);
        }
        let both = Self { clients, _plane: plane };
        // A server that has just started makes its own namespaces a moment later.
        for name in ["default", "kube-public", "kube-system", "kube-node-lease"] {
            let ask = Request { method: "GET".into(), at: format!("/api/v1/namespaces/{name}"), ..Request::default() };
            eventually(name, CONTROLLER, || async {
                let raw = send(both.admin(), &ask).await;
                if raw.code == 200 { Ok(Some(())) } else { Err(raw.body) }
            })
            .await;
        }
        Some(both)
    }

    pub fn admin(&self) -> &Client {
        self.clients.get("admin").expect("admin")
    }

    /// The custom kinds that all sequences share.
    pub async fn prepare(&self) {
        let lines = run::crds().into_iter().map(|crd| format!("post crd {crd}"));
        let steps = lines.chain(["get w".into(), "get g".into(), "get cw".into()]);
        let steps = steps.map(|text| sequence::step(0, &text)).collect();
        self.namespace("prepare").await;
        for seen in run::run(&Sequence { name: "prepare".into(), steps }, "prepare", &self.side(Vec::new(), 1)).await {
            if let Seen::Answer(answer) = seen {
                assert!(answer.code < 300, "{answer:?}");
            }
        }
    }

    fn side(&self, expected: Vec<usize>, slack: u32) -> Side<'_> {
        Side { clients: &self.clients, sim: None, expected, slack }
    }

    async fn namespace(&self, name: &str) {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
        let request =
            Request { method: "POST".into(), at: "/api/v1/namespaces".into(), kind: "json".into(), body, ..Request::default() };
        let raw = send(self.admin(), &request).await;
        assert_eq!(raw.code, 201, "namespace {name}: {}", raw.body);
    }

    /// Runs a sequence on both; what is unlike, by step.
    async fn unlike(&self, sequence: &Sequence, namespace: &str, slack: u32) -> Unlike {
        let sim = run::simulated(sequence, namespace);
        self.namespace(namespace).await;
        let sim = sim.await.unwrap_or_else(|_| panic!("{}: the simulated server failed", sequence.name));
        let expected =
            sim.iter().zip(&sequence.steps).filter(|(_, step)| step.verb == "watch").filter_map(|(seen, _)| match seen {
                Seen::Events(events) => Some(events.len()),
                Seen::Answer(_) => None,
            });
        let real = run::run(sequence, namespace, &self.side(expected.collect(), slack)).await;
        assert_eq!(real.len(), sim.len());
        if std::env::var_os("LIKENESS_SHOW").is_some() {
            for ((step, real), sim) in sequence.steps.iter().zip(&real).zip(&sim) {
                println!("{}\n   real {real:?}\n   sim  {sim:?}", step.text);
            }
        }
        let mut out = Vec::new();
        for (n, (real, sim)) in real.iter().zip(&sim).enumerate() {
            let mut found = Vec::new();
            match (real, sim) {
                (Seen::Answer(a), Seen::Answer(b)) => found = compare::answers(a, b),
                (Seen::Events(a), Seen::Events(b)) => compare::events(a, b, &mut found),
                (a, b) => found.push(Difference { path: "code".into(), what: format!("real {a:?}, simulated {b:?}") }),
            }
            out.extend(found.into_iter().map(|d| (n, d)));
        }
        out
    }

    /// Those that no id explains. What further runs in fresh namespaces do not show is chance.
    async fn unexplained(&self, sequence: &Sequence, namespace: &str, known: &Known) -> (Unlike, Unlike, Vec<String>) {
        let split = |found: Unlike| {
            let mut met = Vec::new();
            let rest = found
                .into_iter()
                .filter(|(n, difference)| match known.id_for(&sequence.steps[*n].explained, difference) {
                    Some(id) => {
                        met.push(id);
                        false
                    }
                    None => true,
                })
                .collect::<Unlike>();
            (rest, met)
        };
        let (first, met) = split(self.unlike(sequence, namespace, 1).await);
        if first.is_empty() {
            return (first, Vec::new(), met);
        }
        // A real server's cache may be late more than once; it gets more time each time.
        let (mut sure, mut chance, mut met) = (first, Vec::new(), met);
        for (again, slack) in [("again", 3), ("anew", 10)] {
            if sure.is_empty() {
                break;
            }
            let (found, ids) = split(self.unlike(sequence, &format!("{namespace}-{again}"), slack).await);
            let (kept, gone): (Unlike, Unlike) =
                sure.into_iter().partition(|(n, d)| found.iter().any(|(m, e)| m == n && e.path == d.path));
            (sure, met) = (kept, ids);
            chance.extend(gone);
        }
        (sure, chance, met)
    }

    pub async fn by_hand(&self, all: &[Sequence], known: &mut Known) -> Outcome {
        let mut out = Outcome { sequences: all.len(), ..Outcome::default() };
        let mut met = Vec::new();
        {
            let known = &*known;
            let runs = all
                .iter()
                .enumerate()
                .map(|(n, sequence)| async move { (sequence, self.unexplained(sequence, &format!("s{n}"), known).await) });
            let mut runs = futures::stream::iter(runs).buffered(AT_ONCE);
            while let Some((sequence, (sure, chance, ids))) = runs.next().await {
                met.extend(ids);
                out.unlike.extend(told(sequence, &sure));
                out.not_repeated.extend(told(sequence, &chance));
            }
        }
        for id in met {
            known.count(&id);
        }
        out.requests = census(all.iter().flat_map(|s| &s.steps).map(|s| s.text.as_str()));
        out
    }

    /// `count` sequences from a seed, or one of them alone. A failing one is made smaller as long as it fails.
    pub async fn drawn(&self, count: usize, alone: Option<usize>, seed: u64, known: &mut Known) -> Outcome {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let strategy = State::sequential_strategy(LENGTH);
        let mut out = Outcome::default();
        let mut met = Vec::new();
        {
            let known = &*known;
            let trees = (0..count).map(|n| (n, strategy.new_tree(&mut runner).expect("a sequence")));
            let runs = trees.filter(|(n, _)| alone.is_none_or(|one| one == *n)).map(|(n, mut tree)| async move {
                let name = format!("drawn {n} of seed {seed}");
                let mut sequence = as_sequence(&name, &tree.current(), known);
                let lines: Vec<String> = sequence.steps.iter().map(|s| s.text.clone()).collect();
                let (mut sure, chance, ids) = self.unexplained(&sequence, &format!("d{n}"), known).await;
                let chance = told(&sequence, &chance);
                let mut tries = 0;
                let mut smaller = !sure.is_empty() && tree.simplify();
                while smaller && tries < SHRINKS {
                    tries += 1;
                    let candidate = as_sequence(&name, &tree.current(), known);
                    let (found, ..) = self.unexplained(&candidate, &format!("d{n}x{tries}"), known).await;
                    smaller = if found.is_empty() {
                        tree.complicate()
                    } else {
                        (sequence, sure) = (candidate, found);
                        tree.simplify()
                    };
                }
                (n, lines, sequence, sure, chance, ids)
            });
            let mut runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
            let mut lines = Vec::new();
            while let Some((n, more, sequence, sure, chance, ids)) = runs.next().await {
                out.sequences += 1;
                lines.extend(more);
                met.extend(ids);
                out.not_repeated.extend(chance);
                if !sure.is_empty() {
                    let again = format!(
                        "replay: LIKENESS_SEED={seed} LIKENESS_DRAWN={n} LIKENESS_ONLY=none LIKENESS_SHOW=1 cargo test --test controlplane_suite likeness -- --nocapture"
                    );
                    out.unlike.push(format!("{}\n{}\n{again}", as_text(&sequence), told(&sequence, &sure).join("\n")));
                }
                if out.unlike.len() >= ENOUGH {
                    break;
                }
            }
            out.requests = census(lines.iter().map(String::as_str));
        }
        for id in met {
            known.count(&id);
        }
        out
    }
}

fn as_sequence<C>(name: &str, (_, ops, seen): &(State, Vec<Op>, Option<C>), known: &Known) -> Sequence
where
    C: std::ops::Deref<Target = std::sync::atomic::AtomicUsize>,
{
    // All of them are run: none may be left out as unseen.
    if let Some(seen) = seen {
        seen.store(ops.len(), std::sync::atomic::Ordering::SeqCst);
    }
    let step = |(n, op): (usize, &Op)| Step { explained: known.drawn(), ..sequence::step(n + 1, &op.line) };
    let steps = ops.iter().enumerate().map(step).collect();
    Sequence { name: name.to_owned(), steps }
}

/// In the form of the hand-written ones, to be kept among them.
fn as_text(sequence: &Sequence) -> String {
    let lines: Vec<&str> = sequence.steps.iter().map(|s| s.text.as_str()).collect();
    format!("== {}\n{}", sequence.name, lines.join("\n"))
}

fn told(sequence: &Sequence, found: &Unlike) -> Vec<String> {
    let mut last = None;
    found
        .iter()
        .map(|(n, Difference { path, what })| {
            let step = &sequence.steps[*n];
            let head = format!("{} (line {}): {}\n", sequence.name, step.line, step.text);
            let head = if last.replace(n) == Some(n) { String::new() } else { head };
            format!("{head}    {path}: {what}")
        })
        .collect()
}

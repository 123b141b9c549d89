//! The model as `stateright` explores it, and the check that it cannot do: from every state that was reached, an end stays reachable by what
//! happens by itself. The graph for that is written down while it is explored.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use lockkeeper::handoff::verdict::BlockerKind;
use stateright::{Checker, Model, Property};

use crate::{
    decide::{Look, Memo, Says},
    mistakes::Mistake,
    picture::kept,
    state::*,
    steps::{self, Step},
    taken,
};

/// A state with its hash worked out once.
#[derive(Debug, Clone)]
pub struct Known {
    pub state: Arc<State>,
    pub hash: u64,
}

impl Known {
    pub fn new(state: State) -> Self {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        Self { hash: hasher.finish(), state: Arc::new(state) }
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}
impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// What is explored, and how far.
#[derive(Debug, Clone)]
pub struct Scope {
    pub starts: Vec<State>,
    pub mistake: Option<Mistake>,
    /// Which faults and people's actions are looked at.
    pub only: fn(&Step) -> bool,
}

pub struct Lock {
    scope: Scope,
    memo: Memo,
    graph: Graph,
}

/// By state: how it was reached first, and whether it is a good end if nothing follows.
#[derive(Default)]
struct Graph {
    found: Mutex<BTreeMap<u64, Found>>,
    /// (from, to) by what happens by itself.
    by_itself: Mutex<Vec<(u64, u64)>>,
}

struct Found {
    parent: u64,
    step: Option<Step>,
    good: Result<(), String>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model for Lock {
    type State = Known;
    type Action = Step;

    fn init_states(&self) -> Vec<Known> {
        let starts: Vec<Known> = self.scope.starts.iter().cloned().map(Known::new).collect();
        for start in &starts {
            self.found(start, 0, None);
        }
        starts
    }

    fn actions(&self, known: &Known, actions: &mut Vec<Step>) {
        if known.state.broken.is_none() {
            steps::enabled(&known.state, &self.memo, self.scope.mistake, actions);
            actions.retain(|step| !(step.is_fault() || step.is_persons()) || (self.scope.only)(step));
        }
    }

    fn next_state(&self, known: &Known, step: Step) -> Option<Known> {
        let next = Known::new(taken::take(&known.state, &step, &self.memo, self.scope.mistake)?);
        if step.is_progress() {
            lock(&self.graph.by_itself).push((known.hash, next.hash));
        }
        self.found(&next, known.hash, Some(step));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! always {
            ($($rule:literal),*) => {
                vec![$(Property::always($rule, |_: &Self, known: &Known| {
                    known.state.broken.as_ref().is_none_or(|broken| broken.rule != $rule)
                })),*]
            };
        }
        always!["I1", "I2", "I5", "I6", "I7", "I9", "I10", "I11"]
    }
}

impl Lock {
    fn found(&self, known: &Known, parent: u64, step: Option<Step>) {
        if lock(&self.graph.found).contains_key(&known.hash) {
            return;
        }
        let good = if known.state.broken.is_some() {
            Ok(())
        } else {
            good_end(&known.state, &self.memo.look(&known.state, self.scope.mistake == Some(Mistake::NoSecondLook)))
        };
        lock(&self.graph.found).entry(known.hash).or_insert(Found { parent, step, good });
    }

    fn path(&self, mut hash: u64) -> Vec<Step> {
        let found = lock(&self.graph.found);
        let mut steps = Vec::new();
        while let Some(Found { parent, step: Some(step), .. }) = found.get(&hash) {
            steps.push(step.clone());
            hash = *parent;
        }
        steps.reverse();
        steps
    }

    /// The first state, if any, from which no end can be reached by what happens by itself; and why its last state is no end.
    fn stuck(&self) -> Option<(u64, String)> {
        let found = lock(&self.graph.found);
        let ids: Vec<u64> = found.keys().copied().collect();
        let id = |hash: u64| ids.binary_search(&hash).unwrap_or_default();
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let mut goes_on = vec![false; ids.len()];
        for (from, to) in lock(&self.graph.by_itself).drain(..) {
            let (from, to) = (id(from), id(to));
            goes_on[from] = true;
            edges.push((to as u32, from as u32));
        }
        edges.sort_unstable();
        let mut reaches: Vec<bool> = ids
            .iter()
            .zip(&goes_on)
            .map(|(hash, goes_on)| !goes_on && found.get(hash).is_some_and(|it| it.good.is_ok()))
            .collect();
        let mut todo: Vec<u32> = (0u32..).zip(&reaches).filter(|(_, reaches)| **reaches).map(|(at, _)| at).collect();
        while let Some(to) = todo.pop() {
            let first = edges.partition_point(|(at, _)| *at < to);
            for (_, from) in edges[first..].iter().take_while(|(at, _)| *at == to) {
                if !std::mem::replace(&mut reaches[*from as usize], true) {
                    todo.push(*from);
                }
            }
        }
        let (at, hash) = ids.iter().enumerate().find(|(at, _)| !reaches[*at])?;
        // One that cannot go on says most; else any.
        let dead = ids.iter().enumerate().filter(|(at, _)| !reaches[*at] && !goes_on[*at]);
        let shortest = dead.map(|(_, hash)| *hash).min_by_key(|hash| depth(&found, *hash)).unwrap_or(*hash);
        let why = match found.get(&shortest).map(|it| &it.good) {
            Some(Err(why)) if shortest != *hash || !goes_on[at] => why.clone(),
            _ => "it goes round for ever".to_owned(),
        };
        Some((shortest, why))
    }
}

fn depth(found: &BTreeMap<u64, Found>, mut hash: u64) -> usize {
    let mut depth = 0;
    while let Some(Found { parent, step: Some(_), .. }) = found.get(&hash) {
        hash = *parent;
        depth += 1;
    }
    depth
}

/// Whether a state in which nothing happens by itself is an end: done, failed, or a person's turn.
fn good_end(state: &State, look: &Look) -> Result<(), String> {
    let mut all_run = true;
    for (node, says) in state.nodes.iter().zip(&look.says) {
        let object = &node.shown.object;
        let aim = node.shown.handoff.as_ref().map_or(object.desired, |handoff| handoff.version);
        let serves = [object.desired, object.loader, object.plugin, object.serves, node.truth.kernel];
        all_run &= serves.iter().all(|version| *version == aim) && object.closed == Closed::Open && object.offers;
        let by_hand = node.shown.handoff.as_ref().is_none_or(|handoff| {
            handoff.by == Who::Label
                || handoff.status.status.run.as_ref().is_some_and(|run| run.by_label)
                || handoff.status.status.phase.is_ended()
                || handoff.status.status.resume_at.is_some()
        });
        match says {
            Says::Done => {
                if object.closed == Closed::ByUs && object.owned && node.shown.handoff.as_ref().is_none_or(|it| !it.deleting) {
                    let left = node.shown.handoff.as_ref().and_then(|it| it.status.status.reason.clone());
                    return Err(format!("done, and lockkeeper's cordon is still there ({left:?})"));
                }
                // Left as it is by a person, with what had been stopped by then.
                let left = node.shown.handoff.as_ref().is_some_and(|it| it.action == Say::Leave);
                if !left && (object.plugin != object.serves || object.plugin != object.loader) {
                    return Err("done, and the labels do not agree".to_owned());
                }
            }
            Says::Failed => {}
            Says::Acts => return Err("it would act, and that changes nothing".to_owned()),
            Says::Waits(blockers) => {
                let behind = look.says.iter().any(|other| other != says && waits_for_somebody(other));
                let stands = |kind: BlockerKind| kind == BlockerKind::QueuedBehind && behind;
                let found = blockers.iter().find(|(kind, message)| !stands(*kind) && !is_somebodys_turn(*kind, message, by_hand));
                if let Some((kind, message)) = found {
                    return Err(format!("waits for ever: {kind:?}: {message}"));
                }
            }
        }
    }
    if !state.left.meddled && !all_run {
        return Err(format!("nobody meddled, and it does not run: {:?}", look.says));
    }
    Ok(())
}

/// Another node's handoff that keeps its turn while a person is awaited.
fn waits_for_somebody(says: &Says) -> bool {
    match says {
        Says::Failed => true,
        Says::Waits(blockers) => blockers.iter().all(|(kind, message)| is_somebodys_turn(*kind, message, true)),
        Says::Acts | Says::Done => false,
    }
}

/// What nothing but a person, a reboot, or another handoff's end resolves.
fn is_somebodys_turn(kind: BlockerKind, message: &str, by_hand: bool) -> bool {
    use BlockerKind::*;
    match kind {
        HandoffFailed | HandoffHeld | AwaitingChoice | UnknownVersion | LabelGarbage | NodeLeftClosed | FailureBudgetSpent
        | BudgetSpent | RebootRequired | PreflightRefused => true,
        // Said beside what is waited for.
        SpecChanged | PauseSkipped => true,
        Anomaly => !message.contains("this is a defect"),
        Claimant => by_hand,
        _ => false,
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    pub states: usize,
    pub unique: usize,
    pub depth: usize,
    pub looks: usize,
    pub seconds: f64,
    /// Broken invariants, and stuck states as `L1`: the rule, what happened, and the way there.
    pub faults: Vec<Fault>,
}

#[derive(Debug)]
pub struct Fault {
    pub rule: String,
    pub what: String,
    pub start: usize,
    pub steps: Vec<Step>,
    pub trace: Vec<String>,
}

pub fn explore(scope: Scope) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "how long the checker took, for people")]
    let begun = std::time::Instant::now();
    let starts = scope.starts.clone();
    let stop_at_first = scope.mistake.is_some();
    let model = Lock { scope, memo: Memo::default(), graph: Graph::default() };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let mut builder = model.checker().threads(threads);
    if stop_at_first {
        builder = builder.finish_when(stateright::HasDiscoveries::Any);
    }
    let checker = builder.spawn_bfs().join();
    let mut faults: Vec<Fault> = Vec::new();
    for (rule, path) in checker.discoveries() {
        let last = path.last_state().state.broken.clone();
        let steps: Vec<Step> = path.into_actions();
        faults.push(tell(checker.model(), &starts, rule, last.map_or("", |broken| broken.what), &steps));
    }
    if faults.is_empty()
        && let Some((hash, why)) = checker.model().stuck()
    {
        let steps = checker.model().path(hash);
        faults.push(tell(checker.model(), &starts, "L1", &why, &steps));
    }
    Outcome {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        looks: checker.model().memo.len(),
        seconds: begun.elapsed().as_secs_f64(),
        faults,
    }
}

/// The way to a fault, step by step, with the product's own words for what it did.
fn tell(model: &Lock, starts: &[State], rule: &str, what: &str, steps: &[Step]) -> Fault {
    let mut best = Fault { rule: rule.to_owned(), what: what.to_owned(), start: 0, steps: steps.to_vec(), trace: Vec::new() };
    'starts: for (at, start) in starts.iter().enumerate() {
        let mut state = start.clone();
        let mut trace = Vec::new();
        for step in steps {
            let words = match step {
                Step::Write(n) | Step::Delays(n) => {
                    let look = model.memo.look(&state, model.scope.mistake == Some(Mistake::NoSecondLook));
                    look.acts.get(usize::from(*n)).map(|it| format!("{step:?}: {}", it.act.action.why))
                }
                _ => Some(format!("{step:?}")),
            };
            let (Some(words), Some(next)) = (words, taken::take(&state, step, &model.memo, model.scope.mistake)) else {
                continue 'starts;
            };
            trace.push(words);
            state = next;
        }
        let look = model.memo.look(&state, model.scope.mistake == Some(Mistake::NoSecondLook));
        for (node, says) in state.nodes.iter().zip(&look.says) {
            trace.push(format!("=> {:?}", node.shown.object));
            trace.push(format!("   {:?}", node.shown.pods));
            trace.push(format!("   {:?} {:?}", node.truth, node.memory));
            if let Some(handoff) = &node.shown.handoff {
                trace.push(format!(
                    "   {} {:?} {:?} attempt {} {}",
                    handoff.version, handoff.action, handoff.by, handoff.attempt, handoff.status.text
                ));
            }
            trace.push(format!("   {says:?}"));
        }
        trace.push(format!(
            "   slots {:?} epoch {} {:?} former {}",
            state.slots,
            state.epoch,
            state.engine,
            state.former.is_some()
        ));
        best.start = at;
        best.trace = trace;
        break;
    }
    best
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.rule, self.what)?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Nodes in service with version 1, of which the first `asked` have been asked for version 2.
pub fn start(nodes: usize, asked: usize, left: Left) -> State {
    let node = |at: usize| {
        let object = Object {
            uid: 1,
            boot: 1,
            ready: true,
            closed: Closed::Open,
            owned: false,
            desired: 1,
            loader: 1,
            plugin: 1,
            serves: 1,
            record: Some((1, 0)),
            nonce: 0,
            mark: None,
            offers: true,
        };
        let pod = Some(Pod { ready: true, runs: true, ..Pod::default() });
        let user = if at == 0 { User::Running } else { User::None };
        let pods = Pods { loader: [pod, None], plugin: [pod, None], unload: Vec::new(), user };
        let is_asked = at < asked;
        let handoff = Handoff {
            uid: 1,
            version: if is_asked { 2 } else { 1 },
            attempt: if is_asked { 2 } else { 1 },
            action: Say::Run,
            by: Who::Operator,
            finalizer: false,
            deleting: false,
            late: false,
            retry_due: true,
            status: kept(&done(at)),
        };
        let truth = Truth {
            boot: 1,
            kubelet: true,
            kernel: 1,
            picked: false,
            orphan_plugin: NONE,
            orphan_unload: NONE,
            asked: if is_asked { 0b110 } else { 0b010 },
            ordered: None,
        };
        let memory = Memory { left: Gone::Nothing, stable: true };
        Node { shown: Shown { object, pods, handoff: Some(handoff) }, truth, memory }
    };
    State {
        nodes: (0..nodes).map(node).collect(),
        slots: Vec::new(),
        epoch: 1,
        engine: Engine { blind: false, lag: None, flight: None },
        former: None,
        left,
        broken: None,
    }
}

/// The status of a handoff to version 1 that has long been done.
fn done(node: usize) -> lockkeeper::api::NodeHandoffStatus {
    use lockkeeper::api::{
        NodeHandoffStatus, Phase,
        handoff::{Ended, NodeCopy, Run},
    };
    let text = crate::picture::now().to_string();
    NodeHandoffStatus {
        phase: Phase::Done,
        run: Some(Run {
            attempt: 1,
            target: Some("1".into()),
            from: None,
            desired: Some("1".into()),
            aim: Some("2".into()),
            policy: Default::default(),
            baseline: [(crate::picture::RESOURCE.to_owned(), 4)].into(),
            node_uid: crate::picture::uid_text(node, 1),
            boot_id: "boot-1".into(),
            epoch: 1,
            started_at: text.clone(),
            by_label: false,
            resumed: false,
            kmm_config: None,
        }),
        copy: Some(NodeCopy { desired: Some("1".into()), loaded: Some(r#"{"version":"1"}"#.into()) }),
        history: vec![Ended { attempt: 1, target: Some("1".into()), phase: Phase::Done, reason: None, at: text }],
        ..NodeHandoffStatus::default()
    }
}

//! Is the simulated API server like a real one? The same requests go to both, and the answers are compared, as are the events of watches.
//! Requests are data: single ones, sequences written by hand, and drawn ones. What may differ is a row of `docs/simulator.md`; nothing else may.

use std::env;

use lockkeeper::sim::apiserver::{ApiServer, Config, Identity};

use both::{Both, Outcome};
use compare::Known;
use sequence::Sequence;

mod answer;
mod both;
mod compare;
mod drawn;
mod requests;
mod run;
mod sequence;

const FILES: &[&str] = &["objects", "patches", "apply", "lists", "deletes", "evictions", "kinds", "found"];

/// A file of the folder `likeness`, read when it is needed: a changed case is no reason to build.
fn data(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane_suite/likeness").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Sequences drawn in each run; `LIKENESS_SEQUENCES` says another number, `LIKENESS_SEED` another seed.
const SEQUENCES: usize = 200;
const SEED: u64 = 20_261_130;

fn number<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// All hand-written ones; with `LIKENESS_ONLY`, those whose name contains it.
fn hand_written(known: &Known) -> Vec<Sequence> {
    let only = env::var("LIKENESS_ONLY").unwrap_or_default();
    let all: Vec<Sequence> =
        FILES.iter().flat_map(|name| sequence::parse(name, &data(&format!("sequences/{name}.seq")))).collect();
    for (sequence, step) in all.iter().flat_map(|s| s.steps.iter().map(move |step| (s, step))) {
        let unknown = known.unknown(step.explained.keys());
        assert!(unknown.is_empty(), "{} line {}: not in explained.jsonl: {unknown:?}", sequence.name, step.line);
    }
    all.into_iter().filter(|s| s.name.contains(&only)).collect()
}

fn print(what: &str, outcome: &Outcome) {
    let requests: usize = outcome.requests.values().sum();
    println!("{} {what} sequences of {requests} requests: {:?}", outcome.sequences, outcome.requests);
    for chance in &outcome.not_repeated {
        println!("not repeated in another run: {chance}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_server_is_like_a_real_one() {
    let mut known = Known::read();
    let hand_written = hand_written(&known);
    let Some(both) = Both::start().await else { return };
    let whole = env::var_os("LIKENESS_ONLY").is_none();
    let mut unlike = Vec::new();
    if whole {
        // First: these see all nodes.
        let sim = ApiServer::new(Config::default()).client(&Identity::new("likeness"));
        let (count, more) = requests::answers(both.admin(), &sim, &mut known).await;
        println!("{count} single requests");
        unlike.extend(more);
        let sim = requests::watched(&sim, None).await;
        let mut real = requests::watched(both.admin(), Some(&sim)).await;
        // A pod that is deleted right after its binding is taken for unbound now and then, by what the server has cached: listened to again.
        for _ in 0..2 {
            if real == sim {
                break;
            }
            real = requests::watched(both.admin(), Some(&sim)).await;
        }
        for ((path, real), sim) in requests::WATCHED.iter().zip(real).zip(sim) {
            assert!(!real.is_empty(), "{path}: nothing seen");
            if real != sim {
                unlike.push(format!("watch {path}: real {real:?}, simulated {sim:?}"));
            }
        }
    }
    both.prepare().await;
    let by_hand = both.by_hand(&hand_written, &mut known).await;
    print("hand-written", &by_hand);
    let alone = env::var("LIKENESS_DRAWN").ok().and_then(|n| n.parse::<usize>().ok());
    let count = alone.map_or_else(|| number("LIKENESS_SEQUENCES", if whole { SEQUENCES } else { 0 }), |n| n + 1);
    let seed = number("LIKENESS_SEED", SEED);
    let began = tokio::time::Instant::now();
    let drawn = both.drawn(count, alone, seed, &mut known).await;
    print("generated", &drawn);
    unlike.extend(by_hand.unlike);
    unlike.extend(drawn.unlike);
    println!(
        "{} hand-written, {} generated sequences (seed {seed}, {:.0} s), {} explained differences of {} kinds, {} unexplained",
        hand_written.len(),
        drawn.sequences,
        began.elapsed().as_secs_f64(),
        known.met().values().sum::<usize>(),
        known.met().len(),
        unlike.len()
    );
    assert!(unlike.is_empty(), "{} differences:\n{}", unlike.len(), unlike.join("\n"));
    assert!(!whole || known.unmet().is_empty(), "explained, but no longer unlike: {:?}", known.unmet());
}

#[test]
fn every_known_difference_is_documented_and_every_documented_one_is_known() {
    let known = Known::read();
    let documented = compare::documented();
    let ids: std::collections::BTreeSet<String> = known.ids().into_iter().map(str::to_owned).collect();
    assert_eq!(documented, ids, "docs/simulator.md has other ids than explained.jsonl");
}

#[test]
fn there_are_enough_hand_written_sequences() {
    let all = hand_written(&Known::read());
    let names: std::collections::BTreeSet<&str> = all.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two sequences have one name");
    let requests: usize = all.iter().map(|s| s.steps.len()).sum();
    println!("{} hand-written sequences of {requests} requests", all.len());
    assert!(all.len() >= 150 || env::var_os("LIKENESS_ONLY").is_some());
}

//! What decoding, keeping and projecting a large fleet costs, each beside its floor in the same run.
//! `cargo bench --bench fleet [-- decode|memory|project|volumes]`. It fails when a budget is missed.
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

mod big;
mod pods;
mod volumes;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use lockkeeper::fleet::{
    Fleet,
    decode::Decoder,
    event::{Event, Kind},
};
use peak_alloc::PeakAlloc;
use serde::de::IgnoredAny;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const PODS: usize = 50_000;
const PAGE: usize = 500;
const NODES: usize = 5_000;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let mut missed = Vec::new();
    let mut budget = |name: &str, value: f64, most: f64, unit: &str| {
        let held = value <= most;
        println!("  {name}: {value:.2} {unit}, at most {most}: {}", if held { "held" } else { "MISSED" });
        if !held {
            missed.push(name.to_owned());
        }
    };
    if wants("decode") {
        decode(&mut budget);
    }
    if wants("memory") {
        memory(&mut budget);
    }
    if wants("project") {
        big::project(&mut budget);
    }
    if wants("volumes") {
        volumes::volumes(&mut budget);
    }
    if !missed.is_empty() {
        println!("budgets missed: {}", missed.join(", "));
        std::process::exit(1);
    }
}

type Budget<'b> = dyn FnMut(&str, f64, f64, &str) + 'b;

fn pages() -> impl Iterator<Item = String> {
    (0..PODS).step_by(PAGE).map(|from| pods::page(from, (from + PAGE).min(PODS), NODES, 1_000_000))
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    *total += began.elapsed();
    result
}

/// Each page is read by all three, one after the other, so that a slow moment of the machine meets all of them. Best of the rounds.
fn decode(budget: &mut Budget<'_>) {
    println!("decode of {PODS} pods in pages of {PAGE}");
    let (mut bytes, mut best) = (0, [Duration::MAX; 3]);
    for _ in 0..5 {
        bytes = 0;
        let mut spent = [Duration::ZERO; 3];
        let (mut fleet, mut decoder) = (Fleet::default(), Decoder::new(Kind::Pod));
        fleet.apply(Kind::Pod, Event::Init);
        for page in pages() {
            bytes += page.len();
            timed(&mut spent[0], || black_box(serde_json::from_slice::<IgnoredAny>(page.as_bytes())).is_ok());
            timed(&mut spent[1], || {
                if let Ok(page) = decoder.list(page.as_bytes()) {
                    fleet.apply(Kind::Pod, Event::Page { records: page.records, undecodable: page.undecodable });
                }
            });
            type Full = k8s_openapi::List<k8s_openapi::api::core::v1::Pod>;
            let full = timed(&mut spent[2], || black_box(serde_json::from_slice::<Full>(page.as_bytes())));
            assert_eq!(full.map(|list| list.items.len()).unwrap_or(0), PAGE);
        }
        fleet.apply(Kind::Pod, Event::InitDone { resource_version: "1000000".into() });
        for (best, spent) in best.iter_mut().zip(spent) {
            *best = spent.min(*best);
        }
    }
    let [floor, ours, full] = best.map(|it| it.as_secs_f64());
    println!("  {:.1} MB, {} B a pod", bytes as f64 / 1e6, bytes / PODS);
    for (name, seconds) in [("serde_json IgnoredAny", floor), ("into the store", ours), ("k8s_openapi Pod", full)] {
        println!("  {name}: {seconds:.3} s, {:.0} MB/s", bytes as f64 / 1e6 / seconds);
    }
    budget("into the store / IgnoredAny", ours / floor, 2.5, "x");
    budget("into the store / k8s_openapi Pod", ours / full, 0.25, "x");
}

fn memory(budget: &mut Budget<'_>) {
    println!("memory for {PODS} pods, page by page of {PAGE}, view included");
    let empty = ALLOCATOR.current_usage();
    let (mut fleet, mut decoder) = (Fleet::default(), Decoder::new(Kind::Pod));
    let list = |fleet: &mut Fleet, decoder: &mut Decoder| {
        fleet.apply(Kind::Pod, Event::Init);
        let mut page_bytes = 0;
        for page in pages() {
            page_bytes = page.capacity();
            if let Ok(page) = decoder.list(page.as_bytes()) {
                fleet.apply(Kind::Pod, Event::Page { records: page.records, undecodable: page.undecodable });
            }
        }
        fleet.apply(Kind::Pod, Event::InitDone { resource_version: "1000000".into() });
        page_bytes
    };
    ALLOCATOR.reset_peak_usage();
    let page_bytes = list(&mut fleet, &mut decoder);
    let a_pod = |bytes: usize| bytes.saturating_sub(empty) as f64 / PODS as f64;
    let (kept, first_peak) = (a_pod(ALLOCATOR.current_usage()), a_pod(ALLOCATOR.peak_usage()));
    let view = fleet.project(lockkeeper::fleet::build::at(0));
    let with_view = a_pod(ALLOCATOR.current_usage());
    ALLOCATOR.reset_peak_usage();
    list(&mut fleet, &mut decoder);
    let peak = a_pod(ALLOCATOR.peak_usage());
    drop(view);
    println!("  (a page's text of {:.1} MB is in both peaks; the first list's: {first_peak:.0} B)", page_bytes as f64 / 1e6);
    budget("kept in store and indexes", kept, 1000.0, "B a pod");
    budget("kept with the view", with_view, 1000.0, "B a pod");
    budget("at the peak of a re-list", peak, 2000.0, "B a pod");
}

//! Many simulated handoffs in one run: seeds over all scenarios and fault profiles, each fleet on a thread's own virtual clock, on all cores.
//! `cargo test --release --test longrun -- --handoffs 100000`; plain `cargo test` does a few seeds. `--help` names the rest.
#![expect(clippy::disallowed_methods, reason = "a run reports how long it really took, and notices what hangs")]

mod arguments;
mod fleet;
mod report;
mod variant;

use std::{
    process::ExitCode,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arguments::Arguments;
use report::Total;
use variant::Variant;

/// Simulated fleets allocate and free whole objects all the time; the system's allocator takes a quarter of the run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Real time after which a seed counts as hung: virtual time stands still in it, so no limit on that would help. Debug builds are slow.
const HUNG: Duration = Duration::from_secs(if cfg!(debug_assertions) { 3600 } else { 900 });
/// How often a long run says where it is.
const SAY: Duration = Duration::from_secs(60);

/// The allocator gives freed pages back to the system by real time, at once; then a fifth of a run goes into clearing them again. It reads its
/// settings when the process starts.
const KEEP_PAGES: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "-1"), ("MIMALLOC_ALLOW_THP", "0")];

fn main() -> ExitCode {
    if KEEP_PAGES.iter().any(|(name, _)| std::env::var_os(name).is_none())
        && let Ok(program) = std::env::current_exe()
    {
        let child = std::process::Command::new(program).args(std::env::args_os().skip(1)).envs(KEEP_PAGES).status();
        if let Ok(status) = child {
            return status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    }
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let began = Instant::now();
    let run = Run {
        next: AtomicU64::new(arguments.first_seed()),
        stop: AtomicBool::new(false),
        total: Mutex::default(),
        under_way: Mutex::new(vec![None; arguments.jobs]),
        arguments: &arguments,
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs)
            .map(|job| {
                scope.spawn({
                    let run = &run;
                    move || run.work(job)
                })
            })
            .collect();
        run.watch_over(began, || workers.iter().all(std::thread::ScopedJoinHandle::is_finished));
    });
    let total = run.total();
    print!("{}", total.told(began.elapsed()));
    if total.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Run<'a> {
    next: AtomicU64,
    stop: AtomicBool,
    total: Mutex<Total>,
    /// The seed that each job works on, and since when.
    under_way: Mutex<Vec<Option<(Variant, Instant)>>>,
    arguments: &'a Arguments,
}

impl Run<'_> {
    fn total(&self) -> MutexGuard<'_, Total> {
        self.total.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<Option<(Variant, Instant)>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One job: seed after seed until there are enough handoffs, or no more seeds.
    fn work(&self, job: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if self.arguments.seeds.is_some_and(|seeds| seed >= seeds.end) {
                return;
            }
            let variant = Variant::of(seed, self.arguments);
            self.note(job, Some((variant.clone(), Instant::now())));
            let outcome = fleet::run(&variant);
            self.note(job, None);
            let mut total = self.total();
            if let Some(told) = total.add(&variant, outcome) {
                println!("{told}");
            }
            if self.arguments.handoffs.is_some_and(|wanted| total.handoffs >= wanted) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn note(&self, job: usize, what: Option<(Variant, Instant)>) {
        if let Some(slot) = self.under_way().get_mut(job) {
            *slot = what;
        }
    }

    /// Says now and then how far it is; ends the process when a seed hangs without virtual time going on.
    fn watch_over(&self, began: Instant, done: impl Fn() -> bool) {
        let mut said = Instant::now();
        while !done() {
            std::thread::sleep(Duration::from_millis(200));
            if self.arguments.minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes)) {
                self.stop.store(true, Ordering::Relaxed);
            }
            if said.elapsed() >= SAY {
                said = Instant::now();
                println!("{}", self.total().progress(began.elapsed()));
            }
            let hung =
                self.under_way().iter().flatten().find(|(_, since)| since.elapsed() > HUNG).map(|(variant, _)| variant.clone());
            if let Some(variant) = hung {
                print!("{}", self.total().told(began.elapsed()));
                println!("FAILED seed {}: hangs since {} s of real time\n  {}", variant.seed, HUNG.as_secs(), variant.replay());
                std::process::exit(1);
            }
        }
    }
}

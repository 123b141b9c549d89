//! `lockkeeper demo`: its options, and how its result is told. What happens is `sim`'s.

use std::{
    fs,
    io::{IsTerminal, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};

use super::{
    Exit, Failure, Global,
    look::Look,
    out, render,
    serve::{Door, Serve},
    text,
};
use crate::{
    console::{self, ConsoleOptions, write_log},
    sim::{
        demo::{self, Baseline, DemoOptions, Findings, Scenario, Summary},
        pacer::Speed,
        world::Profile,
    },
};

#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// What is to happen
    #[arg(long, value_enum, default_value_t = Scenario::KernelModule)]
    pub scenario: Scenario,
    /// Without the console, as fast as it goes; the default without a terminal
    #[arg(long)]
    pub headless: bool,
    /// The same seed gives the same run, event by event
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How rough the world is
    #[arg(long, value_enum, default_value_t = Profile::None)]
    pub faults: Profile,
    /// What other tools do on the same fleet, to compare with; runs headless
    #[arg(long, value_enum)]
    pub baseline: Option<Baseline>,
    /// Simulated seconds that pass in one second of the interactive demo
    #[arg(long, value_name = "FACTOR", default_value_t = 3.0, value_parser = speed)]
    pub speed: f64,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    /// Pods on each node that hold no device
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub pods_per_node: u32,
    /// Write the text of a headless run's event log to this file
    #[arg(long, value_name = "FILE")]
    pub event_log: Option<PathBuf>,
    /// Tell what happens to nodes, handoffs and evicted pods, a line for each write; runs headless
    #[arg(long)]
    pub story: bool,
    #[command(flatten)]
    pub serve: Serve,
    #[command(flatten)]
    pub look: Look,
    /// How a headless run reports
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("want a number from 0.01 to 10000".to_owned()),
    }
}

impl Demo {
    /// Asked for, or nobody looks.
    fn is_headless(&self) -> bool {
        let asked =
            self.headless || self.story || self.baseline.is_some() || self.event_log.is_some() || self.output == Format::Json;
        asked || !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal())
    }

    fn options(&self) -> DemoOptions {
        DemoOptions {
            scenario: self.scenario,
            seed: self.seed,
            faults: self.faults,
            baseline: self.baseline,
            nodes: usize::try_from(self.nodes).unwrap_or(usize::MAX),
            pods_per_node: usize::try_from(self.pods_per_node).unwrap_or(usize::MAX),
            keep_log: self.event_log.is_some(),
            tell: self.story,
        }
    }
}

/// The demo has no cluster but its own, and without the console it is there to write.
fn contradiction(headless: bool, global: &Global) -> Option<&'static str> {
    match global {
        Global { context: Some(_), .. } => Some("--context has no meaning for the demo: it runs on a cluster of its own"),
        Global { kubeconfig: Some(_), .. } => Some("--kubeconfig has no meaning for the demo: it runs on a cluster of its own"),
        Global { read_only: true, .. } if headless => {
            Some("--read-only has no meaning for a headless demo: it hands nodes over on a cluster of its own")
        }
        _ => None,
    }
}

pub fn run(demo: &Demo, global: &Global) -> Result<Exit, Failure> {
    let headless_run = demo.is_headless();
    if let Some(why) = contradiction(headless_run, global) {
        return Err(Failure::usage(why.to_owned()));
    }
    if let Some(baseline) = demo.baseline.filter(|baseline| !baseline.fits(demo.scenario)) {
        let name = |value: Option<clap::builder::PossibleValue>| value.map(|it| it.get_name().to_owned()).unwrap_or_default();
        let (baseline, scenario) = (name(baseline.to_possible_value()), name(demo.scenario.to_possible_value()));
        return Err(Failure::usage(format!(
            "--baseline {baseline} has no meaning in scenario {scenario}: label-all goes with --scenario kmm, rolling-update with the others"
        )));
    }
    let door = demo.serve.open(headless_run)?;
    match (headless_run, door) {
        (true, None) => headless(demo),
        (true, Some(door)) => served(demo, door),
        (false, door) => interactive(demo, global, door),
    }
}

/// The console on the simulation, which runs on a thread of its own at a human pace.
fn interactive(demo: &Demo, global: &Global, mut door: Option<Door>) -> Result<Exit, Failure> {
    let looks = demo.look.resolve("simulated")?;
    // A log line on the terminal would tear the picture.
    let _log = super::logging::to_file();
    if let Some(door) = &door {
        eprintln!("{}", door.hint());
    }
    // Until the console opens the terminal shows nothing else.
    let _ = writeln!(
        std::io::stderr(),
        "setting up a simulated fleet of {} nodes, each with its first version and its pods; the console opens once they run",
        demo.nodes
    );
    let serving = door.as_mut().and_then(|door| door.serving.take());
    let stage = demo::interactive::start(&demo.options(), demo.speed, global.read_only, serving)
        .map_err(|why| Failure::environment(format!("the demo cannot start: {why}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::environment(format!("no runtime: {error}")))?;
    let log = stage.cluster.log().clone();
    let ended = runtime.block_on(console::run(ConsoleOptions {
        pictures: stage.pictures.clone(),
        intents: stage.requests.clone(),
        writes: write_log::follow(log, |log, read| async move { log.grown(read).await }, |log, read| log.since(read)),
        read_only: global.read_only,
        theme: looks.theme,
        ascii: looks.ascii,
        mouse: looks.mouse,
        demo: true,
        speed: demo.speed,
        keymap: looks.keymap,
        planner: console::model::default_planner(),
        notice: door.as_ref().map(Door::hint),
    }));
    match ended {
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(Failure::environment(error.to_string())),
    }
}

fn headless(demo: &Demo) -> Result<Exit, Failure> {
    let (summary, findings) =
        demo::headless::run(&demo.options()).map_err(|why| Failure::environment(format!("the demo cannot run: {why}")))?;
    report(demo, &summary, &findings)?;
    Ok(exit(demo, &summary))
}

/// At a pace for clients from outside, and on after the end until a signal comes.
fn served(demo: &Demo, mut door: Door) -> Result<Exit, Failure> {
    let Some(serving) = door.serving.take() else { return headless(demo) };
    let mut reported = Ok(());
    let ended =
        demo::headless::run_served(&demo.options(), serving, Speed::new(demo.speed), told_to_stop(), |summary, findings| {
            reported = report(demo, summary, findings);
            let _ = writeln!(std::io::stderr(), "the scenario has ended; serving on until SIGINT or SIGTERM");
        });
    let summary = ended.map_err(|why| Failure::environment(format!("the demo cannot run: {why}")))?;
    reported?;
    Ok(summary.map_or(Exit::Done, |summary| exit(demo, &summary)))
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    // Without a handler the signal ends the process by itself.
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

fn report(demo: &Demo, summary: &Summary, findings: &Findings) -> Result<(), Failure> {
    if let Some(path) = &demo.event_log {
        fs::write(path, &findings.log)
            .map_err(|error| Failure::environment(format!("cannot write the event log {}: {error}", path.display())))?;
    }
    let story: String = findings.story.iter().map(|line| format!("{}\n", text::plain(line))).collect();
    out::print(&story)?;
    out::print(&match demo.output {
        Format::Text => told(demo, summary, findings),
        Format::Json => render::json_line(summary)?,
    })?;
    for (what, lines) in [("violation", &findings.violations), ("unfinished", &findings.unfinished)] {
        for line in lines {
            let _ = writeln!(std::io::stderr(), "{what}: {}", text::plain(line));
        }
    }
    Ok(())
}

/// A baseline shows what goes wrong without lockkeeper; that it does is no failure.
fn exit(demo: &Demo, summary: &Summary) -> Exit {
    if summary.is_good() || demo.baseline.is_some() { Exit::Done } else { Exit::NotAllDone }
}

fn told(demo: &Demo, summary: &Summary, findings: &Findings) -> String {
    let mut said = format!(
        "scenario {}, seed {}{}: {} of {} nodes upgraded, {} failed, in {} simulated\n\
         {} claimants evicted, {} workloads lost their device while running, {} broken invariants\n\
         {} API writes, {} faults, {} retries\n",
        summary.scenario,
        summary.seed,
        demo.baseline.and_then(|it| it.to_possible_value()).map(|it| format!(", {}", it.get_name())).unwrap_or_default(),
        summary.upgraded,
        summary.nodes,
        summary.failed,
        text::age(i64::try_from(summary.simulated_seconds).unwrap_or(i64::MAX)),
        summary.claimants_evicted,
        summary.disruptions,
        summary.violations,
        summary.api_writes,
        summary.faults,
        summary.retries,
    );
    for (kind, times) in findings.faults.iter().filter(|(_, times)| **times > 0) {
        said.push_str(&format!("  {times:>6} {}\n", text::plain(kind)));
    }
    said
}

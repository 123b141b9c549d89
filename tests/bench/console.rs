//! What a frame costs at 5,000 nodes, beside the least that a frame of this size can cost (a full buffer, compared and written): after a key,
//! after a picture in which one node is different, and after one that has nothing in common with the last.

#[path = "../console/fixtures.rs"]
#[allow(dead_code)]
mod fixtures;

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use crossterm::event::{KeyCode, KeyEvent};
use lockkeeper::{
    api::Phase,
    console::{
        glyphs::UNICODE,
        keymap::Keymap,
        model::{Model, Setup, default_planner},
        msg::Msg,
        theme::{Theme, ThemeName},
        update::update,
        view,
    },
    engine::picture::{LeadershipView, Mode, Picture, Queues, Verdicts},
    fleet::build::*,
    handoff::{
        decide::{Decisions, decide_fleet},
        facts::Context,
        observed::Observed,
    },
};
use ratatui::{Terminal, backend::TestBackend, layout::Rect, widgets::Paragraph};

const SIZE: (u16, u16) = (200, 50);
const NODES: usize = 5000;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn clock() -> Instant {
    Instant::now()
}

/// The median of many runs.
fn measure(name: &str, mut run: impl FnMut()) -> Duration {
    measure_after(name, |_| (), |()| run())
}

/// The median of many runs; what is prepared for each is not measured.
fn measure_after<T>(name: &str, mut prepare: impl FnMut(usize) -> T, mut run: impl FnMut(T)) -> Duration {
    let mut times: Vec<Duration> = (0..200)
        .map(|round| {
            let prepared = prepare(round);
            let start = clock();
            run(prepared);
            start.elapsed()
        })
        .collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{name:<46} median {median:>10.1?}   99 % {worst:>10.1?}");
    median
}

fn model(picture: Picture) -> Model {
    Model::new(Setup {
        picture,
        speed: 1.0,
        read_only: false,
        demo: true,
        theme: Theme::new(ThemeName::Dark, false),
        glyphs: &UNICODE,
        keymap: Keymap::default(),
        planner: default_planner(),
        size: SIZE,
    })
}

/// A fleet as the engine has it: 20 handoffs under way, a fifth of the nodes queued.
struct Engine {
    fleet: FleetBuilder,
    observed: Observed,
    decisions: Decisions,
}

impl Engine {
    fn new() -> Self {
        let component = component("ns/gpu").version("2").made("1").made("2").rollout(|rollout| rollout.max_unavailable = 20);
        let (mut fleet, mut slots) = (fleet().with(component), lease("me"));
        for number in 0..NODES {
            let name = name(number);
            fleet.put(node(&name).runs("ns/gpu", if number % 5 == 4 { "2" } else { "1" }).allocatable("vendor.com/gpu", 8));
            fleet.put(loader_pod("ns/gpu", "1", &name)).put(plugin_pod("ns/gpu", "1", &name)).put(application(number));
            if number % 250 == 0 {
                fleet.put(handoff("ns/gpu", &name).to("2").phase(Phase::Draining, at(-30)));
                slots = slots.slot(&name, "ns/gpu");
            } else if number % 5 == 1 {
                fleet.put(handoff("ns/gpu", &name).to("2"));
            }
        }
        fleet.put(slots);
        Self { fleet, observed: Observed::default(), decisions: Decisions::default() }
    }

    /// A node's pod has become ready or not, another's handoff has gone on, or a third was queued.
    fn change(&mut self, round: usize) -> Picture {
        match round % 3 {
            0 => self.fleet.put(application(round * 7).ready(round.is_multiple_of(2))),
            1 => {
                let phase = if round.is_multiple_of(2) { Phase::Draining } else { Phase::Detaching };
                self.fleet.put(handoff("ns/gpu", &name(round % 20 * 250)).to("2").phase(phase, at(-20)))
            }
            _ => self.fleet.put(handoff("ns/gpu", &name(round * 5 + 2)).to("2")),
        };
        self.picture()
    }

    fn picture(&mut self) -> Picture {
        let context =
            Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 20, read_only: false };
        let view = self.fleet.project(at(0));
        self.observed.observe(&view);
        self.decisions =
            decide_fleet(&view, &self.observed, &context, Some(std::mem::take(&mut self.decisions)), &BTreeSet::new());
        let decisions = Arc::new(self.decisions.clone());
        Picture {
            fleet: view,
            queues: Queues::Decided(decisions.queue.clone()),
            verdicts: Verdicts::Decided(decisions),
            mode: Mode::Engine,
            leadership: LeadershipView::default(),
        }
    }
}

fn name(number: usize) -> String {
    format!("gpu-n{:05}", number % NODES)
}

fn application(number: usize) -> PodBuilder {
    let made = pod(&format!("ml/train-{}", number % NODES)).on(&name(number)).owned_by("ReplicaSet", "train");
    made.claims("vendor.com/gpu", 1)
}

fn main() {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    let line = "x".repeat(usize::from(SIZE.0));
    let text = vec![line.as_str(); usize::from(SIZE.1)].join("\n");
    let mut flip = false;
    let floor = measure("floor: a full frame of plain text", || {
        flip = !flip;
        let shown = if flip { text.as_str() } else { "" };
        terminal.draw(|frame| frame.render_widget(Paragraph::new(shown), Rect::new(0, 0, SIZE.0, SIZE.1))).unwrap();
    });
    let mut frames = Vec::new();
    for nodes in [50, NODES, 4 * NODES] {
        let mut model = model(fixtures::large(nodes).picture);
        let key = KeyEvent::from(KeyCode::Char('j'));
        frames.push(measure(&format!("key and frame, {nodes} nodes"), || {
            black_box(update(&mut model, Msg::Key(key)));
            terminal.draw(|frame| view::draw(&mut model, frame.buffer_mut())).unwrap();
        }));
    }
    let mut engine = Engine::new();
    let mut shown = model(engine.picture());
    let changed = measure_after(
        &format!("picture with one node changed, {NODES} nodes"),
        |round| engine.change(round),
        |picture| {
            black_box(update(&mut shown, Msg::Picture(Box::new(picture))));
            terminal.draw(|frame| view::draw(&mut shown, frame.buffer_mut())).unwrap();
        },
    );
    let (one, other) = (fixtures::large(NODES).picture, fixtures::large(NODES).picture);
    let mut shown = model(one.clone());
    let picture = measure_after(
        &format!("picture with every node another, {NODES}"),
        |round| if round.is_multiple_of(2) { other.clone() } else { one.clone() },
        |picture| {
            black_box(update(&mut shown, Msg::Picture(Box::new(picture))));
            terminal.draw(|frame| view::draw(&mut shown, frame.buffer_mut())).unwrap();
        },
    );
    let budget = Duration::from_millis(2);
    let frame = frames[1];
    println!("frame at {NODES} nodes: {:.1} x the floor, budget {budget:?}", frame.as_secs_f64() / floor.as_secs_f64());
    println!("frame at {} nodes over 50: {:.2} x", 4 * NODES, frames[2].as_secs_f64() / frames[0].as_secs_f64());
    println!(
        "{{\"bench\":\"console\",\"floor_us\":{},\"frame_us\":{},\"changed_us\":{},\"picture_us\":{}}}",
        floor.as_micros(),
        frame.as_micros(),
        changed.as_micros(),
        picture.as_micros()
    );
    if frame.max(changed) > budget {
        eprintln!(
            "a frame at {NODES} nodes takes more than {budget:?}, after a key ({frame:?}) or one node's change ({changed:?})"
        );
        std::process::exit(1);
    }
}

//! What a frame costs at 5,000 nodes, beside the least that a frame of this size can cost (a full buffer, compared and written).

#[path = "../console/fixtures.rs"]
#[allow(dead_code)]
mod fixtures;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use crossterm::event::{KeyCode, KeyEvent};
use lockkeeper::console::{
    glyphs::UNICODE,
    keymap::Keymap,
    model::{Model, Setup, default_planner},
    msg::Msg,
    theme::{Theme, ThemeName},
    update::update,
    view,
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
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = clock();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{name:<46} median {median:>10.1?}   99 % {worst:>10.1?}");
    median
}

fn model(nodes: usize) -> Model {
    Model::new(Setup {
        picture: fixtures::large(nodes).picture,
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
        let mut model = model(nodes);
        let key = KeyEvent::from(KeyCode::Char('j'));
        frames.push(measure(&format!("key and frame, {nodes} nodes"), || {
            black_box(update(&mut model, Msg::Key(key)));
            terminal.draw(|frame| view::draw(&mut model, frame.buffer_mut())).unwrap();
        }));
    }
    let mut model = model(NODES);
    let (one, other) = (model.picture.clone(), fixtures::large(NODES).picture);
    let mut flip = false;
    let picture = measure(&format!("new picture and frame, {NODES} nodes"), || {
        flip = !flip;
        let picture = if flip { other.clone() } else { one.clone() };
        black_box(update(&mut model, Msg::Picture(Box::new(picture))));
        terminal.draw(|frame| view::draw(&mut model, frame.buffer_mut())).unwrap();
    });
    let budget = Duration::from_millis(2);
    let frame = frames[1];
    println!("frame at {NODES} nodes: {:.1} x the floor, budget {budget:?}", frame.as_secs_f64() / floor.as_secs_f64());
    println!("frame at {} nodes over 50: {:.2} x", 4 * NODES, frames[2].as_secs_f64() / frames[0].as_secs_f64());
    println!(
        "{{\"bench\":\"console\",\"floor_us\":{},\"frame_us\":{},\"picture_us\":{}}}",
        floor.as_micros(),
        frame.as_micros(),
        picture.as_micros()
    );
    if frame > budget {
        eprintln!("a frame at {NODES} nodes takes more than {budget:?}");
        std::process::exit(1);
    }
}

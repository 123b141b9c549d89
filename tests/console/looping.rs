//! The loop itself, on a paused clock with a fed input stream and a backend in memory.

use std::{cell::RefCell, io, rc::Rc, time::Duration};

use crossterm::event::{Event, KeyCode, KeyEvent};
use futures::{StreamExt, stream};
use lockkeeper::{
    console::{
        ExitReason,
        run_loop::{Host, IntentRequest, Signal, Sources, run_loop},
        write_log::{self, Writes},
    },
    engine::{intent::IntentOutcome, picture::Picture},
};
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    fixtures::{Scene, busy, node, scene, write},
    user::User,
};

#[derive(Default)]
struct Seen {
    frames: Vec<Duration>,
    host: Vec<String>,
}

struct TestHost {
    seen: Rc<RefCell<Seen>>,
    started: Instant,
}

impl Host for TestHost {
    fn suspend(&mut self) -> io::Result<()> {
        self.seen.borrow_mut().host.push("suspend".into());
        Ok(())
    }
    fn resume(&mut self) -> io::Result<()> {
        self.seen.borrow_mut().host.push("resume".into());
        Ok(())
    }
    fn copy(&mut self, text: &str) -> io::Result<()> {
        self.seen.borrow_mut().host.push(format!("copy {text}"));
        Ok(())
    }
    fn dump(&mut self, _: &Buffer) -> io::Result<String> {
        Err(io::Error::other("read-only file system"))
    }
    fn frame(&mut self, draw: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.seen.borrow_mut().frames.push(self.started.elapsed());
        draw()
    }
}

type Script = Vec<(u64, Event)>;

struct Rig {
    user: User,
    pictures: watch::Sender<Picture>,
    asked: mpsc::Receiver<IntentRequest>,
    signals: Vec<(u64, Signal)>,
    writes: Vec<(u64, Writes)>,
    receiver: watch::Receiver<Picture>,
    intents: mpsc::Sender<IntentRequest>,
}

fn rig(first: Scene) -> Rig {
    let (pictures, receiver) = watch::channel(first.picture.clone());
    let (intents, asked) = mpsc::channel(1);
    Rig { user: User::at(first), pictures, asked, signals: Vec::new(), writes: Vec::new(), receiver, intents }
}

fn key(c: char) -> Event {
    Event::Key(KeyEvent::from(KeyCode::Char(c)))
}

/// A stream that gives each item when its time has come, and then nothing more.
fn timed<T: 'static>(items: Vec<(u64, T)>) -> impl futures::Stream<Item = T> + Unpin {
    let start = Instant::now();
    let due = stream::iter(items).then(move |(at, item)| async move {
        tokio::time::sleep_until(start + Duration::from_millis(at)).await;
        item
    });
    Box::pin(due.chain(stream::pending()))
}

impl Rig {
    /// Runs a script of keys for so many milliseconds, then ends it by a signal.
    async fn run(&mut self, script: Script, for_millis: u64, during: impl Future<Output = ()>) -> (Seen, String) {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let mut host = TestHost { seen: seen.clone(), started: Instant::now() };
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
        let mut signals = self.signals.clone();
        signals.push((for_millis, Signal::End));
        let writes: Vec<(u64, Writes)> = std::mem::take(&mut self.writes);
        let sources = Sources {
            input: timed(script).map(Ok),
            signals: timed(signals),
            pictures: self.receiver.clone(),
            writes: Box::pin(send(writes)),
            intents: self.intents.clone(),
        };
        let ended = run_loop(&mut terminal, &mut self.user.model, &mut host, sources);
        let (ended, ()) = futures::join!(ended, during);
        assert_eq!(ended.unwrap(), ExitReason::Signal);
        let text = lockkeeper::console::capture::text(terminal.backend().buffer());
        drop(host);
        (Rc::try_unwrap(seen).ok().unwrap().into_inner(), text)
    }
}

fn send(items: Vec<(u64, Writes)>) -> impl futures::Stream<Item = Writes> + Send {
    let start = Instant::now();
    stream::iter(items)
        .then(move |(at, item)| async move {
            tokio::time::sleep_until(start + Duration::from_millis(at)).await;
            item
        })
        .chain(stream::pending())
}

fn quiet() -> Scene {
    // Nothing on it has an age.
    scene([node("n1"), node("n2")])
}

#[tokio::test(start_paused = true)]
async fn idle_means_no_timer_and_no_frame() {
    let (seen, _) = rig(quiet()).run(Vec::new(), 3_600_000, async {}).await;
    assert_eq!(seen.frames.len(), 1, "{:?}", seen.frames);
}

#[tokio::test(start_paused = true)]
async fn a_visible_age_is_drawn_once_a_second() {
    let (seen, text) = rig(busy()).run(Vec::new(), 10_500, async {}).await;
    assert_eq!(seen.frames.len(), 11, "{:?}", seen.frames);
    assert!(text.contains("Draining for 22s"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn keys_typed_at_once_cost_one_frame_and_none_is_lost() {
    let script = (0..50).map(|_| (1000, key('j'))).collect();
    let mut rig = rig(scene((0..60).map(|at| node(&format!("n{at}")))));
    let (seen, _) = rig.run(script, 2000, async {}).await;
    assert_eq!(seen.frames.len(), 2, "{:?}", seen.frames);
    assert_eq!(rig.user.selected(), "n50");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_drawn_at_once_and_data_at_most_thirty_times_a_second() {
    let mut rig = rig(quiet());
    let pictures = rig.pictures.clone();
    let flood = async move {
        for at in 0..1000u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pictures.send_replace(scene([node(&format!("n{at}"))]).picture);
        }
    };
    let (seen, text) = rig.run(vec![(5_000, key('j'))], 6000, flood).await;
    let during = seen.frames.iter().filter(|at| at.as_millis() <= 1_050).count();
    assert!((25..=34).contains(&during), "{during} frames in a second of 1000 pictures");
    assert!(text.contains("n999"), "the last picture is shown:\n{text}");
    let after_key = seen.frames.iter().find(|at| at.as_millis() >= 5_000).unwrap();
    assert!(after_key.as_millis() <= 5_008, "{after_key:?}");
}

#[tokio::test(start_paused = true)]
async fn an_intent_goes_out_and_its_outcome_comes_back() {
    let mut rig = rig(quiet());
    let mut asked = std::mem::replace(&mut rig.asked, mpsc::channel(1).1);
    let engine = async move {
        let (_, reply) = asked.recv().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        reply.send(IntentOutcome::Done { message: "queued at 1".into() }).unwrap();
    };
    let mut script = vec![(10, key('U')), (20, Event::Key(KeyCode::Enter.into()))];
    script.extend([(30, Event::Paste("n1".into())), (40, Event::Key(KeyCode::Enter.into()))]);
    let (_, text) = rig.run(script, 1000, engine).await;
    assert!(text.contains("Hand over n1 of drivers/gpu to 2.0: queued at 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_or_dead_engine_never_blocks_the_console() {
    let ask = |at| [(at, key('P')), (at + 1, Event::Key(KeyCode::Tab.into())), (at + 2, Event::Key(KeyCode::Enter.into()))];
    let mut rig = rig(quiet());
    let (_, text) = rig.run([ask(10), ask(20)].concat(), 500, async {}).await;
    assert!(text.contains("the engine is busy: try again"), "{text}");
    let mut rig = self::rig(quiet());
    rig.asked.close();
    let (_, text) = rig.run(ask(10).to_vec(), 500, async {}).await;
    assert!(text.contains("the engine of this process has stopped"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_console_outlives_its_engine() {
    let mut rig = rig(quiet());
    let pictures = std::mem::replace(&mut rig.pictures, watch::channel(quiet().picture).0);
    let end = async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(pictures);
    };
    let (seen, text) = rig.run(Vec::new(), 60_000, end).await;
    assert!(text.contains("ENGINE STOPPED") && text.contains("n1"), "{text}");
    assert!(seen.frames.len() <= 3, "it does not spin: {:?}", seen.frames.len());
}

#[tokio::test(start_paused = true)]
async fn signals_suspend_and_resume_with_a_full_redraw() {
    let mut rig = rig(quiet());
    rig.signals = vec![(100, Signal::Stop), (200, Signal::Continue)];
    let (seen, _) = rig
        .run(vec![(300, Event::Key(KeyEvent::new(KeyCode::Char('s'), crossterm::event::KeyModifiers::CONTROL)))], 1000, async {})
        .await;
    assert_eq!(seen.host, ["suspend", "resume"]);
    let drawn: Vec<u128> = seen.frames.iter().map(Duration::as_millis).collect();
    assert!(drawn.contains(&100) && drawn.contains(&200), "drawn anew after each: {drawn:?}");
    assert!(rig.user.model.messages.history().any(|message| message.text.contains("read-only file system")));
}

#[tokio::test(start_paused = true)]
async fn writes_come_in_batches_and_tell_what_was_lost() {
    let mut rig = rig(quiet());
    let batch = Writes { entries: vec![write(1, "PATCH", "Node n1", Some(200))], lost: 7 };
    rig.writes = vec![(50, batch)];
    let (_, text) = rig.run(vec![(100, key('3'))], 500, async {}).await;
    assert!(text.contains("1 write to the API server, 7 older ones are not kept"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_numbered_log_is_followed_from_its_start() {
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let grown = |log: std::sync::Arc<std::sync::Mutex<Vec<_>>>, read: u64| async move {
        while log.lock().unwrap().len() as u64 <= read {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Only the last two are kept.
    let since = |log: &std::sync::Arc<std::sync::Mutex<Vec<_>>>, read: u64| {
        let all = log.lock().unwrap();
        let first = (all.len().saturating_sub(2)).max(usize::try_from(read).unwrap());
        (all[first..].to_vec(), all.len() as u64)
    };
    let mut batches = write_log::follow(log.clone(), grown, since);
    log.lock().unwrap().extend((0..5).map(|at| write(at, "PATCH", "Node n", Some(200))));
    let batch = batches.next().await.unwrap();
    assert_eq!((batch.entries.len(), batch.lost), (2, 3));
    log.lock().unwrap().push(write(9, "PATCH", "Node n", Some(200)));
    let batch = batches.next().await.unwrap();
    assert_eq!((batch.entries.len(), batch.lost), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_input_ends_it() {
    let rig = &mut rig(quiet());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut host = TestHost { seen: Rc::default(), started: Instant::now() };
    let sources = Sources {
        input: stream::empty(),
        signals: stream::pending(),
        pictures: rig.receiver.clone(),
        writes: Box::pin(stream::pending()),
        intents: rig.intents.clone(),
    };
    let ended = run_loop(&mut terminal, &mut rig.user.model, &mut host, sources).await.unwrap();
    assert_eq!(ended, ExitReason::InputClosed);
}

//! The loop: one event, `update`, its effects, and a frame when something changed. Generic over backend, input and host, so that
//! tests run the same loop without a terminal.

use std::{future::Future, io, pin::Pin, time::Duration};

use crossterm::event::{Event, MouseEventKind};
use futures::{FutureExt, Stream, StreamExt, stream::FuturesUnordered};
use ratatui::{
    Terminal,
    backend::{Backend, ClearType},
    buffer::Buffer,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    effect::{Effect, ExitReason},
    messages::Level,
    model::{IntentId, Model},
    msg::Msg,
    update::update,
    view,
    write_log::WriteStream,
};
use crate::engine::{
    intent::{Intent, IntentOutcome},
    picture::Picture,
};

/// What a person asks for, and where its outcome goes.
pub type IntentRequest = (Intent, oneshot::Sender<IntentOutcome>);

/// Data is drawn at most this often; keys are drawn at once.
const DATA_FRAME: Duration = Duration::from_millis(33);
const KEY_FRAME: Duration = Duration::from_millis(8);
const TICK: Duration = Duration::from_secs(1);

/// What the process is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// TERM, HUP, INT or QUIT.
    End,
    /// TSTP: somebody wants the process suspended.
    Stop,
    /// CONT: it was stopped without our doing, and the screen may be gone.
    Continue,
}

/// The world outside of the loop, besides drawing.
pub trait Host {
    fn suspend(&mut self) -> io::Result<()>;
    /// Takes the screen again.
    fn resume(&mut self) -> io::Result<()>;
    fn copy(&mut self, text: &str) -> io::Result<()>;
    /// Writes a frame to files and says where.
    fn dump(&mut self, frame: &Buffer) -> io::Result<String>;
    /// Why other parts of the process may have died.
    fn trouble(&self) -> Vec<String> {
        Vec::new()
    }
    /// Runs a draw so that it appears as a whole.
    fn frame(&mut self, draw: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        draw()
    }
}

/// Where events come from. `I` are the terminal's events.
pub struct Sources<I, S> {
    pub input: I,
    pub signals: S,
    pub pictures: watch::Receiver<Picture>,
    pub writes: WriteStream,
    pub intents: mpsc::Sender<IntentRequest>,
}

type Reply = Pin<Box<dyn Future<Output = (IntentId, IntentOutcome)> + Send>>;

struct Running<'a, B: Backend, H: Host> {
    terminal: &'a mut Terminal<B>,
    model: &'a mut Model,
    host: &'a mut H,
    intents: mpsc::Sender<IntentRequest>,
    replies: FuturesUnordered<Reply>,
    started: Instant,
    drawn: Instant,
    /// When the next frame is due; None: nothing has changed.
    due: Option<Instant>,
    redraw: bool,
    quit: Option<ExitReason>,
}

/// Runs until something ends it.
pub async fn run_loop<B, I, S, H>(
    terminal: &mut Terminal<B>,
    model: &mut Model,
    host: &mut H,
    sources: Sources<I, S>,
) -> io::Result<ExitReason>
where
    B: Backend,
    B::Error: Send + Sync + 'static,
    I: Stream<Item = io::Result<Event>> + Unpin,
    S: Stream<Item = Signal> + Unpin,
    H: Host,
{
    let Sources { mut input, mut signals, mut pictures, mut writes, intents } = sources;
    let now = Instant::now();
    let mut running = Running {
        terminal,
        model,
        host,
        intents,
        replies: FuturesUnordered::new(),
        started: now,
        drawn: now,
        due: Some(now),
        redraw: false,
        quit: None,
    };
    let (mut pictures_open, mut writes_open, mut signals_open) = (true, true, true);
    // A newer picture is there. It is taken when the next frame is due or a key is pressed: those in between cost nothing.
    let mut newer = false;
    running.take(&mut pictures)?;
    running.due = Some(Instant::now());
    loop {
        if let Some(reason) = running.quit {
            return Ok(reason);
        }
        let due = running.due;
        let tick = (due.is_none() && running.model.wants_clock()).then(|| running.drawn + TICK);
        // One receiver only, and it is polled by nobody else: the order in which watch wakes receivers does not matter.
        #[expect(clippy::disallowed_methods, reason = "the console is the only receiver")]
        let picture = pictures.changed();
        tokio::select! {
            biased;
            signal = signals.next(), if signals_open => match signal {
                Some(Signal::End) => running.on(Msg::Terminate)?,
                Some(Signal::Stop) => running.suspend()?,
                Some(Signal::Continue) => {
                    running.host.resume()?;
                    running.on(Msg::Resumed)?;
                }
                None => signals_open = false,
            },
            event = input.next() => {
                if std::mem::take(&mut newer) {
                    running.take(&mut pictures)?;
                }
                running.input(event)?;
                // Everything typed so far counts before a frame is spent on it.
                while running.quit.is_none()
                    && let Some(event) = input.next().now_or_never()
                {
                    running.input(event)?;
                }
                running.soon(KEY_FRAME);
            }
            () = until(due) => {
                if std::mem::take(&mut newer) {
                    running.take(&mut pictures)?;
                }
                running.draw()?;
            }
            Some((id, outcome)) = running.replies.next(), if !running.replies.is_empty() => {
                running.on(Msg::Outcome(id, outcome))?;
                running.soon(DATA_FRAME);
            }
            batch = writes.next(), if writes_open => match batch {
                Some(batch) => {
                    running.on(Msg::Writes(batch))?;
                    running.soon(DATA_FRAME);
                }
                None => writes_open = false,
            },
            changed = picture, if pictures_open && !newer => {
                match changed {
                    Ok(()) => newer = true,
                    Err(_) => {
                        pictures_open = false;
                        running.on(Msg::EngineGone)?;
                        for text in running.host.trouble() {
                            running.on(Msg::Notice(Level::Error, text))?;
                        }
                    }
                }
                running.soon(DATA_FRAME);
            }
            () = until(tick) => {
                running.on(Msg::Tick)?;
                running.draw()?;
            }
        }
    }
}

/// Never, without a time: no timer is armed when nothing is due.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl<B: Backend, H: Host> Running<'_, B, H>
where
    B::Error: Send + Sync + 'static,
{
    fn input(&mut self, event: Option<io::Result<Event>>) -> io::Result<()> {
        match event {
            Some(Ok(Event::Key(key))) => self.on(Msg::Key(key)),
            Some(Ok(Event::Paste(text))) => self.on(Msg::Paste(text)),
            Some(Ok(Event::Resize(width, height))) => self.on(Msg::Resize(width, height)),
            Some(Ok(Event::Mouse(mouse))) => match mouse.kind {
                MouseEventKind::ScrollUp => self.on(Msg::Scroll(-3)),
                MouseEventKind::ScrollDown => self.on(Msg::Scroll(3)),
                _ => Ok(()),
            },
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error),
            None => {
                self.quit = Some(ExitReason::InputClosed);
                Ok(())
            }
        }
    }

    fn take(&mut self, pictures: &mut watch::Receiver<Picture>) -> io::Result<()> {
        let picture = pictures.borrow_and_update().clone();
        self.on(Msg::Picture(Box::new(picture)))
    }

    fn on(&mut self, msg: Msg) -> io::Result<()> {
        self.model.clock = self.started.elapsed();
        for effect in update(self.model, msg) {
            self.effect(effect)?;
        }
        Ok(())
    }

    /// A frame is due, as soon as this long has passed since the last one.
    fn soon(&mut self, pace: Duration) {
        let at = self.drawn + pace;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn effect(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Submit(id, intent) => self.submit(id, *intent),
            Effect::Suspend => self.suspend(),
            Effect::Redraw => {
                self.redraw = true;
                self.soon(Duration::ZERO);
                Ok(())
            }
            Effect::Copy(text) => {
                let said = match self.host.copy(&text) {
                    Ok(()) => (Level::Info, format!("sent to the terminal's clipboard: {text}")),
                    Err(error) => (Level::Warn, error.to_string()),
                };
                self.on(Msg::Notice(said.0, said.1))
            }
            Effect::Dump => {
                let mut frame = Buffer::empty(ratatui::layout::Rect::new(0, 0, self.model.size.0, self.model.size.1));
                view::draw(self.model, &mut frame);
                let said = match self.host.dump(&frame) {
                    Ok(place) => (Level::Good, format!("frame written to {place}")),
                    Err(error) => (Level::Error, format!("frame not written: {error}")),
                };
                self.on(Msg::Notice(said.0, said.1))
            }
            Effect::Quit(reason) => {
                self.quit = Some(reason);
                Ok(())
            }
        }
    }

    fn submit(&mut self, id: IntentId, intent: Intent) -> io::Result<()> {
        let (reply, outcome) = oneshot::channel();
        // The console never waits for the engine.
        if let Err(refused) = self.intents.try_send((intent, reply)) {
            let message = match refused {
                mpsc::error::TrySendError::Full(_) => "the engine is busy: try again".to_owned(),
                mpsc::error::TrySendError::Closed(_) => "the engine of this process has stopped".to_owned(),
            };
            return self.on(Msg::Outcome(id, IntentOutcome::Refused { message }));
        }
        self.replies.push(Box::pin(async move {
            let lost = || IntentOutcome::Refused { message: "no answer from the engine; look whether it was done".to_owned() };
            (id, outcome.await.unwrap_or_else(|_| lost()))
        }));
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        let stopped = self.host.suspend();
        self.redraw = true;
        if let Err(error) = stopped {
            self.on(Msg::Notice(Level::Warn, format!("cannot suspend: {error}")))?;
        }
        self.soon(Duration::ZERO);
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        self.model.clock = self.started.elapsed();
        if std::mem::take(&mut self.redraw) {
            // Not Terminal::clear: it asks the terminal where the cursor is, and the answer goes to our own input stream.
            self.terminal.backend_mut().clear_region(ClearType::All).map_err(io::Error::other)?;
            self.terminal.swap_buffers();
        }
        let (terminal, model) = (&mut *self.terminal, &mut *self.model);
        self.host
            .frame(&mut || terminal.draw(|frame| view::draw(model, frame.buffer_mut())).map(drop).map_err(io::Error::other))?;
        self.drawn = Instant::now();
        self.due = None;
        Ok(())
    }
}

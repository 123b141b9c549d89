//! All that the console knows and shows. Owned by one task; changed by `update` alone, read by drawing.

use std::{cell::Cell, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{
    command::{Command, Reason, Scope},
    facts::{Facts, RowKey},
    format,
    glyphs::Glyphs,
    keymap::{Chord, Keymap},
    messages::{Level, Messages},
    overlays::Overlay,
    plan::Planner,
    rows::Rows,
    screens::{self, Screen},
    theme::{Role, Theme},
    write_log::WriteLog,
};
use crate::{
    engine::picture::{Mode, Picture},
    fleet::view::{WatchHealth, WatchState},
};

/// Names an intent until its outcome comes.
pub type IntentId = u64;

pub struct Model {
    /// What is shown: the latest picture, or the one it was frozen at.
    pub picture: Picture,
    /// Rises whenever `picture` is replaced.
    pub epoch: u64,
    pub frozen: Option<Frozen>,
    /// The console's clock: time since it started. Set by the loop.
    pub clock: Duration,
    pub(super) received: Duration,
    /// Simulated seconds per second, 1 on a real cluster.
    pub speed: f64,
    pub read_only: bool,
    /// Says which key to press next.
    pub demo: bool,
    pub engine_gone: bool,
    pub theme: Theme,
    pub glyphs: &'static Glyphs,
    pub keymap: Keymap,
    pub planner: Planner,
    pub size: (u16, u16),
    pub rows: Rows,
    /// The row that commands act upon, by identity.
    pub selected: Option<RowKey>,
    /// Where it was last seen, for when it is gone.
    pub(super) selected_at: usize,
    /// The order that a person puts together before handing it over.
    pub marks: Vec<RowKey>,
    pub writes: WriteLog,
    pub messages: Messages,
    /// Intents without an outcome yet, with what they are about.
    pub in_flight: BTreeMap<IntentId, String>,
    pub(super) next_intent: IntentId,
    /// Something was handed over by this console.
    pub started: bool,
    /// Keys of a binding of several, so far.
    pub pending: Vec<Chord>,
    /// Ctrl-c was pressed then; once more quits.
    pub interrupted: Option<Duration>,
    pub screens: Vec<Box<dyn Screen>>,
    pub screen: usize,
    /// The last one is on top and has the keys.
    pub overlays: Vec<Box<dyn Overlay>>,
    ages: Cell<bool>,
}

/// The picture stands still while newer ones come in.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub since: Duration,
    pub behind: u64,
    pub latest: Option<Box<Picture>>,
}

/// The worst state of the watches that must be live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    Syncing {
        left: usize,
    },
    Live,
    /// Seconds until the next try.
    Retrying {
        what: String,
        next: i64,
    },
    /// Seconds since the watch was lost.
    Stale {
        what: String,
        seconds: i64,
    },
    Unavailable {
        what: String,
        why: String,
    },
}

/// A watch may be lost this long before what it showed is called stale: a reconnect is no outage.
const STALE_AFTER: i64 = 5;

/// What a model begins with.
pub struct Setup {
    pub picture: Picture,
    pub speed: f64,
    pub read_only: bool,
    pub demo: bool,
    pub theme: Theme,
    pub glyphs: &'static Glyphs,
    pub keymap: Keymap,
    pub planner: Planner,
    pub size: (u16, u16),
}

impl Model {
    pub fn new(setup: Setup) -> Self {
        let mut model = Self {
            picture: setup.picture,
            epoch: 1,
            frozen: None,
            clock: Duration::ZERO,
            received: Duration::ZERO,
            speed: setup.speed,
            read_only: setup.read_only,
            demo: setup.demo,
            engine_gone: false,
            theme: setup.theme,
            glyphs: setup.glyphs,
            keymap: setup.keymap,
            planner: setup.planner,
            size: setup.size,
            rows: Rows::default(),
            selected: None,
            selected_at: 0,
            marks: Vec::new(),
            writes: WriteLog::default(),
            messages: Messages::default(),
            in_flight: BTreeMap::new(),
            next_intent: 1,
            started: false,
            pending: Vec::new(),
            interrupted: None,
            screens: screens::registry(),
            screen: 0,
            overlays: Vec::new(),
            ages: Cell::new(false),
        };
        model.refresh_rows();
        model
    }

    /// The cluster's time: the picture's, and what has passed since it came.
    pub fn now(&self) -> Timestamp {
        let clock = self.frozen.as_ref().map_or(self.clock, |frozen| frozen.since);
        let passed = clock.saturating_sub(self.received).as_secs_f64() * self.speed;
        let passed = SignedDuration::try_from_secs_f64(passed).unwrap_or_default();
        self.picture.fleet.now.checked_add(passed).unwrap_or(self.picture.fleet.now)
    }

    /// How long ago; and the frame now has something that moves with the clock.
    pub fn age(&self, since: Timestamp) -> String {
        format::age(self.seconds(since))
    }

    pub fn seconds(&self, since: Timestamp) -> i64 {
        self.ages.set(true);
        format::seconds_between(since, self.now())
    }

    pub fn style(&self, role: Role) -> ratatui::style::Style {
        self.theme.get(role)
    }

    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        self.messages.push(self.clock, level, text);
    }

    /// Forgets what the last frame showed.
    pub(super) fn begin_frame(&self) {
        self.ages.set(false);
    }

    /// Something on the screen changes with the clock alone.
    pub fn wants_clock(&self) -> bool {
        self.ages.get() || self.frozen.is_some() || self.messages.fading(self.clock)
    }

    /// Scopes whose keys work now, the nearest first.
    pub fn scopes(&self) -> Vec<Scope> {
        if !self.overlays.is_empty() {
            return vec![Scope::Dialog, Scope::List, Scope::Global];
        }
        let own = self.screens.get(self.screen).map_or(&[][..], |screen| screen.scopes());
        own.iter().copied().chain([Scope::Global]).collect()
    }

    pub fn enabled(&self, command: Command) -> Result<(), Reason> {
        command.enabled(self)
    }

    /// The selected row, if it is there and shown.
    pub fn selection(&self) -> Result<Facts<'_>, Reason> {
        let Some(key) = &self.selected else { return Err("no node is selected".into()) };
        let gone = || Reason(format!("{} is gone: choose another node", key.node));
        let facts = Facts::of(&self.picture, &key.component, &key.node).ok_or_else(gone)?;
        if facts.row() != *key {
            return Err(Reason(format!("{} was deleted and made again: choose it anew", key.node)));
        }
        if self.rows.index_of(key).is_none() {
            return Err(Reason(format!("{} is hidden by the filter {:?}", key.node, self.rows.filter.text())));
        }
        Ok(facts)
    }

    /// The ordinal of a marked row, from 1.
    pub fn mark_of(&self, key: &RowKey) -> Option<usize> {
        self.marks.iter().position(|mark| mark == key).map(|at| at + 1)
    }

    pub(super) fn refresh_rows(&mut self) {
        self.rows.refresh(&self.picture, self.epoch);
        match self.selected.as_ref().map(|key| self.rows.index_of(key)) {
            Some(Some(at)) => self.selected_at = at,
            // Gone or hidden: it stays chosen, and says so, until a person chooses anew.
            Some(None) => {}
            None => self.select(self.rows.first()),
        }
    }

    pub(super) fn select(&mut self, at: Option<usize>) {
        if let Some((at, key)) = at.and_then(|at| Some((at, self.rows.row(at)?))) {
            self.selected = Some(key);
            self.selected_at = at;
        }
    }

    /// The index to move from: the selected row's, or where it was.
    pub(super) fn selected_index(&self) -> Option<usize> {
        self.selected.as_ref().and_then(|key| self.rows.index_of(key))
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only || self.picture.mode == Mode::ReadOnly
    }

    pub fn connection(&self) -> Connection {
        let required = || self.picture.fleet.health.iter().filter(|watch| watch.required);
        let mut worst = Connection::Live;
        for watch in required() {
            match &watch.state {
                WatchState::Unavailable { why } => {
                    return Connection::Unavailable { what: watch.resource.to_string(), why: why.clone() };
                }
                WatchState::Retrying { since, next, .. } => {
                    let seconds = self.seconds(*since);
                    let what = watch.resource.to_string();
                    match &worst {
                        Connection::Stale { seconds: other, .. } if *other >= seconds => {}
                        _ if seconds >= STALE_AFTER => worst = Connection::Stale { what, seconds },
                        Connection::Stale { .. } => {}
                        _ => worst = Connection::Retrying { what, next: format::seconds_between(self.now(), *next) },
                    }
                }
                WatchState::Syncing | WatchState::Live => {}
            }
        }
        let syncing = |watch: &&WatchHealth| watch.state == WatchState::Syncing;
        match required().filter(syncing).count() {
            0 => worst,
            left if worst == Connection::Live => Connection::Syncing { left },
            _ => worst,
        }
    }

    /// What is shown may not be true any more.
    pub fn is_stale(&self) -> bool {
        self.engine_gone || matches!(self.connection(), Connection::Stale { .. } | Connection::Unavailable { .. })
    }
}

/// Shared by tests and benches: a planner that reads the facts alone.
pub fn default_planner() -> Planner {
    Arc::new(super::plan::from_facts)
}

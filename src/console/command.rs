//! Everything a key or the palette can ask for: one table with what each does, where it works, how dangerous it is, and why it is off.

use std::fmt;

use super::{enabled, model::Model};

/// What a person can ask the console to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    Help,
    Palette,
    Messages,
    Connection,
    PausePicture,
    Copy,
    Dump,
    Redraw,
    Suspend,
    Interrupt,
    Quit,
    Back,
    NextPane,
    PreviousPane,
    /// A screen by its place in the registry, from 0.
    Screen(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    HalfUp,
    HalfDown,
    Top,
    Bottom,
    Accept,
    Open,
    Filter,
    Sort,
    Component,
    Mark,
    Unmark,
    PreviousNode,
    NextNode,
    Earlier,
    Later,
    HandOver,
    Withdraw,
    Hold,
    Continue,
    Abort,
    Retry,
    RollBack,
    Leave,
    PauseRollout,
}

/// Where a command's key works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Everywhere.
    Global,
    /// Wherever something scrolls.
    List,
    Fleet,
    /// On what the Fleet and Node screens have selected.
    Handoff,
    Node,
    /// Dialogs.
    Dialog,
}

impl Scope {
    pub const ALL: [Self; 6] = [Self::Global, Self::List, Self::Fleet, Self::Handoff, Self::Node, Self::Dialog];

    pub fn word(self) -> &'static str {
        match self {
            Self::Global => "everywhere",
            Self::List => "moving",
            Self::Fleet => "fleet",
            Self::Handoff => "handoff",
            Self::Node => "node",
            Self::Dialog => "dialogs",
        }
    }
}

/// What a command may break. The dialogs that come with it follow from this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Danger {
    /// Nothing leaves the console, or another key undoes it.
    None,
    /// Reversible: a dialog whose focus is on Cancel.
    Reversible,
    /// Workloads are evicted: the plan, then the node's name typed.
    Disruptive,
}

/// Why a command is off, as a sentence for the person who pressed its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Into<String>> From<T> for Reason {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// A row of the table.
pub struct Info {
    pub command: Command,
    /// The word in the keymap and the palette.
    pub id: &'static str,
    pub title: &'static str,
    pub scope: Scope,
    pub danger: Danger,
    /// Sends an intent, which becomes a write to the cluster.
    pub writes: bool,
    pub enabled: fn(&Model) -> Result<(), Reason>,
}

const fn look(command: Command, scope: Scope, id: &'static str, title: &'static str) -> Info {
    Info { command, id, title, scope, danger: Danger::None, writes: false, enabled: enabled::always }
}

const fn act(
    command: Command,
    danger: Danger,
    id: &'static str,
    title: &'static str,
    enabled: fn(&Model) -> Result<(), Reason>,
) -> Info {
    Info { command, id, title, scope: Scope::Handoff, danger, writes: true, enabled }
}

const fn when(info: Info, enabled: fn(&Model) -> Result<(), Reason>) -> Info {
    Info { enabled, ..info }
}

/// In the order of the help.
pub const COMMANDS: &[Info] = &[
    act(
        Command::HandOver,
        Danger::Disruptive,
        "hand-over",
        "Hand the marked nodes over, else the selected one",
        enabled::hand_over,
    ),
    act(Command::Abort, Danger::Reversible, "abort", "Abort: restore the node", enabled::abort),
    act(Command::Retry, Danger::Disruptive, "retry", "Try a failed handoff again", enabled::retry),
    act(Command::RollBack, Danger::Disruptive, "roll-back", "Hand over to the version the node came from", enabled::roll_back),
    act(Command::Leave, Danger::Reversible, "leave", "Leave the node as it is", enabled::leave),
    act(Command::Hold, Danger::Reversible, "hold", "Stop after the running phase", enabled::hold),
    act(Command::Continue, Danger::Reversible, "continue", "Go on after a hold", enabled::go_on),
    act(Command::Withdraw, Danger::Reversible, "withdraw", "Take a queued node back", enabled::withdraw),
    act(Command::Later, Danger::None, "later", "Later in the queue", enabled::later),
    act(Command::Earlier, Danger::None, "earlier", "Earlier in the queue", enabled::earlier),
    act(
        Command::PauseRollout,
        Danger::Reversible,
        "pause-rollout",
        "Pause the component's rollout, or go on",
        enabled::pause_rollout,
    ),
    when(look(Command::Mark, Scope::Handoff, "mark", "Put the node into the order, or take it out"), enabled::mark),
    when(look(Command::Unmark, Scope::Handoff, "unmark-all", "Empty the order"), enabled::unmark),
    when(look(Command::Open, Scope::Fleet, "open", "Open the node"), enabled::selected),
    look(Command::Filter, Scope::Fleet, "filter", "Filter: words, column:word, !not"),
    look(Command::Sort, Scope::Fleet, "sort", "Next order of the rows"),
    when(look(Command::Component, Scope::Fleet, "component", "Next component alone, then all"), enabled::components),
    when(look(Command::PreviousNode, Scope::Node, "previous-node", "Previous node"), enabled::listed),
    when(look(Command::NextNode, Scope::Node, "next-node", "Next node"), enabled::listed),
    look(Command::Up, Scope::List, "up", "Up"),
    look(Command::Down, Scope::List, "down", "Down"),
    look(Command::HalfUp, Scope::List, "half-up", "Half a page up"),
    look(Command::HalfDown, Scope::List, "half-down", "Half a page down"),
    look(Command::PageUp, Scope::List, "page-up", "A page up"),
    look(Command::PageDown, Scope::List, "page-down", "A page down"),
    look(Command::Top, Scope::List, "top", "First"),
    look(Command::Bottom, Scope::List, "bottom", "Last"),
    look(Command::Screen(0), Scope::Global, "fleet", "Fleet screen"),
    when(look(Command::Screen(1), Scope::Global, "node", "Node screen"), enabled::selected),
    look(Command::Screen(2), Scope::Global, "log", "Log screen"),
    look(Command::NextPane, Scope::Global, "next-pane", "Next pane"),
    look(Command::PreviousPane, Scope::Global, "previous-pane", "Previous pane"),
    look(Command::Back, Scope::Global, "back", "Back one level"),
    look(Command::Accept, Scope::Dialog, "accept", "What the focus is on"),
    look(Command::PausePicture, Scope::Global, "pause-picture", "Freeze the picture, or go on"),
    look(Command::Connection, Scope::Global, "connection", "Connection: each watch and its health"),
    look(Command::Messages, Scope::Global, "messages", "Messages so far"),
    when(look(Command::Copy, Scope::Global, "copy", "Send the name or command to the terminal's clipboard"), enabled::copy),
    look(Command::Dump, Scope::Global, "dump", "Write the frame to files (text, ANSI, SVG)"),
    look(Command::Palette, Scope::Global, "palette", "All commands"),
    look(Command::Help, Scope::Global, "help", "Keys that work here"),
    look(Command::Redraw, Scope::Global, "redraw", "Draw everything again"),
    look(Command::Suspend, Scope::Global, "suspend", "Suspend to the shell"),
    look(Command::Interrupt, Scope::Global, "interrupt", "Twice: quit"),
    look(Command::Quit, Scope::Global, "quit", "Quit"),
];

impl Command {
    pub fn info(self) -> &'static Info {
        // Every command has a row: a test holds it.
        COMMANDS.iter().find(|info| info.command == self).unwrap_or(&COMMANDS[0])
    }

    pub fn by_id(id: &str) -> Option<Self> {
        COMMANDS.iter().find(|info| info.id == id).map(|info| info.command)
    }

    pub fn enabled(self, model: &Model) -> Result<(), Reason> {
        let info = self.info();
        if info.writes {
            enabled::writable(model)?;
        }
        (info.enabled)(model)
    }
}

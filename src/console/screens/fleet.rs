//! The Fleet screen: every node of every component in upgrade order, with a live phase strip, and what is selected beside it.

use ratatui::layout::Rect;

use super::{
    super::{
        command::{Command, Scope},
        effect::Effect,
        facts::{Facts, Progress, Standing},
        filter::Filter,
        format,
        layout::{self, Tier},
        model::Model,
        rows::Item,
        theme::Role,
        update,
        widgets::{
            field::Field,
            gauge,
            pane::pane,
            pen::Pen,
            phase_strip,
            scroll::{self, Viewport},
            table::{self, Column, Placed},
        },
    },
    Screen, describe, distance,
};
use crate::api::{ComponentKey, Phase};

#[derive(Default)]
pub struct Fleet {
    view: Viewport,
    /// What stands in the first shown row: the page stays there when rows come and go above it.
    anchor: Option<Item>,
    detail: Viewport,
    detail_lines: usize,
    /// The detail pane has the moving keys.
    on_detail: bool,
    filter: Option<Field>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Place,
    Node,
    Version,
    Target,
    Strip,
    Phase,
    Blocker,
    Age,
}

const COLUMNS: [Column<Col>; 8] = [
    Column { id: Col::Place, title: "#", least: 3, most: 3, rank: 1 },
    Column { id: Col::Node, title: "NODE", least: 12, most: 40, rank: 0 },
    Column { id: Col::Version, title: "VERSION", least: 8, most: 14, rank: 3 },
    Column { id: Col::Target, title: "TARGET", least: 8, most: 14, rank: 5 },
    Column { id: Col::Strip, title: "STEPS", least: 10, most: 10, rank: 2 },
    Column { id: Col::Phase, title: "PHASE", least: 14, most: 14, rank: 0 },
    Column { id: Col::Blocker, title: "NOW", least: 14, most: 60, rank: 0 },
    Column { id: Col::Age, title: "AGE", least: 6, most: 6, rank: 4 },
];

impl Screen for Fleet {
    fn id(&self) -> &'static str {
        "fleet"
    }

    fn title(&self) -> &'static str {
        "Fleet"
    }

    fn scopes(&self) -> &'static [Scope] {
        &[Scope::Fleet, Scope::Handoff, Scope::List]
    }

    fn input_keys(&self) -> &'static [(&'static str, &'static str)] {
        if self.filter.is_none() {
            return &[];
        }
        &[
            ("words", "must all be found"),
            ("column:word", "in one column"),
            ("!word", "must not"),
            ("enter", "keep"),
            ("esc", "clear"),
        ]
    }

    fn hints(&self) -> &'static [Command] {
        use Command::*;
        &[
            Mark,
            HandOver,
            Open,
            Abort,
            Retry,
            RollBack,
            Leave,
            Hold,
            Continue,
            Withdraw,
            Later,
            Filter,
            Help,
            Palette,
            PausePicture,
            Quit,
        ]
    }

    fn field(&mut self) -> Option<&mut Field> {
        self.filter.as_mut()
    }

    fn typed(&mut self, model: &mut Model) {
        if let Some(field) = &self.filter {
            model.rows.filter = Filter::parse(field.text());
            model.rows.touch();
        }
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Option<Vec<Effect>> {
        if let Some(by) = distance(command, if self.on_detail { self.detail.height } else { self.view.height }) {
            if self.on_detail && self.filter.is_none() {
                self.detail.scroll(by, self.detail_lines);
            } else {
                update::step(model, by);
                self.detail.top = 0;
            }
            return Some(Vec::new());
        }
        match command {
            Command::Filter => self.filter = Some(Field::new(model.rows.filter.text())),
            // Enter in the filter keeps it; the keys are the list's again.
            Command::Accept => self.filter = None,
            Command::Back if self.filter.is_some() || !model.rows.filter.is_empty() => {
                self.filter = None;
                model.rows.filter = Filter::default();
                model.rows.touch();
            }
            Command::Back if model.rows.only.is_some() => {
                model.rows.only = None;
                model.rows.touch();
            }
            Command::Back => self.on_detail = false,
            Command::Sort => {
                model.rows.order = model.rows.order.next();
                model.rows.touch();
            }
            Command::Component => {
                let keys: Vec<&ComponentKey> = model.rows.progress().keys().collect();
                let next = match &model.rows.only {
                    None => keys.first(),
                    Some(only) => keys.iter().position(|key| *key == only).and_then(|at| keys.get(at + 1)),
                };
                model.rows.only = next.map(|key| (*key).clone());
                model.rows.touch();
            }
            Command::NextPane | Command::PreviousPane if self.filter.is_none() => {
                let tier = layout::tier(model.size.0, model.size.1);
                self.on_detail = !self.on_detail && tier >= Tier::Detail;
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let tier = layout::tier(model.size.0, model.size.1);
        self.on_detail &= tier >= Tier::Detail;
        let area = pen.area();
        match tier {
            Tier::TooSmall | Tier::List => self.list(model, pen, false),
            Tier::Line => {
                let (list, line) = layout::split_rows(area, area.height.saturating_sub(1));
                self.list(model, &mut pen.within(list), true);
                detail_line(model, &mut pen.within(line));
            }
            Tier::Detail | Tier::Full => {
                let (list, detail) = layout::split_columns(area, (area.width * 3 / 5).max(60));
                self.list(model, &mut pen.within(list), true);
                if tier == Tier::Full {
                    let (detail, steps) = layout::split_rows(detail, detail.height * 3 / 5);
                    self.detail(model, &mut pen.within(detail));
                    steps_pane(model, &mut pen.within(steps));
                } else {
                    self.detail(model, &mut pen.within(detail));
                }
            }
        }
    }
}

impl Fleet {
    fn title(&self, model: &Model) -> String {
        let (shown, total) = model.rows.counts();
        let mut title = String::from("Nodes");
        if !model.rows.filter.is_empty() || model.rows.only.is_some() {
            title = format!("Nodes {shown} of {total}");
            if !model.rows.filter.is_empty() {
                title += &format!(" with {:?}", model.rows.filter.text());
            }
            if let Some(only) = &model.rows.only {
                title += &format!(" of {only}");
            }
        }
        title + &format!(", by {}", model.rows.order.word())
    }

    fn list(&mut self, model: &Model, pen: &mut Pen<'_>, framed: bool) {
        let inner = if framed {
            let title = self.title(model);
            pane(pen, &title, !self.on_detail, &model.theme, model.glyphs)
        } else {
            pen.area()
        };
        let mut pen = pen.within(inner);
        let mut top = 0;
        if let Some(field) = &self.filter {
            let mut line = pen.line(0);
            let x = line.text(0, 9, " filter: ", model.style(Role::Key));
            let area = Rect { x: line.area().x + x, width: line.width().saturating_sub(x), ..line.area() };
            field.draw(&mut line.within(area), &model.theme);
            top += 1;
        }
        // Without a frame there is no title: what a filter hides must still be said.
        if !framed && (!model.rows.filter.is_empty() || model.rows.only.is_some()) {
            let title = self.title(model);
            pen.line(top).text(1, inner.width, &title, model.style(Role::Title));
            top += 1;
        }
        let mut wanted = COLUMNS;
        // Columns are as wide as what stands in them; what is left over is for what a node waits for.
        let (names, versions) = model.rows.widest();
        let fit = |wide: usize, column: &mut Column<Col>, least: u16, most: u16| {
            column.most = u16::try_from(wide).unwrap_or(u16::MAX).clamp(column.title.len() as u16, most);
            column.least = column.most.min(least);
        };
        for column in &mut wanted {
            match column.id {
                Col::Node => fit(names, column, 12, 40),
                Col::Version | Col::Target => fit(versions, column, 8, 20),
                _ => {}
            }
        }
        let columns = table::place(&wanted, inner.width.saturating_sub(2));
        let mut head = pen.line(top);
        for column in &columns {
            head.text(column.x + 1, column.width, column.title, model.style(Role::Muted));
        }
        let area = pen.area();
        let body = Rect { y: area.y.saturating_add(top + 1), height: area.height.saturating_sub(top + 1), ..area };
        let mut body = pen.within(body);
        self.rows(model, &mut body, &columns);
    }

    fn rows(&mut self, model: &Model, pen: &mut Pen<'_>, columns: &[Placed<Col>]) {
        let items = &model.rows;
        if items.is_empty() {
            let filter = &model.rows.filter;
            let text = match (model.picture.fleet.synced, filter.unknown_column()) {
                (false, _) => "waiting for the first complete picture".to_owned(),
                (true, Some(unknown)) => {
                    format!("no column is called {unknown}; there are {}. Esc clears the filter", Filter::columns().join(", "))
                }
                (true, None) if filter.is_empty() => {
                    "no NodeComponent is here yet: `kubectl apply` one, and its nodes are listed".to_owned()
                }
                (true, None) => "no node matches the filter: Esc clears it".to_owned(),
            };
            pen.line(1).text(2, u16::MAX, &text, model.style(Role::Muted));
            return;
        }
        let selected = model.selected_index();
        if let Some(anchor) = &self.anchor
            && let Some(at) = items.find(anchor)
        {
            self.view.top = at;
        }
        // The group's head line comes along when its first row is selected.
        if selected.is_some() && selected == model.rows.first() {
            self.view.top = 0;
        }
        let window = self.view.window(items.len(), selected, usize::from(pen.height()));
        self.anchor = items.get(window.start);
        let stale = model.is_stale();
        table::rows(pen, window.clone(), |at, line| match items.get(at) {
            Some(Item::Group(key)) => group(model, &key, line),
            Some(Item::Row(key)) => {
                if let Some(facts) = Facts::of(&model.picture, &key.component, &key.node) {
                    row(model, &facts, line, columns, selected == Some(at), stale);
                }
            }
            None => {}
        });
        scroll::bar(pen, items.len(), &window, &model.theme, model.glyphs);
    }

    fn detail(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let title = model.selected.as_ref().map_or("No node".to_owned(), |key| key.node.to_string());
        let inner = pane(pen, &title, self.on_detail, &model.theme, model.glyphs);
        let mut pen = pen.within(inner);
        let lines = describe::brief(model, usize::from(inner.width.saturating_sub(1)));
        self.detail_lines = lines.len();
        describe::draw(model, &mut pen, &lines, &mut self.detail);
    }
}

fn steps_pane(model: &Model, pen: &mut Pen<'_>) {
    let inner = pane(pen, "Steps", false, &model.theme, model.glyphs);
    let mut pen = pen.within(inner);
    let lines = match model.selection() {
        Ok(facts) => describe::steps(model, &facts, usize::from(inner.width)),
        Err(_) => Vec::new(),
    };
    // The newest steps matter most.
    let skip = lines.len().saturating_sub(usize::from(inner.height));
    for (y, line) in lines.iter().skip(skip).enumerate() {
        pen.line(y as u16).spans(0, line);
    }
}

/// One line about the selected node.
fn detail_line(model: &Model, pen: &mut Pen<'_>) {
    match model.selection() {
        Ok(facts) => {
            let x = pen.text(1, 30, facts.node.name.as_str(), model.style(Role::Title));
            let x = pen.text(x, 2, ": ", model.style(Role::Muted));
            pen.text(x, pen.width().saturating_sub(x), &describe::sentence(&facts), model.style(Role::Text));
        }
        Err(reason) => {
            pen.text(1, pen.width(), &reason.0, model.style(Role::Warn));
        }
    }
}

/// `ns/gpu  23/40 on 2.0  [bar]  1 running, 3 queued`.
fn group(model: &Model, key: &ComponentKey, pen: &mut Pen<'_>) {
    let width = pen.width().saturating_sub(1);
    let progress = model.rows.progress().get(key).copied().unwrap_or_default();
    let component = model.picture.fleet.components.get(key);
    let aim = component.and_then(|component| component.aim());
    let x = pen.name(0, width / 2, &key.to_string(), model.style(Role::Title));
    let on = aim.map_or_else(|| " without a version".to_owned(), |aim| format!(" on {aim} "));
    let x = pen.text(x + 2, 12, &format!("{}/{}", progress.current, progress.total), model.style(Role::Text));
    let x = pen.text(x, 20, &on, model.style(Role::Text));
    let x = gauge::draw(pen, x, 12, progress.current, progress.total, &model.theme, model.glyphs);
    let wrong = component.and_then(|component| {
        let changed = component.changed_without_version.then(|| "its template changed without a new version".to_owned());
        let refused = component.refusals.first().map(|why| format!("refused: {why}"));
        refused.or(changed).or_else(|| component.alarms().next()).or_else(|| component.anomalies.first().cloned())
    });
    let paused = component.and_then(|component| component.spec()).is_some_and(|spec| spec.rollout.paused);
    let (role, text) = match wrong {
        Some(wrong) => (Role::Bad, wrong),
        None if paused => {
            let said = tally(&progress);
            let comma = if said.is_empty() { "" } else { ", " };
            (Role::Waiting, format!("rollout paused{comma}{said}"))
        }
        None => (Role::Muted, tally(&progress)),
    };
    pen.text(x + 2, width.saturating_sub(x + 2), &text, model.style(role));
}

fn tally(progress: &Progress) -> String {
    let parts = [
        (progress.running, "running"),
        (progress.blocked, "waiting"),
        (progress.queued, "queued"),
        (progress.failed, "failed"),
        (progress.aborted, "aborted"),
    ];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    parts.join(", ")
}

fn row(model: &Model, facts: &Facts<'_>, pen: &mut Pen<'_>, columns: &[Placed<Col>], selected: bool, stale: bool) {
    let style = |role: Role| match (selected, stale) {
        (true, _) => model.style(Role::Selected),
        (false, true) => model.style(Role::Stale),
        (false, false) => model.style(role),
    };
    if selected {
        let area = pen.area();
        pen.within(Rect { width: area.width.saturating_sub(1), ..area }).fill(style(Role::Selected));
        pen.text(0, 1, model.glyphs.cursor, style(Role::Selected));
    }
    let standing = facts.standing();
    for column in columns {
        let (x, width) = (column.x + 1, column.width);
        match column.id {
            Col::Place => {
                let (text, role) = match (model.mark_of(&facts.row()), facts.position()) {
                    (Some(at), _) => (format!("+{at}"), Role::Key),
                    (None, Some(at)) if standing == Standing::Queued => (at.to_string(), Role::Waiting),
                    _ => continue,
                };
                pen.text(x, width, &text, style(role));
            }
            Col::Node => {
                let role = if standing == Standing::Current { Role::Muted } else { Role::Text };
                pen.name(x, width, facts.node.name.as_str(), style(role));
            }
            Col::Version => {
                pen.text(x, width, facts.shown(), style(Role::Text));
            }
            Col::Target => {
                pen.text(x, width, facts.target().unwrap_or_default(), style(Role::Text));
            }
            Col::Strip => strip(model, facts, pen, x, selected || stale, style(Role::Text)),
            Col::Phase => {
                pen.text(x, width, facts.word(), style(phase_role(facts)));
            }
            Col::Blocker => blocker(facts, pen, x, width, &style),
            Col::Age => {
                if let Some(since) =
                    facts.since().filter(|_| matches!(standing, Standing::Running | Standing::Ended | Standing::Queued))
                {
                    pen.text(x, width, &model.age(since), style(Role::Muted));
                }
            }
        }
    }
}

fn strip(model: &Model, facts: &Facts<'_>, pen: &mut Pen<'_>, x: u16, flat: bool, style: ratatui::style::Style) {
    let Some(phase) = facts.strip_phase() else { return };
    let steps = phase_strip::steps(facts.phases(), phase, facts.last_step(), facts.is_stuck());
    if flat {
        let signs: String = steps.map(|step| step.sign(model.glyphs)).collect();
        pen.text(x, 10, &signs, style);
    } else {
        phase_strip::draw(pen, x, steps, &model.theme, model.glyphs);
    }
}

fn blocker(facts: &Facts<'_>, pen: &mut Pen<'_>, x: u16, width: u16, style: &dyn Fn(Role) -> ratatui::style::Style) {
    let (left, end) = (x, x.saturating_add(width));
    let x = if facts.is_aborting() { pen.text(left, width, "aborting: ", style(Role::Waiting)) } else { left };
    let width = end.saturating_sub(x);
    let Some(blocked) = facts.blocked() else {
        if let Some(doing) = facts.doing() {
            pen.text(x, width, doing, style(Role::Active));
        }
        return;
    };
    let role = if facts.standing() == Standing::Ended { Role::Bad } else { Role::Waiting };
    let end = pen.text(x, width, &blocked.word, style(role));
    let left = (x + width).saturating_sub(end + 1);
    let more = if blocked.object.is_empty() { &blocked.message } else { &blocked.object };
    if left >= 8 {
        pen.text(end + 1, left, more, style(Role::Muted));
    }
}

fn phase_role(facts: &Facts<'_>) -> Role {
    match (facts.standing(), facts.phase()) {
        (Standing::Current, _) => Role::Good,
        (Standing::Behind, _) => Role::Muted,
        (Standing::Ended, _) => Role::Bad,
        (Standing::Queued, _) | (_, Some(Phase::Held)) => Role::Waiting,
        (Standing::Running, _) if facts.is_stuck() => Role::Waiting,
        (Standing::Running, _) => Role::Active,
    }
}

/// `12 of 40`: for the header.
pub fn summary(model: &Model) -> Option<(String, Progress)> {
    let key = model.selected.as_ref().map(|key| &key.component).or_else(|| model.rows.progress().keys().next())?;
    let progress = *model.rows.progress().get(key)?;
    let component = model.picture.fleet.components.get(key)?;
    component.spec()?;
    let on = component.aim().map(|aim| format!(" on {aim}")).unwrap_or_default();
    let name = format::cut(&key.name, 24, model.glyphs.ellipsis).into_owned();
    Some((format!("{name} {}/{}{on}", progress.current, progress.total), progress))
}

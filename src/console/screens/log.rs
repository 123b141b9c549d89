//! The Log screen: every API write, and what a person would have typed for it.

use ratatui::layout::Rect;

use super::{
    super::{
        command::{Command, Scope},
        effect::Effect,
        format, layout,
        model::Model,
        theme::Role,
        widgets::{
            pane::pane,
            pen::Pen,
            scroll::{self, Viewport},
            table::{self, Column},
        },
    },
    Screen, distance,
};
use crate::engine::picture::WriteLogEntry;

#[derive(Default)]
pub struct Log {
    view: Viewport,
    /// Number of the selected entry; None follows the newest.
    selected: Option<u64>,
}

#[derive(Clone, Copy)]
enum Col {
    Time,
    Code,
    Verb,
    Object,
    Why,
    Millis,
}

const COLUMNS: [Column<Col>; 6] = [
    Column { id: Col::Time, title: "UTC", least: 8, most: 8, rank: 1 },
    Column { id: Col::Code, title: "CODE", least: 4, most: 4, rank: 0 },
    Column { id: Col::Verb, title: "VERB", least: 6, most: 6, rank: 0 },
    Column { id: Col::Object, title: "OBJECT", least: 24, most: 48, rank: 0 },
    Column { id: Col::Why, title: "WHY", least: 14, most: 120, rank: 2 },
    Column { id: Col::Millis, title: "MS", least: 5, most: 5, rank: 3 },
];

impl Log {
    fn place(&self, model: &Model) -> Option<usize> {
        let last = model.writes.len().checked_sub(1)?;
        Some(self.selected.map_or(last, |number| model.writes.place(number)))
    }
}

impl Screen for Log {
    fn id(&self) -> &'static str {
        "log"
    }

    fn title(&self) -> &'static str {
        "Log"
    }

    fn scopes(&self) -> &'static [Scope] {
        &[Scope::List]
    }

    fn hints(&self) -> &'static [Command] {
        use Command::*;
        &[Down, Bottom, Copy, Back, Help, Palette, Quit]
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Option<Vec<Effect>> {
        if let Some(by) = distance(command, self.view.height) {
            let place = self.place(model)?;
            let last = model.writes.len().saturating_sub(1);
            let to = place.saturating_add_signed(by).min(last);
            // At the end it follows again.
            self.selected = (to < last).then(|| model.writes.number(to));
            return Some(Vec::new());
        }
        if command == Command::Copy {
            let entry = self.place(model).and_then(|place| model.writes.at(place))?;
            return Some(vec![Effect::Copy(entry.kubectl.clone())]);
        }
        None
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let area = pen.area();
        let detail = if area.height >= 14 { 7 } else { 0 };
        let (list, detail) = layout::split_rows(area, area.height - detail);
        let missing = model.writes.missing();
        let mut title = format!("{} to the API server", format::count(model.writes.len(), "write"));
        if missing > 0 {
            title += &format!(", {missing} older ones are not kept");
        }
        if self.selected.is_none() {
            title += ", newest";
        }
        let inner = pane(&mut pen.within(list), &title, true, &model.theme, model.glyphs);
        let mut body = pen.within(inner);
        let Some(selected) = self.place(model) else {
            body.line(0).text(1, inner.width, "nothing has been written yet", model.style(Role::Muted));
            return;
        };
        let columns = table::place(&COLUMNS, inner.width.saturating_sub(2));
        for column in &columns {
            body.text(column.x + 1, column.width, column.title, model.style(Role::Muted));
        }
        let mut rows = body.within(Rect { y: inner.y.saturating_add(1), height: inner.height.saturating_sub(1), ..inner });
        let window = self.view.window(model.writes.len(), Some(selected), usize::from(rows.height()));
        table::rows(&mut rows, window.clone(), |at, line| {
            let Some(entry) = model.writes.at(at) else { return };
            let chosen = at == selected;
            if chosen {
                let area = line.area();
                line.within(Rect { width: area.width.saturating_sub(1), ..area }).fill(model.style(Role::Selected));
                line.text(0, 1, model.glyphs.cursor, model.style(Role::Selected));
            }
            let style = |role: Role| model.style(if chosen { Role::Selected } else { role });
            for column in &columns {
                let (x, width) = (column.x + 1, column.width);
                match column.id {
                    Col::Time => line.text(x, width, &format::clock(entry.at), style(Role::Muted)),
                    Col::Code => line.text(x, width, &code(entry), style(code_role(entry))),
                    Col::Verb => line.text(x, width, &entry.verb, style(Role::Text)),
                    Col::Object => line.name(x, width, &entry.object, style(Role::Text)),
                    Col::Why => line.text(x, width, &entry.why, style(Role::Muted)),
                    Col::Millis => line.text(x, width, &entry.millis.to_string(), style(Role::Muted)),
                };
            }
        });
        scroll::bar(&mut rows, model.writes.len(), &window, &model.theme, model.glyphs);
        if let Some(entry) = model.writes.at(selected) {
            self.detail(model, &mut pen.within(detail), entry);
        }
    }
}

impl Log {
    fn detail(&self, model: &Model, pen: &mut Pen<'_>, entry: &WriteLogEntry) {
        let inner = pane(pen, "By hand this would be", false, &model.theme, model.glyphs);
        let width = usize::from(inner.width.saturating_sub(2));
        let kubectl = format::wrap(&entry.kubectl, width).into_iter().map(|line| (Role::Key, line));
        let why = format::wrap(&entry.why, width).into_iter().map(|line| (Role::Text, line));
        let said = format::wrap(&entry.message, width).into_iter().map(|line| (Role::Bad, line));
        let lines = kubectl.chain(why).chain(said).filter(|(_, line)| !line.is_empty());
        let mut pen = pen.within(inner);
        for (y, (role, line)) in lines.enumerate() {
            let Ok(y) = u16::try_from(y) else { break };
            pen.line(y).text(1, width as u16, &line, model.style(role));
        }
    }
}

fn code(entry: &WriteLogEntry) -> String {
    entry.code.map_or_else(|| "none".to_owned(), |code| code.to_string())
}

fn code_role(entry: &WriteLogEntry) -> Role {
    match entry.code {
        Some(200..=299) => Role::Good,
        // Answers that the protocol expects: decided and tried again.
        Some(409 | 429) => Role::Waiting,
        _ => Role::Bad,
    }
}

//! The keys that work here, from the keymap, with the reason beside each that is off. Typing filters.

use super::{Answer, Overlay};
use crate::console::{
    command::{Command, Scope},
    model::Model,
    theme::Role,
    widgets::{
        field::Field,
        pen::Pen,
        scroll::{self, Viewport},
    },
};

pub struct Help {
    /// Where the help was asked for.
    scopes: Vec<Scope>,
    filter: Field,
    view: Viewport,
    lines: usize,
}

struct Entry {
    scope: Scope,
    keys: String,
    title: &'static str,
    off: Option<String>,
    writes: bool,
}

impl Help {
    pub fn open(model: &Model) -> Box<dyn Overlay> {
        Box::new(Self { scopes: model.scopes(), filter: Field::default(), view: Viewport::default(), lines: 0 })
    }

    fn entries(&self, model: &Model) -> Vec<Entry> {
        let wanted = self.filter.text().to_lowercase();
        let mut entries: Vec<Entry> = Vec::new();
        for scope in &self.scopes {
            for info in super::super::command::COMMANDS.iter().filter(|info| info.scope == *scope) {
                let keys = model.keymap.keys_of(info.command);
                if keys.is_empty() {
                    continue;
                }
                let found = info.title.to_lowercase().contains(&wanted)
                    || keys.to_lowercase().contains(&wanted)
                    || info.id.contains(&wanted);
                if found {
                    let off = model.enabled(info.command).err().map(|reason| reason.0);
                    entries.push(Entry { scope: *scope, keys, title: info.title, off, writes: info.writes });
                }
            }
        }
        entries
    }
}

impl Overlay for Help {
    fn id(&self) -> &'static str {
        "help"
    }

    fn title(&self, _: &Model) -> String {
        "Help: keys that work here".to_owned()
    }

    fn size(&self, model: &Model, width: u16) -> (u16, u16) {
        let lines = self.entries(model).len() + self.scopes.len() * 2;
        (width.min(110), u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(5))
    }

    fn command(&mut self, _: &mut Model, command: Command) -> Answer {
        let page = self.view.height.max(1) as isize;
        match command {
            Command::Up => self.view.scroll(-1, self.lines),
            Command::Down => self.view.scroll(1, self.lines),
            Command::PageUp => self.view.scroll(-page, self.lines),
            Command::PageDown => self.view.scroll(page, self.lines),
            Command::Back if !self.filter.text().is_empty() => self.filter.clear(),
            Command::Back | Command::Accept => return Answer::close(),
            _ => {}
        }
        Answer::stay()
    }

    fn field(&mut self) -> Option<&mut Field> {
        Some(&mut self.filter)
    }

    fn typed(&mut self, _: &mut Model) -> Answer {
        self.view.top = 0;
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let area = pen.area();
        let x = pen.text(1, 8, "find: ", model.style(Role::Muted));
        let field = ratatui::layout::Rect { x: area.x + x, width: area.width.saturating_sub(x + 1).min(40), height: 1, ..area };
        self.filter.draw(&mut pen.within(field), &model.theme);
        let entries = self.entries(model);
        enum Line<'a> {
            Head(Scope),
            Entry(&'a Entry),
        }
        let mut lines = Vec::new();
        let mut last = None;
        for entry in &entries {
            if last != Some(entry.scope) {
                lines.push(Line::Head(entry.scope));
                last = Some(entry.scope);
            }
            lines.push(Line::Entry(entry));
        }
        self.lines = lines.len();
        let height = area.height.saturating_sub(2);
        let window = self.view.window(lines.len(), None, usize::from(height));
        let mut body = pen.within(ratatui::layout::Rect { y: area.y.saturating_add(2), height, ..area });
        for (y, line) in lines.get(window.clone()).unwrap_or_default().iter().enumerate() {
            let mut row = body.line(y as u16);
            match line {
                Line::Head(scope) => {
                    row.text(1, area.width, scope.word(), model.style(Role::Title));
                }
                Line::Entry(entry) => {
                    let off = entry.off.is_some();
                    let style = model.style(if off { Role::Muted } else { Role::Text });
                    row.text(2, 18, &entry.keys, model.style(if off { Role::Muted } else { Role::Key }));
                    let x = row.text(21, area.width.saturating_sub(22), entry.title, style);
                    let x = if entry.writes { row.text(x, area.width, " (writes)", model.style(Role::Muted)) } else { x };
                    if let Some(reason) = &entry.off {
                        let room = area.width.saturating_sub(x + 1);
                        row.text(x, room, &format!("  off: {reason}"), model.style(Role::Warn));
                    }
                }
            }
        }
        if lines.is_empty() {
            body.text(2, area.width, "no key matches", model.style(Role::Muted));
        }
        scroll::bar(&mut body, lines.len(), &window, &model.theme, model.glyphs);
    }

    fn hint(&self) -> String {
        "Type to find; Esc closes.".to_owned()
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("type", "to find"), ("up/down", "read"), ("esc", "close")]
    }
}

//! All commands by name: the same table as the keys, with the key and the reason when one is off.

use super::{Answer, Overlay, Then};
use crate::console::{
    command::{COMMANDS, Command, Info, Scope},
    messages::Level,
    model::Model,
    theme::Role,
    widgets::{
        field::Field,
        pen::Pen,
        scroll::{self, Viewport},
    },
};

pub struct Palette {
    scopes: Vec<Scope>,
    filter: Field,
    selected: usize,
    view: Viewport,
}

impl Palette {
    pub fn open(model: &Model) -> Box<dyn Overlay> {
        Box::new(Self { scopes: model.scopes(), filter: Field::default(), selected: 0, view: Viewport::default() })
    }

    /// Commands of this place whose letters come in the order typed; those that hold the text as it is come first.
    fn found(&self) -> Vec<&'static Info> {
        let wanted = self.filter.text().to_lowercase();
        let mut found: Vec<(u8, &Info)> = COMMANDS
            .iter()
            .filter(|info| self.scopes.contains(&info.scope) && !matches!(info.scope, Scope::List | Scope::Dialog))
            .filter_map(|info| {
                let title = info.title.to_lowercase();
                let rank = match () {
                    () if info.id.starts_with(&wanted) => 0,
                    () if info.id.contains(&wanted) || title.contains(&wanted) => 1,
                    () if in_order(&wanted, info.id) || in_order(&wanted, &title) => 2,
                    () => return None,
                };
                Some((rank, info))
            })
            .collect();
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, info)| info).collect()
    }
}

fn in_order(wanted: &str, text: &str) -> bool {
    let mut letters = text.chars();
    wanted.chars().all(|c| letters.any(|other| other == c))
}

impl Overlay for Palette {
    fn id(&self) -> &'static str {
        "palette"
    }

    fn title(&self, _: &Model) -> String {
        "Commands".to_owned()
    }

    fn size(&self, _: &Model, width: u16) -> (u16, u16) {
        (width.min(96), u16::try_from(self.found().len()).unwrap_or(u16::MAX).saturating_add(4).max(8))
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Answer {
        let found = self.found();
        let last = found.len().saturating_sub(1);
        match command {
            Command::Up => self.selected = self.selected.saturating_sub(1),
            Command::Down => self.selected = (self.selected + 1).min(last),
            Command::PageUp => self.selected = self.selected.saturating_sub(self.view.height),
            Command::PageDown => self.selected = (self.selected + self.view.height).min(last),
            Command::Back => return Answer::close(),
            Command::Accept => {
                let Some(info) = found.get(self.selected) else { return Answer::close() };
                if let Err(reason) = model.enabled(info.command) {
                    model.note(Level::Warn, format!("{}: {reason}", info.title));
                    return Answer::stay();
                }
                return Answer { then: Then::Run(info.command), effects: Vec::new() };
            }
            _ => {}
        }
        Answer::stay()
    }

    fn field(&mut self) -> Option<&mut Field> {
        Some(&mut self.filter)
    }

    fn typed(&mut self, _: &mut Model) -> Answer {
        self.selected = 0;
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let area = pen.area();
        let x = pen.text(1, 2, ":", model.style(Role::Key));
        let field = ratatui::layout::Rect { x: area.x + x, width: area.width.saturating_sub(x + 1), height: 1, ..area };
        self.filter.draw(&mut pen.within(field), &model.theme);
        let found = self.found();
        let height = area.height.saturating_sub(1);
        let window = self.view.window(found.len(), Some(self.selected), usize::from(height));
        let mut body = pen.within(ratatui::layout::Rect { y: area.y.saturating_add(1), height, ..area });
        for (y, at) in window.clone().enumerate() {
            let Some(info) = found.get(at) else { break };
            let off = model.enabled(info.command).err();
            let mut row = body.line(y as u16);
            let chosen = at == self.selected;
            if chosen {
                row.fill(model.style(Role::Selected));
                row.text(0, 1, model.glyphs.cursor, model.style(Role::Selected));
            }
            let pick = |role: Role| {
                model.style(if chosen {
                    Role::Selected
                } else if off.is_some() {
                    Role::Muted
                } else {
                    role
                })
            };
            row.text(2, 15, info.id, pick(Role::Text));
            row.text(18, 12, &model.keymap.key_of(info.command).unwrap_or_default(), pick(Role::Key));
            let x = row.text(29, area.width.saturating_sub(30), info.title, pick(Role::Muted));
            if let Some(reason) = &off {
                row.text(x, area.width.saturating_sub(x + 1), &format!("  off: {reason}"), pick(Role::Warn));
            }
        }
        if found.is_empty() {
            body.text(2, area.width, "no command matches", model.style(Role::Muted));
        }
        scroll::bar(&mut body, found.len(), &window, &model.theme, model.glyphs);
    }

    fn hint(&self) -> String {
        "Type to find; Enter runs; Esc closes.".to_owned()
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("type", "to find"), ("enter", "run"), ("esc", "close")]
    }
}

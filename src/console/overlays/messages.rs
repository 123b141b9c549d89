//! The messages so far, newest first.

use super::{Answer, Overlay};
use crate::console::{
    command::Command,
    format,
    model::Model,
    theme::Role,
    widgets::{
        pen::Pen,
        scroll::{self, Viewport},
    },
};

pub struct History {
    view: Viewport,
    lines: usize,
}

impl History {
    pub fn open(_: &Model) -> Box<dyn Overlay> {
        Box::new(Self { view: Viewport::default(), lines: 0 })
    }
}

impl Overlay for History {
    fn id(&self) -> &'static str {
        "messages"
    }

    fn title(&self, _: &Model) -> String {
        "Messages, newest first".to_owned()
    }

    fn size(&self, _: &Model, width: u16) -> (u16, u16) {
        (width.min(100), u16::try_from(self.lines.max(5)).unwrap_or(u16::MAX).saturating_add(2).max(12))
    }

    fn command(&mut self, _: &mut Model, command: Command) -> Answer {
        let page = self.view.height.max(1) as isize;
        match command {
            Command::Up => self.view.scroll(-1, self.lines),
            Command::Down => self.view.scroll(1, self.lines),
            Command::HalfUp | Command::PageUp => self.view.scroll(-page, self.lines),
            Command::HalfDown | Command::PageDown => self.view.scroll(page, self.lines),
            Command::Top => self.view.top = 0,
            Command::Bottom => self.view.scroll(isize::MAX, self.lines),
            Command::Back | Command::Accept => return Answer::close(),
            _ => {}
        }
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let width = usize::from(pen.width().saturating_sub(18));
        let mut lines = Vec::new();
        for message in model.messages.history().collect::<Vec<_>>().into_iter().rev() {
            let ago = format::age(i64::try_from(model.clock.saturating_sub(message.at).as_secs()).unwrap_or(i64::MAX));
            let times = if message.times > 1 { format!(" ({} times)", message.times) } else { String::new() };
            for (at, part) in format::wrap(&format!("{}{times}", message.text), width).into_iter().enumerate() {
                lines.push((if at == 0 { Some((ago.clone(), message.level)) } else { None }, part, message.level));
            }
        }
        self.lines = lines.len();
        let window = self.view.window(lines.len(), None, usize::from(pen.height()));
        for (y, (head, text, level)) in lines.get(window.clone()).unwrap_or_default().iter().enumerate() {
            let mut row = pen.line(y as u16);
            if let Some((ago, level)) = head {
                row.text(1, 7, ago, model.style(Role::Muted));
                row.text(8, 9, level.word(), model.style(level.role()));
            }
            row.text(17, width as u16, text, model.style(level.role()));
        }
        if lines.is_empty() {
            pen.text(1, 40, "no message yet", model.style(Role::Muted));
        }
        scroll::bar(pen, lines.len(), &window, &model.theme, model.glyphs);
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("j/k", "read"), ("esc", "close")]
    }
}

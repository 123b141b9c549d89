//! Each watch and its health.

use super::{Answer, Overlay};
use crate::{
    console::{
        command::Command,
        format,
        model::Model,
        theme::Role,
        widgets::{
            pen::Pen,
            scroll::{self, Viewport},
        },
    },
    fleet::view::WatchState,
};

pub struct Watches {
    view: Viewport,
    lines: usize,
}

impl Watches {
    pub fn open(_: &Model) -> Box<dyn Overlay> {
        Box::new(Self { view: Viewport::default(), lines: 0 })
    }
}

impl Overlay for Watches {
    fn id(&self) -> &'static str {
        "connection"
    }

    fn title(&self, model: &Model) -> String {
        let cluster = &model.picture.fleet.cluster;
        format!("Connection: {} as {}, Kubernetes {}", cluster.server, cluster.user, cluster.version)
    }

    fn size(&self, model: &Model, width: u16) -> (u16, u16) {
        let lines: usize = model.picture.fleet.health.iter().map(|watch| 1 + watch.undecodable.len()).sum();
        (width.min(110), u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(3))
    }

    fn command(&mut self, _: &mut Model, command: Command) -> Answer {
        let page = self.view.height.max(1) as isize;
        match command {
            Command::Up => self.view.scroll(-1, self.lines),
            Command::Down => self.view.scroll(1, self.lines),
            Command::HalfUp | Command::PageUp => self.view.scroll(-page, self.lines),
            Command::HalfDown | Command::PageDown => self.view.scroll(page, self.lines),
            Command::Back | Command::Accept => return Answer::close(),
            _ => {}
        }
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let mut lines: Vec<(String, String, Role)> = Vec::new();
        for watch in model.picture.fleet.health.iter() {
            let last =
                watch.last_event.map_or_else(|| "no event yet".to_owned(), |at| format!("last event {} ago", model.age(at)));
            let errors =
                if watch.errors > 0 { format!(", {}", format::count(watch.errors as usize, "error")) } else { String::new() };
            let (state, role) = match &watch.state {
                WatchState::Live => ("live".to_owned(), Role::Good),
                WatchState::Syncing => ("first list".to_owned(), Role::Waiting),
                WatchState::Retrying { error, since, next } => {
                    let next = format::seconds_between(model.now(), *next);
                    (format!("lost {} ago, next try in {next}s: {error}", model.age(*since)), Role::Bad)
                }
                WatchState::Unavailable { why } if watch.required => (format!("unavailable: {why}"), Role::Bad),
                WatchState::Unavailable { why } => (format!("not there, not needed: {why}"), Role::Muted),
            };
            lines.push((watch.resource.to_string(), format!("{state}; {} objects, {last}{errors}", watch.objects), role));
            for (name, why) in &watch.undecodable {
                lines.push((String::new(), format!("{name} cannot be read: {why}"), Role::Warn));
            }
        }
        let lease = &model.picture.leadership;
        let until = lease.until.map(|until| format!(", renewed until {}", format::clock(until))).unwrap_or_default();
        let held = match (&lease.problem, &lease.holder) {
            (Some(problem), _) => (problem.clone(), Role::Bad),
            (None, Some(holder)) => (format!("held by {holder}, epoch {}{until}", lease.epoch), Role::Text),
            (None, None) => ("held by nobody: no engine acts".to_owned(), Role::Waiting),
        };
        lines.push(("Lease".to_owned(), held.0, held.1));
        self.lines = lines.len();
        let window = self.view.window(lines.len(), None, usize::from(pen.height()));
        for (y, (name, text, role)) in lines.get(window.clone()).unwrap_or_default().iter().enumerate() {
            let mut row = pen.line(y as u16);
            row.text(1, 32, name, model.style(Role::Text));
            let room = row.width().saturating_sub(35);
            row.text(34, room, text, model.style(*role));
        }
        scroll::bar(pen, lines.len(), &window, &model.theme, model.glyphs);
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("j/k", "read"), ("esc", "close")]
    }
}

//! One frame: header, tabs, hint, screen, status line, keys line, dialogs on top.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    command::Command,
    facts::Progress,
    format, hint,
    layout::{self, Frame, Tier},
    model::{Connection, Model},
    screens,
    theme::Role,
    widgets::{badge::Badge, gauge, pane::pane, pen::Pen},
};
use crate::engine::picture::Mode;

/// Draws everything. Any size, the empty one too.
pub fn draw(model: &mut Model, buf: &mut Buffer) {
    let area = buf.area;
    // The buffer is what is drawn into, whatever was said before about the size.
    model.size = (area.width, area.height);
    model.begin_frame();
    let mut pen = Pen::new(buf, area, model.glyphs.ellipsis);
    pen.fill(model.style(Role::Text));
    let hint = hint::hint(model);
    let frame = layout::frame(area, hint.is_some());
    if frame.tier == Tier::TooSmall {
        too_small(model, &mut pen);
        return;
    }
    header(model, &mut pen.within(frame.header), &frame);
    tabs(model, &mut pen.within(frame.tabs));
    if let Some(hint) = hint {
        let mut line = pen.within(frame.hint);
        line.fill(model.style(Role::Hint));
        let text = format!(" {} {hint}", model.glyphs.arrow);
        line.text(0, frame.hint.width, &text, model.style(Role::Hint));
    }
    let mut screens = std::mem::take(&mut model.screens);
    if let Some(screen) = screens.get_mut(model.screen) {
        screen.draw(model, &mut pen.within(frame.body));
    }
    status(model, &mut pen.within(frame.status));
    keys(model, screens.get(model.screen).map(|screen| &**screen), &mut pen.within(frame.keys));
    model.screens = screens;
    let mut overlays = std::mem::take(&mut model.overlays);
    let body = Rect { height: area.height.saturating_sub(frame.status.height + frame.keys.height), ..area };
    for overlay in &mut overlays {
        let (width, height) = overlay.size(model, body.width.saturating_sub(4));
        let below = body.y + frame.header.height + frame.hint.height + frame.tabs.height;
        let room = Rect { y: below, height: body.height.saturating_sub(below - body.y), ..body };
        let area = layout::centered(room, width, height);
        let mut pen = pen.within(area);
        pen.fill(model.style(Role::Text));
        let inner = pane(&mut pen, &overlay.title(model), true, &model.theme, model.glyphs);
        overlay.draw(model, &mut pen.within(inner));
    }
    model.overlays = overlays;
}

fn too_small(model: &Model, pen: &mut Pen<'_>) {
    let (width, height) = layout::FLOOR;
    let area = pen.area();
    let quit = if model.interrupted.is_some() { "ctrl-c once more quits" } else { "q quits" };
    let text = format!("too small: {width}x{height} needed, {}x{} here; {quit}", area.width, area.height);
    for (y, line) in format::wrap(&text, usize::from(area.width.max(1))).iter().enumerate() {
        let Ok(y) = u16::try_from(y) else { break };
        pen.line(y).text(0, area.width, line, model.style(Role::Warn));
    }
}

/// Where we are and as whom, then badges. Both at every size.
fn header(model: &Model, pen: &mut Pen<'_>, frame: &Frame) {
    let style = model.style(Role::Header);
    pen.fill(style);
    let cluster = &model.picture.fleet.cluster;
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    let (context, server) = (or(&cluster.context, "no context"), or(&cluster.server, "unknown server"));
    // Without a server there is nobody to be.
    let identity = match server.contains("://") {
        true => format!("{context} as {} at {server}", or(&cluster.user, "unknown user")),
        false => format!("{context}, {server}"),
    };
    let width = usize::from(frame.header.width);
    let mut badges = badges(model);
    let wide = |badges: &[Badge]| badges.iter().map(|badge| format::width(&badge.text) + 3).sum::<usize>();
    // The identity keeps a third of the line; badges that can be found elsewhere give way.
    while wide(&badges) > width * 2 / 3 {
        let Some(at) =
            badges.iter().enumerate().filter(|(_, badge)| badge.rank > 0).max_by_key(|(_, badge)| badge.rank).map(|(at, _)| at)
        else {
            break;
        };
        badges.remove(at);
    }
    let name = if frame.tier > Tier::List { " lockkeeper  " } else { " " };
    let x = pen.text(0, frame.header.width, name, style);
    let room = width.saturating_sub(wide(&badges) + usize::from(x) + 1);
    pen.name(x, u16::try_from(room).unwrap_or(0), &identity, style);
    let mut x = u16::try_from(width.saturating_sub(wide(&badges))).unwrap_or(0);
    for badge in badges {
        let style = if badge.role == Role::Header { style } else { model.style(badge.role) };
        x = pen.text(x, frame.header.width, &format!(" {} ", badge.text), style);
        x += 1;
    }
}

/// What state the console itself is in.
fn badges(model: &Model) -> Vec<Badge> {
    let mut badges = Vec::new();
    if let Some(frozen) = &model.frozen {
        let seconds = model.clock.saturating_sub(frozen.since).as_secs();
        let behind = format::count(usize::try_from(frozen.behind).unwrap_or(usize::MAX), "change");
        badges.push(Badge::new(format!("PAUSED {:02}:{:02}, {behind} behind", seconds / 60, seconds % 60), Role::Danger, 0));
    }
    if model.is_read_only() {
        badges.push(Badge::new("READ-ONLY", Role::Hint, 0));
    }
    if !model.in_flight.is_empty() {
        badges.push(Badge::new(format!("{} asked", model.in_flight.len()), Role::Header, 3));
    }
    badges.push(match model.connection() {
        _ if model.engine_gone => Badge::new("ENGINE STOPPED", Role::Danger, 0),
        Connection::Live => Badge::new("live", Role::Header, 2),
        Connection::Syncing { left } => Badge::new(format!("first lists: {left} to go"), Role::Header, 1),
        Connection::Retrying { what, next } => Badge::new(format!("{what} retrying in {next}s"), Role::Danger, 0),
        Connection::Stale { what, seconds } => Badge::new(format!("STALE {}: {what}", format::age(seconds)), Role::Danger, 0),
        Connection::Unavailable { what, .. } => Badge::new(format!("NO {what}"), Role::Danger, 0),
    });
    let lease = &model.picture.leadership;
    if let Some(problem) = &lease.problem {
        let short = format::cut(&format::clean(problem), 32, model.glyphs.ellipsis).into_owned();
        badges.push(Badge::new(format!("LEASE: {short}"), Role::Danger, 0));
    }
    badges.push(match (&lease.holder, lease.ours, model.picture.mode) {
        (_, true, _) => Badge::new("acts here", Role::Header, 1),
        (Some(holder), false, _) => {
            Badge::new(format!("{} acts", format::cut_middle(&format::clean(holder), 20, model.glyphs.ellipsis)), Role::Header, 1)
        }
        (None, false, Mode::Engine) => Badge::new("waits for the Lease", Role::Header, 1),
        (None, false, _) => Badge::new("nobody acts", Role::Danger, 1),
    });
    badges
}

/// The screens, and how far the fleet has come.
fn tabs(model: &Model, pen: &mut Pen<'_>) {
    if pen.height() == 0 {
        return;
    }
    let mut x = 1;
    // While a screen draws, the model does not hold the screens; here it does.
    for (at, screen) in model.screens.iter().enumerate() {
        let here = at == model.screen;
        let text = if here { format!("[{} {}]", at + 1, screen.title()) } else { format!(" {} {} ", at + 1, screen.title()) };
        x = pen.text(x, 20, &text, model.style(if here { Role::Title } else { Role::Muted })) + 1;
    }
    if let Some((text, Progress { current, total, .. })) = screens::fleet::summary(model) {
        const BAR: u16 = 20;
        let wide = u16::try_from(format::width(&text)).unwrap_or(0);
        let start = pen.width().saturating_sub(wide + BAR + 3);
        if start > x {
            let x = pen.text(start, wide, &text, model.style(Role::Text));
            gauge::draw(pen, x + 1, BAR, current, total, &model.theme, model.glyphs);
        }
    }
}

fn status(model: &Model, pen: &mut Pen<'_>) {
    let width = pen.width();
    if !model.pending.is_empty() {
        let keys: Vec<String> = model.pending.iter().map(ToString::to_string).collect();
        let next: Vec<String> = model
            .keymap
            .continuations(&model.scopes(), &model.pending)
            .iter()
            .map(|binding| format!("{}: {}", binding.keys(), binding.desc))
            .collect();
        pen.text(1, width, &format!("{} {} {}", keys.join(" "), model.glyphs.ellipsis, next.join(", ")), model.style(Role::Key));
        return;
    }
    if let Some(message) = model.messages.current(model.clock) {
        let times = if message.times > 1 { format!(" ({} times)", message.times) } else { String::new() };
        let text = format!("{} {}{times}", message.level.sign(model.glyphs), message.text);
        pen.text(1, width.saturating_sub(2), &text, model.style(message.level.role()));
    }
}

/// Keys that do something now, as far as there is room.
fn keys(model: &Model, screen: Option<&dyn screens::Screen>, pen: &mut Pen<'_>) {
    let width = pen.width();
    let mut x: u16 = 1;
    let wide = |keys: &str, text: &str| u16::try_from(format::width(keys) + format::width(text) + 1).unwrap_or(u16::MAX);
    let mut put = |keys: &str, text: &str, kept: u16| {
        if x.saturating_add(wide(keys, text)).saturating_add(kept) >= width {
            return false;
        }
        x = pen.text(x, width, keys, model.style(Role::Key)) + 1;
        x = pen.text(x, width, text, model.style(Role::Muted)) + 2;
        true
    };
    if let Some(overlay) = model.overlays.last() {
        for (keys, text) in overlay.keys() {
            put(keys, text, 0);
        }
        return;
    }
    let typing = screen.map_or(&[][..], |screen| screen.input_keys());
    for (keys, text) in typing {
        put(keys, text, 0);
    }
    if !typing.is_empty() {
        return;
    }
    let binding = |command: &Command| {
        let bindings = model.keymap.bindings().iter();
        bindings.filter(|_| model.enabled(*command).is_ok()).find(|binding| binding.command == *command)
    };
    let hints = screen.map_or(&[][..], |screen| screen.hints());
    // The way to all the others stays, however little room there is.
    let mut help = hints.iter().find(|command| **command == Command::Help).and_then(binding);
    for command in hints {
        let Some(it) = binding(command) else { continue };
        if *command == Command::Help {
            help = None;
        }
        let kept = help.map_or(0, |help| wide(&help.keys(), &help.desc) + 2);
        if !put(&it.keys(), &it.desc, kept) {
            if let Some(help) = help {
                put(&help.keys(), &help.desc, 0);
            }
            break;
        }
    }
}

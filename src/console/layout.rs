//! Breakpoints: what is shown at which terminal size.

use ratatui::layout::Rect;

/// The smallest terminal the console works in.
pub const FLOOR: (u16, u16) = (60, 15);

/// What fits. Ordered: a later one shows all that an earlier one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Below the floor: a notice, and keys that leave. Nothing is chosen or confirmed unseen.
    TooSmall,
    /// From 60x15: the list, and a header of one line.
    List,
    /// From 80x24: one line about the selected node below the list.
    Line,
    /// From 100x24: a detail pane beside or below the list.
    Detail,
    /// From 140x35: list, detail and the steps with their durations.
    Full,
}

pub fn tier(width: u16, height: u16) -> Tier {
    match (width, height) {
        (w, h) if w < FLOOR.0 || h < FLOOR.1 => Tier::TooSmall,
        (w, h) if w >= 140 && h >= 35 => Tier::Full,
        (w, h) if w >= 100 && h >= 24 => Tier::Detail,
        (w, h) if w >= 80 && h >= 24 => Tier::Line,
        _ => Tier::List,
    }
}

/// The parts of a frame from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub tier: Tier,
    pub header: Rect,
    /// Screen tabs and the fleet's gauge; empty in `List`.
    pub tabs: Rect,
    /// Which key to press next; empty when there is no hint.
    pub hint: Rect,
    pub body: Rect,
    /// One message.
    pub status: Rect,
    /// What the keys do here.
    pub keys: Rect,
}

pub fn frame(area: Rect, hint: bool) -> Frame {
    let tier = tier(area.width, area.height);
    let mut rest = area;
    let mut top = |height: u16| {
        let height = height.min(rest.height);
        let part = Rect { height, ..rest };
        rest = Rect { y: rest.y + height, height: rest.height - height, ..rest };
        part
    };
    let header = top(1);
    let tabs = top(u16::from(tier > Tier::List));
    let hint = top(u16::from(hint));
    let below = 2.min(rest.height);
    let body = Rect { height: rest.height - below, ..rest };
    let status = Rect { y: body.bottom(), height: below.min(1), ..rest };
    let keys = Rect { y: status.bottom(), height: below - status.height, ..rest };
    Frame { tier, header, tabs, hint, body, status, keys }
}

/// A box of at most `width` x `height` in the middle of `area`; never outside it.
pub fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

/// `left` cells for the first part.
pub fn split_columns(area: Rect, left: u16) -> (Rect, Rect) {
    let left = left.min(area.width);
    (Rect { width: left, ..area }, Rect { x: area.x + left, width: area.width - left, ..area })
}

/// `top` lines for the first part.
pub fn split_rows(area: Rect, top: u16) -> (Rect, Rect) {
    let top = top.min(area.height);
    (Rect { height: top, ..area }, Rect { y: area.y + top, height: area.height - top, ..area })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints() {
        let sizes = [(59, 15), (60, 14), (60, 15), (80, 24), (100, 24), (140, 34), (140, 35)];
        let tiers = [Tier::TooSmall, Tier::TooSmall, Tier::List, Tier::Line, Tier::Detail, Tier::Detail, Tier::Full];
        assert_eq!(sizes.map(|(w, h)| tier(w, h)), tiers);
    }

    #[test]
    fn parts_never_leave_the_frame() {
        for (w, h) in (0..=12).flat_map(|w| (0..=12).map(move |h| (w, h))) {
            let area = Rect::new(0, 0, w, h);
            let f = frame(area, true);
            for part in [f.header, f.tabs, f.hint, f.body, f.status, f.keys, centered(area, 8, 5)] {
                assert_eq!(part.intersection(area), part, "{w}x{h}");
            }
        }
    }
}

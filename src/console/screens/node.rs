//! The Node screen: all that is known of one component on one node, what is awaited, and what comes next.

use super::{
    super::{
        command::{Command, Scope},
        effect::Effect,
        facts::RowKey,
        layout,
        model::Model,
        theme::Role,
        widgets::{pane::pane, pen::Pen, scroll::Viewport},
    },
    Screen, describe, distance,
};

#[derive(Default)]
pub struct Node {
    left: Viewport,
    right: Viewport,
    lines: (usize, usize),
    on_right: bool,
    /// Of which node the pages are.
    shown: Option<RowKey>,
}

/// From this width facts stand beside the story instead of below it.
const TWO_PANES: u16 = 110;

impl Screen for Node {
    fn id(&self) -> &'static str {
        "node"
    }

    fn title(&self) -> &'static str {
        "Node"
    }

    fn scopes(&self) -> &'static [Scope] {
        &[Scope::Node, Scope::Handoff, Scope::List]
    }

    fn hints(&self) -> &'static [Command] {
        use Command::*;
        &[Back, NextNode, HandOver, Abort, Retry, RollBack, Leave, Hold, Continue, Withdraw, Copy, Help, Palette, Quit]
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Option<Vec<Effect>> {
        let two = model.size.0 >= TWO_PANES;
        let right = self.on_right && two;
        let height = if right { self.right.height } else { self.left.height };
        if let Some(by) = distance(command, height) {
            match right {
                true => self.right.scroll(by, self.lines.1),
                false => self.left.scroll(by, self.lines.0),
            }
            return Some(Vec::new());
        }
        if matches!(command, Command::NextPane | Command::PreviousPane) {
            self.on_right = !self.on_right && two;
            return Some(Vec::new());
        }
        None
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        if self.shown != model.selected {
            self.shown = model.selected.clone();
            (self.left.top, self.right.top) = (0, 0);
        }
        let area = pen.area();
        let title = model.selected.as_ref().map_or("No node".to_owned(), |key| format!("{} on {}", key.component, key.node));
        let two = area.width >= TWO_PANES;
        self.on_right &= two;
        let (left, right) = layout::split_columns(area, if two { area.width * 11 / 20 } else { area.width });
        let inner = pane(&mut pen.within(left), &title, !self.on_right, &model.theme, model.glyphs);
        let facts = match model.selection() {
            Ok(facts) => facts,
            Err(reason) => {
                pen.within(inner).text(1, inner.width, &reason.0, model.style(Role::Warn));
                return;
            }
        };
        let width = usize::from(inner.width.saturating_sub(1));
        let mut lines = describe::story(model, &facts, width);
        if !two {
            lines.push(Vec::new());
            lines.extend(describe::facts(model, &facts, width));
        }
        self.lines.0 = lines.len();
        describe::draw(model, &mut pen.within(inner), &lines, &mut self.left);
        if two {
            let inner = pane(&mut pen.within(right), "Facts", self.on_right, &model.theme, model.glyphs);
            let lines = describe::facts(model, &facts, usize::from(inner.width.saturating_sub(1)));
            self.lines.1 = lines.len();
            describe::draw(model, &mut pen.within(inner), &lines, &mut self.right);
        }
    }
}

//! The confirmation of what evicts workloads: the node's name typed. Enter cancels until the name stands there.

use ratatui::layout::Rect;

use super::{Answer, Overlay, buttons::Buttons, plan::headline};
use crate::console::{
    command::Command,
    enabled, format,
    messages::Level,
    model::Model,
    operate::{self, Purpose},
    plan::{Plan, Request},
    theme::Role,
    widgets::{field::Field, pen::Pen},
};

pub struct Confirm {
    purpose: Purpose,
    request: Request,
    plan: Plan,
    field: Field,
    buttons: Buttons,
    /// The plan became another one while this was open: what had been typed was for the old one.
    changed: bool,
}

impl Confirm {
    pub fn new(purpose: Purpose, request: Request, plan: Plan) -> Self {
        Self { purpose, request, plan, field: Field::default(), buttons: Buttons::default(), changed: false }
    }

    /// The word to type: the first node's name.
    fn word(&self) -> &str {
        self.request.nodes.first().map_or("", |target| target.node.as_str())
    }

    fn matches(&self) -> bool {
        self.field.text() == self.word() && !self.word().is_empty()
    }

    fn summary(&self) -> Vec<String> {
        let pods = |n| if n == 0 { "no pod is moved".to_owned() } else { format::count(n, "pod") + " to move" };
        self.plan
            .nodes
            .iter()
            .enumerate()
            .map(|(at, node)| {
                let refused = if node.refusals.is_empty() { "" } else { "; refused now, it would wait" };
                format!("{:>3}. {}: {}{refused}", at + 1, node.node, pods(node.pods.len()))
            })
            .collect()
    }
}

impl Overlay for Confirm {
    fn id(&self) -> &'static str {
        "confirm"
    }

    fn title(&self, _: &Model) -> String {
        format!("{}?", headline(self.purpose, &self.request))
    }

    fn size(&self, _: &Model, width: u16) -> (u16, u16) {
        let nodes = u16::try_from(self.plan.nodes.len()).unwrap_or(u16::MAX);
        (width.min(78), nodes.saturating_add(10 + u16::from(self.changed) * 2))
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Answer {
        match command {
            Command::NextPane | Command::PreviousPane => self.buttons.on_act = self.matches() && !self.buttons.on_act,
            Command::Back => return Answer::close(),
            Command::Accept if !self.buttons.on_act || !self.matches() => {
                let typed = self.field.text();
                match typed.is_empty() || self.matches() {
                    true => model.note(Level::Info, "cancelled: nothing was done"),
                    false => model.note(Level::Warn, format!("cancelled: nothing was done, {typed:?} is not {}", self.word())),
                }
                return Answer::close();
            }
            Command::Accept => {
                if let Err(reason) = enabled::writable(model) {
                    model.note(Level::Warn, format!("{}: {reason}", self.purpose.verb()));
                    return Answer::close();
                }
                let Some(intent) = self.purpose.intent(&self.request) else { return Answer::close() };
                let effect = operate::submit(model, headline(self.purpose, &self.request), intent);
                model.started = true;
                // The marks were the draft of this order.
                model.marks.retain(|key| !self.request.nodes.iter().any(|target| target.node == key.node));
                return Answer::close_with(vec![effect]);
            }
            _ => {}
        }
        Answer::stay()
    }

    fn field(&mut self) -> Option<&mut Field> {
        Some(&mut self.field)
    }

    fn typed(&mut self, _: &mut Model) -> Answer {
        self.buttons.on_act = self.matches();
        Answer::stay()
    }

    fn refresh(&mut self, model: &mut Model) -> Answer {
        let plan = (model.planner)(&model.picture, &self.request);
        if !plan.can_be_queued() {
            model.note(Level::Warn, "the plan is refused now: read it");
            return Answer::replace(Box::new(super::plan::PlanDialog::new(self.purpose, self.request.clone(), plan)));
        }
        if !plan.says_the_same(&self.plan) {
            self.changed = true;
            self.field.clear();
            self.buttons.on_act = false;
        }
        self.plan = plan;
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let area = pen.area();
        let text = model.style(Role::Text);
        let mut y = 1;
        let summary = self.summary();
        let room = usize::from(area.height.saturating_sub(7 + u16::from(self.changed) * 2)).max(1);
        let cut = summary.len() > room;
        for line in summary.iter().take(if cut { room - 1 } else { room }) {
            pen.line(y).text(0, area.width, line, text);
            y += 1;
        }
        if cut {
            let more = format!("     and {} more, in the order of the plan", summary.len() + 1 - room);
            pen.line(y).text(0, area.width, &more, model.style(Role::Muted));
            y += 1;
        }
        y += 1;
        if self.changed {
            let notice = format!(
                " {} The plan changed while this was open: {} now. Read it above, then type again. ",
                model.glyphs.warn,
                format::count(self.plan.pods(), "pod")
            );
            pen.line(y).text(1, area.width.saturating_sub(2), &notice, model.style(Role::Danger));
            y += 2;
        }
        let mut ask = pen.line(y);
        let x = ask.text(1, area.width, "Type ", text);
        let x = ask.text(x, area.width, self.word(), model.style(Role::Key));
        ask.text(x, area.width, " to confirm:", text);
        let line =
            Rect { x: area.x + 1, y: area.y.saturating_add(y + 1), width: area.width.saturating_sub(2).min(60), height: 1 };
        self.field.draw(&mut pen.within(line), &model.theme);
        let act = self.purpose.verb();
        self.buttons.draw(model, &mut pen.line(area.height.saturating_sub(1)), "Cancel", act, true);
    }

    fn hint(&self) -> String {
        "Type the node's name as shown, then press Enter. Esc cancels.".to_owned()
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("type the name", "then enter"), ("esc", "cancel")]
    }
}

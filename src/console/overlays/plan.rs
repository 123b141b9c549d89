//! The plan: what exactly will happen, before anything does. Enter goes on to the typed confirmation.

use super::{Answer, Overlay, confirm::Confirm};
use crate::console::{
    command::Command,
    format,
    messages::Level,
    model::Model,
    operate::Purpose,
    plan::{self, NodePlan, Plan, Request},
    theme::Role,
    widgets::{
        pen::{Pen, Span},
        scroll::{self, Viewport},
    },
};
use crate::handoff::plan::Write;

pub struct PlanDialog {
    purpose: Purpose,
    request: Request,
    plan: Plan,
    view: Viewport,
    lines: usize,
    changed: bool,
}

impl PlanDialog {
    pub fn new(purpose: Purpose, request: Request, plan: Plan) -> Self {
        Self { purpose, request, plan, view: Viewport::default(), lines: 0, changed: false }
    }
}

/// `Hand over gpu-n1 of ns/gpu to 2.0`.
pub(super) fn headline(purpose: Purpose, request: &Request) -> String {
    let nodes = match &request.nodes[..] {
        [one] => one.node.to_string(),
        many => format::count(many.len(), "node"),
    };
    format!("{} {nodes} of {} to {}", purpose.verb(), request.component, request.to)
}

/// `1 node would wait`.
pub(super) fn waiting(plan: &Plan) -> String {
    format!("{} would wait", format::count(plan.refused_nodes(), "node"))
}

type Line = Vec<Span>;

fn lines(model: &Model, plan: &Plan, changed: bool, width: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut say = |role: Role, sign: &str, text: &str| {
        let style = model.style(role);
        for (at, part) in format::wrap(text, width.saturating_sub(4)).into_iter().enumerate() {
            lines.push(vec![
                Span::new(if at == 0 { format!(" {sign} ") } else { "   ".to_owned() }, style),
                Span::new(part, style),
            ]);
        }
    };
    if changed {
        say(Role::Hint, model.glyphs.info, "The plan has changed since it was opened.");
    }
    for refusal in plan.refusals.iter().chain(plan.nodes.iter().flat_map(|node| &node.refusals)) {
        say(Role::Bad, model.glyphs.bad, &format!("refused: {refusal}"));
    }
    for warning in plan.warnings.iter().chain(plan.nodes.iter().flat_map(|node| &node.warnings)) {
        say(Role::Warn, model.glyphs.warn, warning);
    }
    for (at, node) in plan.nodes.iter().enumerate() {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.extend(node_lines(model, at, node, plan.nodes.len(), width));
    }
    steps(model, plan, width, &mut lines);
    lines
}

/// One list of steps, for they are the same on every node; what changes in them is each node's own.
fn steps(model: &Model, plan: &Plan, width: usize, lines: &mut Vec<Line>) {
    let (text, muted, title) = (model.style(Role::Text), model.style(Role::Muted), model.style(Role::Title));
    let Some(node) = plan.nodes.iter().find(|node| !node.steps.is_empty()) else { return };
    let one = plan.nodes.len() == 1;
    let change = |lines: &mut Vec<Line>, write: &Write| {
        for (part, words) in format::wrap(&plan::change(write), width.saturating_sub(11)).into_iter().enumerate() {
            let sign = if part == 0 { "       - " } else { "         " };
            lines.push(vec![Span::new(sign, muted), Span::new(words, muted)]);
        }
    };
    lines.push(Vec::new());
    let each = if one { "Then, one step after the other:" } else { "On each node, one node after the other:" };
    lines.push(vec![Span::new(format!(" {each}"), title)]);
    for (at, step) in node.steps.iter().enumerate() {
        for (part, words) in format::wrap(&step.to_string(), width.saturating_sub(8)).into_iter().enumerate() {
            let number = if part == 0 { format!(" {:>3}. ", at + 1) } else { " ".repeat(6) };
            lines.push(vec![Span::new(number, muted), Span::new(words, text)]);
        }
        step.changes.iter().filter(|_| one).for_each(|write| change(lines, write));
    }
    for (at, node) in plan.nodes.iter().enumerate().filter(|_| !one) {
        lines.push(Vec::new());
        lines.push(vec![Span::new(format!(" {}. {} ", at + 1, node.node), title), Span::new("in these steps:", muted)]);
        node.steps.iter().flat_map(|step| &step.changes).for_each(|write| change(lines, write));
    }
}

fn node_lines(model: &Model, at: usize, node: &NodePlan, of: usize, width: usize) -> Vec<Line> {
    let (text, muted, title) = (model.style(Role::Text), model.style(Role::Muted), model.style(Role::Title));
    let from = node.from.as_ref().map_or_else(|| "no version".to_owned(), |from| format!("from {from}"));
    let ordinal = if of > 1 { format!("{}. ", at + 1) } else { String::new() };
    let mut lines = vec![vec![
        Span::new(format!(" {ordinal}{} ", node.node), title),
        Span::new(format!("{from}; "), muted),
        Span::new(
            if node.pods.is_empty() {
                "no pod is moved".to_owned()
            } else {
                match node.pods.len() {
                    1 => "1 pod holds it".to_owned(),
                    n => format!("{n} pods hold it"),
                }
            },
            text,
        ),
    ]];
    for pod in &node.pods {
        let name = format::cut_middle(&pod.name, width / 2, model.glyphs.ellipsis).into_owned();
        let short = name.chars().count() + pod.what.chars().count() + pod.why.chars().count() + 8 < width;
        let mut line =
            vec![Span::new(format!("    {name} "), text), Span::new(format!("{} ", pod.what), model.style(Role::Waiting))];
        if short {
            line.push(Span::new(format!("({})", pod.why), muted));
        }
        lines.push(line);
        // The rule that makes it leave is what a person reads the plan for: it is never cut.
        for words in if short { Vec::new() } else { format::wrap(&pod.why, width.saturating_sub(8)) } {
            lines.push(vec![Span::new(format!("      {words}"), muted)]);
        }
    }
    for budget in &node.budgets {
        lines.push(vec![Span::new("    budget ", muted), Span::new(budget.clone(), text)]);
    }
    lines
}

impl Overlay for PlanDialog {
    fn id(&self) -> &'static str {
        "plan"
    }

    fn title(&self, _: &Model) -> String {
        format!("Plan: {}", headline(self.purpose, &self.request))
    }

    fn size(&self, model: &Model, width: u16) -> (u16, u16) {
        let width = width.min(100);
        let lines = lines(model, &self.plan, self.changed, usize::from(width.saturating_sub(3))).len();
        (width, u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(5))
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Answer {
        let page = self.view.height.max(1) as isize;
        match command {
            Command::Up => self.view.scroll(-1, self.lines),
            Command::Down => self.view.scroll(1, self.lines),
            Command::HalfUp | Command::PageUp => self.view.scroll(-page, self.lines),
            Command::HalfDown | Command::PageDown => self.view.scroll(page, self.lines),
            Command::Top => self.view.top = 0,
            Command::Bottom => self.view.scroll(isize::MAX, self.lines),
            Command::Back => return Answer::close(),
            Command::Accept if !self.plan.can_be_queued() => {
                model.note(Level::Warn, "this plan is refused: the first lines say why; unmark the node or repair it");
            }
            Command::Accept => {
                return Answer::replace(Box::new(Confirm::new(self.purpose, self.request.clone(), self.plan.clone())));
            }
            _ => {}
        }
        Answer::stay()
    }

    fn refresh(&mut self, model: &mut Model) -> Answer {
        let plan = (model.planner)(&model.picture, &self.request);
        self.changed |= !plan.says_the_same(&self.plan);
        self.plan = plan;
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let lines = lines(model, &self.plan, self.changed, usize::from(pen.width().saturating_sub(1)));
        self.lines = lines.len();
        let area = pen.area();
        let height = area.height.saturating_sub(2);
        let window = self.view.window(lines.len(), None, usize::from(height));
        let mut body = pen.within(ratatui::layout::Rect { height, ..area });
        for (y, line) in lines.get(window.clone()).unwrap_or_default().iter().enumerate() {
            body.line(y as u16).spans(0, line);
        }
        scroll::bar(&mut body, lines.len(), &window, &model.theme, model.glyphs);
        let (role, foot) = if !self.plan.can_be_queued() {
            (Role::Bad, "Nothing can be done as things stand. Esc goes back.".to_owned())
        } else if self.plan.is_refused() {
            (
                Role::Bad,
                format!("{} untouched in the queue until that is mended. Enter goes on all the same.", waiting(&self.plan)),
            )
        } else {
            (Role::Text, "Nothing has been done yet. Enter goes on to the confirmation, Esc goes back.".to_owned())
        };
        pen.line(area.height.saturating_sub(1)).text(1, area.width, &foot, model.style(role));
    }

    fn hint(&self) -> String {
        if self.plan.is_refused() {
            "Refused as things stand: the first lines say why. Esc goes back to choose another node; queued, it would wait."
                .to_owned()
        } else {
            "This is the plan: nothing has been done yet. Read it, then press Enter (Esc goes back).".to_owned()
        }
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("j/k", "read"), ("enter", "go on"), ("esc", "back")]
    }
}

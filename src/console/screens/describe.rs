//! A component on a node in words: what it waits for and what comes next, its claimants, its labels, its steps. Lines, not layout.

use ratatui::style::Style;

use super::super::{
    facts::{self, Facts, Runs, Standing},
    format,
    model::Model,
    plan,
    theme::Role,
    widgets::{
        pen::{Pen, Span},
        phase_strip,
        scroll::{self, Viewport},
    },
};
use super::volumes;
use crate::{
    api::Phase,
    drain::budget,
    fleet::{
        csi::revision_of,
        records::{ContainerState, PodRecord},
        view::IncomingReason,
    },
    handoff::verdict::Verdict,
};

pub type Line = Vec<Span>;

/// Draws a part of a document.
pub fn draw(model: &Model, pen: &mut Pen<'_>, lines: &[Line], view: &mut Viewport) {
    let window = view.window(lines.len(), None, usize::from(pen.height()));
    for (y, line) in lines.get(window.clone()).unwrap_or_default().iter().enumerate() {
        pen.line(y as u16).spans(0, line);
    }
    scroll::bar(pen, lines.len(), &window, &model.theme, model.glyphs);
}

/// Collects lines of one width.
pub(super) struct Page<'a> {
    pub model: &'a Model,
    width: usize,
    lines: Vec<Line>,
}

impl<'a> Page<'a> {
    fn new(model: &'a Model, width: usize) -> Self {
        Self { model, width, lines: Vec::new() }
    }

    fn style(&self, role: Role) -> Style {
        self.model.style(role)
    }

    pub fn head(&mut self, text: impl Into<String>) {
        if !self.lines.is_empty() {
            self.lines.push(Vec::new());
        }
        let style = self.style(Role::Title);
        self.lines.push(vec![Span::new(format!(" {}", text.into()), style)]);
    }

    /// A narrow page has no room to indent.
    fn indent(&self) -> usize {
        if self.width < 50 { 1 } else { 3 }
    }

    /// Wrapped text, indented.
    pub fn text(&mut self, role: Role, text: &str) {
        let (style, indent) = (self.style(role), self.indent());
        for part in format::wrap(&format::clean(text), self.width.saturating_sub(indent + 1)) {
            self.lines.push(vec![Span::new(format!("{:indent$}{part}", ""), style)]);
        }
    }

    /// `name   value`, the value wrapped beside the name.
    pub fn pair(&mut self, name: &str, role: Role, value: &str) {
        let (muted, style, indent) = (self.style(Role::Muted), self.style(role), self.indent());
        let wide = if self.width < 50 { 9 } else { 11 };
        let room = self.width.saturating_sub(wide + indent + 2);
        for (at, part) in format::wrap(&format::clean(value), room).into_iter().enumerate() {
            let name = format::cut(if at == 0 { name } else { "" }, wide, self.model.glyphs.ellipsis);
            self.lines.push(vec![Span::new(format!("{:indent$}{name:<wide$} ", ""), muted), Span::new(part, style)]);
        }
    }
}

/// What the node is doing or waiting for, in one line.
pub fn sentence(facts: &Facts<'_>) -> String {
    if let Some(doing) = facts.doing() {
        return doing.to_owned();
    }
    match facts.blocked() {
        Some(blocked) if blocked.object.is_empty() => format!("{}: {}", blocked.word, blocked.message),
        Some(blocked) => format!("{} ({}): {}", blocked.word, blocked.object, blocked.message),
        None => match (facts.version(), facts.target()) {
            (Some(version), Some(target)) => format!("runs {version}; the aim is {target}"),
            (Some(version), None) => format!("runs {version}"),
            (None, target) => {
                let runs = match facts.runs() {
                    Runs::Unknown => "what it runs is not known",
                    _ => "runs no version",
                };
                target.map_or_else(|| runs.to_owned(), |target| format!("{runs}; the aim is {target}"))
            }
        },
    }
}

/// The short form beside the list.
pub fn brief(model: &Model, width: usize) -> Vec<Line> {
    let facts = match model.selection() {
        Ok(facts) => facts,
        Err(reason) => {
            let mut page = Page::new(model, width);
            page.text(Role::Warn, &reason.0);
            return page.lines;
        }
    };
    let mut page = Page::new(model, width);
    now(&mut page, &facts);
    claimants(&mut page, &facts);
    if !volumes::section(&mut page, &facts) {
        labels(&mut page, &facts);
    }
    page.lines
}

/// What is awaited and why, who holds the device, and what happened so far.
pub fn story(model: &Model, facts: &Facts<'_>, width: usize) -> Vec<Line> {
    let mut page = Page::new(model, width);
    now(&mut page, facts);
    claimants(&mut page, facts);
    let steps = steps(model, facts, width);
    if !steps.is_empty() {
        page.head("Steps");
        page.lines.extend(steps);
    }
    ends(&mut page, facts);
    page.lines
}

/// Labels, pods of the component, the node, the handoff.
pub fn facts(model: &Model, facts: &Facts<'_>, width: usize) -> Vec<Line> {
    let mut page = Page::new(model, width);
    if !volumes::section(&mut page, facts) {
        labels(&mut page, facts);
    }
    pods(&mut page, facts);
    node(&mut page, facts);
    handoff(&mut page, facts);
    page.lines
}

fn now(page: &mut Page<'_>, facts: &Facts<'_>) {
    let model = page.model;
    let mut head = vec![Span::new(" ", page.style(Role::Text))];
    if let Some(phase) = facts.strip_phase() {
        for step in phase_strip::steps(facts.phases(), phase, facts.last_step(), facts.is_stuck()) {
            head.push(Span::new(step.sign(model.glyphs), page.style(step.role())));
        }
        head.push(Span::new(" ", page.style(Role::Text)));
    }
    head.push(Span::new(facts.word(), page.style(Role::Title)));
    let running = matches!(facts.standing(), Standing::Running | Standing::Ended | Standing::Queued);
    if let Some(since) = facts.since().filter(|_| running) {
        head.push(Span::new(format!(" for {}", model.age(since)), page.style(Role::Muted)));
    }
    if facts.is_aborting() {
        head.push(Span::new(", aborting", page.style(Role::Waiting)));
    }
    page.lines.push(head);
    let versions = match (facts.from(), facts.target()) {
        (Some(from), Some(to)) if from != to => format!("{from} {} {to}", model.glyphs.arrow),
        (Some(version), _) => version.to_owned(),
        (None, to) => {
            let from = if facts.runs() == Runs::Unknown { "unknown" } else { "no version" };
            to.map_or_else(|| from.to_owned(), |to| format!("{from} {} {to}", model.glyphs.arrow))
        }
    };
    page.pair("version", Role::Text, &versions);
    let recorded = facts.recorded();
    match facts.verdict {
        _ if !recorded.is_empty() => {
            let shown = recorded.iter().map(|it| {
                let said = facts.said_of(it);
                let text = facts::of_object(&said.object, &said.message);
                Awaited { word: it.kind.clone(), text, since: said.since.unwrap_or_else(|| model.now()) }
            });
            waits_for(page, &shown.collect::<Vec<_>>());
        }
        Some(Verdict::Act(action)) => page.pair("doing", Role::Active, &action.why),
        Some(Verdict::Wait(wait)) => {
            let shown = wait.blockers.iter().map(|it| {
                let said = facts.said(it);
                Awaited { word: it.kind.word(), text: facts::of_object(&said.object, &said.message), since: it.since }
            });
            waits_for(page, &shown.collect::<Vec<_>>());
            if !wait.next.is_empty() {
                page.pair("then", Role::Text, &wait.next);
            }
        }
        Some(Verdict::Failed { reason }) => page.pair("failed", Role::Bad, &format!("{}: {}", reason.word, reason.message)),
        Some(Verdict::Done) | None => {
            if let Some(blocked) = facts.blocked() {
                page.pair("because", Role::Waiting, &format!("{} {}", blocked.word, blocked.object));
                page.pair("", Role::Text, &blocked.message);
            }
        }
    }
    if facts.standing() == Standing::Ended {
        page.pair("your turn", Role::Key, "R tries again, B rolls back, L leaves the node as it is and frees its slot");
    }
    for garbage in &facts.occupancy.labels.garbage {
        page.pair("garbage", Role::Bad, &garbage.to_string());
    }
}

/// A blocker in words.
struct Awaited {
    word: String,
    text: String,
    since: jiff::Timestamp,
}

/// Many of one kind are one wait.
fn waits_for(page: &mut Page<'_>, blockers: &[Awaited]) {
    for alike in blockers.chunk_by(|a, b| a.word == b.word) {
        let since = alike.iter().map(|it| it.since).min().map(|since| page.model.age(since)).unwrap_or_default();
        let many = if alike.len() > 1 { format!(" ({})", alike.len()) } else { String::new() };
        let word = alike.first().map(|it| it.word.as_str()).unwrap_or_default();
        page.pair("waits for", Role::Waiting, &format!("{word}{many} for {since}"));
        for it in alike {
            page.pair("", Role::Text, &it.text);
        }
    }
}

fn claimants(page: &mut Page<'_>, facts: &Facts<'_>) {
    let occupancy = facts.occupancy;
    page.head(format!("Claimants ({})", occupancy.claimants.len()));
    if occupancy.claimants.is_empty() {
        page.text(Role::Muted, "no pod would break if it went away now");
    }
    let mut budgets = std::collections::BTreeMap::new();
    let outlooks = plan::outlooks(facts);
    for claimant in &occupancy.claimants {
        let (indent, ellipsis) = (page.indent(), page.model.glyphs.ellipsis);
        let room = page.width.saturating_sub(indent + 1);
        let key = claimant.pod.key.to_string();
        let name = format::cut_middle(&key, room, ellipsis).into_owned();
        let style = page.style(Role::Text);
        page.lines.push(vec![Span::new(format!("{:indent$}{name}", ""), style)]);
        let fate = outlooks.get(&claimant.pod.meta.uid).map_or_else(|| plan::class(claimant.class), String::as_str);
        page.text(Role::Muted, &format!("  {}, {fate}", plan::reason(&claimant.why)));
        for view in budget::of(&claimant.pod, &facts.picture.fleet.budgets) {
            budgets.insert(view.record.key.clone(), view);
        }
    }
    for incoming in &occupancy.incoming {
        let why = match &incoming.why {
            IncomingReason::Nominated => "nominated for this node".to_owned(),
            IncomingReason::VolumeSelectedNode { claim } => format!("PersistentVolumeClaim {claim} has chosen this node"),
            IncomingReason::ClaimOnlyHere { claim } => format!("ResourceClaim {claim} is allocated here only"),
        };
        page.text(Role::Waiting, &format!("{} is on its way: {why}", incoming.pod.key));
    }
    for claim in &occupancy.reserved_claims {
        page.text(Role::Waiting, &format!("ResourceClaim {claim} is still reserved"));
    }
    if !budgets.is_empty() {
        page.head("Their PodDisruptionBudgets");
    }
    for (key, view) in budgets {
        let role = if view.record.disruptions_allowed > 0 { Role::Text } else { Role::Waiting };
        page.text(role, &format!("{key}: {}", budget::arithmetic(view)));
        if !view.unhealthy.is_empty() {
            page.text(Role::Muted, &format!("  {}", budget::culprits(view)));
        }
        if let Some(failed) = &view.record.sync_failed {
            page.text(Role::Bad, &format!("  it allows nothing: {}", failed.message));
        }
    }
}

fn labels(page: &mut Page<'_>, facts: &Facts<'_>) {
    let labels = &facts.occupancy.labels;
    page.head("Labels");
    let value = |value: &Option<crate::api::Version>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    page.pair("D desired", Role::Text, &value(&labels.desired));
    page.pair("L loader", Role::Text, &value(&labels.loader));
    page.pair("P plugin", Role::Text, &value(&labels.plugin));
    page.pair("ready", Role::Text, &value(&labels.ready));
    let record = labels.loaded.as_ref().map_or_else(
        || "-".to_owned(),
        |loaded| match &loaded.stopped_boot {
            Some(boot) => format!("{}, loader gone in boot {boot}", loaded.version),
            None => loaded.version.to_string(),
        },
    );
    page.pair("R record", Role::Text, &record);
    if facts.occupancy.kmm.is_some() {
        let (role, loaded) = match facts.runs() {
            Runs::Proven(version) => (Role::Good, format!("{version}, as KMM has recorded in this boot")),
            Runs::Nothing => (Role::Text, "nothing".to_owned()),
            Runs::Unknown => (Role::Waiting, "unknown: nothing proves what is in the kernel".to_owned()),
        };
        page.pair("loaded", role, &loaded);
    }
    if let Some(nonce) = &labels.nonce {
        page.pair("nonce", Role::Muted, nonce);
    }
    if let Some(mark) = &labels.mark {
        page.pair(
            "mark",
            Role::Muted,
            &format!("attempt {}, epoch {}, desired label {:?}", mark.attempt, mark.epoch, mark.desired),
        );
    }
}

fn pods(page: &mut Page<'_>, facts: &Facts<'_>) {
    let occupancy = facts.occupancy;
    let groups = [("loader", &occupancy.loader_pods), ("plugin", &occupancy.plugin_pods), ("unload", &occupancy.unload_pods)];
    if groups.iter().all(|(_, pods)| pods.is_empty()) {
        return;
    }
    page.head("Pods of the component");
    for (role, pods) in groups {
        for pod in pods {
            page.pair(role, Role::Text, &pod_line(pod));
        }
    }
}

pub(super) fn pod_line(pod: &PodRecord) -> String {
    let version = pod.labels.get(crate::api::keys::VERSION).or_else(|| revision_of(pod)).map_or("?", |version| version);
    let ready = if pod.ready.is_true() { "ready" } else { "not ready" };
    let leaving = if pod.meta.deletion.is_some() { ", leaving" } else { "" };
    let mut line = format!("{} {version}: {:?}, {ready}{leaving}", pod.key.name, pod.phase);
    for container in pod.extra.iter().flat_map(|extra| &extra.containers) {
        match &container.state {
            ContainerState::Waiting { reason, message } => line += &format!("; {} waits: {reason} {message}", container.name),
            ContainerState::Terminated { exit_code, message, .. } if *exit_code != 0 => {
                line += &format!("; {} ended with {exit_code}: {message}", container.name);
            }
            _ => {}
        }
        if container.restarts > 0 {
            line += &format!(
                "; {} restarted {}",
                container.name,
                format::count(usize::try_from(container.restarts).unwrap_or(0), "time")
            );
        }
    }
    line
}

fn node(page: &mut Page<'_>, facts: &Facts<'_>) {
    let model = page.model;
    page.head("Node");
    let Some(record) = facts.node.record.as_deref() else {
        page.text(Role::Bad, "the Node object does not exist");
        return;
    };
    let since = record.ready.since.map(|since| format!(" for {}", model.age(since))).unwrap_or_default();
    let (role, ready) = if record.ready.is_true() { (Role::Good, "yes") } else { (Role::Bad, "no") };
    page.pair("Ready", role, &format!("{ready}{since}"));
    let cordon = match (record.unschedulable, &facts.node.cordon) {
        (false, _) => "open".to_owned(),
        (true, Some(Ok(owners))) => format!("closed by lockkeeper for {}", owners.owners.join(", ")),
        (true, Some(Err(garbage))) => format!("closed; the annotation does not parse: {garbage}"),
        (true, None) => "closed by somebody else".to_owned(),
    };
    page.pair("scheduling", if record.unschedulable { Role::Waiting } else { Role::Text }, &cordon);
    for taint in &record.taints {
        page.pair("taint", Role::Muted, &format!("{}={}:{}", taint.key, taint.value, taint.effect));
    }
    for (name, count) in &facts.occupancy.allocatable {
        page.pair("allocatable", Role::Text, &format!("{count} {name}"));
    }
    for (driver, count) in &facts.occupancy.slices {
        page.pair("devices", Role::Text, &format!("{count} of {driver}"));
    }
    page.pair("kernel", Role::Muted, &record.kernel);
    page.pair("boot", Role::Muted, record.boot_id.as_str());
    if let Some(renewed) = facts.node.lease.as_ref().and_then(|lease| lease.renewed) {
        page.pair("heartbeat", Role::Muted, &format!("{} ago", model.age(renewed)));
    }
}

fn handoff(page: &mut Page<'_>, facts: &Facts<'_>) {
    let Some(handoff) = facts.handoff() else { return };
    page.head(format!("NodeHandoff {}", handoff.key));
    match &handoff.spec {
        Err(why) => page.text(Role::Bad, &format!("cannot be read: {why}")),
        Ok(spec) => {
            let without = if facts.follows_aim(spec) { "what is current then" } else { "out of service" };
            page.pair("to", Role::Text, spec.version.as_deref().unwrap_or(without));
            page.pair("asked by", Role::Muted, if spec.requested_by.is_empty() { "unknown" } else { &spec.requested_by });
            if !spec.reason.is_empty() {
                page.pair("reason", Role::Muted, &spec.reason);
            }
            page.pair("attempt", Role::Muted, &spec.attempt.to_string());
            page.pair("action", Role::Muted, &format!("{:?}", spec.action));
            for over in &spec.overrides {
                page.pair("override", Role::Warn, &format!("pod {} until {}: {}", over.pod_uid, over.until, over.reason));
            }
        }
    }
    if let Some(run) = &handoff.status.run {
        page.pair("from", Role::Muted, run.from.as_deref().unwrap_or("no version"));
        for (name, count) in &run.baseline {
            page.pair("baseline", Role::Muted, &format!("{count} {name}"));
        }
    }
    if let Some(unload) = &handoff.status.unload {
        page.pair("unload", Role::Bad, &format!("try {} ended with {}: {}", unload.tries, unload.exit_code, unload.message));
    }
}

/// Each step with how long it took, and a bar; the running one counts on.
pub fn steps(model: &Model, facts: &Facts<'_>, width: usize) -> Vec<Line> {
    let Some(status) = facts.status() else { return Vec::new() };
    if status.phase == Phase::Queued {
        // What its status has of steps is a former attempt's.
        let open = |phase: Phase| {
            vec![
                Span::new(format!("   {} ", model.glyphs.ahead), model.style(Role::Muted)),
                Span::new(phase.as_str(), model.style(Role::Muted)),
            ]
        };
        return plan::phases(facts).into_iter().map(open).collect();
    }
    let failed = status.phase == Phase::Failed;
    let took: Vec<(Phase, Option<i64>, bool)> = status
        .steps
        .iter()
        .map(|step| {
            let started = facts::time(&step.started_at);
            let finished = step.finished_at.as_deref().and_then(facts::time);
            let seconds = started.map(|started| match finished {
                Some(finished) => format::seconds_between(started, finished),
                None => model.seconds(started),
            });
            (step.phase, seconds, finished.is_some())
        })
        .collect();
    let longest = took.iter().filter_map(|(_, seconds, _)| *seconds).max().unwrap_or(0).max(1);
    let room = i64::try_from(width.saturating_sub(30)).unwrap_or(0).clamp(0, 40);
    took.iter()
        .enumerate()
        .map(|(at, (phase, seconds, finished))| {
            let (role, sign) = match finished {
                // The end of the handoff ended this step, too; it did not end well.
                true if failed && at + 1 == took.len() => (Role::Bad, model.glyphs.bad),
                true => (Role::Good, model.glyphs.good),
                false => (Role::Active, model.glyphs.running),
            };
            let (muted, style) = (model.style(Role::Muted), model.style(role));
            let bar = seconds.map_or(0, |seconds| (seconds * room / longest).max(i64::from(room > 0)));
            vec![
                Span::new(format!("   {sign} "), style),
                Span::new(format!("{:<15}", phase.as_str()), model.style(Role::Text)),
                Span::new(format!("{:>7} ", seconds.map(format::age).unwrap_or_default()), muted),
                Span::new(model.glyphs.gauge_full.repeat(usize::try_from(bar).unwrap_or(0)), style),
            ]
        })
        .collect()
}

fn ends(page: &mut Page<'_>, facts: &Facts<'_>) {
    let Some(status) = facts.status() else { return };
    if !status.proofs.is_empty() {
        let former = status.run.as_ref().filter(|_| status.phase == Phase::Queued);
        page.head(
            former.map_or_else(|| "Proofs".to_owned(), |run| format!("Proofs of attempt {}, which has ended", run.attempt)),
        );
    }
    for proof in &status.proofs {
        page.pair(proof.phase.as_str(), Role::Text, &proof.fact);
    }
    if !status.history.is_empty() {
        page.head("Earlier attempts");
    }
    for ended in &status.history {
        let why = ended.reason.as_ref().map_or_else(String::new, |reason| format!(", {}: {}", reason.word, reason.message));
        let target = ended.target.as_deref().unwrap_or("out of service");
        page.text(Role::Muted, &format!("{}. {} to {target}{why}", ended.attempt, ended.phase));
    }
}

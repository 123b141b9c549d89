//! The recorded stories of a real KMM operator (`tests/kmm/recorded.txt`), parsed.

/// What was recorded; the file's head says of what.
const RECORDED: &str = include_str!("../../../tests/kmm/recorded.txt");

#[derive(Debug, Clone, Default)]
pub struct Story {
    pub name: String,
    pub start: Start,
    pub steps: Vec<Step>,
}

/// The state before the first step, which was not recorded.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Version of the Module; None: there is none.
    pub module: Option<String>,
    /// Versions on node-a and node-b.
    pub nodes: Vec<String>,
    /// Version labels that the nodes have before there is a Module.
    pub labels: Option<String>,
    pub dra: bool,
    pub tolerates: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Step {
    pub text: String,
    pub events: Vec<Event>,
}

#[derive(Debug, Clone)]
pub struct Event {
    /// Since the step began.
    pub ms: u64,
    /// `user`, `kmm`, `kcm`, `kubelet`.
    pub who: String,
    pub what: String,
}

pub fn stories() -> Vec<Story> {
    let mut stories: Vec<Story> = Vec::new();
    for line in RECORDED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("story ") {
            let name = rest.split(' ').next().unwrap_or_default().to_owned();
            stories.push(Story { name, ..Story::default() });
            continue;
        }
        let story = stories.last_mut().expect("a story begins the file");
        if let Some(rest) = line.strip_prefix("start ") {
            story.start = start(rest);
        } else if let Some(text) = line.strip_prefix("step ") {
            story.steps.push(Step { text: text.to_owned(), events: Vec::new() });
        } else {
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let event = Event { ms: word().parse().expect("milliseconds"), who: word(), what: word() };
            story.steps.last_mut().expect("a step before its events").events.push(event);
        }
    }
    stories
}

fn start(text: &str) -> Start {
    let mut start = Start::default();
    for word in text.split(' ') {
        match word.split_once('=') {
            Some(("module", version)) => start.module = Some(version.to_owned()),
            Some(("nodes", versions)) => start.nodes = versions.split(',').map(str::to_owned).collect(),
            Some(("labels", version)) => start.labels = Some(version.to_owned()),
            _ => (start.dra, start.tolerates) = (start.dra || word == "dra", start.tolerates || word == "tolerates"),
        }
    }
    start
}

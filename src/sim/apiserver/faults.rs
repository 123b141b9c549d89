//! Faults as data: which requests are hit, how, and how often. Finite by construction, so that runs end.
//! Draws come from the plan's own seeded dice; what a fault does is in `server`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::call::Verb;
use crate::sim::clock::Dice;

/// A request as a fault plan sees it.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    pub client: &'a str,
    pub user: &'a str,
    pub verb: Verb,
    /// `pods`, `nodes/status`, `daemonsets.apps`; empty for discovery.
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Counts this client's requests from 1.
    pub nth_request: u64,
    /// Counts this client's writes from 1; 0 for reads.
    pub nth_write: u64,
    /// Virtual time since the start.
    pub at: Duration,
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// 409 as if somebody had been faster.
    Conflict409,
    /// Priority and fairness: no DisruptionBudget cause.
    TooMany429 {
        retry_after: Option<u32>,
    },
    /// 500, 503 or 504 and the like, nothing done.
    Status(u16),
    Forbidden,
    /// Answered later than usual.
    Delay(Duration),
    /// Never answered, nothing done.
    Hang,
    /// A broken connection before anything was done.
    Refused,
    /// A watch that ends this long after its start, without a word.
    CutWatch {
        after: Duration,
    },
    /// 410: in the stream of a watch, or as the HTTP status if `http`.
    Gone410 {
        http: bool,
    },
    /// Reads at resourceVersion 0 are answered from a view this old.
    StaleList {
        age: Duration,
    },
    /// A watch that is told everything late: at least `constant`, at most `spread` more.
    LagWatch {
        constant: Duration,
        spread: Duration,
    },
    /// Done, but the answer is a broken connection.
    AppliedButResponseLost,
    /// Done; then the client is dead. With `before_response` it never sees the answer.
    Crash {
        before_response: bool,
    },
}

impl Action {
    /// The name in counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conflict409 => "conflict-409",
            Self::TooMany429 { .. } => "too-many-429",
            Self::Status(500) => "status-500",
            Self::Status(503) => "status-503",
            Self::Status(504) => "status-504",
            Self::Status(_) => "status-other",
            Self::Forbidden => "forbidden-403",
            Self::Delay(_) => "delay",
            Self::Hang => "hang",
            Self::Refused => "refused",
            Self::CutWatch { .. } => "cut-watch",
            Self::Gone410 { .. } => "gone-410",
            Self::StaleList { .. } => "stale-list",
            Self::LagWatch { .. } => "lag-watch",
            Self::AppliedButResponseLost => "response-lost",
            Self::Crash { .. } => "crash",
        }
    }
}

/// Decides about each request. Called in arrival order; must depend on nothing but its own state and its arguments.
pub trait FaultPlan: Send {
    fn decide(&mut self, seen: &Seen<'_>) -> Option<Action>;
}

/// Which requests a fault may hit; an unset field matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    pub client: Option<String>,
    pub user: Option<String>,
    pub verbs: Vec<Verb>,
    /// As in `Seen::resource`; a trailing `*` matches any rest.
    pub resource: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// The client's n-th write, and only that.
    pub nth_write: Option<u64>,
    pub nth_request: Option<u64>,
}

impl Matcher {
    pub fn any() -> Self {
        Self::default()
    }
    pub fn writes() -> Self {
        Self { verbs: vec![Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection], ..Self::default() }
    }
    pub fn verb(verb: Verb) -> Self {
        Self { verbs: vec![verb], ..Self::default() }
    }
    #[must_use]
    pub fn client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into());
        self
    }
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
    #[must_use]
    pub fn nth_write(mut self, n: u64) -> Self {
        self.nth_write = Some(n);
        self
    }
    #[must_use]
    pub fn nth_request(mut self, n: u64) -> Self {
        self.nth_request = Some(n);
        self
    }

    fn matches(&self, seen: &Seen<'_>) -> bool {
        let same = |wanted: &Option<String>, have: &str| wanted.as_deref().is_none_or(|w| w == have);
        let resource_ok = self.resource.as_deref().is_none_or(|w| match w.strip_suffix('*') {
            Some(start) => seen.resource.starts_with(start),
            None => w == seen.resource,
        });
        same(&self.client, seen.client)
            && same(&self.user, seen.user)
            && same(&self.namespace, seen.namespace)
            && same(&self.name, seen.name)
            && resource_ok
            && (self.verbs.is_empty() || self.verbs.contains(&seen.verb))
            && self.nth_write.is_none_or(|n| n == seen.nth_write)
            && self.nth_request.is_none_or(|n| n == seen.nth_request)
    }
}

/// One rule of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub matcher: Matcher,
    pub action: Action,
    /// Chance in a thousand for each matching request.
    pub permille: u32,
    /// Matching requests that are let through first.
    pub skip: u64,
    /// How often it strikes at most.
    pub times: u64,
    /// Strikes only in this span of virtual time.
    pub from: Duration,
    pub until: Duration,
}

impl Fault {
    /// Strikes every matching request, once.
    pub fn once(matcher: Matcher, action: Action) -> Self {
        Self { matcher, action, permille: 1000, skip: 0, times: 1, from: Duration::ZERO, until: Duration::MAX }
    }
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }
    #[must_use]
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }
    #[must_use]
    pub fn permille(mut self, permille: u32) -> Self {
        self.permille = permille;
        self
    }
    #[must_use]
    pub fn from(mut self, from: Duration) -> Self {
        self.from = from;
        self
    }
    #[must_use]
    pub fn until(mut self, until: Duration) -> Self {
        self.until = until;
        self
    }
}

/// A list of rules; the first that strikes is it.
#[derive(Debug, Clone)]
pub struct Faults {
    rules: Vec<Fault>,
    matched: Vec<u64>,
    struck: Vec<u64>,
    dice: Dice,
    /// Clients that are never hit: the machinery of the scenario itself.
    pub spared: Vec<String>,
}

impl Faults {
    pub fn new(seed: u64, rules: Vec<Fault>) -> Self {
        let zeros = vec![0; rules.len()];
        Self { matched: zeros.clone(), struck: zeros, rules, dice: Dice::new(seed).fork("faults"), spared: Vec::new() }
    }

    /// No faults at all.
    pub fn none() -> Self {
        Self::new(0, Vec::new())
    }

    /// What any busy cluster does: conflicts, throttling, short outages, watches that end. Hits one client (or all), until a time.
    pub fn flaky(seed: u64, client: Option<&str>, until: Duration) -> Self {
        Self::new(seed, profile(client, until, FLAKY))
    }

    /// Everything at once, often, crashes included, until a time.
    pub fn hostile(seed: u64, client: Option<&str>, until: Duration) -> Self {
        let plan = Self::new(seed, profile(client, until, HOSTILE));
        plan.with_crashes(client, 20, 3, until)
    }

    /// Further: this client dies after so many of a thousand writes, at most so often before and so often after it hears the answer.
    #[must_use]
    pub fn with_crashes(mut self, client: Option<&str>, permille: u32, times: u64, until: Duration) -> Self {
        for before_response in [true, false] {
            let matcher = Matcher { client: client.map(str::to_owned), ..Matcher::writes() };
            let crash = Fault::once(matcher, Action::Crash { before_response });
            self.rules.push(crash.permille(permille).times(times).until(until));
        }
        self.matched = vec![0; self.rules.len()];
        self.struck = self.matched.clone();
        self
    }

    /// The same without the ends of clients.
    #[must_use]
    pub fn without_crashes(mut self) -> Self {
        self.rules.retain(|rule| !matches!(rule.action, Action::Crash { .. }));
        self.matched.truncate(self.rules.len());
        self.struck.truncate(self.rules.len());
        self
    }

    /// How often each rule struck, by kind of action.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        let mut out = BTreeMap::new();
        for (rule, n) in self.rules.iter().zip(&self.struck) {
            *out.entry(rule.action.kind()).or_default() += n;
        }
        out
    }
}

impl FaultPlan for Faults {
    fn decide(&mut self, seen: &Seen<'_>) -> Option<Action> {
        if self.spared.iter().any(|c| c == seen.client) {
            return None;
        }
        for ((rule, matched), struck) in self.rules.iter().zip(&mut self.matched).zip(&mut self.struck) {
            if *struck >= rule.times || seen.at < rule.from || seen.at >= rule.until || !rule.matcher.matches(seen) {
                continue;
            }
            *matched += 1;
            if *matched <= rule.skip || (rule.permille < 1000 && !self.dice.chance(rule.permille)) {
                continue;
            }
            *struck += 1;
            return Some(rule.action.clone());
        }
        None
    }
}

#[derive(Clone, Copy)]
enum On {
    Any,
    Writes,
    Watches,
    Lists,
}

/// (what, permille, times, action)
type Line = (On, u32, u64, Action);

const SECOND: Duration = Duration::from_secs(1);

const FLAKY: &[Line] = &[
    (On::Writes, 20, 40, Action::Conflict409),
    (On::Any, 10, 40, Action::TooMany429 { retry_after: Some(1) }),
    (On::Any, 10, 30, Action::Status(503)),
    (On::Any, 5, 20, Action::Status(500)),
    (On::Any, 20, 60, Action::Delay(SECOND)),
    (On::Watches, 100, 20, Action::CutWatch { after: Duration::from_secs(20) }),
    (On::Watches, 200, 40, Action::LagWatch { constant: Duration::from_millis(50), spread: Duration::from_millis(500) }),
];

const HOSTILE: &[Line] = &[
    (On::Writes, 40, 100, Action::Conflict409),
    (On::Writes, 30, 60, Action::AppliedButResponseLost),
    (On::Any, 20, 80, Action::TooMany429 { retry_after: None }),
    (On::Any, 20, 80, Action::TooMany429 { retry_after: Some(3) }),
    (On::Any, 20, 80, Action::Status(503)),
    (On::Any, 20, 80, Action::Status(500)),
    (On::Any, 10, 40, Action::Status(504)),
    (On::Any, 10, 40, Action::Refused),
    (On::Any, 5, 10, Action::Forbidden),
    (On::Any, 3, 10, Action::Hang),
    (On::Any, 40, 100, Action::Delay(Duration::from_secs(5))),
    (On::Watches, 200, 60, Action::CutWatch { after: Duration::from_secs(7) }),
    (On::Watches, 60, 20, Action::Gone410 { http: false }),
    (On::Watches, 30, 10, Action::Gone410 { http: true }),
    (On::Watches, 300, 100, Action::LagWatch { constant: Duration::from_millis(200), spread: Duration::from_secs(4) }),
    (On::Lists, 200, 60, Action::StaleList { age: Duration::from_secs(20) }),
];

fn profile(client: Option<&str>, until: Duration, lines: &[Line]) -> Vec<Fault> {
    lines
        .iter()
        .map(|(on, permille, times, action)| {
            let mut matcher = match on {
                On::Any => Matcher::any(),
                On::Writes => Matcher::writes(),
                On::Watches => Matcher::verb(Verb::Watch),
                On::Lists => Matcher { verbs: vec![Verb::List, Verb::Get], ..Matcher::default() },
            };
            matcher.client = client.map(str::to_owned);
            Fault::once(matcher, action.clone()).permille(*permille).times(*times).until(until)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(client: &str, nth_write: u64) -> Seen<'_> {
        Seen {
            client,
            user: client,
            verb: Verb::Patch,
            resource: "nodes",
            namespace: "",
            name: "n1",
            nth_request: 1,
            nth_write,
            at: Duration::ZERO,
        }
    }

    #[test]
    fn a_fault_strikes_as_often_as_it_says() {
        let rule = Fault::once(Matcher::writes().client("engine").resource("nodes*"), Action::Conflict409).skip(1).times(2);
        let mut plan = Faults::new(1, vec![rule]);
        assert_eq!(plan.decide(&seen("other", 1)), None);
        let hits: Vec<bool> = (1..6).map(|n| plan.decide(&seen("engine", n)).is_some()).collect();
        assert_eq!(hits, [false, true, true, false, false]);
        assert_eq!(plan.struck().get("conflict-409"), Some(&2));
    }

    #[test]
    fn the_same_seed_hits_the_same_requests() {
        let run = |seed| {
            let mut plan = Faults::hostile(seed, None, Duration::from_secs(60));
            (1..300).map(|n| plan.decide(&seen("engine", n)).map(|a| a.kind())).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}

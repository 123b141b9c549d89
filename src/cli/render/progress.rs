//! What `handoff --wait` says while it waits: one line for each change, and one that shows where all of them are.

use std::collections::BTreeMap;

use crate::{
    api::{ComponentKey, NodeName, ObjectKey, Phase},
    cli::{
        Exit,
        text::{age, plain},
    },
    console::{facts::Facts, format},
    engine::{intent_plan::handoff_key, picture::Picture},
    fleet::{records::HandoffRecord, view::WatchState},
};

/// A watch may be lost this long before it is worth a word: a reconnect is no outage.
const LOST_FOR: i64 = 5;

/// One handoff that is waited for: what was asked, so that the end of an older attempt is not taken for its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub component: ComponentKey,
    pub node: NodeName,
    /// None: whatever the handoff says.
    pub attempt: Option<u32>,
}

/// How one of them stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// The picture is older than what was asked.
    NotSeen,
    Running(Phase),
    Done,
    /// Failed, Aborted, or deleted.
    Ended,
    /// Held: a person's turn.
    Held,
}

const UNLED: &str = "no process holds the Lease lockkeeper-system/lockkeeper: nothing will happen until `lockkeeper reconcile`, or a \
                     console that acts, runs";

/// Remembers what was said, and says only what is new.
#[derive(Debug, Clone)]
pub struct Progress {
    asked: Vec<Asked>,
    said: BTreeMap<NodeName, String>,
    /// Nodes whose handoff was there once.
    seen: BTreeMap<NodeName, ()>,
    /// It was said that the server does not answer.
    lost: bool,
    /// That nobody acts was said, and still holds.
    unled: bool,
}

impl Progress {
    pub fn of(asked: Vec<Asked>) -> Self {
        Self { asked, said: BTreeMap::new(), seen: BTreeMap::new(), lost: false, unled: false }
    }

    /// A line for each node of which there is something new, in the order asked.
    pub fn news(&mut self, picture: &Picture) -> Vec<String> {
        let mut lines = Vec::new();
        let lost = lost(picture);
        if lost.is_some() != self.lost {
            self.lost = lost.is_some();
            let words = match &lost {
                Some((_, why)) => {
                    format!("does not tell what happens ({why}); still waiting, the handoffs do not need this command")
                }
                None => "tells again what happens".to_owned(),
            };
            let context = &picture.fleet.cluster.context;
            lines.push(format!("{} the cluster of {} {}", format::clock(picture.fleet.now), plain(context), plain(&words)));
        }
        let unled = picture.leadership.holder.is_none();
        if unled && !self.unled {
            lines.push(format!("{} {UNLED}", format::clock(picture.fleet.now)));
        }
        self.unled = unled;
        for asked in &self.asked {
            if handoff(picture, asked).is_some() {
                self.seen.insert(asked.node.clone(), ());
            }
            let Some(words) = self.words(picture, asked) else { continue };
            if self.said.get(&asked.node) != Some(&words) {
                lines.push(format!("{} {} {}", format::clock(picture.fleet.now), plain(asked.node.as_str()), plain(&words)));
                self.said.insert(asked.node.clone(), words);
            }
        }
        lines
    }

    /// `2 of 5 done; n3 Draining for 40s: DisruptionBudget PodDisruptionBudget db`.
    pub fn line(&self, picture: &Picture) -> String {
        let done = self.asked.iter().filter(|asked| self.stand(picture, asked) == Stand::Done).count();
        let running =
            self.asked.iter().find(|asked| matches!(self.stand(picture, asked), Stand::Running(phase) if phase != Phase::Queued));
        let now = running.and_then(|asked| {
            let facts = Facts::of(picture, &asked.component, &asked.node)?;
            let age = facts.since().map(|since| age(picture.fleet.now.duration_since(since).as_secs()));
            let words = self.words(picture, asked)?;
            Some(format!("; {} {words} ({})", asked.node, age.unwrap_or_default()))
        });
        let lost = lost(picture).map(|(seconds, _)| format!("no news for {}: ", age(seconds))).unwrap_or_default();
        plain(&format!("{lost}{done} of {} done{}", self.asked.len(), now.unwrap_or_default())).into_owned()
    }

    /// None while something still runs or waits for its turn.
    pub fn end(&self, picture: &Picture) -> Option<Exit> {
        let stands: Vec<Stand> = self.asked.iter().map(|asked| self.stand(picture, asked)).collect();
        if stands.iter().any(|stand| matches!(stand, Stand::NotSeen | Stand::Running(_))) {
            // What waits behind a failure or a hold would wait for ever.
            let moving = |stand: &Stand| matches!(stand, Stand::NotSeen | Stand::Running(_));
            let stuck = stands.iter().any(|stand| matches!(stand, Stand::Held | Stand::Ended))
                && stands.iter().filter(|stand| moving(stand)).all(|stand| *stand == Stand::Running(Phase::Queued))
                && self.asked.iter().all(|asked| self.waits_for_a_person(picture, asked));
            return stuck.then_some(Exit::NotAllDone);
        }
        Some(if stands.iter().all(|stand| *stand == Stand::Done) { Exit::Done } else { Exit::NotAllDone })
    }

    /// A queued one that nothing but a person's choice will let go on; true for those that are not queued.
    fn waits_for_a_person(&self, picture: &Picture, asked: &Asked) -> bool {
        use crate::handoff::verdict::BlockerKind::{FailureBudgetSpent, HandoffFailed, HandoffHeld, NodeLeftClosed, Paused};
        if self.stand(picture, asked) != Stand::Running(Phase::Queued) {
            return true;
        }
        let wait = Facts::of(picture, &asked.component, &asked.node).and_then(|facts| facts.wait().cloned());
        wait.is_some_and(|wait| {
            wait.blockers
                .iter()
                .any(|it| matches!(it.kind, FailureBudgetSpent | HandoffFailed | HandoffHeld | NodeLeftClosed | Paused))
        })
    }

    /// Advice for each node that is not done.
    pub fn advice(&self, picture: &Picture) -> Vec<String> {
        let of = |asked: &Asked| {
            let (component, node) = (&asked.component, &asked.node);
            match self.stand(picture, asked) {
                Stand::Done => None,
                Stand::Held => Some(format!("{node} is Held: lockkeeper continue {component} {node}, or rollback, or abort")),
                Stand::Ended => Some(format!("{node} is not done: lockkeeper retry {component} {node}, or rollback, or leave")),
                Stand::NotSeen | Stand::Running(_) => Some(format!("{node} waits: lockkeeper status {component}")),
            }
        };
        self.asked.iter().filter_map(of).collect()
    }

    fn stand(&self, picture: &Picture, asked: &Asked) -> Stand {
        let Some(record) = handoff(picture, asked) else {
            return if self.seen.contains_key(&asked.node) { Stand::Ended } else { Stand::NotSeen };
        };
        let Ok(spec) = &record.spec else { return Stand::Ended };
        if asked.attempt.is_some_and(|attempt| spec.attempt < attempt) {
            return Stand::NotSeen;
        }
        let phase = record.status.phase;
        if !phase.is_ended() {
            // An abort that waits for a choice is a person's turn too.
            return match phase {
                Phase::Held => Stand::Held,
                _ => Stand::Running(phase),
            };
        }
        // The end of an earlier attempt or target stands in the status until the engine takes the new one up.
        let of_this = record.status.run.as_ref().map_or(record.status.observed_generation == Some(record.generation), |run| {
            run.attempt == spec.attempt && run.target == spec.version
        });
        match phase {
            _ if !of_this && record.status.observed_generation != Some(record.generation) => Stand::Running(Phase::Queued),
            Phase::Done => Stand::Done,
            _ => Stand::Ended,
        }
    }

    fn words(&self, picture: &Picture, asked: &Asked) -> Option<String> {
        let (component, node) = (&asked.component, &asked.node);
        Some(match self.stand(picture, asked) {
            Stand::NotSeen => return None,
            Stand::Done => match Facts::of(picture, component, node).and_then(|facts| facts.version().cloned()) {
                Some(version) => format!("Done, runs {version}"),
                None => "Done".to_owned(),
            },
            stand => {
                let Some(record) = handoff(picture, asked) else { return Some("its NodeHandoff was deleted".to_owned()) };
                let facts = Facts::of(picture, component, node);
                let phase = match stand {
                    Stand::Running(Phase::Queued) => Phase::Queued,
                    _ => facts.as_ref().and_then(Facts::phase).unwrap_or(record.status.phase),
                };
                let aborting = facts.as_ref().is_some_and(Facts::is_aborting);
                let phase = if aborting { format!("{phase}, aborting") } else { phase.to_string() };
                match facts.as_ref().and_then(Facts::blocked) {
                    Some(it) if it.object.is_empty() => format!("{phase}: {}: {}", it.word, it.message),
                    Some(it) => format!("{phase}: {} {}: {}", it.word, it.object, it.message),
                    None => phase,
                }
            }
        })
    }
}

/// Since how many seconds a watch that is needed has been lost, and why.
fn lost(picture: &Picture) -> Option<(i64, String)> {
    let needed = picture.fleet.health.iter().filter(|watch| watch.required);
    let lost = needed.filter_map(|watch| match &watch.state {
        WatchState::Retrying { error, since, .. } => Some((picture.fleet.now.duration_since(*since).as_secs(), error.clone())),
        _ => None,
    });
    lost.max_by_key(|(seconds, _)| *seconds).filter(|(seconds, _)| *seconds >= LOST_FOR)
}

fn handoff<'a>(picture: &'a Picture, asked: &Asked) -> Option<&'a HandoffRecord> {
    let key: ObjectKey = handoff_key(&asked.component, &asked.node);
    picture.fleet.handoffs.get(&key).map(|record| &**record)
}

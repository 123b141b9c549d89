//! A handoff at one sight: a sign per phase, from the first to the last.

use super::pen::Pen;
use crate::{
    api::Phase,
    console::{
        glyphs::Glyphs,
        theme::{Role, Theme},
    },
};

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Past,
    Running,
    /// The running step waits for something.
    Blocked,
    /// The step in which a person's turn came.
    Held,
    Failed,
    /// Not needed in this run.
    Skipped,
    Ahead,
}

impl Step {
    pub fn sign(self, glyphs: &Glyphs) -> &'static str {
        match self {
            Self::Past => glyphs.past,
            Self::Running => glyphs.running,
            Self::Blocked => glyphs.blocked,
            Self::Held => glyphs.held,
            Self::Failed => glyphs.failed,
            Self::Skipped => glyphs.skipped,
            Self::Ahead => glyphs.ahead,
        }
    }

    pub fn role(self) -> Role {
        match self {
            Self::Past => Role::Good,
            Self::Running => Role::Active,
            Self::Blocked | Self::Held => Role::Waiting,
            Self::Failed => Role::Bad,
            Self::Skipped | Self::Ahead => Role::Muted,
        }
    }
}

/// The steps of a list of phases, when the handoff is in `phase`; `last` is the phase it had reached when that is none of them.
pub fn steps(phases: &[Phase], phase: Phase, last: Option<Phase>, blocked: bool) -> impl Iterator<Item = Step> {
    let (here, mark) = match phase {
        Phase::Done => (phases.len(), Step::Past),
        Phase::Queued => (0, Step::Ahead),
        Phase::Failed => (at(phases, last), Step::Failed),
        Phase::Aborted => (at(phases, last), Step::Skipped),
        Phase::Held => (at(phases, last), Step::Held),
        phase => (at(phases, Some(phase)), if blocked { Step::Blocked } else { Step::Running }),
    };
    (0..phases.len()).map(move |step| match step.cmp(&here) {
        std::cmp::Ordering::Less => Step::Past,
        std::cmp::Ordering::Equal => mark,
        std::cmp::Ordering::Greater if phase == Phase::Aborted => Step::Skipped,
        std::cmp::Ordering::Greater => Step::Ahead,
    })
}

fn at(phases: &[Phase], phase: Option<Phase>) -> usize {
    let Some(phase) = phase else { return 0 };
    // A phase that this kind does not list stands where the order of all phases has it.
    phases.iter().position(|other| *other == phase).unwrap_or_else(|| phases.iter().filter(|other| **other < phase).count())
}

pub fn draw(pen: &mut Pen<'_>, mut x: u16, steps: impl Iterator<Item = Step>, theme: &Theme, glyphs: &Glyphs) -> u16 {
    for step in steps {
        x = pen.text(x, 1, step.sign(glyphs), theme.get(step.role()));
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::glyphs::ASCII;

    const PHASES: [Phase; 5] = [Phase::Preflight, Phase::Cordoning, Phase::Draining, Phase::Loading, Phase::Verifying];

    fn strip(phase: Phase, last: Option<Phase>, blocked: bool) -> String {
        steps(&PHASES, phase, last, blocked).map(|step| step.sign(&ASCII)).collect()
    }

    #[test]
    fn each_state_reads_from_left_to_right() {
        assert_eq!(strip(Phase::Queued, None, false), ".....");
        assert_eq!(strip(Phase::Draining, None, false), "==>..");
        assert_eq!(strip(Phase::Draining, None, true), "==#..");
        assert_eq!(strip(Phase::Failed, Some(Phase::Loading), false), "===x.");
        assert_eq!(strip(Phase::Held, Some(Phase::Loading), true), "===|.");
        assert_eq!(strip(Phase::Aborted, Some(Phase::Cordoning), false), "=----");
        assert_eq!(strip(Phase::Done, None, false), "=====");
        assert_eq!(strip(Phase::Unloading, None, false), "===>.", "a phase that is not listed");
    }
}

//! What a seed stands for: its scenario, fault profile, fleet and budget, and which troubles come with it. Depends on nothing but seed and arguments.

use clap::ValueEnum;
use lockkeeper::sim::{clock::Dice, demo::Scenario, world::Profile};

use crate::arguments::Arguments;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    pub seed: u64,
    pub scenario: Scenario,
    pub faults: Profile,
    pub nodes: usize,
    /// Of the component, and over all components.
    pub max_unavailable: u32,
    /// The engine dies after some of its writes, and starts again.
    pub crashes: bool,
    /// People meddle.
    pub people: bool,
    /// Two components on each node.
    pub two_components: bool,
    /// In the middle of one round the release is taken back.
    pub rollback: bool,
    /// New versions, one after the other.
    pub rounds: u32,
    /// Print the story.
    pub tell: bool,
    asked_rounds: Option<u32>,
}

fn pick<T: Copy>(list: &[T], seed: u64) -> Option<T> {
    let at = usize::try_from(seed % (list.len().max(1) as u64)).unwrap_or(0);
    list.get(at).copied()
}

impl Variant {
    pub fn of(seed: u64, arguments: &Arguments) -> Self {
        let mut dice = Dice::new(seed).fork("variant");
        let number = |dice: &mut Dice, bound: u64| u32::try_from(dice.below(bound)).unwrap_or(0);
        // Mostly several nodes at once: more that happens at the same time, and less waiting in between.
        let max_unavailable = [1, 2, 3, 3, 4, 4, 4, 4].get(dice.below(8) as usize).copied().unwrap_or(1);
        // What is evicted must find a place on the nodes that stay open.
        let nodes = (4 * max_unavailable).max(6) + number(&mut dice, 4);
        let rounds = 8 + number(&mut dice, 5);
        Self {
            seed,
            scenario: pick(&arguments.scenario, seed / 3).unwrap_or_default(),
            faults: pick(&arguments.faults, seed).unwrap_or_default(),
            nodes: usize::try_from(nodes).unwrap_or(6),
            max_unavailable,
            crashes: dice.chance(700),
            people: dice.chance(700),
            two_components: dice.chance(250),
            rollback: dice.chance(330),
            rounds: arguments.rounds.unwrap_or(rounds),
            tell: arguments.tell,
            asked_rounds: arguments.rounds,
        }
    }

    /// The one command that does the same again.
    pub fn replay(&self) -> String {
        let name = |value: Option<clap::builder::PossibleValue>| value.map(|it| it.get_name().to_owned()).unwrap_or_default();
        let (faults, scenario) = (name(self.faults.to_possible_value()), name(self.scenario.to_possible_value()));
        let rounds = self.asked_rounds.map(|rounds| format!(" --rounds {rounds}")).unwrap_or_default();
        let (seed, next) = (self.seed, self.seed + 1);
        format!("cargo test --release --test longrun -- --seeds {seed}..{next} --scenario {scenario} --faults {faults}{rounds}")
    }

    /// In words.
    pub fn told(&self) -> String {
        let mut words = vec![format!("{} nodes, {} at once, {} rounds", self.nodes, self.max_unavailable, self.rounds)];
        let flags = [
            (self.crashes, "crashes"),
            (self.people, "people"),
            (self.two_components, "two components"),
            (self.rollback, "a rollback"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
        words.join(", ")
    }
}

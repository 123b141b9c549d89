//! The list's filter: words that must all be found, `column:word` for one column, `!` in front for the opposite.

use super::facts::Facts;

/// Parsed filter text. Case does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    not: bool,
    column: Option<Column>,
    word: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Node,
    Component,
    Version,
    Target,
    Phase,
    Blocker,
}

impl Column {
    const ALL: [(&'static str, Self); 6] = [
        ("node", Self::Node),
        ("component", Self::Component),
        ("version", Self::Version),
        ("target", Self::Target),
        ("phase", Self::Phase),
        ("blocker", Self::Blocker),
    ];
}

impl Filter {
    pub fn parse(text: &str) -> Self {
        let terms = text
            .split_whitespace()
            .filter_map(|part| {
                let (not, part) = part.strip_prefix('!').map_or((false, part), |rest| (true, rest));
                let named = part.split_once(':').and_then(|(name, word)| {
                    Column::ALL.iter().find(|(known, _)| *known == name.to_lowercase()).map(|(_, column)| (*column, word))
                });
                let (column, word) = named.map_or((None, part), |(column, word)| (Some(column), word));
                (!word.is_empty()).then(|| Term { not, column, word: word.to_lowercase() })
            })
            .collect();
        Self { text: text.trim().to_owned(), terms }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The names before the colon.
    pub fn columns() -> [&'static str; 6] {
        Column::ALL.map(|(name, _)| name)
    }

    /// What stands before a colon and names no column: the whole word is looked for everywhere.
    pub fn unknown_column(&self) -> Option<&str> {
        let unknown = |term: &&Term| term.column.is_none() && term.word.contains(':');
        self.terms.iter().find(unknown).and_then(|term| term.word.split(':').next()).filter(|name| !name.is_empty())
    }

    pub fn accepts(&self, facts: &Facts<'_>) -> bool {
        self.terms.iter().all(|term| {
            let found = match term.column {
                Some(column) => term.found(facts, column),
                None => Column::ALL.iter().any(|(_, column)| term.found(facts, *column)),
            };
            found != term.not
        })
    }
}

impl Term {
    fn found(&self, facts: &Facts<'_>, column: Column) -> bool {
        let has = |text: &str| {
            if self.word.is_ascii() && text.is_ascii() {
                text.len() >= self.word.len()
                    && text.as_bytes().windows(self.word.len()).any(|part| part.eq_ignore_ascii_case(self.word.as_bytes()))
            } else {
                text.to_lowercase().contains(&self.word)
            }
        };
        match column {
            Column::Node => has(facts.node.name.as_str()),
            Column::Component => has(&facts.key.name) || has(&facts.key.namespace),
            Column::Version => facts.version().is_some_and(|version| has(version.as_str())),
            Column::Target => facts.target().is_some_and(has),
            Column::Phase => has(facts.word()),
            // Who is before it in the queue is another row's: it comes and goes with that one.
            Column::Blocker => facts.blocked().is_some_and(|blocked| {
                has(&blocked.word)
                    || !(blocked.word == "QueuedBehind" && blocked.object.starts_with("NodeHandoff ")) && has(&blocked.object)
            }),
        }
    }
}

//! `lockkeeper status`: the fleet as a table, JSON or YAML, once or as it changes.

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    ComponentName, Exit, Failure, Global,
    out::{Out, Reader},
    pictures::Pictures,
    render::{self, status as shown},
    session,
    text::plain,
};
use crate::{
    api::ComponentKey,
    cluster::{Cluster, kmm},
    engine::picture::Picture,
};

#[derive(Debug, Clone, Args)]
pub struct Status {
    /// Only this component: NAME or NAMESPACE/NAME
    pub component: Option<ComponentName>,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Go on and show what changes: the table anew on a terminal, changed rows in a pipe, one JSON object a line
    #[arg(short, long)]
    pub watch: bool,
    /// How long to wait for a complete picture, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

pub async fn run(status: Status, global: &Global) -> Result<Exit, Failure> {
    let mut session = session::open(global, session::Need::Read).await?;
    let only = status.component.as_ref().map(|name| name.key(global, &session.namespace));
    // Once: a watch follows lockkeeper's own.
    let kmm = if only.is_none() && !status.watch { Kmm::read(&session.cluster).await } else { Kmm::default() };
    let picture = match session.complete(Duration::from_secs(status.timeout)).await {
        Ok(picture) => picture,
        // Without lockkeeper's own objects there is still that to be shown.
        Err(failure) => return kmm.alone(status.output, failure),
    };
    if let Some(only) = only.as_ref().filter(|only| !picture.fleet.components.contains_key(only)) {
        return Err(session::no_component(&picture, only));
    }
    let mut out = Out::stdout();
    if !status.watch {
        let mut report = shown::report(&picture, only.as_ref());
        kmm.beside(&mut report);
        out.text(&whole(&report, status.output)?)?;
        return Ok(Exit::Done);
    }
    watch(&status, only.as_ref(), picture, &mut session.pictures, &mut out).await
}

fn whole(report: &shown::Report, format: Format) -> Result<String, Failure> {
    match format {
        Format::Table => Ok(shown::table(report, false)),
        Format::Wide => Ok(shown::table(report, true)),
        Format::Json => render::json(report),
        Format::Yaml => render::yaml(report),
    }
}

/// What there is of KMM, and why it could not be read.
#[derive(Default)]
struct Kmm {
    report: Option<render::kmm::Report>,
    failure: Option<String>,
}

impl Kmm {
    async fn read(cluster: &Cluster) -> Self {
        match kmm::read(cluster).await {
            Ok(read) => Self { report: read.as_ref().map(render::kmm::report), failure: None },
            // Those who may not read it did not ask for it.
            Err(error) => Self { report: None, failure: Some(format!("KMM cannot be seen: {error}")) },
        }
    }

    fn beside(self, report: &mut shown::Report) {
        report.kmm = self.report;
        report.notes.extend(self.failure);
    }

    /// On a cluster that shows nothing else.
    fn alone(self, format: Format, failure: Failure) -> Result<Exit, Failure> {
        let Some(report) = self.report else { return Err(failure) };
        let text = match format {
            Format::Table | Format::Wide => format!("{}\nnote: {}\n", render::kmm::table(&report), plain(&failure.to_string())),
            Format::Json => render::json(&serde_json::json!({"kmm": report, "notes": [failure.to_string()]}))?,
            Format::Yaml => render::yaml(&serde_json::json!({"kmm": report, "notes": [failure.to_string()]}))?,
        };
        Out::stdout().text(&text)?;
        Ok(Exit::Done)
    }
}

/// Until the reader goes away or the process is told to stop.
async fn watch(
    status: &Status,
    only: Option<&ComponentKey>,
    mut picture: Picture,
    pictures: &mut Pictures,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let mut last = Watched::default();
    loop {
        let report = shown::report(&picture, only);
        let text = match status.output {
            Format::Json => last.unless_same(&report, render::json_line(&report)?),
            Format::Yaml => last.unless_same(&report, format!("---\n{}", render::yaml(&report)?)),
            // Ages move by themselves there, and are seen to.
            format if out.is_terminal() => format!("\x1b[H\x1b[2J{}", shown::table(&report, format == Format::Wide)),
            format => last.changed_rows(&report, format == Format::Wide),
        };
        if !text.is_empty() && out.text(&text)? == Reader::Gone {
            return Ok(Exit::Done);
        }
        picture = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
            next = pictures.next(Duration::from_secs(1)) => match next {
                Some(next) => next,
                None => return Err(Failure::environment("the watches ended")),
            },
        };
    }
}

/// What was printed last, without what moves with time alone.
#[derive(Default)]
struct Watched {
    report: Option<shown::Report>,
    rows: BTreeMap<(String, String), shown::Node>,
    headed: bool,
}

impl Watched {
    fn unless_same(&mut self, report: &shown::Report, text: String) -> String {
        let mut timeless = report.clone();
        timeless.at.clear();
        timeless.nodes.iter_mut().for_each(|node| node.seconds = None);
        if self.report.as_ref() == Some(&timeless) {
            return String::new();
        }
        self.report = Some(timeless);
        text
    }

    fn changed_rows(&mut self, report: &shown::Report, wide: bool) -> String {
        let mut changed = Vec::new();
        for node in &report.nodes {
            let timeless = shown::Node { seconds: None, ..node.clone() };
            let key = (node.component.clone(), node.node.clone());
            if self.rows.get(&key) != Some(&timeless) {
                self.rows.insert(key, timeless);
                changed.push(node.clone());
            }
        }
        if changed.is_empty() {
            return String::new();
        }
        let table = shown::nodes(&changed, wide).to_string();
        match std::mem::replace(&mut self.headed, true) {
            false => table,
            true => table.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::Phase, cli::render::sample::Sample};

    #[test]
    fn a_pipe_gets_only_rows_that_changed() {
        let mut watched = Watched::default();
        let report = |phase| {
            let picture = Sample::new().node("n1", "1.0").node("n2", "1.0").handoff("n1", "2.0", phase).picture();
            shown::report(&picture, None)
        };
        let first = watched.changed_rows(&report(Phase::Draining), false);
        assert_eq!(first.lines().count(), 3, "{first}");
        assert_eq!(watched.changed_rows(&report(Phase::Draining), false), "");
        let second = watched.changed_rows(&report(Phase::Loading), false);
        assert!(second.starts_with("n1 ") && second.lines().count() == 1, "{second}");
    }
}

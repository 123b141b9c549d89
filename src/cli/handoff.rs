//! `lockkeeper handoff`: queue nodes in the order given, and with `--wait` follow them to their end.

use std::{io::Write, time::Duration};

use clap::Args;

use super::{
    ComponentName, Exit, Failure, Global, ask,
    out::{Out, Reader},
    pictures::Pictures,
    plan,
    render::{
        plan as shown,
        progress::{Asked, Progress},
    },
    session, text,
};
use crate::{
    api::{ComponentKey, Phase, Version},
    engine::{intent::Intent, picture::Picture},
    handoff::{action::Op, phases},
};

#[derive(Debug, Clone, Args)]
pub struct Handoff {
    /// NAME or NAMESPACE/NAME of a NodeComponent
    pub component: ComponentName,
    /// In the order in which they are to be taken
    #[arg(required = true)]
    pub node: Vec<String>,
    /// The version to hand over to [default: the component's]
    #[arg(long, value_name = "VERSION", value_parser = plan::version)]
    pub to: Option<Version>,
    /// The first one's place in the queue, the others follow it [default: after what is queued]
    #[arg(long, value_name = "N")]
    pub position: Option<i32>,
    /// Hold after this phase and wait for `lockkeeper continue`
    #[arg(long, value_name = "PHASE", value_parser = phase)]
    pub pause_after: Vec<Phase>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Wait until all of them are done; exit code 1 when one is not
    #[arg(long)]
    pub wait: bool,
    /// Give up waiting after this many seconds; the handoffs go on
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    pub timeout: Option<u64>,
}

fn phase(text: &str) -> Result<Phase, String> {
    let pausable = || Phase::ALL.into_iter().filter(|phase| phases::may_pause_after(*phase));
    pausable().find(|phase| phase.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let words: Vec<&str> = pausable().map(Phase::as_str).collect();
        format!("want one of {}", words.join(", "))
    })
}

pub async fn run(handoff: Handoff, global: &Global) -> Result<Exit, Failure> {
    let mut session = session::open(global, session::Need::Write).await?;
    let picture = session.complete(Duration::from_secs(60)).await?;
    let component = handoff.component.key(global, &session.namespace);
    plan::possible(&picture, &component, handoff.to.as_ref(), &handoff.pause_after)?;
    let report = plan::report(&picture, &component, &handoff.node, handoff.to.as_ref())?;
    if report.refused {
        return Err(Failure::Refused(shown::refusals(&report)));
    }
    let mut out = Out::stdout();
    let passed_by = plan::passed_by(&report, &handoff.pause_after);
    for warning in report.warnings.iter().chain(report.nodes.iter().flat_map(|node| &node.warnings)).chain(&passed_by) {
        let _ = writeln!(std::io::stderr(), "warning: {}", text::plain(warning));
    }
    let intent = intent(&picture, &component, &handoff)?;
    let sent = ask::ask(&mut session, picture, &[intent], |ops| place(ops, handoff.position)).await?;
    for (_, said) in &sent {
        if out.line(&text::plain(said))? == Reader::Gone && !handoff.wait {
            return Ok(Exit::Done);
        }
    }
    if !handoff.wait {
        return Ok(Exit::Done);
    }
    let asked = sent.iter().filter_map(|(op, _)| asked(&component, op)).collect();
    let limit = handoff.timeout.map(Duration::from_secs);
    follow(Progress::of(asked), &mut session.pictures, &mut out, limit).await
}

fn intent(picture: &Picture, component: &ComponentKey, handoff: &Handoff) -> Result<Intent, Failure> {
    Ok(Intent::HandOver {
        component: component.clone(),
        nodes: plan::targets(picture, &handoff.node)?,
        to: plan::target(picture, component, handoff.to.as_ref())?,
        pause_after: handoff.pause_after.clone(),
        reason: handoff.reason.clone(),
    })
}

/// Places from `first` on, instead of after what is queued.
fn place(ops: &mut [Op], first: Option<i32>) {
    let Some(first) = first else { return };
    for (at, op) in ops.iter_mut().enumerate() {
        if let Op::CreateHandoff { spec, .. } | Op::PatchHandoffSpec { spec, .. } = op {
            spec.position = Some(first.saturating_add(i32::try_from(at).unwrap_or(i32::MAX)));
        }
    }
}

/// What to wait for after a write.
pub fn asked(component: &ComponentKey, op: &Op) -> Option<Asked> {
    let (Op::CreateHandoff { spec, .. } | Op::PatchHandoffSpec { spec, .. }) = op else { return None };
    Some(Asked { component: component.clone(), node: spec.node.as_str().into(), attempt: Some(spec.attempt) })
}

/// Lines as things change; on a terminal a last line that is always now. Interrupting it interrupts nothing but the waiting.
pub async fn follow(
    mut progress: Progress,
    pictures: &mut Pictures,
    out: &mut Out,
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let mut deadline = std::pin::pin!(async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    });
    let line = StatusLine { on: out.is_terminal() };
    let mut last: Option<Picture> = None;
    loop {
        let picture = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {
                line.clear(out)?;
                return Err(Failure::NotAllDone("no longer waiting; the handoffs go on (lockkeeper status, lockkeeper abort)".to_owned()));
            }
            () = &mut deadline => {
                line.clear(out)?;
                let advice = last.map(|picture| progress.advice(&picture).join("\n  ")).unwrap_or_default();
                return Err(Failure::NotAllDone(format!("not all done in time; the handoffs go on:\n  {advice}")));
            }
            next = pictures.next(Duration::from_secs(1)) => match next {
                Some(next) => next,
                None => return Err(Failure::environment("the watches ended; the handoffs go on (lockkeeper status)")),
            },
        };
        let news = progress.news(&picture);
        if !news.is_empty() {
            line.clear(out)?;
            for said in news {
                out.line(&said)?;
            }
        }
        match progress.end(&picture) {
            Some(Exit::Done) => {
                line.clear(out)?;
                return Ok(Exit::Done);
            }
            Some(_) => {
                line.clear(out)?;
                return Err(Failure::NotAllDone(format!("not all done:\n  {}", progress.advice(&picture).join("\n  "))));
            }
            None => line.draw(out, &progress.line(&picture))?,
        }
        last = Some(picture);
    }
}

/// The line at the bottom of a terminal. In a pipe there is none.
struct StatusLine {
    on: bool,
}

impl StatusLine {
    fn draw(&self, out: &mut Out, text: &str) -> Result<(), Failure> {
        if self.on {
            let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
            out.text(&format!("\r\x1b[2K{}", crate::console::format::cut(text, columns.saturating_sub(1), "…")))?;
        }
        Ok(())
    }

    fn clear(&self, out: &mut Out) -> Result<(), Failure> {
        if self.on {
            out.text("\r\x1b[2K")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_order_given() {
        let create = |node: &str| Op::CreateHandoff {
            key: crate::api::ObjectKey::new("ns", format!("gpu.{node}")),
            spec: Box::new(serde_json::from_value(serde_json::json!({"component": "gpu", "node": node, "position": 9})).unwrap()),
        };
        let positions = |first| {
            let mut ops = vec![create("n3"), create("n1")];
            place(&mut ops, first);
            ops.iter()
                .map(|op| match op {
                    Op::CreateHandoff { spec, .. } => spec.position,
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(positions(None), [Some(9), Some(9)]);
        assert_eq!(positions(Some(1)), [Some(1), Some(2)]);
        assert_eq!(positions(Some(i32::MAX)), [Some(i32::MAX), Some(i32::MAX)]);
    }

    #[test]
    fn a_phase_to_pause_after_is_one_that_something_follows() {
        assert_eq!(phase("unloading"), Ok(Phase::Unloading));
        assert!(phase("Done").is_err() && phase("Queued").is_err() && phase("Hoping").unwrap_err().contains("Draining"));
    }
}

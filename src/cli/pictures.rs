//! The stream of pictures that a command reads: waits for the first complete one, then for each next. What is in them is not its business.

use std::time::Duration;

use tokio::sync::watch;

use super::Failure;
use crate::{
    api::GROUP,
    engine::picture::Picture,
    fleet::{
        event::Kind,
        view::{WatchHealth, WatchState},
    },
};

/// One reader's view of the pictures. `changed()` wakes several receivers in random order; here there is one.
pub struct Pictures {
    from: watch::Receiver<Picture>,
}

impl Pictures {
    pub fn over(from: watch::Receiver<Picture>) -> Self {
        Self { from }
    }

    /// The next picture, or the same one after `tick`, for what changes with time alone. None when there will be no more.
    pub async fn next(&mut self, tick: Duration) -> Option<Picture> {
        #[expect(clippy::disallowed_methods, reason = "there is one receiver")]
        let changed = tokio::time::timeout(tick, self.from.changed()).await;
        match changed {
            Ok(Err(_)) => None,
            _ => Some(self.from.borrow_and_update().clone()),
        }
    }

    /// The first picture of which everything needed was listed.
    ///
    /// # Errors
    /// That takes longer than `limit`: the text names what could not be listed.
    pub async fn complete(&mut self, limit: Duration, cluster: &str) -> Result<Picture, Failure> {
        let mut last: Option<Picture> = None;
        let waited = tokio::time::timeout(limit, async {
            let mut now = Some(self.from.borrow_and_update().clone());
            loop {
                let next = match now.take() {
                    Some(picture) => Some(picture),
                    None => self.next(Duration::from_secs(1)).await,
                };
                let picture = next?;
                let refused = refused(&picture);
                if picture.fleet.synced && refused.is_empty() && !picture.fleet.health.iter().any(is_asked_for) {
                    return Some(picture);
                }
                last = Some(picture);
                if !refused.is_empty() {
                    return None;
                }
            }
        })
        .await;
        match waited {
            Ok(Some(picture)) => Ok(picture),
            _ => Err(Failure::environment(incomplete(last.as_ref(), limit, cluster))),
        }
    }
}

/// What is needed and will not come by itself. A console may do without our objects; a command that names a component cannot.
fn refused(picture: &Picture) -> Vec<String> {
    let ours = |resource: &str| resource.ends_with(GROUP);
    let needed = picture.fleet.health.iter().filter(|watch| watch.required || ours(&watch.resource));
    needed
        .filter_map(|watch| match &watch.state {
            WatchState::Unavailable { why } => Some(format!("{}: {why}", watch.resource)),
            _ => None,
        })
        .collect()
}

/// Only some components need it; one that is there does, and its first list is under way.
fn is_asked_for(watch: &WatchHealth) -> bool {
    watch.state == WatchState::Syncing && Kind::ALL.iter().any(|kind| kind.is_asked_for() && *kind.resource() == *watch.resource)
}

fn incomplete(picture: Option<&Picture>, limit: Duration, cluster: &str) -> String {
    let Some(picture) = picture else {
        return format!("{cluster} showed nothing within {} s", limit.as_secs());
    };
    let refused = refused(picture);
    if !refused.is_empty() {
        return format!(
            "{cluster} does not show what is needed; `lockkeeper doctor` says what to do:\n  {}",
            refused.join("\n  ")
        );
    }
    let missing: Vec<String> = picture
        .fleet
        .health
        .iter()
        .filter(|watch| watch.required || is_asked_for(watch))
        .filter_map(|watch| match &watch.state {
            WatchState::Retrying { error, .. } => Some(format!("{}: {error}", watch.resource)),
            WatchState::Syncing => Some(format!("{}: still listing", watch.resource)),
            _ => None,
        })
        .collect();
    format!("{cluster} was not listed completely within {} s:\n  {}", limit.as_secs(), missing.join("\n  "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::render::sample::Sample;

    fn showing(resource: &str, required: bool, state: WatchState) -> Picture {
        let mut picture = Sample::new().picture();
        Arc::make_mut(&mut picture.fleet).health = Arc::new(vec![WatchHealth {
            resource: resource.into(),
            required,
            state,
            last_event: None,
            objects: 0,
            errors: 0,
            undecodable: Vec::new(),
        }]);
        picture
    }

    fn unsynced(state: WatchState) -> Picture {
        let mut picture = showing("nodecomponents.lockkeeper.dev", true, state);
        Arc::make_mut(&mut picture.fleet).synced = false;
        picture
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_complete_picture() {
        let (send, receive) = watch::channel(unsynced(WatchState::Syncing));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            send.send(Sample::new().picture()).ok();
            tokio::time::sleep(Duration::from_secs(3)).await;
        });
        let picture = Pictures::over(receive).complete(Duration::from_secs(10), "context lab").await.unwrap();
        assert!(picture.fleet.synced);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_nodeplugin_needs_is_awaited_too_but_not_if_it_cannot_be_read() {
        let volumes = |state| showing("persistentvolumes", false, state);
        let (send, receive) = watch::channel(volumes(WatchState::Syncing));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            send.send(volumes(WatchState::Live)).ok();
            tokio::time::sleep(Duration::from_secs(3)).await;
        });
        let picture = Pictures::over(receive).complete(Duration::from_secs(10), "context lab").await.unwrap();
        assert_eq!(picture.fleet.health[0].state, WatchState::Live);
        // Other components can be spoken of all the same; this one's refusal says why not.
        let (_send, receive) = watch::channel(volumes(WatchState::Unavailable { why: "forbidden".into() }));
        Pictures::over(receive).complete(Duration::from_secs(10), "context lab").await.unwrap();
        let (_send, receive) = watch::channel(volumes(WatchState::Syncing));
        let late = Pictures::over(receive).complete(Duration::from_secs(10), "context lab").await.unwrap_err().to_string();
        assert!(late.contains("persistentvolumes: still listing"), "{late}");
    }

    #[tokio::test(start_paused = true)]
    async fn names_what_it_cannot_see() {
        let say = async |state| {
            let (_send, receive) = watch::channel(unsynced(state));
            let failure = Pictures::over(receive).complete(Duration::from_secs(10), "context lab").await.unwrap_err();
            failure.to_string()
        };
        let absent = say(WatchState::Unavailable { why: "the server does not serve it".into() }).await;
        assert!(
            absent.contains("context lab") && absent.contains("nodecomponents.lockkeeper.dev: the server does not serve it"),
            "{absent}"
        );
        let slow = say(WatchState::Syncing).await;
        assert!(slow.contains("within 10 s") && slow.contains("still listing"), "{slow}");
    }
}

//! Which client requests go through, and when another takes its place: credentials that the server stops to accept are read again from
//! where they came from, and while they are refused nothing is sent with them. Where they come from is a [`Source`]'s; that each request
//! passes here is the rim's.
//!
//! The client renews tokens of files and of plugins with an end by itself, once a minute; neither a token that stands in the kubeconfig nor a
//! client certificate, and it does not look at a 401.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use tokio::time::{Instant, timeout};

use super::{
    clock::Clock,
    error::{Refusal, chain},
    watch::backoff::Backoff,
};

/// Where credentials come from: a kubeconfig, or a pod's service account.
pub trait Source: Send + Sync {
    /// What is there now, as a digest that is only compared.
    fn fingerprint(&self) -> Vec<u8>;
    /// A client with what is there now, for the same server as before. The text of a failure says what is wrong with it.
    fn connect(&self) -> BoxFuture<'static, Result<Client, String>>;
    /// Whose credentials they are, for people: `the credentials of context lab`.
    fn name(&self) -> String;
    /// What a person can do when they are not accepted.
    fn advice(&self) -> String;
}

/// Not sent, or sent and answered with 401: the server does not accept the credentials that there are. The text says since when, and what to
/// do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAccepted(pub String);

/// Between two tries with credentials that look the same; it doubles with each up to the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// After this long without trouble the pause begins at the first again.
const HEALTHY: Duration = Duration::from_secs(120);
/// Between two looks at what the source has.
const LOOK: Duration = Duration::from_secs(1);
/// A client whose certificate ends so soon is made anew.
const BEFORE_THE_END: SignedDuration = SignedDuration::from_secs(60);
/// The longest that a server may take to say whether it accepts them.
const LIMIT: Duration = Duration::from_secs(5);

/// The client of the day. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct Line(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    source: OnceLock<Known>,
    /// One try at a time.
    turn: tokio::sync::Mutex<()>,
}

/// The source, and the cluster that it must lead to.
struct Known {
    source: Arc<dyn Source>,
    clock: Clock,
    /// Of namespace kube-system; empty: not known.
    uid: String,
}

struct State {
    client: Client,
    /// Rises with each new client.
    generation: u64,
    refused: Option<Refused>,
    /// Of the credentials that were tried last.
    fingerprint: Vec<u8>,
    /// A look has found others since.
    changed: bool,
    looked: Instant,
    backoff: Backoff,
    /// The same credentials are not tried again before.
    next: Instant,
}

struct Refused {
    since: Timestamp,
    why: String,
}

/// Why another client is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A 401 for what was sent with the client of this generation.
    Refused(u64),
    /// The pause is over, or there is something new to try.
    Again,
    /// What there is may still be used if there is nothing better.
    Better,
}

impl Line {
    pub fn new(client: Client) -> Self {
        let now = Instant::now();
        let state = State {
            client,
            generation: 0,
            refused: None,
            fingerprint: Vec::new(),
            changed: false,
            looked: now,
            backoff: Backoff::new(FIRST, LONGEST, HEALTHY),
            next: now,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), source: OnceLock::new(), turn: tokio::sync::Mutex::default() }))
    }

    /// From now on credentials that are not accepted are read again. `uid`: of the cluster; no other is gone to. Only the first source
    /// counts.
    pub fn renew_from(&self, source: Arc<dyn Source>, clock: Clock, uid: &str) {
        self.0.lock().fingerprint = source.fingerprint();
        self.0.source.set(Known { source, clock, uid: uid.to_owned() }).ok();
    }

    pub fn renews(&self) -> bool {
        self.0.source.get().is_some()
    }

    /// The client to send with, and its generation.
    ///
    /// # Errors
    /// The credentials are not accepted, and it is too early to try again.
    pub async fn client(&self) -> Result<(u64, Client), NotAccepted> {
        let reason = {
            let mut state = self.0.lock();
            let current = (state.generation, state.client.clone());
            let Some(known) = self.0.source.get() else { return Ok(current) };
            match &state.refused {
                None if !state.ends_soon(&known.clock) || Instant::now() < state.next => return Ok(current),
                None => Reason::Better,
                Some(refused) => {
                    let text = known.text(refused);
                    if Instant::now() < state.next && !state.differs(known) {
                        return Err(text);
                    }
                    Reason::Again
                }
            }
        };
        self.try_again(reason).await
    }

    /// A request that was sent with the client of this generation was answered with 401. Another client to send it with once more.
    ///
    /// # Errors
    /// There is none.
    pub async fn refused(&self, generation: u64) -> Result<Client, NotAccepted> {
        self.try_again(Reason::Refused(generation)).await.map(|(_, client)| client)
    }

    /// There was no connection, or it broke: a server's new address or authority, or a client's certificate that has ended, looks like that
    /// too. The next request goes through what the source has now, if that is something else.
    pub async fn broke(&self) {
        let differs = self.0.source.get().is_some_and(|known| self.0.lock().differs(known));
        if differs {
            self.try_again(Reason::Better).await.ok();
        }
    }

    /// In a task of its own: whoever waits for the outcome may have to give up, and a plugin may take long.
    async fn try_again(&self, reason: Reason) -> Result<(u64, Client), NotAccepted> {
        let inner = self.0.clone();
        let tried = tokio::spawn(async move { inner.try_again(reason).await });
        tried.await.unwrap_or_else(|error| Err(NotAccepted(format!("credentials were not read: {error}"))))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn try_again(&self, reason: Reason) -> Result<(u64, Client), NotAccepted> {
        let _turn = self.turn.lock().await;
        let Some(known) = self.source.get() else { return Ok(self.lock().current()) };
        {
            let mut state = self.lock();
            // Somebody else has done it while this one waited for its turn.
            match reason {
                Reason::Refused(sent) if state.refused.is_none() && state.generation > sent => return Ok(state.current()),
                Reason::Again if state.refused.is_none() => return Ok(state.current()),
                _ => {}
            }
            if Instant::now() < state.next && !state.differs(known) {
                return match reason {
                    Reason::Better => Ok(state.current()),
                    Reason::Refused(_) | Reason::Again => match &state.refused {
                        Some(refused) => Err(known.text(refused)),
                        // Accepted a moment ago, and now not.
                        None => Err(state.refuse(known, "401 Unauthorized".to_owned())),
                    },
                };
            }
        }
        let fingerprint = known.source.fingerprint();
        let tried = match known.source.connect().await {
            Ok(client) => known.accepted(&client).await.map(|()| Some(client)),
            // What there was may be accepted again: one answer of 401 is not the end of it.
            Err(why) => {
                let old = self.lock().client.clone();
                match known.accepted(&old).await {
                    Ok(()) => Ok(None),
                    Err(_) => Err(why),
                }
            }
        };
        let mut state = self.lock();
        state.next = Instant::now() + state.backoff.failed();
        state.looked = Instant::now();
        (state.fingerprint, state.changed) = (fingerprint, false);
        match tried {
            Ok(client) => {
                state.backoff.works();
                if let Some(refused) = state.refused.take() {
                    tracing::info!(since = %shown(refused.since), "{} are accepted again", known.source.name());
                } else {
                    tracing::info!("{} were read again", known.source.name());
                }
                if let Some(client) = client {
                    state.client = client;
                    state.generation += 1;
                }
                Ok(state.current())
            }
            Err(why) if reason == Reason::Better => {
                tracing::warn!(why, "{} were read again and are no better", known.source.name());
                Ok(state.current())
            }
            Err(why) => Err(state.refuse(known, why)),
        }
    }
}

impl State {
    fn current(&self) -> (u64, Client) {
        (self.generation, self.client.clone())
    }

    fn ends_soon(&self, clock: &Clock) -> bool {
        let until = self.client.valid_until();
        until.is_some_and(|until| clock.is_set() && until.duration_since(clock.now()) <= BEFORE_THE_END)
    }

    /// Whether the source has something else than what was tried last. Looked at once in a while only.
    fn differs(&mut self, known: &Known) -> bool {
        if !self.changed && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.changed = known.source.fingerprint() != self.fingerprint;
        }
        self.changed
    }

    fn refuse(&mut self, known: &Known, why: String) -> NotAccepted {
        let since = self.refused.as_ref().map_or_else(|| known.clock.now(), |refused| refused.since);
        let refused = Refused { since, why };
        let text = known.text(&refused);
        if self.refused.is_none() {
            tracing::warn!("{text}");
        }
        self.refused = Some(refused);
        text
    }
}

impl Known {
    /// The same for as long as it lasts: it is shown, logged and recorded.
    fn text(&self, refused: &Refused) -> NotAccepted {
        NotAccepted(format!(
            "{} are not accepted since {} ({}), and nothing is sent until they are: {}",
            self.source.name(),
            shown(refused.since),
            refused.why,
            self.source.advice()
        ))
    }

    /// The server accepts this client, and is the same cluster as before.
    async fn accepted(&self, client: &Client) -> Result<(), String> {
        let request = Request::get("/api/v1/namespaces/kube-system").body(Body::empty()).map_err(|error| chain(&error))?;
        let answer = timeout(LIMIT, async {
            let response = client.send(request).await?;
            let (parts, body) = response.into_parts();
            Ok::<_, kube::Error>((parts, body.collect_bytes().await?))
        });
        let (parts, body) = match answer.await {
            Err(_) => return Err(format!("no answer within {} s", LIMIT.as_secs())),
            Ok(Err(error)) => return Err(chain(&error)),
            Ok(Ok(answer)) => answer,
        };
        if parts.status.as_u16() == 401 {
            return Err(Refusal::read(401, &parts.headers, &body).to_string());
        }
        let uid = serde_json::from_slice::<serde_json::Value>(&body)
            .ok()
            .and_then(|namespace| Some(namespace.pointer("/metadata/uid")?.as_str()?.to_owned()));
        match uid {
            Some(uid) if !self.uid.is_empty() && uid != self.uid => {
                Err("another cluster answers there now; start lockkeeper again to go to that one".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn shown(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("renews", &self.renews()).finish_non_exhaustive()
    }
}

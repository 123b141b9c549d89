//! The life of one watch: list in pages, watch from there, list again when the server has forgotten where. It never ends by itself.

use std::time::Duration;

use http_body_util::BodyExt;
use jiff::SignedDuration;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{Board, Pace, Signal, backoff::Backoff, lines::Lines, pulse};
use crate::{
    cluster::{
        CallError, Cluster,
        call::{Call, query_value, stream},
        error::chain,
        kinds::{Served, served},
    },
    fleet::{
        decode::Decoder,
        event::{Change, Event, Kind, ListPage, WatchLine},
        records::Str,
        store::STALE_LISTS,
        view::WatchState,
    },
};

/// The server ends a watch after this many seconds, and the next one begins where it stopped.
const SERVER_TIMEOUT: u32 = 290;
/// A watch that the server ended sooner than this counts as a failure: opening it again at once could go on for ever.
const SHORT: Duration = Duration::from_secs(5);
/// After this many failures in a row from one resourceVersion the list is taken again: it may be one that the server never had.
const FAILURES_BEFORE_LIST: u32 = 5;

pub struct Task {
    cluster: Cluster,
    kind: Kind,
    served: Served,
    pace: Pace,
    board: Board,
    out: mpsc::Sender<Signal>,
    decoder: Decoder,
    backoff: Backoff,
    /// Where the next watch begins; None: a list is due.
    at: Option<Str>,
    /// The newest resourceVersion seen, as a number.
    newest: u64,
    /// Lists in a row that were older than that.
    stale_lists: u32,
    listed_once: bool,
    /// How often the server had come back when this round began: connections from before may be dead without a word.
    returns: u64,
}

/// Why a round is over.
enum End {
    /// As agreed: watch on from where it stopped.
    Agreed,
    Failed(Failure),
    /// Nobody reads any more.
    Unread,
}

enum Failure {
    /// 410, as HTTP status or within the stream: list again.
    Expired(String),
    Call(CallError),
    Other(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        if error.is_expired() { Self::Expired(error.to_string()) } else { Self::Call(error) }
    }
}

/// The channel is closed.
struct Unread;

impl Task {
    pub fn new(cluster: Cluster, kind: Kind, pace: Pace, board: Board, out: mpsc::Sender<Signal>) -> Self {
        Self {
            cluster,
            kind,
            served: served(kind),
            pace,
            board,
            out,
            decoder: Decoder::new(kind),
            backoff: Backoff::new(pace.first, pace.longest, pace.healthy),
            at: None,
            newest: 0,
            stale_lists: 0,
            listed_once: false,
            returns: 0,
        }
    }

    pub async fn run(mut self) {
        loop {
            let returns = self.board.returns();
            if returns != self.returns {
                // A server that has just started refuses everybody for a second, until it knows its roles and its CRDs.
                self.backoff.reset();
            }
            self.returns = returns;
            let end = match self.at.clone() {
                None => self.list().await,
                Some(at) => self.watch(&at).await,
            };
            let failure = match end {
                End::Agreed => continue,
                End::Unread => return,
                End::Failed(failure) => failure,
            };
            let away = matches!(&failure, Failure::Call(error) if pulse::is_away(error)) || matches!(failure, Failure::Other(_));
            let asked = match &failure {
                Failure::Call(error) => error.refusal().and_then(|refusal| refusal.retry_after),
                _ => None,
            };
            let pause = self.backoff.failed().max(asked.unwrap_or_default());
            if matches!(failure, Failure::Expired(_)) || self.backoff.failures.is_multiple_of(FAILURES_BEFORE_LIST) {
                self.at = None;
            }
            if self.report(failure, pause).await.is_err() {
                return;
            }
            if !away {
                sleep(pause).await;
                continue;
            }
            self.board.trouble();
            tokio::select! {
                biased;
                () = self.board.back(self.returns) => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// What the server says, unless it comes back from an outage meanwhile: then it is asked anew.
    async fn unless_back<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = self.board.back(self.returns) => None,
        }
    }

    /// All pages of a list. What the store holds stays until the last one has come.
    async fn list(&mut self) -> End {
        let mut next: Option<String> = None;
        let mut first = true;
        loop {
            let mut uri =
                format!("{}?limit={}{}", self.served.collection(self.served.namespace), self.pace.page, self.served.filter);
            if let Some(next) = &next {
                uri.push_str("&continue=");
                uri.push_str(&query_value(next));
            }
            let body = match self.unless_back(self.cluster.call(Call::get(uri))).await {
                None => return End::Agreed,
                Some(Ok(body)) => body,
                Some(Err(error)) => return End::Failed(error.into()),
            };
            let page = match self.decoder.list(&body) {
                Ok(page) => page,
                Err(error) => return End::Failed(Failure::Other(error.to_string())),
            };
            self.board.heard(self.kind, self.cluster.clock().now());
            let ListPage { records, undecodable, resource_version: version, next: following } = page;
            if first && self.send(Event::Init).await.is_err() {
                return End::Unread;
            }
            first = false;
            next = following;
            if self.send(Event::Page { records, undecodable }).await.is_err() {
                return End::Unread;
            }
            if next.is_none() {
                self.listed_once = true;
                if self.send(Event::InitDone { resource_version: version.clone() }).await.is_err() {
                    return End::Unread;
                }
                if self.goes_back(&version) {
                    return End::Failed(Failure::Other(format!(
                        "the list is older ({version}) than what was seen before ({})",
                        self.newest
                    )));
                }
                self.newest = self.newest.max(number(&version));
                self.at = Some(version);
                return if self.live().await.is_err() { End::Unread } else { End::Agreed };
            }
        }
    }

    /// A list from a server that lags, or whose storage was restored. The store keeps what is newer, and after [`STALE_LISTS`] of them
    /// believes the next; this counts as it does, and asks for another list until then.
    fn goes_back(&mut self, version: &str) -> bool {
        let version = number(version);
        if version == 0 || version >= self.newest {
            self.stale_lists = 0;
            return false;
        }
        self.stale_lists += 1;
        if self.stale_lists >= STALE_LISTS {
            (self.newest, self.stale_lists) = (0, 0);
        }
        true
    }

    async fn watch(&mut self, at: &str) -> End {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={SERVER_TIMEOUT}&resourceVersion={at}{}",
            self.served.collection(self.served.namespace),
            self.served.filter
        );
        let response = match self.unless_back(stream(self.cluster.client(), Call::get(uri))).await {
            None => return End::Agreed,
            Some(Ok(response)) => response,
            Some(Err(error)) => return End::Failed(error.into()),
        };
        let opened = Instant::now();
        if self.live().await.is_err() {
            return End::Unread;
        }
        let mut body = response.into_body();
        let mut lines = Lines::default();
        loop {
            let Some(frame) = self.unless_back(timeout(self.pace.idle, body.frame())).await else { return End::Agreed };
            let frame = match frame {
                Err(_) => return End::Failed(Failure::Other(format!("nothing heard for {} s", self.pace.idle.as_secs()))),
                Ok(None) if opened.elapsed() < SHORT => {
                    return End::Failed(Failure::Other("the server ended the watch at once".to_owned()));
                }
                Ok(None) => return End::Agreed,
                Ok(Some(Err(error))) if opened.elapsed() < SHORT => return End::Failed(Failure::Other(chain(&error))),
                // A connection that was cut after a while: watch on from where it stopped.
                Ok(Some(Err(_))) => return End::Agreed,
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(piece) = frame.into_data() else { continue };
            self.board.heard(self.kind, self.cluster.clock().now());
            let mut decoded = Vec::new();
            let decoder = &mut self.decoder;
            let fed = lines.feed(piece, |line| {
                if !line.iter().all(u8::is_ascii_whitespace) {
                    decoded.push(decoder.line(line));
                }
            });
            for line in decoded {
                let line = match line {
                    Ok(line) => line,
                    Err(error) => return End::Failed(Failure::Other(error.to_string())),
                };
                match self.take(line).await {
                    Ok(None) => {}
                    Ok(Some(failure)) => return End::Failed(failure),
                    Err(Unread) => return End::Unread,
                }
            }
            if let Err(error) = fed {
                return End::Failed(Failure::Other(error.to_string()));
            }
        }
    }

    async fn take(&mut self, line: WatchLine) -> Result<Option<Failure>, Unread> {
        let (version, event) = match line {
            WatchLine::Apply { record, .. } => (record.meta().resource_version.clone(), Event::Apply(record)),
            WatchLine::Delete { key, resource_version } => (resource_version, Event::Delete(key)),
            WatchLine::Bookmark { resource_version } => (resource_version.clone(), Event::Bookmark { resource_version }),
            WatchLine::Undecodable { object, resource_version } => {
                tracing::warn!(kind = self.kind.resource(), object = %object.key, why = object.why, "does not decode");
                (resource_version, Event::Undecodable(object))
            }
            WatchLine::Error { code, reason, message } => {
                let text = format!("{code} {reason}: {message}");
                let expired = code == 410 || matches!(reason.as_str(), "Expired" | "Gone");
                return Ok(Some(if expired { Failure::Expired(text) } else { Failure::Other(text) }));
            }
        };
        self.newest = self.newest.max(number(&version));
        if !version.is_empty() {
            self.at = Some(version);
        }
        self.send(event).await.map(|()| None)
    }

    async fn live(&mut self) -> Result<(), Unread> {
        self.backoff.works();
        self.state(WatchState::Live).await
    }

    async fn report(&mut self, failure: Failure, pause: Duration) -> Result<(), Unread> {
        self.board.count_error(self.kind);
        let resource = self.kind.resource();
        // Not served at all, as opposed to forbidden: then we only do not know.
        let absent = matches!(&failure, Failure::Call(error) if error.is_not_found());
        let state = match failure {
            Failure::Call(error) if error.is_not_found() => {
                let hint = if self.served.group == crate::api::GROUP {
                    "; install the CRDs (lockkeeper manifests prints them)"
                } else {
                    ""
                };
                WatchState::Unavailable { why: format!("{} does not serve {resource}{hint}", self.cluster.info().context) }
            }
            Failure::Call(error) if error.is_forbidden() => {
                let verb = if self.at.is_none() { "list" } else { "watch" };
                let user = &self.cluster.info().user;
                let who = if user.is_empty() { "this user" } else { user.as_str() };
                WatchState::Unavailable {
                    why: format!(
                        "{who} may not {verb} {resource}; grant get, list and watch (lockkeeper manifests prints the roles)"
                    ),
                }
            }
            Failure::Expired(error) | Failure::Other(error) => self.retrying(error, pause),
            Failure::Call(error) => self.retrying(error.to_string(), pause),
        };
        tracing::debug!(kind = resource, ?state, "watch");
        if absent && !self.listed_once {
            // A kind that is not served has no objects: nothing waits for its first list.
            self.send(Event::Init).await?;
            self.send(Event::InitDone { resource_version: Str::default() }).await?;
            self.listed_once = true;
        }
        self.state(state).await
    }

    fn retrying(&self, error: String, pause: Duration) -> WatchState {
        let now = self.cluster.clock().now();
        WatchState::Retrying { error, since: now, next: now + SignedDuration::try_from(pause).unwrap_or_default() }
    }

    async fn state(&mut self, state: WatchState) -> Result<(), Unread> {
        if self.board.set(self.kind, state) {
            return self.out.send(Signal::Health(self.kind)).await.map_err(|_| Unread);
        }
        Ok(())
    }

    async fn send(&mut self, event: Event) -> Result<(), Unread> {
        self.out.send(Signal::Change(Change { kind: self.kind, event })).await.map_err(|_| Unread)
    }
}

/// Resource versions are numbers that rise with every write; 0: this one is none, and proves nothing.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

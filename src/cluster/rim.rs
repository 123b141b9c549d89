//! The one service that every request passes: gate, time limit, clock, counters and log of writes, around any client.
//! It changes no request and no answer, except that bodies of unary answers are collected within their time limit.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use super::{
    audit::WriteLog,
    clock::Clock,
    counters::Counters,
    credentials::{Line, NotAccepted},
    error::Refusal,
    kubectl, read_only,
    request::{Target, Verb},
};
use crate::engine::picture::WriteLogEntry;

/// In a request's extensions: the total time it may take. Without it, lists may take [`LIST_LIMIT`] and all else [`CALL_LIMIT`].
#[derive(Debug, Clone, Copy)]
pub struct Limit(pub Duration);

/// In a request's extensions: why it is sent, for the log of writes.
#[derive(Debug, Clone)]
pub struct Why(pub Arc<str>);

/// In a request's extensions: a write made every few seconds (a lease renewal), logged only when it fails.
#[derive(Debug, Clone, Copy)]
pub struct Routine;

/// A request without an own limit that took this long would hide a dead server from a person.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);
/// A page of 500 pods is 5 MB.
pub const LIST_LIMIT: Duration = Duration::from_secs(60);
/// A watch answers with its headers at once, even when nothing happens.
pub const STREAM_LIMIT: Duration = Duration::from_secs(30);

/// A request got no answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct NoAnswer(pub Duration);

/// What all requests of one cluster share.
#[derive(Debug, Clone, Default)]
pub struct Rim {
    pub read_only: bool,
    pub clock: Clock,
    pub counters: Counters,
    pub log: WriteLog,
}

impl Rim {
    /// A client whose every request passes this rim before the line's client sends it.
    pub fn around(&self, line: &Line, namespace: &str) -> kube::Client {
        kube::Client::new(Guarded { rim: self.clone(), line: line.clone() }, namespace)
    }

    async fn pass(self, line: Line, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let target = Target::of(request.method(), request.uri());
        if self.read_only {
            read_only::check(&target)?;
        }
        let written = if target.verb.changes_something() && !target.is_self_review() {
            let sent = match request.body().try_clone() {
                Some(body) => body.collect_bytes().await.unwrap_or_default(),
                None => bytes::Bytes::new(),
            };
            Some(Written::of(request.method(), request.extensions(), &sent, &target))
        } else {
            None
        };
        let stream = target.is_stream();
        let limit = request.extensions().get::<Limit>().map_or_else(|| default_limit(&target), |limit| limit.0);
        let sent = Instant::now();
        // What is held back was not sent: it is neither counted nor logged.
        let (generation, client) = timeout(limit, line.client()).await.map_err(|_| NoAnswer(limit))??;
        let left = limit.saturating_sub(sent.elapsed());
        // All of it within the limit: a write must not come later than whoever sent it may hold its lease.
        let answer = timeout(left, async {
            let response = send(&line, generation, &client, request).await?;
            if stream && response.status().is_success() {
                return Ok((response, None));
            }
            let (parts, body) = response.into_parts();
            let bytes = body.collect_bytes().await.map_err(BoxError::from)?;
            Ok((Response::from_parts(parts, Body::from(bytes.clone())), Some(bytes)))
        })
        .await
        .unwrap_or_else(|_| Err(BoxError::from(NoAnswer(limit))));
        let took = sent.elapsed();
        let code = match &answer {
            Ok((response, _)) => response.status().as_u16(),
            Err(error) if error.is::<NotAccepted>() => 401,
            Err(_) => 0,
        };
        if let Ok((response, _)) = &answer {
            self.clock.observe(response.headers(), sent);
        }
        self.counters.add(&target, code, took);
        if let Some(written) = written {
            let message = match &answer {
                Err(error) => error.to_string(),
                Ok((response, bytes)) if !response.status().is_success() => {
                    Refusal::read(code, response.headers(), bytes.as_deref().unwrap_or_default()).to_string()
                }
                Ok(_) => String::new(),
            };
            if !(written.routine && message.is_empty()) {
                self.log.push(WriteLogEntry {
                    at: self.clock.now(),
                    verb: written.method,
                    object: target.object_word(),
                    why: written.why,
                    kubectl: written.kubectl,
                    code: (code != 0).then_some(code),
                    millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                    message,
                });
            }
        }
        answer.map(|(response, _)| response)
    }
}

/// None for a body that can be read only once; ours are all of bytes.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Once more with other credentials if those that there were are not accepted: the server has done nothing before it knows who asks.
async fn send(line: &Line, generation: u64, client: &kube::Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if !line.renews() {
        return client.send(request).await.map_err(BoxError::from);
    }
    let again = copy(&request);
    match client.send(request).await {
        Ok(response) if response.status() == http::StatusCode::UNAUTHORIZED => {
            let client = line.refused(generation).await?;
            match again {
                Some(again) => client.send(again).await.map_err(BoxError::from),
                None => Ok(response),
            }
        }
        Ok(response) => Ok(response),
        Err(error) => {
            line.broke().await;
            Err(error.into())
        }
    }
}

fn default_limit(target: &Target) -> Duration {
    match target.verb {
        _ if target.is_stream() => STREAM_LIMIT,
        Verb::List => LIST_LIMIT,
        _ => CALL_LIMIT,
    }
}

/// What the log keeps of a write, taken before the request is given away.
struct Written {
    method: String,
    why: String,
    kubectl: String,
    routine: bool,
}

impl Written {
    fn of(method: &http::Method, extensions: &http::Extensions, body: &[u8], target: &Target) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        Self {
            method: method.to_string(),
            why: extensions.get::<Why>().map(|why| why.0.to_string()).unwrap_or_default(),
            kubectl: kubectl::equivalent(target, &body),
            routine: extensions.get::<Routine>().is_some(),
        }
    }
}

struct Guarded {
    rim: Rim,
    line: Line,
}

impl tower::Service<Request<Body>> for Guarded {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.rim.clone().pass(self.line.clone(), request))
    }
}

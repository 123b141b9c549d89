//! The admin port: `/live`, `/ready`, `/metrics`, `/diagnostics`. It reads what the engine shows; it changes nothing.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{
    diagnostics,
    heartbeat::LIMIT,
    metrics::{Exposition, Sources},
};
use crate::fleet::view::{WatchHealth, WatchState};

/// Connections at once; a probe that finds none free waits.
const CONNECTIONS: usize = 64;
/// A peer that sends no request for this long is let go.
const HEADER_LIMIT: Duration = Duration::from_secs(10);

/// What is asked of it, answered. Cheap to clone.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    sources: Sources,
    exposition: Exposition,
    /// `/diagnostics` is for whoever can reach the port; else only for this machine (`kubectl port-forward` is on it).
    open_diagnostics: bool,
}

impl Admin {
    pub fn new(sources: Sources, open_diagnostics: bool) -> Self {
        Self(Arc::new(Inner { exposition: Exposition::new(sources.clone()), sources, open_diagnostics }))
    }

    /// Serves until it is dropped.
    pub async fn serve(self, listener: TcpListener) {
        let free = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let admin = self.clone();
                    tokio::spawn(async move {
                        admin.connection(stream, peer).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    // No descriptors are left, most likely: they come back.
                    tracing::warn!(%error, "the admin port takes no connection");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr) {
        let service = service_fn(|request: hyper::Request<Incoming>| {
            let answer = self.answer(request.method(), request.uri().path(), peer);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, %peer, "a connection of the admin port ended");
        }
    }

    /// One request, answered from what is known at this moment.
    pub fn answer(&self, method: &Method, path: &str, peer: SocketAddr) -> Response<Full<Bytes>> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match path {
            "/live" | "/ready" | "/metrics" | "/diagnostics" if !reads => {
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned())
            }
            "/live" => self.live(),
            "/ready" => self.ready(),
            "/metrics" => match self.0.exposition.text() {
                Ok(told) => respond(StatusCode::OK, Exposition::CONTENT_TYPE, told),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the metrics: {error}\n")),
            },
            "/diagnostics" if !self.0.open_diagnostics && !peer.ip().to_canonical().is_loopback() => text(
                StatusCode::FORBIDDEN,
                "only for this machine (kubectl port-forward), unless started with --open-diagnostics\n".to_owned(),
            ),
            "/diagnostics" => {
                let told = format!("{:#}\n", diagnostics::diagnostics(&self.0.sources));
                respond(StatusCode::OK, "application/json", told)
            }
            _ => text(StatusCode::NOT_FOUND, "there are /live, /ready, /metrics and /diagnostics\n".to_owned()),
        }
    }

    /// Whether the loop goes round. Not whether the API server answers: to restart this process would not mend that.
    fn live(&self) -> Response<Full<Bytes>> {
        let heartbeat = &self.0.sources.probes.heartbeat;
        let age = heartbeat.age().as_secs();
        if heartbeat.is_alive() {
            text(StatusCode::OK, format!("ok: the loop went round {age} s ago\n"))
        } else {
            let limit = LIMIT.as_secs();
            text(StatusCode::SERVICE_UNAVAILABLE, format!("stuck: the loop went round {age} s ago, the limit is {limit} s\n"))
        }
    }

    /// Whether everything needed has been listed once. One that stands by is ready as well as the one that acts.
    fn ready(&self) -> Response<Full<Bytes>> {
        let picture = self.0.sources.pictures.borrow().clone();
        if picture.fleet.synced {
            let role = if picture.leadership.ours { "acts" } else { "stands by" };
            return text(StatusCode::OK, format!("ok: everything needed has been listed; this process {role}\n"));
        }
        let missing: Vec<String> = self.0.sources.watches(&picture).iter().filter_map(missing).collect();
        let missing = if missing.is_empty() { "the first picture is not made yet".to_owned() } else { missing.join("\n") };
        text(StatusCode::SERVICE_UNAVAILABLE, format!("not everything needed has been listed:\n{missing}\n"))
    }
}

fn missing(watch: &WatchHealth) -> Option<String> {
    let resource = &watch.resource;
    match &watch.state {
        _ if !watch.required => None,
        WatchState::Live => None,
        WatchState::Syncing => Some(format!("{resource}: being listed")),
        WatchState::Retrying { error, .. } => Some(format!("{resource}: {error}")),
        WatchState::Unavailable { why } => Some(format!("{resource}: {why}")),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;

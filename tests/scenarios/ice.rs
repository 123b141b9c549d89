//! An engine that is stopped and goes on later, as SIGSTOP and SIGCONT do: while it is on ice nothing it sends arrives and nothing that is
//! sent to it is seen, and what it had sent arrives late, whether or not it still waits for the answer. What is judged by it is the story's.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::sync::Notify;
use tower::BoxError;

/// The handle; clones share it.
#[derive(Clone, Default)]
pub struct Ice(Arc<State>);

#[derive(Default)]
struct State {
    frozen: AtomicBool,
    thaw: Notify,
    /// Freeze at the n-th write from now, before it is sent.
    armed: Mutex<Option<u32>>,
    struck: Notify,
    held: AtomicU64,
    landed: AtomicU64,
}

impl Ice {
    pub fn freeze(&self) {
        self.0.frozen.store(true, Ordering::Relaxed);
    }

    pub fn thaw(&self) {
        *self.armed() = None;
        self.0.frozen.store(false, Ordering::Relaxed);
        self.0.thaw.notify_waiters();
    }

    pub fn is_frozen(&self) -> bool {
        self.0.frozen.load(Ordering::Relaxed)
    }

    /// It freezes between the decision and the n-th write from now, renewals of the Lease aside.
    pub fn arm(&self, nth: u32) {
        *self.armed() = Some(nth);
    }

    /// Resolves when an armed freeze has struck.
    pub async fn struck(&self) {
        self.0.struck.notified().await;
    }

    /// Writes that were held back, and how many of them the server then accepted.
    pub fn late_writes(&self) -> (u64, u64) {
        (self.0.held.load(Ordering::Relaxed), self.0.landed.load(Ordering::Relaxed))
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, Option<u32>> {
        self.0.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn thawed(&self) {
        loop {
            let mut notified = std::pin::pin!(self.0.thaw.notified());
            notified.as_mut().enable();
            if !self.is_frozen() {
                return;
            }
            notified.await;
        }
    }

    fn about_to_write(&self) {
        let mut armed = self.armed();
        match *armed {
            Some(0 | 1) => {
                *armed = None;
                drop(armed);
                self.freeze();
                self.0.struck.notify_one();
            }
            Some(n) => *armed = Some(n - 1),
            None => {}
        }
    }

    /// The same client, for a process that may be put on this ice.
    pub fn around(&self, inner: kube::Client) -> kube::Client {
        kube::Client::new(Cold { ice: self.clone(), inner }, "default")
    }

    async fn pass(self, inner: kube::Client, request: Request<Body>) -> Result<Response<Late>, BoxError> {
        let path = request.uri().path();
        let writes = *request.method() != Method::GET && !path.contains("/leases/") && !path.contains("selfsubject");
        if writes {
            self.about_to_write();
        }
        let late = writes && self.is_frozen();
        self.thawed().await;
        let response = inner.send(request).await?;
        if late {
            self.0.held.fetch_add(1, Ordering::Relaxed);
            self.0.landed.fetch_add(u64::from(response.status().is_success()), Ordering::Relaxed);
        }
        self.thawed().await;
        let (parts, body) = response.into_parts();
        let frames = futures::stream::unfold((body, self), |(mut body, ice)| async move {
            let frame = body.frame().await?;
            ice.thawed().await;
            Some((frame.map_err(BoxError::from), (body, ice)))
        });
        Ok(Response::from_parts(parts, UnsyncBoxBody::new(StreamBody::new(frames))))
    }
}

/// An answer whose rest waits while the client is on ice.
type Late = UnsyncBoxBody<bytes::Bytes, BoxError>;

struct Cold {
    ice: Ice,
    inner: kube::Client,
}

impl tower::Service<Request<Body>> for Cold {
    type Response = Response<Late>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Late>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // A task of its own: what a stopped process has sent is on its way even when the process has given up waiting for it.
        let sent = tokio::spawn(self.ice.clone().pass(self.inner.clone(), request));
        Box::pin(async move { sent.await.map_err(BoxError::from)? })
    }
}

//! A connected cluster: who it is, and the one client through which everything passes. How it is found is in `connect.rs`.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{
    audit::WriteLog,
    call::{Call, unary},
    clock::Clock,
    counters::Counters,
    credentials::{Line, Source},
    error::CallError,
    rim::Rim,
};
use crate::fleet::view::ClusterInfo;

/// Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    line: Line,
    rim: Rim,
    info: Arc<ClusterInfo>,
}

/// Proof that writing is allowed at all: there is none in read-only mode, so there is no `Writer` either.
#[derive(Debug, Clone, Copy)]
pub struct WriteCap(());

impl Cluster {
    /// Over any client: a real one, or a simulated API server. `context` and `server` are shown to people; nothing is asked of the server yet.
    pub fn over(client: kube::Client, read_only: bool, context: &str, server: &str) -> Self {
        let rim = Rim { read_only, ..Rim::default() };
        let info = ClusterInfo { context: context.to_owned(), server: server.to_owned(), ..ClusterInfo::default() };
        let namespace = client.default_namespace().to_owned();
        let line = Line::new(client);
        Self { client: rim.around(&line, &namespace), line, rim, info: Arc::new(info) }
    }

    /// Credentials that this cluster does not accept any more are read again from there, in all clones. After [`Cluster::identified`]: no
    /// other cluster than that one is gone to.
    #[must_use]
    pub fn renewing(self, source: Arc<dyn Source>) -> Self {
        self.line.renew_from(source, self.rim.clock.clone(), &self.info.uid);
        self
    }

    /// Ask the server who it is and who we are. Only the version must answer: the rest may be forbidden and then stays empty.
    ///
    /// # Errors
    /// The server does not answer `/version`.
    pub async fn identified(self) -> Result<Self, CallError> {
        let mut info = (*self.info).clone();
        let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        info.version = text(&self.json(Call::get("/version")).await?, "/gitVersion");
        if let Ok(namespace) = self.json(Call::get("/api/v1/namespaces/kube-system")).await {
            info.uid = text(&namespace, "/metadata/uid");
        }
        let review = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        if let Ok(review) = self.json(Call::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)).await {
            info.user = text(&review, "/status/userInfo/username");
        }
        Ok(Self { info: Arc::new(info), ..self })
    }

    /// Send one request and get the body of its 2xx answer.
    pub async fn call(&self, call: Call) -> Result<Bytes, CallError> {
        unary(&self.client, call).await
    }

    /// As [`Cluster::call`], decoded as JSON of any shape.
    pub async fn json(&self, call: Call) -> Result<Value, CallError> {
        let body = self.call(call).await?;
        serde_json::from_slice(&body)
            .map_err(|error| CallError::Undecodable { what: "answer".to_owned(), why: error.to_string() })
    }

    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    pub fn info(&self) -> &Arc<ClusterInfo> {
        &self.info
    }

    pub fn clock(&self) -> &Clock {
        &self.rim.clock
    }

    pub fn log(&self) -> &WriteLog {
        &self.rim.log
    }

    pub fn counters(&self) -> &Counters {
        &self.rim.counters
    }

    pub fn read_only(&self) -> bool {
        self.rim.read_only
    }

    /// None in read-only mode.
    pub fn write_cap(&self) -> Option<WriteCap> {
        (!self.rim.read_only).then_some(WriteCap(()))
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("info", &self.info).field("read_only", &self.rim.read_only).finish_non_exhaustive()
    }
}

//! One request and its answer's bytes. No retry, no decoding: an answer's meaning is its caller's.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;

use super::{
    credentials::NotAccepted,
    error::{CallError, Refusal, chain},
    read_only::ReadOnly,
    request::Target,
    rim::{Limit, NoAnswer, Routine, Why},
};

/// A request in the making.
#[derive(Debug)]
pub struct Call {
    method: Method,
    /// Path and query.
    uri: String,
    body: Vec<u8>,
    content_type: Option<&'static str>,
    limit: Option<Duration>,
    why: Arc<str>,
    routine: bool,
}

pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const JSON: &str = "application/json";

impl Call {
    pub fn get(uri: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            uri: uri.into(),
            body: Vec::new(),
            content_type: None,
            limit: None,
            why: "".into(),
            routine: false,
        }
    }

    pub fn post(uri: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::get(uri).with(Method::POST, JSON, body)
    }

    pub fn put(uri: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::get(uri).with(Method::PUT, JSON, body)
    }

    pub fn merge_patch(uri: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::get(uri).with(Method::PATCH, MERGE_PATCH, body)
    }

    pub fn delete(uri: impl Into<String>, options: &serde_json::Value) -> Self {
        Self::get(uri).with(Method::DELETE, JSON, options)
    }

    fn with(mut self, method: Method, content_type: &'static str, body: &serde_json::Value) -> Self {
        self.method = method;
        self.content_type = Some(content_type);
        self.body = body.to_string().into_bytes();
        self
    }

    /// The total time it may take, instead of the default of its verb.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Why it is sent, for the log of writes.
    pub fn why(mut self, why: &str) -> Self {
        self.why = why.into();
        self
    }

    /// Logged only when it fails.
    pub fn routine(mut self) -> Self {
        self.routine = true;
        self
    }

    /// `list pods`, `patch node n1`: for error texts.
    fn what(&self) -> String {
        let Ok(uri) = self.uri.parse() else { return format!("{} {}", self.method, self.uri) };
        let target = Target::of(&self.method, &uri);
        if target.resource.starts_with('/') {
            format!("{} {}", self.method, target.resource)
        } else {
            format!("{} {}", target.verb.as_str(), target.object_word())
        }
    }

    fn build(self) -> Result<Request<Body>, http::Error> {
        let mut request = Request::builder().method(self.method).uri(self.uri).header(http::header::ACCEPT, JSON);
        if let Some(content_type) = self.content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let mut request = request.body(Body::from(self.body))?;
        if let Some(limit) = self.limit {
            request.extensions_mut().insert(Limit(limit));
        }
        if !self.why.is_empty() {
            request.extensions_mut().insert(Why(self.why));
        }
        if self.routine {
            request.extensions_mut().insert(Routine);
        }
        Ok(request)
    }
}

/// A text as the value of a query parameter.
pub fn query_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            value.push(char::from(byte));
        } else {
            value.push_str(&format!("%{byte:02X}"));
        }
    }
    value
}

/// Send it and return the whole body of a 2xx answer.
pub async fn unary(client: &kube::Client, call: Call) -> Result<Bytes, CallError> {
    let what = call.what();
    let response = send(client, call, &what, None).await?;
    response.into_body().collect_bytes().await.map_err(|error| CallError::Transport { what, why: chain(&error) })
}

/// Send a watch and return its 2xx answer with the body still running.
/// Since Kubernetes 1.37 servers gzip watch events one by one, which the client's decoder cannot read: identity is asked for.
pub async fn stream(client: &kube::Client, call: Call) -> Result<Response<Body>, CallError> {
    let what = call.what();
    send(client, call, &what, Some("identity")).await
}

async fn send(
    client: &kube::Client,
    call: Call,
    what: &str,
    encoding: Option<&'static str>,
) -> Result<Response<Body>, CallError> {
    let mut request = call.build().map_err(|error| CallError::Transport { what: what.to_owned(), why: chain(&error) })?;
    if let Some(encoding) = encoding {
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static(encoding));
    }
    let response = client.send(request).await.map_err(|error| sort(what, error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map(|collected| collected.to_bytes()).unwrap_or_default();
    Err(CallError::Refused {
        what: what.to_owned(),
        refusal: Box::new(Refusal::read(parts.status.as_u16(), &parts.headers, &body)),
    })
}

/// Errors of the rim come boxed through the client; everything else is transport.
fn sort(what: &str, error: kube::Error) -> CallError {
    if let kube::Error::Service(inner) = &error {
        if let Some(refused) = inner.downcast_ref::<ReadOnly>() {
            return CallError::ReadOnly(refused.clone());
        }
        if let Some(why) = inner.downcast_ref::<NotAccepted>() {
            return CallError::NotAccepted { what: what.to_owned(), why: why.clone() };
        }
        if let Some(NoAnswer(limit)) = inner.downcast_ref::<NoAnswer>() {
            return CallError::TimedOut { what: what.to_owned(), limit: *limit };
        }
    }
    CallError::Transport { what: what.to_owned(), why: chain(&error) }
}

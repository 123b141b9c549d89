//! A scripted server for tests of this folder: what it answers is a closure, what it was asked is kept.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;

use super::Cluster;

/// A request as the server got it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub method: Method,
    pub uri: String,
    pub content_type: String,
    pub body: Value,
}

/// What it answers.
pub enum Answer {
    Json(u16, Value),
    /// A body in chunks, each after a pause; it stays open after the last.
    Stream(Vec<(std::time::Duration, String)>),
    /// As `Stream`, but it ends after the last.
    Ended(Vec<(std::time::Duration, String)>),
    Never,
}

pub fn status(code: u16, reason: &str) -> Answer {
    Answer::Json(
        code,
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason}),
    )
}

#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Asked>>>);

impl Heard {
    pub fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }
}

/// A cluster whose server is `answer`. Its responses carry no `Date`.
pub fn cluster(read_only: bool, answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> (Cluster, Heard) {
    let heard = Heard::default();
    let kept = heard.clone();
    let answer = Arc::new(Mutex::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kept, answer) = (kept.clone(), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let content_type = parts.headers.get("content-type").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
            let asked = Asked {
                method: parts.method,
                uri: parts.uri.to_string(),
                content_type,
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            kept.0.lock().unwrap().push(asked.clone());
            let answer = (*answer.lock().unwrap())(&asked);
            let response = match answer {
                Answer::Json(code, value) => {
                    Response::builder().status(code).body(boxed(vec![(std::time::Duration::ZERO, value.to_string())], false))
                }
                Answer::Stream(chunks) => Response::builder().status(200).body(boxed(chunks, true)),
                Answer::Ended(chunks) => Response::builder().status(200).body(boxed(chunks, false)),
                Answer::Never => std::future::pending().await,
            };
            Ok::<_, BoxError>(response?)
        }
    });
    (Cluster::over(kube::Client::new(service, "default"), read_only, "test", "http://test"), heard)
}

type Chunks = http_body_util::StreamBody<futures::stream::BoxStream<'static, Result<http_body::Frame<bytes::Bytes>, BoxError>>>;

fn boxed(chunks: Vec<(std::time::Duration, String)>, open: bool) -> Chunks {
    use futures::StreamExt;
    let given = futures::stream::iter(chunks).then(|(pause, text)| async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(http_body::Frame::data(bytes::Bytes::from(text)))
    });
    http_body_util::StreamBody::new(if open { given.chain(futures::stream::pending()).boxed() } else { given.boxed() })
}

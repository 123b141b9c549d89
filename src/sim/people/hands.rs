//! What a person does with kubectl, as plain requests: retried a few times, since people retry. No knowledge of lockkeeper.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::seen::Items;
use crate::sim::scenarios::objects::Object;

/// The field manager that kubectl uses.
const MANAGER: &str = "kubectl";

/// A person at a keyboard.
#[derive(Clone)]
pub struct Hands {
    client: Client,
}

/// The server's last answer, when it was no.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}: {why}")]
pub struct No {
    pub method: Method,
    pub path: String,
    pub code: u16,
    pub why: String,
}

impl Hands {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends it until the server says yes, or no for a reason that does not go away; at most about a minute.
    pub async fn send(&self, method: Method, path: &str, content: &str, body: Option<&Value>) -> Result<Value, No> {
        self.send_for(method, path, content, body).await
    }

    async fn send_for<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<T, No> {
        let mut last = (0, String::from("no answer"));
        for attempt in 0..20u32 {
            let separator = if path.contains('?') { '&' } else { '?' };
            let uri = match method {
                Method::GET => path.to_owned(),
                _ => format!("{path}{separator}fieldManager={MANAGER}"),
            };
            let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
            let Ok(request) = Request::builder().method(method.clone()).uri(uri).header("content-type", content).body(bytes)
            else {
                break;
            };
            match tokio::time::timeout(Duration::from_secs(10), self.client.request::<T>(request)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(kube::Error::Api(status))) => {
                    last = (status.code, status.message.clone());
                    let settled = match status.code {
                        // With a resourceVersion in the body the same request would fail for ever: look again first.
                        409 => {
                            status.reason == "AlreadyExists"
                                || body.is_some_and(|body| body.pointer("/metadata/resourceVersion").is_some())
                        }
                        429 | 500..=599 => false,
                        _ => true,
                    };
                    if settled {
                        break;
                    }
                }
                Ok(Err(error)) => last.1 = error.to_string(),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(200 * u64::from(attempt + 1))).await;
        }
        Err(No { method, path: path.to_owned(), code: last.0, why: last.1 })
    }

    /// Creates it; that it exists already is fine.
    pub async fn create(&self, object: &Object) -> Result<(), No> {
        match self.send(Method::POST, &object.collection(), "application/json", Some(&object.body)).await {
            Err(no) if no.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value, No> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// One object, or none.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, No> {
        match self.send_for(Method::GET, path, "application/json", None).await {
            Err(no) if no.code == 404 => Ok(None),
            other => other.map(Some),
        }
    }

    pub async fn items<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, No> {
        Ok(self.send_for::<Items<T>>(Method::GET, path, "application/json", None).await?.items)
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Result<Value, No> {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<(), No> {
        match self.send(Method::DELETE, path, "application/json", None).await {
            Err(no) if no.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    /// `kubectl label node NAME KEY=VALUE`, or `KEY-`.
    pub async fn label_node(&self, node: &str, key: &str, value: Option<&str>) -> Result<Value, No> {
        self.merge(&format!("/api/v1/nodes/{node}"), &json!({"metadata": {"labels": {key: value}}})).await
    }

    /// `kubectl cordon NAME`, or `uncordon`.
    pub async fn cordon(&self, node: &str, closed: bool) -> Result<Value, No> {
        let value = if closed { json!(true) } else { Value::Null };
        self.merge(&format!("/api/v1/nodes/{node}"), &json!({"spec": {"unschedulable": value}})).await
    }
}

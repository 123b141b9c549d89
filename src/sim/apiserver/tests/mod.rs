//! The server as kube's own client, watcher and hand-made requests see it.

mod basics;
mod chaos;
mod custom;
mod lifecycle;
mod listening;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::*;

fn server() -> ApiServer {
    ApiServer::new(Config::default())
}

fn node(name: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": "a"}}})).unwrap()
}

fn pod(name: &str, node: &str) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    serde_json::from_value(pod).unwrap()
}

fn refused(error: kube::Error) -> (u16, String, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("not a refusal: {other:?}"),
    }
}

async fn raw(client: &kube::Client, method: &str, path: &str, content: &str, body: &Value) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    if !content.is_empty() {
        request = request.header("content-type", content);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(kube::client::Body::from(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

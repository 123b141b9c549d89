//! The same server on a loopback address, for kubectl and for tests of the real binary: plain HTTP, users told apart by a token.
//! The token comes as a bearer token or as the head of the path (`/as/TOKEN/api/v1/...`): kubectl sends no bearer token without TLS.
//! The clock must not be a free-running paused one: hold it back to real time, or virtual time races while a client thinks.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::body::SimBody;
use super::call::Identity;
use super::rbac::Ask;
use super::refusal::Refusal;
use super::server::ApiServer;

/// A running listener; it ends when this is dropped.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    tokens: BTreeMap<String, Identity>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// Serves the identities, each under a token that anybody can guess: for tests. Must be called on the server's runtime.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve(&self, listener: TcpListener, identities: &[Identity]) -> io::Result<Listening> {
        self.serve_by_token(listener, identities.iter().map(|i| (format!("{}-token", i.client), i.clone())).collect())
    }

    /// Serves the identities, each under its token. Must be called on the server's runtime.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve_by_token(&self, listener: TcpListener, tokens: BTreeMap<String, Identity>) -> io::Result<Listening> {
        let address = listener.local_addr()?;
        let server = self.clone();
        let by_token = Arc::new(tokens.clone());
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (server, by_token) = (server.clone(), by_token.clone());
                        tokio::spawn(connection(server, by_token, stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the simulated API server cannot accept a connection");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Listening { address, tokens, task })
    }
}

async fn connection(server: ApiServer, tokens: Arc<BTreeMap<String, Identity>>, stream: tokio::net::TcpStream) {
    stream.set_nodelay(true).unwrap_or_default();
    let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (token, request) = authenticate(request);
        let identity = token.and_then(|token| tokens.get(&token)).cloned();
        let server = server.clone();
        let as_whom = identity.ok_or_else(unauthorized).and_then(|it| impersonated(&server, it, request.headers()));
        async move {
            match as_whom {
                Ok(identity) => server.dispatch(&identity, request).await,
                Err(refusal) => Ok(refused(&refusal)),
            }
        }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the simulated API server ended");
    }
}

/// The token of a request, and the request without it.
fn authenticate<B>(mut request: http::Request<B>) -> (Option<String>, http::Request<B>) {
    let text = request.uri().to_string();
    if let Some((token, rest)) = text.strip_prefix("/as/").and_then(|t| t.split_once('/'))
        && let Ok(uri) = format!("/{rest}").parse()
    {
        let token = token.to_owned();
        *request.uri_mut() = uri;
        return (Some(token), request);
    }
    let bearer = request.headers().get("authorization").and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
    (bearer.map(str::to_owned), request)
}

fn unauthorized() -> Refusal {
    Refusal::new(401, "Unauthorized", "Unauthorized")
}

/// Whom the request is made as (`kubectl --as`): an administrator may act for everybody, others as the roles say.
fn impersonated(server: &ApiServer, who: Identity, headers: &http::HeaderMap) -> Result<Identity, Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(user) = header("impersonate-user") else { return Ok(who) };
    let ask = Ask { verb: "impersonate", group: "", resource: "users", sub: "", namespace: "", name: user };
    if !server.state().may(&who, &ask) {
        let message = format!(
            "users {user:?} is forbidden: User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            who.user
        );
        return Err(Refusal::new(403, "Forbidden", message));
    }
    let groups = headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok()).map(str::to_owned);
    let mut groups: Vec<String> = groups.collect();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".into());
    }
    Ok(Identity { client: who.client, user: user.to_owned(), groups })
}

fn refused(refusal: &Refusal) -> Response<SimBody> {
    let mut response = Response::new(SimBody::Full(Some(refusal.to_status().to_string().into())));
    *response.status_mut() = http::StatusCode::from_u16(refusal.code).unwrap_or(http::StatusCode::UNAUTHORIZED);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

impl Listening {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The token of a client name.
    pub fn token(&self, client: &str) -> Option<&str> {
        self.tokens.iter().find(|(_, i)| i.client == client).map(|(t, _)| t.as_str())
    }

    /// A kubeconfig with one context per identity, named after its client; the first is current. (JSON, which is YAML.)
    pub fn kubeconfig(&self, cluster: &str) -> String {
        let names: Vec<&str> = self.tokens.values().map(|i| i.client.as_str()).collect();
        let per_token = |make: &dyn Fn(&str, &str) -> Value| -> Vec<Value> {
            self.tokens.iter().map(|(token, i)| make(token, &i.client)).collect()
        };
        let name_of = |client: &str| format!("{cluster}-{client}");
        let clusters = per_token(
            &|token, client| json!({"name": name_of(client), "cluster": {"server": format!("{}/as/{token}", self.url())}}),
        );
        let contexts = per_token(
            &|_, client| json!({"name": client, "context": {"cluster": name_of(client), "user": client, "namespace": "default"}}),
        );
        let users = per_token(&|token, client| json!({"name": client, "user": {"token": token}}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "clusters": clusters, "users": users, "contexts": contexts,
            "current-context": names.first(),
        });
        format!("{config:#}\n")
    }
}

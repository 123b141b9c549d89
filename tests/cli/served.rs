//! The simulated API server on a loopback port, with every request counted: what the program sends, seen from outside of it.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
};

use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use lockkeeper::{
    api::{NodeComponent, NodeHandoff},
    sim::apiserver::{ApiServer, Config, Identity},
};
use serde_json::{Value, json};

pub struct Served {
    pub server: ApiServer,
    /// Method and path with query, in the order in which they came.
    requests: Arc<Mutex<Vec<(String, String)>>>,
    token: Token,
    address: SocketAddr,
    pub kubeconfig: PathBuf,
}

/// The one token that is accepted; None: any.
type Token = Arc<Mutex<Option<String>>>;

/// What the cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    All,
    /// Neither CRDs nor objects of ours.
    NoObjects,
    /// Everything, but the user may do nothing.
    NoRights,
}

impl Served {
    /// Nodes `n1` to `n3` and component `kmods/gpu` of version 2.0; `more` is installed too.
    pub fn start(home: &Path, install: Install, more: &[Value]) -> Self {
        let requests: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let (send, receive) = mpsc::channel();
        let (heard, token) = (requests.clone(), Token::default());
        let accepted = token.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(heard, accepted, send, install));
        });
        let (server, address) = receive.recv().expect("the server starts");
        if install != Install::NoObjects {
            server.install_crd::<NodeComponent>().expect("CRD");
            server.install_crd::<NodeHandoff>().expect("CRD");
        }
        for object in fixtures(install).iter().chain(more) {
            server.install(object.clone()).expect("fixture");
        }
        server.enforce_rbac(install == Install::NoRights);
        let served = Self { server, requests, token, address, kubeconfig: home.join("kubeconfig") };
        served.log_in("t");
        served
    }

    /// The kubeconfig gets another token.
    pub fn log_in(&self, token: &str) {
        let address = self.address;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: sim, context: {{cluster: c, user: u, namespace: kmods}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
        );
        fs::write(&self.kubeconfig, text).expect("a kubeconfig");
    }

    /// From now on the server accepts this token and no other.
    pub fn accept(&self, token: &str) {
        *self.token.lock().expect("no panic") = Some(token.to_owned());
    }

    /// The arguments, on this cluster.
    pub fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut all = args.to_vec();
        all.extend(["--kubeconfig", self.kubeconfig.to_str().expect("UTF-8")]);
        all
    }

    pub fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Requests that could change something: all but reads and reviews.
    pub fn mutating(&self) -> Vec<(String, String)> {
        let review = |path: &str| path.contains("reviews");
        self.requests().into_iter().filter(|(method, path)| method != "GET" && !(method == "POST" && review(path))).collect()
    }

    pub fn handoff(&self, name: &str) -> Option<Value> {
        self.server.get("nodehandoffs.lockkeeper.dev", "kmods", name).map(|object| (*object).clone())
    }
}

async fn serve(
    heard: Arc<Mutex<Vec<(String, String)>>>,
    accepted: Token,
    started: mpsc::Sender<(ApiServer, SocketAddr)>,
    install: Install,
) {
    let server = ApiServer::new(Config::default());
    let identity = Identity::new("cli");
    let client = server.client(&if install == Install::NoRights { identity.user("nobody") } else { identity });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    started.send((server, address)).expect("the test waits");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (client, heard, accepted) = (client.clone(), heard.clone(), accepted.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (client, heard, accepted) = (client.clone(), heard.clone(), accepted.clone());
            async move {
                let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                heard.lock().expect("no panic").push((request.method().to_string(), path));
                let token = request.headers().get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
                if accepted.lock().expect("no panic").as_deref().is_some_and(|accepted| token != Some(accepted)) {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401,
                        "message": "Unauthorized"});
                    let body = Body::from(status.to_string().into_bytes());
                    return Ok(Response::builder().status(401).body(body).expect("a response"));
                }
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                let answer = client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|error| {
                    Response::builder().status(502).body(Body::from(error.to_string().into_bytes())).expect("a response")
                }))
            }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn fixtures(install: Install) -> Vec<Value> {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "i"}]}});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kmods"}}),
        json!({
            "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent", "metadata": {"namespace": "kmods", "name": "gpu"},
            "spec": {
                "version": "2.0",
                "kernelModule": {
                    "daemonSets": {"loader": template("l"), "devicePlugin": template("p"), "unload": template("u")},
                    "devices": {"resourceNames": ["vendor.example/gpu"]},
                },
            },
        }),
    ];
    objects.retain(|object| install != Install::NoObjects || object["kind"] != "NodeComponent");
    objects.extend(["n1", "n2", "n3"].map(node));
    objects
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": format!("boot-{name}"), "kernelVersion": "6.1"},
        },
    })
}

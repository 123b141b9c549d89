//! The server's handle: clients, latency, faults, crashes, responses. Everything happens on the runtime it was made on.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, request::Parts};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::CustomResourceExt;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::body::SimBody;
use super::call::{self, Call, Identity, Query, Target, Verb};
use super::convert::Form;
use super::discovery;
use super::eviction::{self, Progress};
use super::faults::{Action, FaultPlan, Faults, Seen};
use super::handler::{self, Reply};
use super::log::EventLog;
use super::read::ReadFault;
use super::refusal::Refusal;
use super::seed;
use super::state::{Config, State};
use super::watch::{End, Lag};
use crate::sim::clock::{Dice, SimClock};

/// What one client name has done, and whether it lives.
#[derive(Debug)]
struct Link {
    identity: Identity,
    dead: AtomicBool,
    requests: AtomicU64,
    writes: AtomicU64,
    crashed: Arc<Notify>,
}

struct Shared {
    state: Mutex<State>,
    clock: SimClock,
    log: EventLog,
    plan: Mutex<Box<dyn FaultPlan>>,
    injected: Mutex<BTreeMap<&'static str, u64>>,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    latency: Mutex<Dice>,
    base: Duration,
    spread: Duration,
}

/// A simulated Kubernetes API server; clones are handles on the same one.
#[derive(Clone)]
pub struct ApiServer(Arc<Shared>);

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiServer(rv {})", self.state().rv)
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApiServer {
    /// A server with the namespaces and priority classes that every cluster has.
    ///
    /// # Panics
    /// Outside of a tokio runtime: requests are handled on the runtime that is current here.
    pub fn new(config: Config) -> Self {
        let clock = SimClock::new(config.start);
        let log = EventLog::new(config.log_records);
        let latency = Mutex::new(Dice::new(config.seed).fork("latency"));
        // With no latency at all, a watch that ends at once would be a loop without time.
        let base = config.latency.max(Duration::from_millis(1));
        let spread = config.latency_spread;
        let mut state = State::new(config, clock.clone(), log.clone());
        seed::fill(&mut state);
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            clock,
            log,
            plan: Mutex::new(Box::new(Faults::none())),
            injected: Mutex::default(),
            links: Mutex::default(),
            latency,
            base,
            spread,
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }

    /// The wall-clock time of the simulation.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub fn clock(&self) -> &SimClock {
        &self.0.clock
    }

    pub fn log(&self) -> EventLog {
        self.0.log.clone()
    }

    /// A client. Clients of one name share their fate: a crash or `kill` ends all of them, and the next `client` of that name is a new life.
    pub fn client(&self, identity: &Identity) -> kube::Client {
        let link = self.link(identity);
        let _inside = self.0.clock.runtime().enter();
        kube::Client::new(Service { server: self.clone(), link }, "default")
    }

    fn link(&self, identity: &Identity) -> Arc<Link> {
        let mut links = locked(&self.0.links);
        if let Some(link) = links.get(&identity.client)
            && !link.dead.load(Ordering::Relaxed)
            && link.identity == *identity
        {
            return link.clone();
        }
        let crashed = links.get(&identity.client).map_or_else(Arc::default, |l| l.crashed.clone());
        let link = Arc::new(Link {
            identity: identity.clone(),
            dead: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            crashed,
        });
        links.insert(identity.client.clone(), link.clone());
        link
    }

    /// Told when a fault crashes this client: its owner must then stop it. One permit per crash.
    pub fn crashed(&self, identity: &Identity) -> Arc<Notify> {
        self.link(identity).crashed.clone()
    }

    /// From now on no request of this client arrives; what is in flight still lands.
    pub fn kill(&self, client: &str) {
        if let Some(link) = locked(&self.0.links).get(client) {
            link.dead.store(true, Ordering::Relaxed);
        }
    }

    /// Replaces the fault plan.
    pub fn set_faults(&self, plan: Box<dyn FaultPlan>) {
        *locked(&self.0.plan) = plan;
    }

    /// Faults injected so far, by kind.
    pub fn injected(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.0.injected).clone()
    }

    /// Installs the CRD of a Rust type, at once.
    pub fn install_crd<K: CustomResourceExt>(&self) -> Result<(), Refusal> {
        let crd = serde_json::to_value(K::crd()).map_err(Refusal::internal)?;
        self.install(crd)
    }

    /// Creates an object without a request, as a fixture: no faults, no latency; it is in the log under the client `fixture`.
    pub fn install(&self, object: Value) -> Result<(), Refusal> {
        seed::install(&mut self.state(), "fixture", object)
    }

    /// A stored object, as it is now. The resource is `pods` or `daemonsets.apps`.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let state = self.state();
        let resource = state.registry.find_any(resource)?;
        state.get(resource, &(namespace.to_owned(), name.to_owned())).map(|s| s.value.clone())
    }

    /// All stored objects of a resource, by namespace and name.
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let state = self.state();
        let Some(resource) = state.registry.find_any(resource) else {
            return Vec::new();
        };
        state.table(resource).objects.values().map(|s| s.value.clone()).collect()
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.state().rv
    }

    /// Forgets history: later watches from before get 410, list continuations expire.
    pub fn compact(&self) {
        self.state().compact();
    }

    /// Turns enforcement of stored roles on or off.
    pub fn enforce_rbac(&self, on: bool) {
        let mut state = self.state();
        state.config.rbac = on;
        state.rbac.enforce(on);
    }

    /// Ends the open watches of a client (all clients if `None`) and of a resource (all if `None`); how many.
    pub fn end_watches(&self, client: Option<&str>, resource: Option<&str>, end: &End) -> usize {
        let state = self.state();
        let only = resource.and_then(|r| state.registry.find_any(r)).map(|r| r.table);
        let mut ended = 0;
        for (index, table) in state.tables.iter().enumerate() {
            if resource.is_some() && only != Some(index) {
                continue;
            }
            for watcher in table.watchers.all().filter(|w| client.is_none_or(|c| c == w.client)) {
                watcher.queue.end(end.clone());
                ended += 1;
            }
        }
        ended
    }

    /// Open watches.
    pub fn watches(&self) -> usize {
        self.state().tables.iter().map(|t| t.watchers.len()).sum()
    }

    fn half_latency(&self) -> Duration {
        if self.0.spread.is_zero() {
            return self.0.base / 2;
        }
        let micros = u64::try_from(self.0.spread.as_micros()).unwrap_or(u64::MAX);
        (self.0.base + Duration::from_micros(locked(&self.0.latency).below(micros))) / 2
    }

    fn date(&self) -> HeaderValue {
        let text = self.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    fn response(&self, code: u16, body: SimBody) -> Response<SimBody> {
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        response.headers_mut().insert("date", self.date());
        response
    }

    fn refuse(&self, refusal: &Refusal) -> Response<SimBody> {
        let text = if refusal.plain { refusal.message.clone() } else { refusal.to_status().to_string() };
        let mut response = self.response(refusal.code, SimBody::Full(Some(Bytes::from(text))));
        if refusal.plain {
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        warn(&mut response, &refusal.warnings);
        if let Some(seconds) = refusal.retry_after {
            response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
        }
        response
    }

    fn answer(&self, reply: Reply) -> Response<SimBody> {
        match reply {
            Reply::Json { code, body, warnings } => {
                let mut response = self.response(code, SimBody::Full(Some(body)));
                warn(&mut response, &warnings);
                response
            }
            Reply::Lines(lines) => self.response(200, SimBody::Full(Some(Bytes::from(lines.concat())))),
            Reply::Watch { first, mut stream, id, table } => {
                let (out, lines) = mpsc::channel(64);
                let server = self.clone();
                stream.revision = Box::new(move || server.state().rv);
                let server = self.clone();
                tokio::spawn(async move {
                    let mut open = true;
                    for line in first {
                        open = open && out.send(line).await.is_ok();
                    }
                    if open {
                        stream.run(out).await;
                    }
                    if let Some(table) = server.state().tables.get_mut(table) {
                        table.watchers.remove(id);
                    }
                });
                self.response(200, SimBody::Stream(lines))
            }
        }
    }

    fn parse(&self, identity: &Identity, parts: &Parts, body: Bytes) -> Result<Option<Call>, Refusal> {
        let state = self.state();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let (resource, namespace, name, sub) = match call::route(&state.registry, parts.uri.path())? {
            Target::Other => return Ok(None),
            Target::Resource { resource, namespace, name, sub } => (resource, namespace, name, sub),
        };
        let verb = call::verb(&parts.method, !name.is_empty(), &sub, &query)?;
        call::check_parameters(verb, &query)?;
        let patch = if verb == Verb::Patch { Some(call::patch_type(&parts.headers, &resource)?) } else { None };
        let (body, yaml) = if patch.is_none() { call::body(&parts.headers, &resource, body)? } else { (body, false) };
        let form = Form::of(&parts.headers, query.get("includeObject"), &resource, &self.0.clock);
        let manager = call::field_manager(&query, &parts.headers, identity);
        let (who, came) = (identity.clone(), self.now());
        Ok(Some(Call { verb, resource, namespace, name, sub, query, form, patch, who, manager, body, yaml, came }))
    }

    fn fault(&self, link: &Link, call: &Call, resource: &str) -> Option<Action> {
        let nth_request = link.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let nth_write = if call.verb.is_write() { link.writes.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let seen = Seen {
            client: &link.identity.client,
            user: &link.identity.user,
            verb: call.verb,
            resource,
            namespace: &call.namespace,
            name: &call.name,
            nth_request,
            nth_write,
            at: self.0.clock.elapsed(),
        };
        let action = locked(&self.0.plan).decide(&seen)?;
        // A fault that has no meaning for this verb is none.
        let fits = match &action {
            Action::CutWatch { .. } | Action::Gone410 { .. } | Action::LagWatch { .. } => {
                call.verb == Verb::Watch || (call.verb == Verb::List && matches!(action, Action::Gone410 { http: true }))
            }
            Action::StaleList { .. } => matches!(call.verb, Verb::List | Verb::Get),
            Action::Conflict409 | Action::AppliedButResponseLost | Action::Crash { .. } => call.verb.is_write(),
            _ => true,
        };
        if fits {
            *locked(&self.0.injected).entry(action.kind()).or_default() += 1;
        }
        fits.then_some(action)
    }

    async fn process(&self, call: &Call, fault: &ReadFault) -> Result<Reply, Refusal> {
        if call.sub == "eviction" && call.verb == Verb::Create {
            for attempt in 0.. {
                let progress = eviction::evict(&mut self.state(), call, attempt);
                match progress {
                    Progress::Done(Ok(Reply::Json { code, body, .. })) => {
                        let warnings = std::mem::take(&mut self.state().warnings);
                        return Ok(Reply::Json { code, body, warnings });
                    }
                    Progress::Done(result) => return result,
                    Progress::Again(wait) => tokio::time::sleep(wait).await,
                }
            }
        }
        let mut state = self.state();
        state.warnings.clear();
        let mut result = handler::process(&mut state, call, fault);
        match &mut result {
            Ok(Reply::Json { warnings, .. }) => warnings.append(&mut state.warnings),
            Ok(_) => {}
            Err(refusal) => refusal.warnings.append(&mut state.warnings),
        }
        result
    }

    /// One request from arrival to response. `Err` is a broken connection.
    async fn handle(self, link: Arc<Link>, parts: Parts, body: Bytes) -> io::Result<Response<SimBody>> {
        let call = match self.parse(&link.identity, &parts, body) {
            Ok(Some(call)) => call,
            Ok(None) => {
                tokio::time::sleep(self.half_latency() * 2).await;
                let answer = discovery::answer(&self.state().registry, parts.uri.path(), &parts.headers);
                let mut response = match answer {
                    Ok(reply) => self.answer(reply),
                    Err(refusal) => self.refuse(&refusal),
                };
                if let Some(kind) = discovery::content_type(&parts.headers, parts.uri.path()) {
                    response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
                }
                return Ok(response);
            }
            Err(refusal) => {
                tokio::time::sleep(self.half_latency() * 2).await;
                self.0.log.count(&link.identity.client, "unknown", parts.uri.path(), refusal.code);
                return Ok(self.refuse(&refusal));
            }
        };
        let resource = call.resource_name();
        let action = self.fault(&link, &call, &resource);
        let count = |code: u16| self.0.log.count(&link.identity.client, call.verb.as_str(), &resource, code);
        let mut read = ReadFault::default();
        let before = self.half_latency();
        let refused = match &action {
            None | Some(Action::AppliedButResponseLost | Action::Crash { .. }) => None,
            Some(Action::Delay(more)) => {
                tokio::time::sleep(*more).await;
                None
            }
            Some(Action::Hang) => {
                count(0);
                return std::future::pending().await;
            }
            Some(Action::Refused) => {
                tokio::time::sleep(before).await;
                count(0);
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused by the simulated server"));
            }
            Some(Action::CutWatch { after }) => {
                read.cut_after = Some(*after);
                None
            }
            Some(Action::Gone410 { http: false }) => {
                read.gone = true;
                None
            }
            Some(Action::StaleList { age }) => {
                read.stale = Some(*age);
                None
            }
            Some(Action::LagWatch { constant, spread }) => {
                let salt = locked(&self.0.latency).draw();
                read.lag = Lag { constant: *constant, spread: *spread, salt };
                None
            }
            Some(Action::Conflict409) => Some(Refusal::stale(&call.resource, &call.name)),
            Some(Action::TooMany429 { retry_after }) => {
                Some(Refusal::too_many("Too many requests, please try again later.", *retry_after))
            }
            Some(Action::Forbidden) => Some(Refusal::forbidden(&call.resource, &call.name, "refused by an injected fault")),
            Some(Action::Gone410 { http: true }) => {
                Some(Refusal::expired("The resourceVersion for the provided list is too old."))
            }
            Some(Action::Status(code)) => Some(match code {
                503 => Refusal::new(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
                504 => Refusal::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
                500 => Refusal::internal("injected"),
                other => Refusal::new(*other, "Unknown", "an injected fault"),
            }),
        };
        tokio::time::sleep(before).await;
        let result = match refused {
            Some(refusal) => Err(refusal),
            None => self.process(&call, &read).await,
        };
        count(result.as_ref().map_or_else(|r| r.code, Reply::code));
        if let Some(Action::Crash { before_response }) = action {
            link.dead.store(true, Ordering::Relaxed);
            if before_response {
                link.crashed.notify_one();
                return std::future::pending().await;
            }
            let crashed = link.crashed.clone();
            let late = before + Duration::from_millis(1);
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                crashed.notify_one();
            });
        }
        tokio::time::sleep(before).await;
        if action == Some(Action::AppliedButResponseLost) {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the simulated server"));
        }
        Ok(match result {
            Ok(reply) => self.answer(reply),
            Err(refusal) => self.refuse(&refusal),
        })
    }

    /// A request of an identity, handled on the server's runtime even if the caller goes away.
    pub(super) fn dispatch<B>(
        &self,
        identity: &Identity,
        request: Request<B>,
    ) -> impl Future<Output = io::Result<Response<SimBody>>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let link = self.link(identity);
        self.send(link, request)
    }

    fn send<B>(&self, link: Arc<Link>, request: Request<B>) -> impl Future<Output = io::Result<Response<SimBody>>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let server = self.clone();
        let dead = link.dead.load(Ordering::Relaxed);
        // Spawned, not awaited in place: a write in flight lands although its client is killed.
        let task = (!dead).then(|| {
            self.0.clock.runtime().spawn(async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|e| io::Error::other(e.to_string()))?.to_bytes();
                server.handle(link, parts, body).await
            })
        });
        async move {
            match task {
                // A dead client's requests never arrive.
                None => std::future::pending().await,
                Some(task) => task.await.unwrap_or_else(|e| Err(io::Error::other(format!("the simulated server failed: {e}")))),
            }
        }
    }
}

fn warn(response: &mut Response<SimBody>, warnings: &[String]) {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append("warning", value);
        }
    }
}

/// The tower service behind one client.
#[derive(Clone)]
struct Service {
    server: ApiServer,
    link: Arc<Link>,
}

impl tower::Service<Request<kube::client::Body>> for Service {
    type Response = Response<SimBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<SimBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.server.send(self.link.clone(), request))
    }
}

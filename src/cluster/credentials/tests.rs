//! A server that accepts one token, and a disk that somebody writes another one to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use kube::Client;
use serde_json::json;

use super::*;
use crate::cluster::{
    CallError, Cluster,
    call::Call,
    testing::{Answer, Asked, Heard, cluster, status},
    watch::{Pace, Signal, Watches},
};

const S: fn(u64) -> Duration = Duration::from_secs;

/// The token that the server accepts, and the one on disk.
#[derive(Clone)]
struct Lab {
    accepted: Arc<Mutex<&'static str>>,
    stored: Arc<Mutex<&'static str>>,
    /// UID of kube-system.
    uid: Arc<Mutex<&'static str>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    connects: Arc<AtomicUsize>,
    broken: Arc<Mutex<Option<&'static str>>>,
}

impl Lab {
    fn new() -> Self {
        Self {
            accepted: Arc::new(Mutex::new("old")),
            stored: Arc::new(Mutex::new("old")),
            uid: Arc::new(Mutex::new("u-1")),
            heard: Arc::default(),
            connects: Arc::default(),
            broken: Arc::default(),
        }
    }

    /// A client that sends this token for ever.
    fn with(&self, token: &'static str) -> Client {
        let (accepted, uid) = (self.accepted.clone(), self.uid.clone());
        let (cluster, heard) = cluster(false, move |asked: &Asked| {
            if *accepted.lock().unwrap() != token {
                return status(401, "Unauthorized");
            }
            match asked.uri.as_str() {
                "/api/v1/namespaces/kube-system" => Answer::Json(200, json!({"metadata": {"uid": *uid.lock().unwrap()}})),
                uri if uri.contains("watch=true") => Answer::Stream(Vec::new()),
                uri if uri.contains("limit=") => Answer::Json(200, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
                _ => Answer::Json(200, json!({"metadata": {"name": "x"}})),
            }
        });
        self.heard.lock().unwrap().push(heard);
        cluster.client().clone()
    }

    async fn cluster(&self, read_only: bool) -> Cluster {
        let cluster = Cluster::over(self.with("old"), read_only, "context lab", "http://lab");
        cluster.identified().await.unwrap().renewing(Arc::new(self.clone()))
    }

    fn accept(&self, token: &'static str) {
        *self.accepted.lock().unwrap() = token;
    }

    fn store(&self, token: &'static str) {
        *self.stored.lock().unwrap() = token;
    }

    /// Everything that reached the server.
    fn asked(&self) -> Vec<Asked> {
        self.heard.lock().unwrap().iter().flat_map(Heard::all).collect()
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::Relaxed)
    }
}

impl Source for Lab {
    fn fingerprint(&self) -> Vec<u8> {
        self.stored.lock().unwrap().as_bytes().to_vec()
    }

    fn connect(&self) -> BoxFuture<'static, Result<Client, String>> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let made = match *self.broken.lock().unwrap() {
            Some(why) => Err(why.to_owned()),
            None => Ok(self.with(*self.stored.lock().unwrap())),
        };
        Box::pin(std::future::ready(made))
    }

    fn name(&self) -> String {
        "the credentials of context lab".to_owned()
    }

    fn advice(&self) -> String {
        "log in again".to_owned()
    }
}

fn get() -> Call {
    Call::get("/api/v1/nodes/x")
}

#[tokio::test(start_paused = true)]
async fn a_new_token_on_disk_is_taken_and_the_request_is_sent_again_as_it_was() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    lab.store("new");
    lab.accept("new");
    let body = json!({"spec": {"unschedulable": true}});
    cluster.call(Call::merge_patch("/api/v1/nodes/x", &body).why("cordon")).await.unwrap();
    let patches: Vec<_> = lab.asked().into_iter().filter(|asked| asked.method == "PATCH").collect();
    assert_eq!(patches.len(), 2, "{patches:?}");
    assert_eq!((&patches[0], &patches[1].body), (&patches[1], &body));
    cluster.call(get()).await.unwrap();
    assert_eq!(lab.connects(), 1, "and kept");
    let (log, _) = cluster.log().since(0);
    assert_eq!(log.iter().map(|entry| entry.code).collect::<Vec<_>>(), [Some(200)], "a write is logged once");
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_at_the_same_time_read_the_disk_once() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    lab.store("new");
    lab.accept("new");
    let all = futures::future::join_all((0..20).map(|_| cluster.call(get()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(lab.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_they_are_refused_nothing_is_sent_with_them_but_a_try_now_and_then() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    lab.accept("new");
    let before = lab.asked().len();
    let mut texts = std::collections::BTreeSet::new();
    // Ten minutes of a caller that has no patience at all.
    for _ in 0..6000 {
        let error = cluster.call(get()).await.unwrap_err();
        assert_eq!((error.code(), error.kind()), (Some(401), "NotAccepted"));
        texts.insert(error.to_string());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // After 0, 1, 3, 7, 15, 31 and 63 seconds, and each minute from there.
    assert_eq!(lab.connects(), 15);
    assert_eq!(lab.asked().len() - before, 16, "one request was refused, the others were tries");
    assert_eq!(texts.len(), 1, "one wait has one text: {texts:?}");
    let text = texts.pop_first().unwrap();
    for wanted in ["get node x", "the credentials of context lab are not accepted since 1970-01-01", "401", "log in again"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(cluster.log().since(0).0.is_empty() && cluster.counters().writes() == 0);

    // Somebody logs in: it is seen within a second, whatever the pause.
    lab.store("new");
    tokio::time::sleep(S(1)).await;
    cluster.call(get()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_the_same_credentials_again_is_found_out() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    lab.accept("nobody's");
    assert!(cluster.call(get()).await.is_err());
    lab.accept("old");
    tokio::time::sleep(S(1)).await;
    cluster.call(get()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_holds_nothing_of_use_is_told_and_does_no_harm() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    *lab.broken.lock().unwrap() = Some("kubeconfig /k has no context \"lab\"");
    lab.store("half of a file");
    lab.accept("new");
    let error = cluster.call(get()).await.unwrap_err();
    assert!(error.to_string().contains("has no context \"lab\""), "{error}");
    // What there was is as good as before.
    lab.accept("old");
    tokio::time::sleep(S(1)).await;
    cluster.call(get()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_cluster_under_the_same_address_is_not_gone_to() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    *lab.uid.lock().unwrap() = "u-2";
    lab.store("new");
    lab.accept("new");
    let error = cluster.call(Call::delete("/api/v1/namespaces/a/pods/x", &json!({}))).await.unwrap_err();
    assert!(error.to_string().contains("another cluster answers there now"), "{error}");
    let reached = lab.asked().into_iter().filter(|asked| asked.method == "DELETE").count();
    assert_eq!(reached, 1, "only with the old token");
}

#[tokio::test(start_paused = true)]
async fn read_only_stays_read_only() {
    let lab = Lab::new();
    let cluster = lab.cluster(true).await;
    lab.store("new");
    lab.accept("new");
    cluster.call(get()).await.unwrap();
    let refused = cluster.call(Call::delete("/api/v1/nodes/x", &json!({}))).await;
    assert!(matches!(refused, Err(CallError::ReadOnly(_))), "{refused:?}");
    assert!(lab.asked().iter().all(|asked| asked.method != "DELETE"));
}

#[tokio::test(start_paused = true)]
async fn watches_name_the_wait_and_go_on_at_once() {
    let lab = Lab::new();
    let cluster = lab.cluster(false).await;
    let kinds = [crate::fleet::event::Kind::Node, crate::fleet::event::Kind::Pod];
    let (watches, mut signals) = Watches::start(&cluster, &kinds, Pace::default());
    let reader = tokio::spawn(async move {
        let mut seen = 0;
        while let Some(signal) = signals.recv().await {
            seen += usize::from(matches!(signal, Signal::Health(_)));
        }
        seen
    });
    let all =
        |wanted: fn(&crate::fleet::view::WatchState) -> bool| watches.board().health().iter().all(|health| wanted(&health.state));
    tokio::time::sleep(S(5)).await;
    assert!(all(|state| matches!(state, crate::fleet::view::WatchState::Live)));
    lab.accept("new");
    let before = lab.asked().len();
    tokio::time::sleep(S(600)).await;
    let named = |state: &crate::fleet::view::WatchState| matches!(state, crate::fleet::view::WatchState::Retrying { error, .. } if error.contains("the credentials of context lab are not accepted since"));
    assert!(all(named), "{:?}", watches.board().health());
    assert!(lab.asked().len() - before <= 20, "{}", lab.asked().len() - before);
    lab.store("new");
    tokio::time::sleep(S(6)).await;
    assert!(all(|state| matches!(state, crate::fleet::view::WatchState::Live)), "{:?}", watches.board().health());
    drop(watches);
    assert!(reader.await.unwrap() >= 6, "live, waiting, live");
}

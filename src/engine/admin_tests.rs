use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::engine::{
    heartbeat::TICK,
    metrics::tests::{picture, silent_cluster, sources},
    picture::{Mode, Picture},
};

const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 40000);
const ELSEWHERE: ([u8; 4], u16) = ([10, 1, 2, 3], 40000);

async fn ask(admin: &Admin, path: &str, peer: ([u8; 4], u16)) -> (u16, String) {
    let answer = admin.answer(&Method::GET, path, SocketAddr::from(peer));
    let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes());
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn alive_is_a_loop_that_goes_round_whatever_the_server_does() {
    let (_sender, sources) = sources(silent_cluster(), Picture::empty(Default::default(), Mode::Engine));
    let heartbeat = sources.probes.heartbeat.clone();
    let admin = Admin::new(sources, false);
    assert_eq!(ask(&admin, "/live", ELSEWHERE).await.0, 200);
    tokio::time::advance(LIMIT + TICK).await;
    assert_eq!(ask(&admin, "/live", ELSEWHERE).await, (503, "stuck: the loop went round 35 s ago, the limit is 30 s\n".into()));
    heartbeat.beat(Duration::ZERO);
    assert_eq!(ask(&admin, "/live", ELSEWHERE).await, (200, "ok: the loop went round 0 s ago\n".into()));
}

#[tokio::test(start_paused = true)]
async fn ready_is_everything_listed_once_and_a_standby_is_ready_too() {
    let (sender, sources) = sources(silent_cluster(), Picture::empty(Default::default(), Mode::Engine));
    let admin = Admin::new(sources, false);
    assert_eq!(ask(&admin, "/ready", ELSEWHERE).await.0, 503);
    let mut full = picture();
    sender.send_replace(full.clone());
    assert_eq!(
        ask(&admin, "/ready", ELSEWHERE).await,
        (200, "ok: everything needed has been listed; this process acts\n".into())
    );
    full.leadership.ours = false;
    sender.send_replace(full);
    let standby = "ok: everything needed has been listed; this process stands by\n";
    assert_eq!(ask(&admin, "/ready", ELSEWHERE).await, (200, standby.into()));
}

#[tokio::test(start_paused = true)]
async fn diagnostics_are_for_this_machine_unless_opened() {
    let (_sender, sources) = sources(silent_cluster(), picture());
    let closed = Admin::new(sources.clone(), false);
    assert_eq!(ask(&closed, "/diagnostics", ELSEWHERE).await.0, 403);
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), 1);
    assert_eq!(closed.answer(&Method::GET, "/diagnostics", mapped).status(), 200);
    assert_eq!(ask(&Admin::new(sources, true), "/diagnostics", ELSEWHERE).await.0, 200);
    let (_, body) = ask(&closed, "/diagnostics", HERE).await;
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["lease"]["slots"].as_array().unwrap().len(), 3);
    assert_eq!(told["watches"].as_array().unwrap().len(), 13);
    let blocked = told["verdicts"].as_array().unwrap().iter().find(|it| it["of"]["node"] == "n4").unwrap();
    assert_eq!(blocked["verdict"]["blockers"][0]["kind"], "UnloadFailed");
    assert_eq!(told["handoffs"].as_array().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn other_paths_and_methods_are_refused() {
    let (_sender, sources) = sources(silent_cluster(), picture());
    let admin = Admin::new(sources, false);
    assert_eq!(ask(&admin, "/", HERE).await.0, 404);
    assert_eq!(admin.answer(&Method::POST, "/metrics", SocketAddr::from(HERE)).status(), 405);
    let metrics = admin.answer(&Method::GET, "/metrics", SocketAddr::from(ELSEWHERE));
    assert_eq!(metrics.headers()["content-type"], Exposition::CONTENT_TYPE);
}

#[tokio::test]
async fn it_is_served_over_a_socket_and_garbage_harms_nobody() {
    let (_sender, sources) = sources(silent_cluster(), picture());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(Admin::new(sources, false).serve(listener));
    for (sent, wanted) in [
        (&b"\x16\x03\x01 this is no HTTP\r\n\r\n"[..], "HTTP/1.1 400"),
        (b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "HTTP/1.1 200"),
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "lockkeeper_leader 1"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(wanted), "{answer}");
    }
    server.abort();
}

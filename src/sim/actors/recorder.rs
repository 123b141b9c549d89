//! Warnings that actors leave as Events, for people who look at the simulated cluster. Names are made from what happened,
//! so that they are the same for the same seed; a failing write is no error.

use super::caches::Caches;
use super::informer::Kind;
use super::records::Meta;
use serde_json::json;

/// Records that something happened to an object.
pub(super) async fn warn(caches: &Caches, kind: Kind, meta: &Meta, component: &str, reason: &str, message: &str) {
    record(caches, kind, meta, component, ("Warning", reason, message)).await;
}

async fn record(caches: &Caches, kind: Kind, meta: &Meta, component: &str, (level, reason, message): (&str, &str, &str)) {
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    let time = caches.clock.time();
    let id = caches.dice.roll(&[&meta.uid, reason, message, &caches.clock.micro_time()]);
    let body = json!({
        "metadata": {"name": format!("{}.{id:016x}", meta.name), "namespace": namespace},
        "involvedObject": {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "type": level, "reason": reason, "message": message, "count": 1, "firstTimestamp": time, "lastTimestamp": time,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": component,
    });
    if let Err(error) = caches.events.create(Some(namespace), body).await {
        tracing::debug!(reason, %error, "event not recorded");
    }
}

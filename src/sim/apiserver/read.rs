//! GET, LIST and the start of a WATCH: revisions, pages, selectors, forms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;
use tokio::time::Instant;

use super::call::{Call, Verb};
use super::convert::Form;
use super::handler::Reply;
use super::refusal::{Cause, Refusal};
use super::select::Selectors;
use super::state::{Snapshot, State, continue_token, parse_continue};
use super::store::{EventKind, Key, Line, Stored};
use super::table;
use super::watch::{self, Lag, Queue, Stream, Watcher, error_line, line_for, scoped, too_old};
use crate::sim::clock::Dice;

/// Oddities that a fault asks of one read.
#[derive(Debug, Clone, Default)]
pub struct ReadFault {
    /// Answer reads at resourceVersion 0 from a view this old.
    pub stale: Option<Duration>,
    pub lag: Lag,
    /// Answer a watch with an in-stream 410 at once.
    pub gone: bool,
    /// End the watch this long after its start.
    pub cut_after: Option<Duration>,
}

enum AskedRevision {
    Newest,
    Any,
    AtLeast(u64),
    Exactly(u64),
}

fn asked_revision(state: &State, call: &Call) -> Result<AskedRevision, Refusal> {
    let text = call.query.get("resourceVersion");
    if text.is_empty() {
        return Ok(AskedRevision::Newest);
    }
    let rv: u64 = text.parse().map_err(|_| {
        let why = format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        match call.verb {
            Verb::List => Refusal::bad_request(format!("invalid resource version: {why}")),
            _ => Refusal::new(500, "", why),
        }
    })?;
    if rv == 0 {
        return Ok(AskedRevision::Any);
    }
    if rv > state.rv && call.verb != Verb::Watch {
        let mut refusal = Refusal::timeout(format!("Timeout: Too large resource version: {rv}, current: {}", state.rv), 1);
        refusal = refusal.with_cause("ResourceVersionTooLarge", "Too large resource version".into());
        return Err(refusal);
    }
    Ok(if call.query.get("resourceVersionMatch") == "Exact" { AskedRevision::Exactly(rv) } else { AskedRevision::AtLeast(rv) })
}

pub fn get(state: &State, call: &Call, fault: &ReadFault) -> Result<Reply, Refusal> {
    let table = state.table(&call.resource);
    let key = call.key();
    let found = match (asked_revision(state, call)?, fault.stale) {
        (AskedRevision::Any, Some(age)) => table.get_at(&key, stale_revision(state, call, age)),
        _ => table.objects.get(&key).cloned(),
    };
    let stored = found.ok_or_else(|| Refusal::not_found(&call.resource, &call.name))?;
    Ok(Reply::json(200, call.form.json(&stored)))
}

fn stale_revision(state: &State, call: &Call, age: Duration) -> u64 {
    let table = state.table(&call.resource);
    let then = state.clock.now().checked_sub(SignedDuration::try_from(age).unwrap_or_default());
    let rv = then.map_or(0, |t| table.revision_at(t));
    rv.max(table.floor)
}

struct Page {
    rv: u64,
    items: Vec<Arc<Stored>>,
    more: Option<(String, usize)>,
    /// The view that the next page is taken from.
    keep: Option<Snapshot>,
}

fn collect<'a>(
    objects: impl Iterator<Item = (&'a Key, &'a Arc<Stored>)>,
    selectors: &Selectors,
    limit: usize,
    token_rv: i64,
) -> (Vec<Arc<Stored>>, Option<(String, usize)>) {
    let mut out = Vec::new();
    let mut objects = objects;
    while let Some((key, stored)) = objects.next() {
        if !selectors.matches(&stored.value) {
            continue;
        }
        out.push(stored.clone());
        if out.len() == limit {
            // Nobody looks whether what is left is selected.
            let rest = objects.count();
            return (out, (rest > 0).then(|| (continue_token(token_rv, key), rest)));
        }
    }
    (out, None)
}

fn page(state: &State, call: &Call, selectors: &Selectors, fault: &ReadFault) -> Result<Page, Refusal> {
    let table = state.table(&call.resource);
    let limit = match call.query.number("limit") {
        None | Some(0) => usize::MAX,
        Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let namespace = call.namespace.as_str();
    let token = call.query.get("continue");
    if !token.is_empty() {
        if !matches!(call.query.get("resourceVersion"), "" | "0") {
            return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (rv, after) = parse_continue(token)
            .map_err(|why| Refusal::bad_request(format!("invalid continue token: continue key is not valid: {why}")))?;
        let view: &BTreeMap<Key, Arc<Stored>> = if rv < 0 {
            &table.objects
        } else {
            let rv = rv.unsigned_abs();
            let Some(view) = state.snapshots.iter().find(|s| s.table == call.resource.table && s.rv == rv) else {
                let mut refusal = Refusal::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                );
                refusal.continue_token = Some(continue_token(-1, &after));
                return Err(refusal);
            };
            &view.objects
        };
        let rv = if rv < 0 { i64::try_from(state.rv).unwrap_or(0) } else { rv };
        let (items, more) = collect(scoped(view, None, namespace, Some(&after)), selectors, limit, rv);
        return Ok(Page { rv: rv.unsigned_abs(), items, more, keep: None });
    }
    let old = |rv: u64| table.at(rv).ok_or_else(|| too_old(rv, table.floor));
    let past = match (asked_revision(state, call)?, fault.stale) {
        (AskedRevision::Exactly(rv), _) => Some((rv, old(rv)?)),
        (AskedRevision::Any, Some(age)) => {
            let rv = stale_revision(state, call, age);
            Some((rv, old(rv)?))
        }
        _ => None,
    };
    match past {
        Some((rv, view)) => {
            let (items, more) = collect(scoped(&view, None, namespace, None), selectors, limit, i64::try_from(rv).unwrap_or(0));
            let keep = more.is_some().then(|| Snapshot { table: call.resource.table, rv, at: state.clock.now(), objects: view });
            Ok(Page { rv, items, more, keep })
        }
        None => {
            let by_node = match selectors.demanded("spec.nodeName") {
                Some(node) if call.resource.is_pod() => Some(table.by_node.get(node)),
                _ => None,
            };
            let rv = state.rv;
            let token_rv = i64::try_from(rv).unwrap_or(0);
            let (items, more) = match by_node {
                Some(None) => (Vec::new(), None),
                Some(Some(keys)) => collect(scoped(&table.objects, Some(keys), namespace, None), selectors, limit, token_rv),
                None => collect(scoped(&table.objects, None, namespace, None), selectors, limit, token_rv),
            };
            let keep = more.is_some().then(|| Snapshot {
                table: call.resource.table,
                rv,
                at: state.clock.now(),
                objects: table.objects.clone(),
            });
            Ok(Page { rv, items, more, keep })
        }
    }
}

fn list_head(kind: &str, api_version: &str, page: &Page, count_rest: bool, custom: bool) -> String {
    let mut head =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{}\"", page.rv);
    if let Some((token, rest)) = &page.more {
        head.push_str(&format!(",\"continue\":\"{token}\""));
        if count_rest {
            head.push_str(&format!(",\"remainingItemCount\":{rest}"));
        }
    }
    if page.more.is_none() && custom {
        head.push_str(",\"continue\":\"\"");
    }
    head.push_str("},\"items\":[");
    head
}

/// A list leaves kind and version out of builtin items.
fn push_item(out: &mut Vec<u8>, form: &Form, stored: &Stored, skip: &[u8]) {
    let json = form.json(stored);
    match json.strip_prefix(skip) {
        Some(rest) if !skip.is_empty() => {
            out.push(b'{');
            out.extend_from_slice(rest);
        }
        None if !skip.is_empty() => {
            // Fields whose names sort before `kind` keep the two apart.
            let mut value = (*stored.value).clone();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            serde_json::to_writer(out, &value).unwrap_or_default();
        }
        _ => out.extend_from_slice(&json),
    }
}

/// What a list may ask for, and together with what (apimachinery, `ValidateListOptions`).
fn check_list_options(call: &Call) -> Result<(), Refusal> {
    let (rv, matching) = (call.query.get("resourceVersion"), call.query.get("resourceVersionMatch"));
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if rv.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
        if !call.query.get("continue").is_empty() {
            causes.push(Cause::forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""];
            causes.push(Cause::unsupported("resourceVersionMatch", &matching.into(), &known));
        }
        if matching == "Exact" && rv == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
    }
    if !call.query.get("sendInitialEvents").is_empty() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::bad_options("ListOptions", &causes)) }
}

pub fn selectors_of(call: &Call) -> Result<Selectors, Refusal> {
    Selectors::parse(&call.resource, call.query.get("labelSelector"), call.query.get("fieldSelector"))
}

/// One page, with its view kept if another follows.
fn selected(state: &mut State, call: &Call, selectors: &Selectors, fault: &ReadFault) -> Result<Page, Refusal> {
    let mut page = page(state, call, selectors, fault)?;
    if let Some(view) = page.keep.take() {
        state.keep_snapshot(view);
    }
    Ok(page)
}

/// What a deletion of a collection is about: the page that a list would have been.
pub fn to_delete(state: &mut State, call: &Call) -> Result<(Vec<Arc<Stored>>, Reply), Refusal> {
    let selectors = selectors_of(call)?;
    let page = selected(state, call, &selectors, &ReadFault::default())?;
    let items = page.items.clone();
    Ok((items, shown(call, &selectors, &page)))
}

pub fn list(state: &mut State, call: &Call, fault: &ReadFault) -> Result<Reply, Refusal> {
    check_list_options(call)?;
    let selectors = selectors_of(call)?;
    let page = selected(state, call, &selectors, fault)?;
    Ok(shown(call, &selectors, &page))
}

fn shown(call: &Call, selectors: &Selectors, page: &Page) -> Reply {
    if let Form::Table { resource, whole, clock } = &call.form {
        let values: Vec<_> = page.items.iter().map(|s| (*s.value).clone()).collect();
        let mut metadata = serde_json::json!({"resourceVersion": page.rv.to_string()});
        if let Some((token, remaining)) = &page.more {
            metadata["continue"] = token.as_str().into();
            if selectors.is_empty() {
                metadata["remainingItemCount"] = (*remaining).into();
            }
        }
        let table = table::of(resource, &values, *whole, metadata, clock.now());
        return Reply::json(200, Bytes::from(table.to_string()));
    }
    let (kind, api_version) = if call.form.is_metadata() {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", call.resource.kind), call.resource.api_version())
    };
    let skip = if call.resource.is_custom() || !call.form.is_plain() {
        String::new()
    } else {
        format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{}\",", call.resource.kind)
    };
    let head = list_head(&kind, &api_version, page, selectors.is_empty(), call.resource.is_custom());
    // Lists are the largest answers: one allocation each.
    let size: usize = page.items.iter().map(|stored| stored.json().len() + 1).sum();
    let mut out = Vec::with_capacity(head.len() + size + 2);
    out.extend_from_slice(head.as_bytes());
    for (at, stored) in page.items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_item(&mut out, &call.form, stored, skip.as_bytes());
    }
    out.extend_from_slice(b"]}");
    Reply::json(200, Bytes::from(out))
}

fn initial_events_check(call: &Call) -> Result<bool, Refusal> {
    let asked = call.query.get("sendInitialEvents");
    let matching = call.query.get("resourceVersionMatch");
    let mut causes = Vec::new();
    if asked.is_empty() && !matching.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        causes.push(Cause::forbidden("resourceVersionMatch", why));
    } else if !asked.is_empty() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden("resourceVersionMatch", why));
        if !matching.is_empty() {
            causes.push(Cause::unsupported("resourceVersionMatch", &matching.into(), &["NotOlderThan"]));
        }
    }
    if causes.is_empty() { Ok(asked == "true") } else { Err(Refusal::bad_options("ListOptions", &causes)) }
}

pub fn watch(state: &mut State, call: &Call, fault: &ReadFault) -> Result<Reply, Refusal> {
    let selectors = selectors_of(call)?;
    let initial = initial_events_check(call)?;
    let bookmarks = call.query.on("allowWatchBookmarks");
    let asked = asked_revision(state, call)?;
    let now = state.clock.instant();
    let queue = Arc::new(Queue::default());
    let limit = usize::MAX;
    let (api_version, kind) = (call.resource.api_version(), call.resource.kind.clone());
    let table = state.table(&call.resource);
    let mut first = Vec::new();
    let from = match asked {
        AskedRevision::AtLeast(rv) | AskedRevision::Exactly(rv) if !initial => Some(rv),
        _ if call.query.get("sendInitialEvents") == "false" => Some(state.rv),
        _ => None,
    };
    match from {
        Some(rv) if rv < table.floor || fault.gone => {
            return Ok(Reply::Lines(vec![error_line(&too_old(rv, table.floor.max(rv + 1)))]));
        }
        Some(rv) => {
            let start = table.history.partition_point(|e| e.rv <= rv);
            let by_namespace = |key: &Key| call.namespace.is_empty() || key.0 == call.namespace;
            for event in table.history.range(start..).filter(|e| by_namespace(&e.key)) {
                if let Some(line) = line_for(event, &selectors, &call.form) {
                    queue.push(now + fault.lag.of(event.rv), event.rv, line, limit);
                }
            }
        }
        None => {
            let keys = match selectors.required("spec.nodeName") {
                Some(node) if call.resource.is_pod() => table.by_node.get(node).cloned().or_else(|| Some(Default::default())),
                _ => None,
            };
            for (_, stored) in scoped(&table.objects, keys.as_ref(), &call.namespace, None) {
                if selectors.matches(&stored.value) {
                    match call.form.watch_line(EventKind::Added, stored) {
                        Line::One(line) => first.push(line),
                        Line::Two(head, tail) => first.extend([head, tail]),
                    }
                }
            }
            if initial && bookmarks {
                first.push(watch::bookmark(&call.form, &api_version, &kind, state.rv, true));
            }
        }
    }
    state.watches += 1;
    let id = state.watches;
    let longest = match call.query.number("timeoutSeconds") {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => {
            // Not from the server's own dice: a watch from outside must not shift what is drawn next.
            let drawn = Dice::new(state.config.seed ^ state.rv).fork(&call.who.client).below(1000);
            let base = state.config.watch_timeout;
            base + base * u32::try_from(drawn).unwrap_or(0) / 1000
        }
    };
    let longest = fault.cut_after.map_or(longest, |cut| longest.min(cut));
    let watcher = Watcher {
        selectors,
        namespace: call.namespace.clone(),
        lag: fault.lag,
        queue: queue.clone(),
        form: call.form.clone(),
        client: call.who.client.clone(),
    };
    let period = bookmarks.then_some(state.config.bookmark_period);
    let index = call.resource.table;
    if let Some(table) = state.tables.get_mut(index) {
        table.watchers.add(id, watcher);
    }
    let deadline: Instant = now + longest;
    let stream =
        Stream { queue, form: call.form.clone(), api_version, kind, bookmarks: period, deadline, revision: Box::new(|| 0) };
    Ok(Reply::Watch { first, stream: Box::new(stream), id, table: index })
}

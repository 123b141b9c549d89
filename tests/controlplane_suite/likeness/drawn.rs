//! Sequences that are drawn: verbs, objects, preconditions, patches, selectors, finalizers, evictions and watches, over a few names.
//! A reference state knows what probably exists, so that most requests meet something; it judges nothing, the real server does.
//! The form is proptest-state-machine's; its runner is not used, as that runs one case at a time and cannot wait for two servers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::ReferenceStateMachine;
use serde_json::{Map, Value, json};

/// (short name, names, whole object, fields)
type Kind = (&'static str, &'static [&'static str], &'static str, &'static [(&'static str, &'static [&'static str])]);

const LABELS: (&str, &[&str]) = ("metadata.labels.l", &[r#""1""#, r#""2""#, "null"]);
const MORE: (&str, &[&str]) = ("metadata.labels.m", &[r#""1""#, "null", r#""2""#]);
const NOTES: (&str, &[&str]) = ("metadata.annotations.n", &[r#""x""#, r#""y""#, "null"]);
const ENDS: (&str, &[&str]) =
    ("metadata.finalizers", &[r#"["x.example/a"]"#, "[]", r#"["x.example/a","x.example/b"]"#, r#"["x.example/b"]"#, "null"]);

/// What is drawn from. Values are JSON; `null` is left out where nothing can be removed.
const KINDS: &[Kind] = &[
    (
        "cm",
        &["a", "b"],
        "{}",
        &[
            LABELS,
            ("data.k", &[r#""1""#, r#""2""#, "null"]),
            ("data.l", &[r#""1""#, r#""2""#, "null"]),
            ENDS,
            NOTES,
            MORE,
            ("immutable", &["true", "false", "null"]),
            ("data", &["null", "{}"]),
        ],
    ),
    (
        "w",
        &["a", "b"],
        "{}",
        &[
            ("spec.size", &["1", "2", "11", "0", "null"]),
            LABELS,
            ("spec.color", &[r#""red""#, r#""blue""#, "null"]),
            ("spec.list", &[r#"[{"k":"a","v":"1"}]"#, r#"[{"k":"b"},{"k":"a","v":"2"}]"#, "[]", "null"]),
            ("spec.set", &[r#"["p"]"#, r#"["q","p"]"#, "[]", "null"]),
            ENDS,
            ("spec.m.x", &[r#""1""#, r#""2""#, "null"]),
            ("spec.atom.a", &[r#""1""#, "null"]),
            ("spec.atom.b", &[r#""1""#, "null"]),
            ("spec.plain", &[r#"["r"]"#, "null", "[]"]),
            ("status.phase", &[r#""up""#, r#""down""#, "null"]),
            ("spec.deep", &["{}", r#"{"flag":false}"#, "null"]),
            ("spec.max", &["20", "null"]),
            ("spec.unknown", &["1"]),
            NOTES,
        ],
    ),
    (
        "po",
        &["p", "q"],
        r#"{"spec":{"containers":[{"name":"c","image":"i:1"}]}}"#,
        &[
            LABELS,
            ENDS,
            ("spec.nodeName", &[r#""n1""#]),
            NOTES,
            MORE,
            ("spec.terminationGracePeriodSeconds", &["5", "0", "30"]),
            ("spec.activeDeadlineSeconds", &["50", "40"]),
            ("status.phase", &[r#""Running""#]),
        ],
    ),
    (
        "deploy",
        &["d"],
        r#"{"spec":{"selector":{"matchLabels":{"a":"x"}},"template":{"metadata":{"labels":{"a":"x"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}"#,
        &[
            ("spec.replicas", &["1", "2", "3"]),
            LABELS,
            ("spec.template.metadata.labels.t", &[r#""1""#, r#""2""#, "null"]),
            ("spec.template.spec.nodeSelector.s", &[r#""1""#, "null"]),
            ("spec.paused", &["true", "false", "null"]),
            ("spec.minReadySeconds", &["1", "2", "0"]),
            ENDS,
            ("spec.template.spec.tolerations", &[r#"[{"key":"k","operator":"Exists"}]"#, "[]", "null"]),
        ],
    ),
    (
        "pdb",
        &["b"],
        r#"{"spec":{"selector":{"matchLabels":{"l":"1"}}}}"#,
        &[
            ("spec.minAvailable", &["1", "2", r#""50%""#, "null"]),
            LABELS,
            ("spec.unhealthyPodEvictionPolicy", &[r#""AlwaysAllow""#, r#""IfHealthyBudget""#, "null"]),
            ENDS,
        ],
    ),
];

/// Strategic merge patches with directives, of a pod template or a list of finalizers.
const DIRECTIVES: &[&str] = &[
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i:2"}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"d:1"}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"d","$patch":"delete"}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","$patch":"delete"}]}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"$patch":"replace"},{"name":"C","value":"3"}]}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d","image":"d:2"},{"name":"c"}]}}}}"#,
    r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
    r#"{"spec":{"template":{"spec":{"nodeSelector":{"$patch":"replace","r":"1"}}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80}]}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"m"}}]}}}}"#,
];

const METADATA_DIRECTIVES: &[&str] = &[
    r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x.example/a"]}}"#,
    r#"{"metadata":{"finalizers":["x.example/c"]}}"#,
    r#"{"metadata":{"$setElementOrder/finalizers":["x.example/b","x.example/a"],"finalizers":["x.example/b"]}}"#,
    r#"{"metadata":{"labels":{"$patch":"replace","r":"1"}}}"#,
    r#"{"metadata":{"labels":{"$patch":"delete"}}}"#,
    r#"{"metadata":{"labels":null}}"#,
];

const SELECTORS: &[&str] = &["", "l=1", "l", "!l", "l!=1", "l in (1,2)", "m=1,l", "l notin (2)"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    New,
    Get,
    List,
    Merge,
    Put,
    Delete,
    Apply,
    Json,
    Strategic,
    DeleteAll,
    Watch,
    Evict,
    PodStatus,
    PdbStatus,
    Bind,
    Scale,
}

/// One request, and what it probably does to its object.
#[derive(Debug, Clone)]
pub struct Op {
    pub line: String,
    verb: Verb,
    target: (usize, usize),
}

/// Which objects probably exist.
#[derive(Debug, Clone, Default)]
pub struct State {
    there: Vec<(usize, usize)>,
    watches: usize,
}

fn put_at(object: &mut Value, path: &str, value: Value) {
    let mut slot = object;
    for step in path.split('.') {
        if !slot.is_object() {
            *slot = json!({});
        }
        slot = &mut slot[step];
    }
    *slot = value;
}

/// A part of an object of this kind.
fn some_fields(kind: usize, picks: &[(usize, usize)], nulls: bool, object: &mut Value) {
    let menu = KINDS[kind].3;
    for (field, value) in picks {
        let (path, values) = menu[field % menu.len()];
        let text = values[value % values.len()];
        if text != "null" || nulls {
            put_at(object, path, serde_json::from_str(text).expect("JSON in the menu"));
        }
    }
}

fn json_patch(kind: usize, picks: &[(usize, usize)], options: &[u8; 6]) -> Value {
    let menu = KINDS[kind].3;
    let operations = picks.iter().enumerate().map(|(n, (field, value))| {
        let (path, values) = menu[field % menu.len()];
        let path = format!("/{}", path.replace('.', "/"));
        let value: Value = serde_json::from_str(values[value % values.len()]).expect("JSON in the menu");
        match options[n % options.len()] % 6 {
            0 | 1 => json!({"op": "add", "path": path, "value": value}),
            2 => json!({"op": "remove", "path": path}),
            3 => json!({"op": "replace", "path": path, "value": value}),
            4 => json!({"op": "test", "path": path, "value": value}),
            _ => json!({"op": "copy", "from": path, "path": "/metadata/annotations"}),
        }
    });
    operations.collect()
}

fn conditions(ready: bool) -> Value {
    json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}])
}

fn with_query(path: String, query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = query.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!("{k}={v}")).collect();
    if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) }
}

fn precondition(text: u8, current: &str) -> Option<String> {
    match text {
        0..70 => None,
        70..90 => Some(format!("$({current})")),
        _ if current.ends_with(".uid") => Some("11111111-1111-1111-1111-111111111111".into()),
        _ => Some("1".into()),
    }
}

/// The line of a request. Each option is 0 to 99, and says nothing when it is small.
fn line(verb: Verb, (kind, name): (usize, usize), picks: &[(usize, usize)], options: &[u8; 6]) -> String {
    let (short, names, whole, _) = KINDS[kind];
    let object = format!("{short}/{}", names[name % names.len()]);
    let [o1, o2, o3, o4, o5, o6] = *options;
    let manager = ["x", "y", "z"][usize::from(o1) % 3];
    let dry = if o2 > 93 { "All" } else { "" };
    let status = if o3 > 80 && !matches!(short, "cm") { "/status" } else { "" };
    let selector = SELECTORS[usize::from(o1) % SELECTORS.len()];
    match verb {
        Verb::New => {
            let mut body: Value = serde_json::from_str(whole).expect("JSON");
            some_fields(kind, picks, false, &mut body);
            format!("{} {body}", with_query(format!("new {object}"), &[("dryRun", dry), ("fieldManager", manager)]))
        }
        Verb::Put => {
            let mut body: Value = serde_json::from_str(whole).expect("JSON");
            some_fields(kind, picks, false, &mut body);
            let revision = precondition(100 - o4, &format!("{object}.rv"));
            let uid = precondition(o5, &format!("{object}.uid"));
            for (field, value) in [("resourceVersion", revision), ("uid", uid)] {
                if let Some(value) = value {
                    put_at(&mut body, &format!("metadata.{field}"), value.into());
                }
            }
            let path = with_query(format!("put {object}{status}"), &[("dryRun", dry), ("fieldManager", manager)]);
            format!("{path} {body}")
        }
        Verb::Merge | Verb::Strategic => {
            let mut body = json!({});
            some_fields(kind, picks, true, &mut body);
            if let Some(revision) = precondition(o4, &format!("{object}.rv")) {
                put_at(&mut body, "metadata.resourceVersion", revision.into());
            }
            let plain = verb == Verb::Merge || short == "w";
            if !plain && o5 > 30 {
                let all = if short == "deploy" && o6 > 30 { DIRECTIVES } else { METADATA_DIRECTIVES };
                body = serde_json::from_str(all[usize::from(o6) % all.len()]).expect("JSON");
            }
            let verb = if plain { "merge" } else { "strategic" };
            let path = with_query(format!("{verb} {object}{status}"), &[("dryRun", dry), ("fieldManager", manager)]);
            format!("{path} {body}")
        }
        Verb::Json => {
            let path = with_query(format!("patch {object}{status}"), &[("dryRun", dry), ("fieldManager", manager)]);
            format!("{path} {}", json_patch(kind, picks, options))
        }
        Verb::Apply => {
            let mut body: Value = if o4 > 40 { serde_json::from_str(whole).expect("JSON") } else { json!({}) };
            some_fields(kind, picks, false, &mut body);
            if short == "w" && body.pointer("/metadata/finalizers") == Some(&json!([])) {
                // Whether a real server takes the second such apply for a change depends on what its cache has seen.
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("finalizers");
                }
            }
            let force = if o5 > 60 { "true" } else { "" };
            let query = [("fieldManager", manager), ("force", force), ("dryRun", dry)];
            format!("{} {body}", with_query(format!("apply {object}{status}"), &query))
        }
        Verb::Delete => {
            let mut body = Map::new();
            let mut pre = Map::new();
            for (field, value) in [
                ("uid", precondition(o1, &format!("{object}.uid"))),
                ("resourceVersion", precondition(o4, &format!("{object}.rv"))),
            ] {
                pre.extend(value.map(|v| (field.to_owned(), Value::from(v))));
            }
            if !pre.is_empty() {
                body.insert("preconditions".into(), pre.into());
            }
            if short == "po" && o5 > 40 {
                body.insert("gracePeriodSeconds".into(), [0, 3, 60][usize::from(o5) % 3].into());
            }
            if o6 > 60 {
                body.insert("propagationPolicy".into(), ["Background", "Foreground", "Orphan"][usize::from(o6) % 3].into());
            }
            // A server that gets a body does not look at the query.
            if !dry.is_empty() && o3 > 30 {
                body.insert("dryRun".into(), json!(["All"]));
            }
            let path = with_query(format!("delete {object}"), &[("dryRun", dry)]);
            if body.is_empty() && o3 > 60 { path } else { format!("{path} {}", Value::Object(body)) }
        }
        Verb::DeleteAll => with_query(format!("delete {short}"), &[("labelSelector", selector), ("dryRun", dry)]),
        Verb::Get => format!("get {object}"),
        Verb::List => {
            let limit = if o2 > 50 { "1" } else { "" };
            let next = if o2 > 75 { format!("$(l-{short}.continue)") } else { String::new() };
            let label = if o2 > 50 { format!("@l-{short} ") } else { String::new() };
            let query = [("labelSelector", selector), ("limit", limit), ("continue", &next)];
            format!("{label}{}", with_query(format!("list {short}"), &query))
        }
        Verb::Watch => {
            let field = match o2 {
                0..60 => String::new(),
                60..80 => format!("metadata.name={}", names[0]),
                _ if short == "po" => ["spec.nodeName=n1", "status.phase=Running", "spec.nodeName="][usize::from(o2) % 3].into(),
                _ if short == "w" => "spec.color=red".into(),
                _ => String::new(),
            };
            // From what was seen last of some object of this kind, or from now on.
            let query =
                [("labelSelector", selector), ("fieldSelector", &field), ("resourceVersion", &format!("$({object}.rv?)"))];
            with_query(format!("watch {short}"), &query)
        }
        Verb::Evict => {
            let name = ["p", "q"][name % 2];
            let mut options = Map::new();
            if o4 > 60 {
                options.insert("gracePeriodSeconds".into(), [0, 4][usize::from(o4) % 2].into());
            }
            let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            let uid = if o5 > 80 { Some(format!("$(po/{name}.uid)")) } else { None };
            if let Some(uid) = uid {
                options.insert("preconditions".into(), json!({"uid": uid}));
            }
            if !options.is_empty() {
                body["deleteOptions"] = options.into();
            }
            format!("{} {body}", with_query(format!("post po/{name}/eviction"), &[("dryRun", dry)]))
        }
        Verb::PodStatus => {
            let phase = ["Running", "Succeeded", "Failed", "Pending"][usize::from(o1) / 10 % 4];
            let phase = if o1 < 60 { "Running" } else { phase };
            let mut status = json!({"status": {"phase": phase}});
            if o3 > 20 {
                status["status"]["conditions"] = conditions(o3 > 50);
            }
            let verb = if o4 > 50 { "strategic" } else { "merge" };
            format!("{verb} po/{}/status?fieldManager=kubelet {status}", ["p", "q"][name % 2])
        }
        Verb::PdbStatus => {
            let (allowed, healthy, needed) = (i64::from(o1) % 3, i64::from(o2) % 3, i64::from(o3) % 3);
            let generation = if o4 > 70 { 2 } else { 1 };
            let status = json!({"status": {
                "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": needed, "expectedPods": 2,
            }});
            format!("merge pdb/b/status?fieldManager=pdb {status}")
        }
        Verb::Bind => {
            let name = ["p", "q"][name % 2];
            let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
            format!("post po/{name}/binding {body}")
        }
        Verb::Scale => match o1 {
            0..30 => "get deploy/d/scale".into(),
            _ => format!("merge deploy/d/scale?fieldManager=s {}", json!({"spec": {"replicas": o1 % 4}})),
        },
    }
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        5 => Just(Verb::New),
        2 => Just(Verb::Get),
        2 => Just(Verb::List),
        6 => Just(Verb::Merge),
        3 => Just(Verb::Put),
        4 => Just(Verb::Delete),
        7 => Just(Verb::Apply),
        4 => Just(Verb::Json),
        4 => Just(Verb::Strategic),
        1 => Just(Verb::DeleteAll),
        2 => Just(Verb::Watch),
        3 => Just(Verb::Evict),
        2 => Just(Verb::PodStatus),
        2 => Just(Verb::PdbStatus),
        1 => Just(Verb::Bind),
        1 => Just(Verb::Scale),
    ]
}

fn targets(state: &State) -> BoxedStrategy<(usize, usize)> {
    let any: Vec<(usize, usize)> =
        KINDS.iter().enumerate().flat_map(|(k, kind)| (0..kind.1.len()).map(move |n| (k, n))).collect();
    if state.there.is_empty() {
        return select(any).boxed();
    }
    prop_oneof![5 => select(state.there.clone()), 2 => select(any)].boxed()
}

impl ReferenceStateMachine for State {
    type State = State;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::default()).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Op> {
        let picks = prop::collection::vec((0..16usize, 0..6usize), 0..4);
        let options = prop::array::uniform6(0..100u8);
        let empty = state.there.is_empty();
        (verbs(), targets(state), picks, options)
            .prop_map(move |(verb, target, picks, options)| {
                // Something must be there first.
                let verb = if empty && verb != Verb::Apply { Verb::New } else { verb };
                Op { line: line(verb, target, &picks, &options), verb, target }
            })
            .boxed()
    }

    fn apply(mut state: State, op: &Op) -> State {
        match op.verb {
            Verb::New | Verb::Apply if !state.there.contains(&op.target) => state.there.push(op.target),
            // Nobody removes finalizers by itself: half of the deleted are still there.
            Verb::Delete if !op.line.contains("dryRun") && (op.line.ends_with("{}") || !op.line.contains('{')) => {
                state.there.retain(|t| *t != op.target)
            }
            Verb::Watch => state.watches += 1,
            _ => {}
        }
        state
    }

    fn preconditions(state: &State, op: &Op) -> bool {
        op.verb != Verb::Watch || state.watches < 2
    }
}

/// How many were drawn, and of each verb how many requests.
pub fn census<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for line in lines {
        let verb = line.split(' ').find(|w| !w.starts_with('@')).unwrap_or_default();
        let verb = if line.contains("/eviction") { "evict" } else { verb };
        *out.entry(verb.to_owned()).or_default() += 1;
    }
    out
}

//! `lockkeeper doctor`: asks the server what is there and what you may do, and says what is missing. It changes nothing.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Exit, Failure, Global, connect, out, text};
use crate::{
    api::access::Role,
    cluster::{Cluster, access, call::Call},
};

#[derive(Debug, Clone, Args)]
pub struct Doctor {
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// One question, its answer, and what to do if it is a bad one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: String,
    state: State,
    says: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    do_this: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// Some commands will not work, or something cannot be told.
    Note,
    /// Nothing works without it.
    Missing,
}

impl Finding {
    fn ok(check: &str, says: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: State::Ok, says: says.into(), do_this: String::new() }
    }
    fn note(check: &str, says: impl Into<String>, do_this: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: State::Note, says: says.into(), do_this: do_this.into() }
    }
    fn missing(check: &str, says: impl Into<String>, do_this: impl Into<String>) -> Self {
        Self { state: State::Missing, ..Self::note(check, says, do_this) }
    }
}

/// Exit code 2 when something is missing without which nothing works.
pub async fn run(doctor: Doctor, global: &Global) -> Result<Exit, Failure> {
    let connected = connect::connect(global, connect::Terminal::Ours).await?;
    let findings = examine(&connected.cluster).await;
    let worst = findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok);
    out::print(&match doctor.output {
        Format::Text => table(&findings),
        Format::Json => {
            let json = serde_json::to_string_pretty(&json!({"cluster": connected.cluster.info().context, "findings": findings}))
                .map_err(|error| Failure::environment(error.to_string()))?;
            format!("{}\n", text::plain_json(&json))
        }
    })?;
    Ok(if worst == State::Missing { Exit::Environment } else { Exit::Done })
}

async fn examine(cluster: &Cluster) -> Vec<Finding> {
    let info = cluster.info();
    let mut findings = vec![Finding::ok("server", format!("{}, {} at {}", info.version, info.context, info.server))];
    findings.push(match info.user.as_str() {
        "" => Finding::note("user", "the server does not say who you are", ""),
        user => Finding::ok("user", user),
    });
    findings.push(clock(cluster));
    findings.push(objects(cluster).await);
    findings.push(policies(cluster).await);
    findings.push(lease(cluster).await);
    for role in Role::ALL {
        findings.push(permissions(cluster, role).await);
    }
    findings
}

/// Ages and deadlines follow the server's clock; a person reads them by their own.
fn clock(cluster: &Cluster) -> Finding {
    if !cluster.clock().is_set() {
        return Finding::note(
            "clock",
            "the server's answers carry no Date",
            "deadlines and windows cannot be kept: look at the proxy before it",
        );
    }
    Finding::ok("clock", format!("the server says {}", cluster.clock().now().strftime("%F %T UTC")))
}

async fn objects(cluster: &Cluster) -> Finding {
    let want = ["nodecomponents", "nodehandoffs", "nodecomponents/status", "nodehandoffs/status"];
    let install = "lockkeeper manifests --crds | kubectl apply -f -";
    match cluster.json(Call::get("/apis/lockkeeper.dev/v1alpha1")).await {
        Ok(list) => {
            let served: Vec<&str> = names(&list, "/resources").collect();
            let absent: Vec<&str> = want.into_iter().filter(|name| !served.contains(name)).collect();
            match absent.len() {
                0 => Finding::ok("objects", "NodeComponent and NodeHandoff are served"),
                _ => Finding::missing("objects", format!("not served: {}", absent.join(", ")), install),
            }
        }
        Err(error) if error.is_not_found() => Finding::missing("objects", "lockkeeper.dev/v1alpha1 is not served", install),
        Err(error) => Finding::missing("objects", error.to_string(), ""),
    }
}

async fn policies(cluster: &Cluster) -> Finding {
    const ALL: [&str; 5] =
        ["lockkeeper-nodes", "lockkeeper-daemonsets", "lockkeeper-components", "lockkeeper-handoffs", "lockkeeper-namespaces"];
    let uri = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?labelSelector=app.kubernetes.io%2Fname%3Dlockkeeper";
    match cluster.json(Call::get(uri)).await {
        Ok(list) => {
            let bound: Vec<&str> = names(&list, "/items").collect();
            let absent: Vec<&str> = ALL.into_iter().filter(|name| !bound.contains(name)).collect();
            match absent.len() {
                0 => Finding::ok("admission", "the policies that guard labels and DaemonSets are bound"),
                _ => Finding::note(
                    "admission",
                    format!("not bound: {}: a slip of kubectl can edit what only the interlock may", absent.join(", ")),
                    "lockkeeper manifests --admission | kubectl apply -f -",
                ),
            }
        }
        Err(error) if error.is_forbidden() => {
            Finding::note("admission", "you may not look at admission policies", "ask somebody who may")
        }
        Err(error) => Finding::note("admission", error.to_string(), ""),
    }
}

async fn lease(cluster: &Cluster) -> Finding {
    let uri = "/apis/coordination.k8s.io/v1/namespaces/lockkeeper-system/leases/lockkeeper";
    let none = "nothing acts on handoffs until `lockkeeper reconcile` runs (lockkeeper manifests | kubectl apply -f -)";
    match cluster.json(Call::get(uri)).await {
        Ok(lease) => {
            let word = |path: &str| lease.pointer(path).and_then(Value::as_str).unwrap_or_default();
            match word("/spec/holderIdentity") {
                "" => Finding::note("engine", "the Lease lockkeeper-system/lockkeeper is held by nobody", none),
                holder => {
                    let renewed = word("/spec/renewTime").parse::<jiff::Timestamp>().ok();
                    let ago = renewed.map_or(i64::MAX, |at| cluster.clock().now().duration_since(at).as_secs());
                    if ago > 20 {
                        Finding::note(
                            "engine",
                            format!("{holder} holds the Lease, renewed {} ago: it is gone or cut off", text::age(ago)),
                            none,
                        )
                    } else {
                        Finding::ok("engine", format!("{holder} holds the Lease, renewed {} ago", text::age(ago)))
                    }
                }
            }
        }
        Err(error) if error.is_not_found() => Finding::note("engine", "there is no Lease lockkeeper-system/lockkeeper yet", none),
        Err(error) => Finding::note("engine", error.to_string(), ""),
    }
}

fn names<'a>(list: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    let items = list.pointer(path).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|item| item.get("name").or_else(|| item.pointer("/metadata/name"))?.as_str())
}

/// What of a role's table you may not do. Only what a viewer needs is necessary; the rest tells which commands will be refused.
async fn permissions(cluster: &Cluster, role: Role) -> Finding {
    let check = format!("may be {}", role.word());
    let denied = match access::missing(cluster, role).await {
        Ok(denied) => denied,
        Err(error) => return Finding::note(&check, error.to_string(), ""),
    };
    if denied.is_empty() {
        return Finding::ok(&check, "everything of it");
    }
    let (some, more) =
        (denied.iter().take(4).map(ToString::to_string).collect::<Vec<_>>().join(", "), denied.len().saturating_sub(4));
    let says = if more == 0 { format!("not {some}") } else { format!("not {some} and {more} more") };
    let grant = format!("lockkeeper manifests --role {} | kubectl apply -f -, and bind it", role.word());
    if role == Role::Viewer { Finding::missing(&check, says, grant) } else { Finding::note(&check, says, grant) }
}

fn table(findings: &[Finding]) -> String {
    let mut table = text::Table::new(&["CHECK", "STATE", "FOUND"]);
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "MISSING",
        };
        table.row([&*finding.check, state, &finding.says]);
    }
    let mut printed = table.to_string();
    let advice: Vec<_> = findings.iter().filter(|finding| !finding.do_this.is_empty()).collect();
    if !advice.is_empty() {
        printed.push('\n');
    }
    for finding in advice {
        printed.push_str(&format!("{}: {}\n", finding.check, text::plain(&finding.do_this)));
    }
    printed
}

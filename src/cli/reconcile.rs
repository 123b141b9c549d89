//! `lockkeeper reconcile`: the engine without a person at it. It connects, looks whether it may do all that the engine does, acts while
//! it holds the Lease, and ends in order when it is told to. What it does is the engine's.

use std::{env, fs, net::SocketAddr, process, time::Duration};

use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{Exit, Failure, Global, connect, logging};
use crate::{
    api::access::Role,
    cluster::{Cluster, access, call::Call},
    engine::{Engine, EngineOptions, admin::Admin, metrics::Sources, picture::Mode, probes::Probes},
};

#[derive(Debug, Clone, Args)]
pub struct Reconcile {
    /// How many nodes may be out of service at once, over all components
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub cluster_max_unavailable: u32,
    /// What this process is called in the Lease; its process id and start time are added [default: the pod's or the host's name]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub identity: Option<String>,
    /// Where /live, /ready, /metrics and /diagnostics are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Show /diagnostics to whoever reaches that address, and not only to this machine
    #[arg(long)]
    pub open_diagnostics: bool,
}

/// The longest that an orderly end may take: the write in flight, and the Lease's release.
const END: Duration = Duration::from_secs(10);

pub fn run(options: &Reconcile, global: &Global) -> Result<Exit, Failure> {
    if global.read_only {
        return Err(Failure::usage("--read-only and reconcile contradict one another; `lockkeeper status --watch` only looks"));
    }
    logging::to_stderr();
    // Two: a scrape must not delay the Lease's renewal.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::environment(format!("cannot start the asynchronous runtime: {error}")))?;
    let end = runtime.block_on(reconcile(options, global));
    runtime.shutdown_background();
    end
}

async fn reconcile(options: &Reconcile, global: &Global) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(options.admin_address)
        .await
        .map_err(|error| Failure::environment(format!("cannot listen on --admin-address {}: {error}", options.admin_address)))?;
    let admin_address = listener.local_addr().unwrap_or(options.admin_address);
    let cluster = tokio::select! {
        biased;
        () = signals.next() => return Ok(Exit::Done),
        cluster = prepare(global) => cluster?,
    };
    let identity = identity(options.identity.as_deref());
    let info = cluster.info();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), cluster = info.context, server = info.server, server_version = info.version,
        cluster_uid = info.uid, user = info.user, identity, cluster_max_unavailable = options.cluster_max_unavailable,
        %admin_address, "reconciling"
    );
    let probes = Probes::announcing();
    let engine = Engine::start(
        cluster.clone(),
        EngineOptions {
            mode: Mode::Engine,
            identity,
            cluster_max_unavailable: options.cluster_max_unavailable,
            probes: probes.clone(),
            ..EngineOptions::default()
        },
    );
    let sources = Sources {
        cluster,
        pictures: engine.pictures(),
        board: Some(engine.board()),
        probes,
        cluster_max_unavailable: options.cluster_max_unavailable,
    };
    let admin = tokio::spawn(Admin::new(sources, options.open_diagnostics).serve(listener));
    tokio::select! {
        biased;
        () = signals.next() => {}
        _ = engine.until(|_| false) => {
            return Err(Failure::NotAllDone("the engine ended by itself, which is a defect; the log says why".to_owned()));
        }
    }
    tracing::info!("told to end: no new step is taken, the write in flight is finished, the Lease is released");
    let end = tokio::select! {
        biased;
        () = signals.next() => {
            tracing::warn!("told to end again: ending at once; the Lease runs out by itself");
            Exit::NotAllDone
        }
        ended = tokio::time::timeout(END, engine.stop()) => match ended {
            Ok(()) => {
                tracing::info!("ended in order");
                Exit::Done
            }
            Err(_) => {
                tracing::warn!(seconds = END.as_secs(), "the end took too long: ending at once; the Lease runs out by itself");
                Exit::NotAllDone
            }
        },
    };
    admin.abort();
    Ok(end)
}

/// A cluster on which the engine can work: it answers, has the objects, and allows every verb.
async fn prepare(global: &Global) -> Result<Cluster, Failure> {
    let cluster = connect::connect(global, connect::Terminal::Taken).await?.cluster;
    allows(&cluster).await?;
    Ok(cluster)
}

/// The cluster has the objects and allows every verb of the engine; the text of a failure names each one that is missing.
pub async fn allows(cluster: &Cluster) -> Result<(), Failure> {
    let name = format!("the cluster of {} at {}", cluster.info().context, cluster.info().server);
    objects(cluster, &name).await?;
    let missing = access::missing(cluster, Role::Reconciler)
        .await
        .map_err(|error| Failure::environment(format!("{name} does not say what may be done there: {error}")))?;
    if missing.is_empty() {
        return Ok(());
    }
    let verbs: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let user = match cluster.info().user.as_str() {
        "" => "this process",
        user => user,
    };
    Err(Failure::environment(format!(
        "{user} may not do all that the engine does on {name}; missing: {}.\nGrant it: lockkeeper manifests --role reconciler \
         --to-user NAME | kubectl apply -f -",
        verbs.join(", ")
    )))
}

/// The custom resources are served.
async fn objects(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    const WANTED: [&str; 4] = ["nodecomponents", "nodecomponents/status", "nodehandoffs", "nodehandoffs/status"];
    const INSTALL: &str = "install them: lockkeeper manifests --crds | kubectl apply -f -";
    let list = match cluster.json(Call::get("/apis/lockkeeper.dev/v1alpha1")).await {
        Ok(list) => list,
        Err(error) if error.is_not_found() => {
            return Err(Failure::environment(format!(
                "{name} has no CustomResourceDefinitions of lockkeeper.dev/v1alpha1; {INSTALL}"
            )));
        }
        Err(error) => return Err(Failure::environment(format!("cannot see which objects {name} serves: {error}"))),
    };
    let served = list.get("resources").and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    let served: Vec<&str> = served.iter().filter_map(|it| it.get("name")?.as_str()).collect();
    let absent: Vec<&str> = WANTED.into_iter().filter(|name| !served.contains(name)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(Failure::environment(format!("{name} does not serve {} of lockkeeper.dev/v1alpha1; {INSTALL}", absent.join(", "))))
}

/// SIGTERM and SIGINT, heard from the first moment on.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::environment(format!("cannot listen for signals: {error}")));
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Unique to this process: a restarted container has the same name and often the same process id, and must not take itself for the
/// holder of a Lease whose writes may still be on their way.
pub fn identity(given: Option<&str>) -> String {
    let set = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
    let host = || fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|text| text.trim().to_owned());
    let name = given.map(str::to_owned).or_else(|| set("POD_NAME")).or_else(|| set("HOSTNAME")).or_else(host);
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "lockkeeper".to_owned());
    format!("{name}_{}_{}", process::id(), started())
}

/// Milliseconds since the epoch. Only told apart, never compared with another clock.
#[expect(clippy::disallowed_methods, reason = "the API server's time is not known yet, and only a difference is wanted")]
fn started() -> u128 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// A name for the Lease: shown to people, so nothing that a terminal would act on.
fn name(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '@' | '#' | ':');
    if text.is_empty() || text.len() > 128 || !text.chars().all(legal) {
        return Err("want 1 to 128 letters, digits or - . _ @ # :".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_begins_with_the_name_and_is_this_process_alone() {
        let identity = identity(Some("ann@laptop"));
        let [name, pid, started] = identity.split('_').collect::<Vec<_>>()[..] else { panic!("{identity}") };
        assert_eq!((name, pid), ("ann@laptop", &*process::id().to_string()));
        assert!(started.parse::<u128>().unwrap() > 1_700_000_000_000);
    }

    #[test]
    fn a_name_for_the_lease_is_plain() {
        assert_eq!(name("lockkeeper-7d9f-x2x").unwrap(), "lockkeeper-7d9f-x2x");
        for wrong in ["", "a b", "a\u{1b}[2J", &"n".repeat(129)] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
    }
}

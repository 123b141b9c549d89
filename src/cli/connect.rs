//! Which cluster: kubeconfig file and context, or the pod's own. Errors name the file and what it holds. What becomes of credentials while a
//! process runs is in `stored`.

mod stored;

use std::{env, fs, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderValue, header};
use kube::{
    Client, Config,
    config::{ExecInteractiveMode, KubeConfigOptions, Kubeconfig},
};

use self::stored::Stored;
use super::{Failure, Global};
use crate::cluster::Cluster;

/// How this process will use the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// A credential plugin may ask on it.
    Ours,
    /// The console's, or there is none: a plugin that asks would hang or tear the screen.
    Taken,
}

/// A cluster that answers, and the namespace of its context.
pub struct Connected {
    pub cluster: Cluster,
    pub namespace: String,
    /// Of the kubeconfig; empty for a pod's own service account.
    pub context: String,
}

/// Connect, and ask the server who it is.
pub async fn connect(global: &Global, terminal: Terminal) -> Result<Connected, Failure> {
    let Chosen { context, source, config, plugin } = config(global, terminal).await?;
    let server = shown(&config.cluster_url.to_string());
    let stored = Stored::new(global, &context, source, &config);
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| {
        let plugin = plugin.map(|command| format!(" (its credentials come from the command {command:?})")).unwrap_or_default();
        Failure::environment(format!("cannot make a client for {context} at {server}{plugin}: {}", chain(&error)))
    })?;
    let cluster = Cluster::over(client, global.read_only, &context, &server).identified().await.map_err(|error| {
        Failure::environment(match error.code() {
            Some(401) => format!(
                "the cluster of {context} at {server} answers, but the credentials are not accepted (401): {error}\nLog in again, or name another context (--context)"
            ),
            _ => format!(
                "cannot reach the cluster of {context} at {server}: {error}\nIs it the right context (--context), is the server up, are the credentials valid?"
            ),
        })
    })?;
    let context = context.strip_prefix("context ").unwrap_or_default().to_owned();
    Ok(Connected { cluster: cluster.renewing(Arc::new(stored)), namespace, context })
}

/// A context, and how to reach its cluster.
struct Chosen {
    /// `context lab`, for messages.
    context: String,
    /// What names it; None: the pod's own service account.
    source: Option<String>,
    config: Config,
    /// The command that gives credentials, if one does.
    plugin: Option<String>,
}

async fn config(global: &Global, terminal: Terminal) -> Result<Chosen, Failure> {
    let Some((source, mut kubeconfig)) = kubeconfig(global)? else {
        if let Some(context) = &global.context {
            return Err(Failure::environment(format!("there is no kubeconfig to find context {context:?} in; {NAME_ONE}")));
        }
        let config = Config::incluster()
            .map_err(|error| Failure::environment(format!("no kubeconfig, and not in a pod: {}; {NAME_ONE}", chain(&error))))?;
        let context = "the pod's own service account".to_owned();
        return Ok(Chosen { context, source: None, config: tuned(config), plugin: None });
    };
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let there_are = || match names.len() {
        0 => "it has no contexts at all (an empty file?)".to_owned(),
        _ => format!("it has {}", names.join(", ")),
    };
    let context = match (&global.context, &kubeconfig.current_context) {
        (Some(context), _) => context.clone(),
        (None, Some(context)) if !context.is_empty() => context.clone(),
        _ => {
            return Err(Failure::environment(format!(
                "{source} names no current context, and {}; name one with --context",
                there_are()
            )));
        }
    };
    if !names.contains(&context.as_str()) {
        return Err(Failure::environment(format!("{source} has no context {context:?}; {}", there_are())));
    }
    missing(&kubeconfig, &context).map_or(Ok(()), |what| {
        Err(Failure::environment(format!("context {context:?} of {source} names {what}, which is not there")))
    })?;
    let plugin = plugin(&kubeconfig, &context);
    if terminal == Terminal::Taken {
        for exec in kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()?.exec.as_mut()) {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
    }
    let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| Failure::environment(format!("context {context:?} of {source} cannot be used: {}", chain(&error))))?;
    if let Some(proxy) = config.proxy_url.as_ref().filter(|proxy| proxy.scheme_str().is_some_and(|it| it.starts_with("socks"))) {
        return Err(Failure::environment(format!(
            "context {context:?} of {source} goes through the SOCKS proxy on {}, which lockkeeper cannot use: \
             name an HTTP proxy in proxy-url, or a tunnel in server",
            proxy.host().unwrap_or_default()
        )));
    }
    Ok(Chosen { context: format!("context {context}"), source: Some(source), config: tuned(config), plugin })
}

/// What the context names and the file does not have. Without its user a request would be sent as nobody.
fn missing(kubeconfig: &Kubeconfig, context: &str) -> Option<String> {
    let context = kubeconfig.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
    if !kubeconfig.clusters.iter().any(|it| it.name == context.cluster) {
        return Some(format!("cluster {:?}", context.cluster));
    }
    let user = context.user.as_ref().filter(|user| !user.is_empty())?;
    (!kubeconfig.auth_infos.iter().any(|it| it.name == *user)).then(|| format!("user {user:?}"))
}

/// The command of the context's credential plugin.
fn plugin(kubeconfig: &Kubeconfig, context: &str) -> Option<String> {
    let context = kubeconfig.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
    let user = kubeconfig.auth_infos.iter().find(|it| Some(&it.name) == context.user.as_ref())?;
    user.auth_info.as_ref()?.exec.as_ref()?.command.clone()
}

const NAME_ONE: &str = "name one with --kubeconfig or KUBECONFIG";

/// The kubeconfig and what to call it; None when there is none anywhere.
fn kubeconfig(global: &Global) -> Result<Option<(String, Kubeconfig)>, Failure> {
    let read = |path: &PathBuf| {
        let unusable = |why: String| Failure::environment(format!("cannot use kubeconfig {}: {why}", path.display()));
        // Asked first: the client's text names the path once more, in two sorts of quotes.
        fs::read(path).map_err(|error| unusable(error.to_string()))?;
        Kubeconfig::read_from(path).map_err(|error| unusable(chain(&error)))
    };
    if let Some(path) = &global.kubeconfig {
        return Ok(Some((format!("kubeconfig {}", path.display()), read(path)?)));
    }
    if let Some(paths) = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        let source = format!("KUBECONFIG={}", paths.display());
        // As kubectl does: what is not there is left out.
        let files: Vec<PathBuf> = env::split_paths(&paths).filter(|path| path.exists()).collect();
        if files.is_empty() {
            return Err(Failure::environment(format!("{source} names no file that is there")));
        }
        let mut merged = Kubeconfig::default();
        for file in &files {
            merged = merged
                .merge(read(file)?)
                .map_err(|error| Failure::environment(format!("cannot use {source} together: {}", chain(&error))))?;
        }
        return Ok(Some((source, merged)));
    }
    let path = env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")).filter(|path| path.exists());
    path.map(|path| Ok((format!("kubeconfig {}", path.display()), read(&path)?))).transpose()
}

/// Our own time limits and retries, not the client's: it would hide a blocked eviction for minutes.
fn tuned(mut config: Config) -> Config {
    config.default_retry = false;
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    let agent = HeaderValue::from_static(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    config
}

/// A server's address as texts show it: the served demo's token, which is the head of its path, is nobody's to read.
fn shown(url: &str) -> String {
    url.split_once("/as/").map_or(url, |(address, _)| address).to_owned()
}

/// Every cause, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_an_address_is_not_shown() {
        assert_eq!(shown("http://127.0.0.1:4711/as/0123456789abcdef"), "http://127.0.0.1:4711");
        assert_eq!(shown("https://rancher.example/k8s/clusters/c-1"), "https://rancher.example/k8s/clusters/c-1");
    }
}
